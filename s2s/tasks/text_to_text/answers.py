"""Choice among a few answers by their log-probability, without search."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float

from s2s.data.batches import collate
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import UserError
from s2s.models.base import Seq2Seq
from s2s.tasks.seq2seq import check_fits


@torch.inference_mode()
def log_probabilities(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    answers: Sequence[str],
    batch: int,
    advance: Callable[[int], object] = lambda count: None,
    before_step: Callable[[], None] | None = None,
) -> Float[np.ndarray, "sources answers"]:
    """Compute the log-probability of each answer for each source.

    The log-probability includes `EOS`, and is not normalized over the answers. It is computed in fp32, without dropout,
    and the model stays in evaluation mode. Each source is encoded once.

    Args:
        tokenizer: Tokenizer of sources and answers.
        batch: Number of sources in a batch.
        advance: Called after each batch with its number of sources.
        before_step: Called before each answer of each batch; an exception ends the computation.

    Returns:
        Log-probabilities (sources, answers) in nats.

    Raises:
        UserError: A source has more tokens than the model has positions.
    """
    model.eval()
    device = next(model.parameters()).device
    tokens, wanted = tokenizer.encode_batch(sources), tokenizer.encode_batch(answers)
    for source in tokens:
        check_fits(model, source, ())
    found = np.zeros((len(sources), len(answers)))
    order = sorted(range(len(sources)), key=lambda row: len(tokens[row]))
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        memory = None
        for number, answer in enumerate(wanted):
            if before_step is not None:
                before_step()
            made = collate([tokens[row] for row in rows], [answer] * len(rows), rows).to(device)
            memory = model.encoder(made.source, made.source_valid) if memory is None else memory
            context, state = model.decoder.start(memory, made.target_in.shape[1])
            scores = model.projection(model.decoder(context, state, made.target_in)[0]).float()
            chosen = scores.gather(2, made.target_out.unsqueeze(2)).squeeze(2) - scores.logsumexp(dim=2)
            found[rows, number] = chosen.sum(dim=1).cpu().double().numpy()
        advance(len(rows))
    return found


def best_first(found: Iterable[float], answers: Sequence[str]) -> list[tuple[float, str]]:
    """Sort answers by log-probability, highest first.

    Args:
        answers: The answers; ties keep their order.

    Returns:
        Pairs of log-probability and answer.

    Example:
        >>> best_first([-2.0, -0.5], ["no", "yes"])
        [(-0.5, 'yes'), (-2.0, 'no')]
    """
    return sorted(zip(found, answers, strict=True), key=lambda pair: -pair[0])


def check_apart(answers: Sequence[str], tokenizer: Tokenizer, where: str) -> None:
    """Refuse answers that no model can tell apart.

    Args:
        where: Recipe key, for messages.

    Raises:
        UserError: Two answers have the same tokens, or an answer has an unknown token.
    """
    seen: dict[tuple[int, ...], str] = {}
    for answer, tokens in zip(answers, map(tuple, tokenizer.encode_batch(answers)), strict=True):
        if UNK in tokens:
            what, why = f"{answer!r:.60} has a piece that the tokenizer does not know", "another tokenizer.kind"
        elif tokens in seen:
            what, why = (
                f"{seen[tokens]!r:.60} and {answer!r:.60} are the same pieces",
                "tokenizer.lowercase: false",
            )
        else:
            seen[tokens] = answer
            continue
        raise UserError(what, where, f"write other answers, or try {why}: a model could not tell them apart")


def shares(found: Float[np.ndarray, "sources answers"]) -> Float[np.ndarray, "sources answers"]:
    """Normalize log-probabilities over the answers (softmax).

    Args:
        found: Log-probabilities (sources, answers).

    Returns:
        Probabilities (sources, answers), given that the output is one of the answers.

    Example:
        >>> import numpy as np
        >>> shares(np.log([[0.1, 0.3]])).round(2).tolist()
        [[0.25, 0.75]]
    """
    raised = np.exp(found - found.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)
