"""Several corpora learned from at once: how often each is drawn, and which examples an epoch has.

The examples of an epoch are a pure function of (sizes, rates, seed, epoch): each corpus is a stream of passes over all
of its examples, each pass in an order of its own, and an epoch takes the next ones of each stream. So no example comes
a second time before all others of its corpus have come, whatever the rates.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
from jaxtyping import Float, Int

from s2s.data.batches import ParallelBatch, collate, count_accumulation_steps, make_batches
from s2s.data.dataset import Examples, Plan
from s2s.data.tokenized import TokenizedDataset
from s2s.errors import UserError
from s2s.recipe.pairs import BatchSettings, Mixing

Written = list[np.ndarray]


class TokenizedPairSource(Protocol):
    """Examples of one corpus, in pieces.

    Attributes:
        source_lengths: pieces of each source, its `EOS` counted.
        target_lengths: pieces of each target, its `EOS` counted.
    """

    source_lengths: Int[np.ndarray, " examples"]
    target_lengths: Int[np.ndarray, " examples"]

    def draw(self, indices: Int[np.ndarray, " chosen"], seed: int, /) -> tuple[Written, Written]:
        """The sources and targets of the chosen examples; what is drawn at random for one depends on seed and row."""
        ...


class FixedPairs:
    """Pairs that are the same each time: some that follow each other, from the first to the last, not counted."""

    def __init__(self, data: TokenizedDataset, first: int = 0, last: int | None = None) -> None:
        self.data, self.first = data, first
        self.source_lengths, self.target_lengths = data.source_lengths[first:last], data.target_lengths[first:last]

    def draw(self, indices: Int[np.ndarray, " chosen"], seed: int) -> tuple[Written, Written]:
        """As they are."""
        return self.data.rows(indices + self.first)


def rates(
    sizes: Sequence[int], mixing: Mixing, weights: Sequence[float] | None = None
) -> Float[np.ndarray, " corpora"]:
    """Shares of corpora of these sizes among what is drawn: p ~ w · n^(1/T), T = 1 for `size`, and ∞ for `equal`.

    The weights w are 1 when None. Source: Raffel et al. 2020, section 3.5.2, without their limit on sizes.
    """
    exponent = {"size": 1.0, "equal": 0.0}[mixing] if isinstance(mixing, str) else 1 / mixing
    powers = np.where(np.array(sizes) > 0, np.array(sizes, dtype=np.float64) ** exponent, 0)
    powers = powers if weights is None else powers * np.array(weights)
    return powers / powers.sum()


def counts(sizes: Sequence[int], mixing: Mixing, weights: Sequence[float] | None = None) -> Int[np.ndarray, " corpora"]:
    """How many examples of each corpus an epoch has: together as many as there are, at `rates`, rounded.

    What rounding down leaves goes to the largest remainders. A corpus that would have none in an epoch is given one.
    """
    wanted = rates(sizes, mixing, weights) * sum(sizes)
    found = np.floor(wanted + 1e-9).astype(np.int64)
    left = sum(sizes) - int(found.sum())
    found[np.argsort(found - wanted, kind="stable")[:left]] += 1
    return np.maximum(found, np.array(sizes) > 0)


def describe_mixture(
    names: Iterable[str], sizes: Sequence[int], mixing: Mixing, weights: Sequence[float] | None
) -> list[str]:
    """How often each corpus is drawn, as lines."""
    rows = zip(names, sizes, rates(sizes, mixing, weights), counts(sizes, mixing, weights), strict=True)
    return [
        f"  {name}: {size:,} examples, drawn {share:.1%} of the time, {count / max(1, size):.2f} passes an epoch"
        for name, size, share, count in rows
    ]


def stream(size: int, first: int, last: int, seed: int, corpus: int) -> Int[np.ndarray, " drawn"]:
    """The places `first` to `last`, not counted, of the endless stream of a corpus, by its number: its rows."""
    passes = range(first // size, -(-last // size)) if last > first else range(0)
    orders = [np.random.default_rng([seed % 2**64, corpus, number]).permutation(size) for number in passes]
    start = first - size * (first // size)
    return np.concatenate([np.empty(0, np.int64), *orders])[start : start + last - first]


class MixedDataset(Examples[ParallelBatch]):
    """The examples of several corpora, drawn at rates.

    Rows count through all corpora, in their order. An update learns from `tokens_per_update` target tokens, or
    `batches.tokens` when None.

    Raises:
        UserError: all examples of a corpus are longer than `batches.max_length`.
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
                raise UserError(
                    f"all training examples of {name} are longer than {batches.max_length} pieces",
                    where="batches.max_length",
                    remedy="raise it",
                )
        self.sizes = [len(kept) for kept in self.kept]
        self.counts = counts(self.sizes, mixing, weights)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def rows_of(self, seed: int, epoch: int) -> Int[np.ndarray, " examples"]:
        """The rows that an epoch draws, corpus after corpus: `counts` of each, one row several times where it must."""
        found = []
        for number, (kept, count) in enumerate(zip(self.kept, self.counts.tolist(), strict=True)):
            found.append(kept[stream(len(kept), epoch * count, (epoch + 1) * count, seed, number)])
        return np.concatenate(found)

    def make_batches(self, seed: int, epoch: int) -> Plan:
        """What an epoch draws, in batches of similar length, whatever their corpora; see `batches.plan`."""
        rows = self.rows_of(seed, epoch)
        return [
            rows[some]
            for some in make_batches(self.source_lengths[rows], self.target_lengths[rows], self.tokens, seed, epoch)
        ]

    def accumulation_steps(self, batches: Plan) -> int:
        return count_accumulation_steps(batches, self.target_lengths, self.wanted)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> ParallelBatch:
        """The examples, padded; each by a chance of its own, whatever batch it is in."""
        of = np.searchsorted(self._starts, rows, side="right") - 1
        sources: Written = [np.empty(0, np.int32)] * len(rows)
        targets: Written = list(sources)
        for number in np.unique(of).tolist():
            places = np.flatnonzero(of == number)
            found = self.corpora[number].draw(rows[places] - self._starts[number], seed)
            for place, source, target in zip(places.tolist(), *found, strict=True):
                sources[place], targets[place] = source, target
        return collate(sources, targets, rows)


def all_pairs_by_corpus(corpora: Mapping[str, TokenizedPairSource], batches: BatchSettings) -> MixedDataset:
    """All examples once, however long, to measure a loss: a batch may then hold more tokens than the recipe says."""
    longest = max(int(max(each.source_lengths.max(), each.target_lengths.max())) for each in corpora.values())
    limits = {"tokens": max(batches.tokens, longest), "max_length": longest}
    return MixedDataset(corpora, batches.model_copy(update=limits), "size")
