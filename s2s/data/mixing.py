"""Mixtures of training corpora: sampling rates, and the examples of each epoch.

The examples of an epoch are a pure function of (sizes, rates, seed, epoch). Each corpus is a stream of passes over all
its examples, each pass in a new random order, and an epoch takes the next examples of each stream. So no example is
repeated before all others of its corpus were used, whatever the rates.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
from jaxtyping import Float, Int

from s2s.data.batches import ParallelBatch, collate, count_accumulation_steps, make_batches
from s2s.data.dataset import Examples, Plan, number_repeats
from s2s.data.tokenized import TokenizedDataset
from s2s.errors import UserError
from s2s.recipe.pairs import BatchSettings, Mixing

Written = list[np.ndarray]


class TokenizedPairSource(Protocol):
    """Protocol of the tokenized examples of one corpus."""

    source_lengths: Int[np.ndarray, " examples"]  # tokens of each source including `EOS`, shape `(examples,)`
    target_lengths: Int[np.ndarray, " examples"]  # tokens of each target including `EOS`, shape `(examples,)`

    def draw(self, indices: Int[np.ndarray, " chosen"], seed: int, /) -> tuple[Written, Written]:
        """Return sources and targets without `EOS`; random choices depend on seed and row only."""
        ...


class FixedPairs:
    """Tokenized pairs of one dataset, from row `first` up to `last` (exclusive)."""

    def __init__(self, data: TokenizedDataset, first: int = 0, last: int | None = None) -> None:
        self.data, self.first = data, first
        self.source_lengths, self.target_lengths = data.source_lengths[first:last], data.target_lengths[first:last]

    def draw(self, indices: Int[np.ndarray, " chosen"], seed: int) -> tuple[Written, Written]:
        """Return the token ids of the chosen sources and targets; see `TokenizedDataset.draw`."""
        return self.data.draw(indices + self.first, seed)


def rates(
    sizes: Sequence[int], mixing: Mixing, weights: Sequence[float] | None = None
) -> Float[np.ndarray, " corpora"]:
    """Compute the sampling rates of corpora with a temperature: p ~ w · n^(1/T).

    Source: Raffel et al. 2020, section 3.5.2, without their limit on sizes.

    Returns:
        Sampling rates that sum to 1, shape `(corpora,)`.

    Example:
        >>> rates([900, 100], "size").tolist(), rates([900, 100], 2.0).tolist()
        ([0.9, 0.1], [0.75, 0.25])
    """
    exponent = {"size": 1.0, "equal": 0.0}[mixing] if isinstance(mixing, str) else 1 / mixing
    powers = np.where(np.array(sizes) > 0, np.array(sizes, dtype=np.float64) ** exponent, 0)
    powers = powers if weights is None else powers * np.array(weights)
    return powers / powers.sum()


def counts(sizes: Sequence[int], mixing: Mixing, weights: Sequence[float] | None = None) -> Int[np.ndarray, " corpora"]:
    """Compute the number of examples that each corpus contributes to an epoch.

    An epoch has as many examples as all corpora together, divided at `rates` (largest remainder method). A corpus that
    would contribute none contributes one.

    Returns:
        Number of examples per epoch, shape `(corpora,)`.

    Example:
        >>> counts([900, 100], 2.0).tolist()
        [750, 250]
    """
    wanted = rates(sizes, mixing, weights) * sum(sizes)
    found = np.floor(wanted + 1e-9).astype(np.int64)
    left = sum(sizes) - int(found.sum())
    found[np.argsort(found - wanted, kind="stable")[:left]] += 1
    return np.maximum(found, np.array(sizes) > 0)


def describe_mixture(
    names: Iterable[str], sizes: Sequence[int], mixing: Mixing, weights: Sequence[float] | None
) -> list[str]:
    """Describe the sampling rate and the passes per epoch of each corpus, a line each."""
    rows = zip(names, sizes, rates(sizes, mixing, weights), counts(sizes, mixing, weights), strict=True)
    return [
        f"  {name}: {size:,} examples, drawn {share:.1%} of the time, {count / max(1, size):.2f} passes per epoch"
        for name, size, share, count in rows
    ]


def stream(size: int, first: int, last: int, seed: int, corpus: int) -> Int[np.ndarray, " drawn"]:
    """Return positions `first` to `last` of the endless stream of rows of a corpus.

    The stream consists of passes over all rows, each in a new random order.

    Returns:
        The rows at these positions.

    Example:
        >>> sorted(stream(3, 0, 3, seed=1, corpus=0).tolist())
        [0, 1, 2]
    """
    passes = range(first // size, -(-last // size)) if last > first else range(0)
    orders = [np.random.default_rng([seed % 2**64, corpus, number]).permutation(size) for number in passes]
    start = first - size * (first // size)
    return np.concatenate([np.empty(0, np.int64), *orders])[start : start + last - first]


class MixedDataset(Examples[ParallelBatch]):
    """A dataset that samples from several corpora at given rates.

    Rows are numbered through all corpora, in their order.

    Args:
        corpora: Tokenized examples by name of the corpus.
        batches: Batch settings: `tokens` per batch, and `max_length`, above which an example is skipped.
        mixing: Temperature, `size` or `equal`, see `rates`.
        tokens_per_update: Target tokens per optimizer step (gradient accumulation); None for `batches.tokens`.
        weights: Weight of each corpus; None for 1.

    Raises:
        UserError: All examples of a corpus are longer than `batches.max_length`.
    """

    item_name: ClassVar[str] = "training examples"

    def __init__(
        self,
        corpora: Mapping[str, TokenizedPairSource],
        batches: BatchSettings,
        mixing: Mixing,
        tokens_per_update: int | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.corpora = list(corpora.values())
        self.tokens = batches.tokens
        self.wanted = tokens_per_update or batches.tokens
        self.source_lengths = np.concatenate([each.source_lengths for each in self.corpora])
        self.target_lengths = np.concatenate([each.target_lengths for each in self.corpora])
        self._starts = np.cumsum([0, *(len(each.source_lengths) for each in self.corpora)])
        fits = np.maximum(self.source_lengths, self.target_lengths) <= batches.max_length
        ends = zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True)
        self.kept = [first + np.flatnonzero(fits[first:last]) for first, last in ends]
        self.num_skipped = int((~fits).sum())
        for name, kept in zip(corpora, self.kept, strict=True):
            if not len(kept):
                what = f"all training examples of {name} are longer than {batches.max_length} tokens"
                raise UserError(what, where="batches.max_length", remedy="raise it")
        self.sizes = [len(kept) for kept in self.kept]
        self.counts = counts(self.sizes, mixing, weights)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def rows_of(self, seed: int, epoch: int) -> Int[np.ndarray, " examples"]:
        """Return the rows of an epoch, corpus by corpus; a row may occur several times."""
        found = []
        for number, (kept, count) in enumerate(zip(self.kept, self.counts.tolist(), strict=True)):
            found.append(kept[stream(len(kept), epoch * count, (epoch + 1) * count, seed, number)])
        return np.concatenate(found)

    def make_batches(self, seed: int, epoch: int) -> Plan:
        """Group the examples of an epoch into batches of similar length across corpora; repeats are numbered."""
        rows = self.rows_of(seed, epoch)
        numbered = number_repeats(rows, len(self))
        return [
            numbered[some]
            for some in make_batches(self.source_lengths[rows], self.target_lengths[rows], self.tokens, seed, epoch)
        ]

    def manifest_counts(self) -> dict[str, int]:
        return {"too_long": self.num_skipped}

    def accumulation_steps(self, batches: Plan) -> int:
        return count_accumulation_steps([rows % len(self) for rows in batches], self.target_lengths, self.wanted)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> ParallelBatch:
        """Pad the examples; random choices depend on seed, row and repeat, not on the batch."""
        repeats, rows = np.divmod(rows, len(self))
        of = np.searchsorted(self._starts, rows, side="right") - 1
        sources: Written = [np.empty(0, np.int32)] * len(rows)
        targets: Written = list(sources)
        for number, repeat in sorted(set(zip(of.tolist(), repeats.tolist(), strict=True))):
            places = np.flatnonzero((of == number) & (repeats == repeat))
            found = self.corpora[number].draw(rows[places] - self._starts[number], _seed_of(seed, repeat))
            for place, source, target in zip(places.tolist(), *found, strict=True):
                sources[place], targets[place] = source, target
        return collate(sources, targets, rows)


def _seed_of(seed: int, repeat: int) -> int:
    """Return the seed of the random choices of a repeat; the first occurrence has that of the epoch."""
    return int(np.random.SeedSequence([seed % 2**64, repeat]).generate_state(1, np.uint64)[0]) if repeat else seed


def all_pairs_by_corpus(corpora: Mapping[str, TokenizedPairSource], batches: BatchSettings) -> MixedDataset:
    """Build a dataset with each example once, whatever its length, to compute a loss."""
    longest = max(int(max(each.source_lengths.max(), each.target_lengths.max())) for each in corpora.values())
    limits = {"tokens": max(batches.tokens, longest), "max_length": longest}
    return MixedDataset(corpora, batches.model_copy(update=limits), "size")
