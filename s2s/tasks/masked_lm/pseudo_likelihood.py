"""What a masked-language model thinks of pieces that are there: each is masked in turn and asked for.

The sum of these log probabilities over a sentence is its pseudo-log-likelihood (Salazar et al. 2020). It is no
probability of the sentence: over all sentences it does not sum to one.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from s2s.errors import UserError
from s2s.models.masked_lm import MaskedLM
from s2s.tasks.masked_lm.data import collate_masked

_BUDGET = 8192


def masked_log_probabilities(
    model: MaskedLM,
    texts: Sequence[Sequence[int]],
    places: Sequence[Sequence[int]],
    begin: bool,
    budget: int = _BUDGET,
) -> list[Float[np.ndarray, " places"]]:
    """Log probability of the piece at each place, in nats, when it alone is masked and all others are read.

    Args:
        model: in evaluation mode.
        texts: pieces of each text, without special ones.
        places: which pieces of each text are asked for.
        begin: whether each text begins with `BOS`, as it did in training.
        budget: most positions of a batch.

    Raises:
        UserError: a text is longer than the positions that the model has learned.
    """
    asked = [(number, place) for number, row in enumerate(places) for place in row]
    rows = [_masked(np.array(texts[number]), [place], model.size) for number, place in asked]
    found = np.empty(len(asked))
    for batch in _batches([len(row) for row in rows], budget):
        read = [rows[i] for i in batch]
        chosen = [np.array([asked[i][1]]) for i in batch]
        scores = log_probabilities(model, read, chosen, begin)
        targets = torch.tensor([texts[asked[i][0]][asked[i][1]] for i in batch], device=scores.device)
        found[batch] = scores.gather(1, targets[:, None])[:, 0].cpu().double().numpy()
    ends = np.cumsum([len(row) for row in places])
    return np.split(found, ends[:-1]) if len(places) else []


def log_probabilities(
    model: MaskedLM, read: Sequence[np.ndarray], chosen: Sequence[np.ndarray], begin: bool
) -> Float[Tensor, "chosen vocabulary"]:
    """Log probabilities of all pieces at the chosen places of the texts, text after text; one batch.

    Args:
        model: in evaluation mode.
        read: pieces of each text as the model shall read them, without special ones.
        chosen: places in each text.
        begin: whether each text begins with `BOS`.

    Raises:
        UserError: a text is longer than the positions that the model has learned.
    """
    longest = max(len(row) for row in read) + 1 + int(begin)
    if model.encoder.longest is not None and longest > model.encoder.longest:
        raise UserError(
            f"a text of {longest} pieces is longer than the {model.encoder.longest} positions that the model has "
            "learned",
            remedy="shorten it",
        )
    batch = collate_masked(read, read, chosen, range(len(read)), begin).to(next(model.parameters()).device)
    with torch.no_grad():
        return model.log_probabilities(batch.source, batch.source_valid, batch.chosen)


def _masked(pieces: np.ndarray, places: Sequence[int], mask: int) -> np.ndarray:
    pieces[list(places)] = mask
    return pieces


def _batches(lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Texts of similar length together, under a budget of positions."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        # two more than its pieces, for the special ones; lengths rise, so the newest row is the longest
        if batch and (len(batch) + 1) * (lengths[row] + 2) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
