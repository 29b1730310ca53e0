"""Signs of problems in the predictions of a masked language model."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from s2s.data.dataset import iterate_batches
from s2s.data.tokenizers import UNK
from s2s.evaluation.signs import WORST, Diagnostics, Finding, WorstExample, entropy, share_sign, unknown
from s2s.models.masked_lm import MaskedLM
from s2s.tasks.base import LoadedModel
from s2s.tasks.masked_lm.data import MaskedText
from s2s.tasks.masked_lm.recipe import MaskedRecipe
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    import datasets

_SHOWN_PIECES = 8


def symptoms(
    run: LoadedModel[MaskedRecipe, MaskedLM], part: "datasets.Dataset", examples: MaskedText, progress_bar: ProgressBar
) -> Diagnostics:
    """Predict masked tokens, and return signs of problems.

    Args:
        run: Trained model.
        part: Texts.
        examples: Windows of the same texts.
        progress_bar: Makes a progress bar.

    Returns:
        Scores, signs and the windows with the highest loss.
    """
    wanted, said, losses, windows = [], [], [], []
    with progress_bar("measuring", len(examples)) as advance, torch.inference_mode():
        for rows, batch in iterate_batches(examples, run.device_context.device):
            found = run.model.log_probabilities(batch.source, batch.source_valid, batch.chosen)
            wanted.append(batch.targets.cpu().numpy())
            said.append(found.argmax(1).cpu().numpy())
            losses.append(-found.gather(1, batch.targets[:, None])[:, 0].cpu().double().numpy())
            windows.append(rows[(batch.chosen // batch.source.shape[1]).cpu().numpy()])
            advance(len(rows))
    targets, answers, loss, window = (np.concatenate(each) for each in (wanted, said, losses, windows))
    tokens = np.concatenate(examples.window(np.arange(len(examples))))
    return Diagnostics(
        summary=f"{len(part):,} texts, {len(targets):,} masked pieces: loss {loss.mean():.3f} nats, "
        f"{100 * (targets == answers).mean():.2f} % right",
        signs=[one_piece(targets, answers, run.tokenizers[0].tokens), unknown(tokens, UNK, None)],
        worst=_worst(run, examples, (targets, answers, loss, window)),
        chance_loss=entropy(targets),
    )


def one_piece(targets: np.ndarray, answers: np.ndarray, shown) -> Finding:
    """Return the sign for a model that predicts one token too often.

    Args:
        targets: Masked tokens.
        answers: Predicted tokens.
        shown: Returns the names of token ids.

    Returns:
        The finding, with the share of wrong predictions of the most frequent one.
    """
    kinds, counts = np.unique(answers, return_counts=True)
    usual = kinds[counts.argmax()]
    wrong = int(((answers == usual) & (targets != usual)).sum())
    return share_sign(
        "says always the same",
        wrong,
        len(answers),
        f"masked pieces are wrongly named {shown([int(usual)])[0]!r} ({len(kinds):,} different answers in all)",
        33,
        "a third of all answers being one wrong piece is what frequencies alone teach",
        "train for longer (training.updates); lower training.learning_rate and raise training.warmup",
    )


def _worst(run: LoadedModel, examples: MaskedText, found: tuple[np.ndarray, ...]) -> list[WorstExample]:
    targets, answers, loss, window = found
    kinds, which = np.unique(window, return_inverse=True)
    means = np.bincount(which, loss) / np.bincount(which)
    cutter, worst = run.tokenizers[0], []
    for place in np.argsort(-means, kind="stable")[:WORST]:
        mine = np.flatnonzero(which == place)[:_SHOWN_PIECES]
        text = cutter.decode(examples.window(kinds[place : place + 1])[0].tolist())
        said, right = (" ".join(cutter.tokens(each[mine].tolist())) for each in (answers, targets))
        worst.append(
            WorstExample(text, said, right, f"window {kinds[place] + 1}, {means[place]:.2f} nats per masked piece")
        )
    return worst
