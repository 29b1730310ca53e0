"""Which of a few answers a model finds most likely: the log probability of each is computed, nothing is searched."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float

from s2s.data.batches import collate
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import UserError
from s2s.inspection.seq2seq import check_fits
from s2s.models.base import Seq2Seq


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
    """The log probability, in nats, that a model writes each answer and then ends, whatever else it might write.

    Sources, prefix included, are read `batch` at a time, each once for all answers; in fp32, dropout off. `advance` is
    told how many were, batch by batch; `before_step` is called before each answer of each batch, and an exception that
    it raises ends the computation. The model stays in evaluation mode.

    Raises:
        UserError: a source is longer than the positions that the model has learned.
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
    """Log probabilities and their answers, the likeliest first; of equal ones that which is named first."""
    return sorted(zip(found, answers, strict=True), key=lambda pair: -pair[0])


def check_apart(answers: Sequence[str], tokenizer: Tokenizer, where: str) -> None:
    """Refuses answers between which no model can choose.

    Raises:
        UserError: two are cut into the same pieces, or one has a piece that the tokenizer does not know.
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
    """The probability of each answer, given that it is one of them."""
    raised = np.exp(found - found.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)
