"""Does a translator read? Its loss with the right sources, and with those of other sentences of the same length."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from s2s.data.tokenized import TokenizedDataset
from s2s.models.base import Seq2Seq
from s2s.recipe.pairs import BatchSettings
from s2s.tasks.losses import pair_losses
from s2s.training.device import DeviceContext


@dataclass(frozen=True)
class SourceUse:
    """What the sources are worth to a translator, on the same targets.

    Attributes:
        right: its loss in nats per target token.
        exchanged: the same with exchanged sources.
        pairs: of how many.
    """

    right: float
    exchanged: float
    pairs: int


def exchanged_rows(lengths: Int[np.ndarray, " pairs"], seed: int = 1) -> Int[np.ndarray, " pairs"]:
    """For each row another one of about its length; every row is taken once, and none is its own (a derangement).

    Neighbours in the order of lengths change places two by two, three at the end where their number is odd: a source
    of another length would betray itself. Chance decides who are neighbours among equally long ones.

    Args:
        lengths: of at least two rows.
        seed: of that chance.
    """
    order = np.lexsort((np.random.default_rng(seed).permutation(len(lengths)), lengths))
    partner = np.arange(len(lengths)) ^ 1
    if len(lengths) % 2:
        partner[-3:] = [len(lengths) - 2, len(lengths) - 1, len(lengths) - 3]
    rows = np.empty_like(order)
    rows[order] = order[partner]
    return rows


def source_use(
    model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext
) -> SourceUse | None:
    """The losses of a translator with the sources of validation pairs and with exchanged ones.

    Pairs whose source was exchanged for the same text do not count; None where there are no others.
    """
    if len(data) < 2:
        return None
    everything = np.arange(len(data))
    sources, targets = data.rows(everything)
    others = exchanged_rows(data.source_lengths)
    kept = np.array([not np.array_equal(sources[i], sources[j]) for i, j in enumerate(others.tolist())])
    if not kept.any():
        return None
    exchanged = TokenizedDataset.from_rows([sources[j] for j in others.tolist()], targets)
    tokens = float(data.target_lengths[kept].sum())
    right, wrong = (
        float(pair_losses(model, pairs, batches, device_context)[kept].sum()) / tokens for pairs in (data, exchanged)
    )
    return SourceUse(right, wrong, int(kept.sum()))
