"""Batches: pairs of similar length under a hard budget of tokens.

Which pairs make which batch is a pure function of (lengths, seed, epoch), so to resume in the middle of an epoch is to
look up where one was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from s2s.data.dataset import BaseBatch, Examples, Plan, batches_per_step
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.errors import UserError
from s2s.recipe.pairs import BatchSettings

Lengths = Int[np.ndarray, " pairs"]
Rows = Sequence[Sequence[int] | np.ndarray]

# Each epoch, pairs whose difference in length is this close may change places. On Multi30k (4,096 tokens, 8,000 pieces)
# it costs one per cent of real tokens, 96.6 to 95.5, and two pairs of a batch meet again in 39 % of cases, not in 63 %.
_JITTER = 2.0
# Widths of a batch from each power of two to the next. In bf16, oneDNN compiles a kernel for each new shape of a matrix
# product and keeps a thousand of them scattered over the heap. On IMDB (masked, 8,192 tokens, up to 256) 16 widths make
# 25 shapes instead of 132, in 90 per cent of the processor time and 58 per cent of the memory (docs/speed.md).
_WIDTHS = 16


@dataclass(frozen=True)
class ParallelBatch(BaseBatch):
    """Pairs of pieces, padded with `PAD` to the longest of each side; the loss is divided by the real target pieces.

    Attributes:
        source: pieces, each row ending with `EOS`; or what else an encoder reads, such as images.
        source_valid: True where a position of the source is real.
        target_in: `BOS`, then the target's pieces: what the decoder reads.
        target_out: the target's pieces, then `EOS`: what it should write.
        target_valid: True where a target piece is real, the same for both.
    """

    source: Shaped[Tensor, "batch ..."]
    source_valid: Bool[Tensor, "batch source"]
    target_in: Int[Tensor, "batch target"]
    target_out: Int[Tensor, "batch target"]
    target_valid: Bool[Tensor, "batch target"]


def make_batches(source_lengths: Lengths, target_lengths: Lengths, budget: int, seed: int, epoch: int) -> Plan:
    """Which pairs make which batch in an epoch: every pair once, and no batch over budget.

    Pairs are sorted by their longer side, which decides what a batch costs, and among equals by how much longer the
    target is than the source: so the longer sides of a batch stand together, and the shorter ones, too. That second
    order turns round from one length to the next, as a snake goes, so that neighbours stay alike. Then batches are cut
    off, each as large as the budget allows, and shuffled.

    Args:
        source_lengths: pieces of each source, `EOS` counted.
        target_lengths: pieces of each target, `EOS` counted.
        budget: largest number of rows × longest side in a batch.
        seed: of the order; any integer.
        epoch: from 0 on. In epoch 0 the batch with most positions comes first and the one with most pairs of positions
            (attention grows with these) second: memory runs out at once or not at all.

    Raises:
        UserError: one pair alone is over budget.
    """
    longest = np.maximum(source_lengths, target_lengths).astype(np.int64)
    if len(longest) == 0:
        return []
    if longest.max() > budget:
        raise UserError(
            f"a batch may have {budget} tokens, but one example alone (row {longest.argmax()}) has {longest.max()}",
            where="batches.tokens",
            remedy=f"set batches.tokens={longest.max()} or higher, or batches.max_length={budget} or lower",
        )
    generator = np.random.default_rng([seed % 2**64, epoch])
    difference = target_lengths.astype(np.int64) - source_lengths + _JITTER * generator.random(len(longest))
    turned = (longest + generator.integers(2)) % 2 == 1
    order = np.lexsort((np.where(turned, -difference, difference), longest))
    batches = split_by_budget(order, longest[order], budget)
    shuffled = [batches[i] for i in generator.permutation(len(batches))]
    return largest_first(shuffled, source_lengths, target_lengths) if epoch == 0 else shuffled


def split_by_budget(order: np.ndarray, widths: Lengths, budget: int, most: int | None = None) -> Plan:
    """Batches of successive examples, each as large as the limits allow, and of one example at least.

    Args:
        order: of the examples.
        widths: how wide a batch is that has one of them, in that order.
        budget: largest number of rows × width of a batch.
        most: rows of a batch; any number when None.
    """
    counts = np.arange(1, len(order) + 1)
    batches, first = [], 0
    while first < len(order):
        # the first one alone allows no more rows than this, and any longer one after it fewer
        several = max(1, min(most or len(order), budget // widths[first]))
        longest = np.maximum.accumulate(widths[first : first + several])
        rows = max(1, int(np.searchsorted(longest * counts[: len(longest)], budget, side="right")))
        batches.append(order[first : first + rows])
        first += rows
    return batches


def widths_for(lengths: Lengths, most: int) -> Lengths:
    """How wide batches are made for texts of these lengths: rounded up, so that few shapes come again and again.

    Lengths count special pieces; up to 32, each is its own width, and no width is above the most that a length can be.
    """
    _, exponents = np.frexp(lengths)
    steps = np.maximum(1, 2 ** exponents.astype(np.int64) // (2 * _WIDTHS))
    return np.minimum(-(-lengths // steps) * steps, most)


def largest_first(batches: Plan, source_lengths: Lengths, target_lengths: Lengths) -> Plan:
    """The batches, that with most positions first and that with most pairs of positions second."""
    widths = np.array([(source_lengths[rows].max(), target_lengths[rows].max()) for rows in batches], dtype=np.int64)
    sizes = np.array([len(rows) for rows in batches])
    most_positions = int((sizes * widths.sum(axis=1)).argmax())
    most_pairs = int((sizes * widths.max(axis=1) ** 2).argmax())
    worst = list(dict.fromkeys((most_positions, most_pairs)))
    return [batches[i] for i in worst] + [rows for i, rows in enumerate(batches) if i not in worst]


def count_accumulation_steps(batches: Plan, target_lengths: Lengths, tokens_per_update: int) -> int:
    """How many batches have about as many target tokens together, `EOS` counted; see `batches_for`.

    Raises:
        UserError: one batch is more than twice that.
    """
    usual = sum(int(target_lengths[rows].sum()) for rows in batches) / max(len(batches), 1)
    remedy = f"divide batches.tokens by {usual / tokens_per_update:.1f}"
    return batches_per_step(tokens_per_update, usual, "target tokens", "tokens_per_update", remedy)


def collate(sources: Rows, targets: Rows, indices: Sequence[int] | np.ndarray) -> ParallelBatch:
    """Makes a batch of pairs, of whose pieces none is a special one; the indices are their rows in the corpus."""
    source, source_valid = _padded(sources)
    target_out, target_valid = _padded(targets)
    target_in = np.full_like(target_out, BOS)
    target_in[:, 1:] = np.where(target_valid[:, 1:], target_out[:, :-1], PAD)
    tokens = int(target_valid.sum())
    return ParallelBatch(
        indices=torch.from_numpy(np.array(indices, dtype=np.int64)),
        count=tokens,
        tokens=tokens,
        real_share=(tokens + int(source_valid.sum())) / (target_valid.size + source_valid.size),
        source=torch.from_numpy(source),
        source_valid=torch.from_numpy(source_valid),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        target_valid=torch.from_numpy(target_valid),
    )


def collate_sources(
    sources: Rows, begin: bool = False, width: int | None = None
) -> tuple[Int[Tensor, "batch source"], Bool[Tensor, "batch source"]]:
    """Makes a batch of texts alone: their pieces, each row ending with `EOS`, and where they are real.

    Each row begins with `BOS` where asked for, and has so many positions, or those of the longest when None.
    """
    source, valid = _padded(sources, begin, width)
    return torch.from_numpy(source), torch.from_numpy(valid)


def _padded(rows: Rows, begin: bool = False, width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    first = int(begin)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)[:, None] + first
    places = np.arange(width or int(lengths.max(initial=0)) + 1)
    padded = np.where(places == lengths, EOS, PAD)
    padded[:, :first] = BOS
    if len(rows):
        padded[(places >= first) & (places < lengths)] = np.concatenate(rows)
    return padded, places <= lengths


def windows(
    lengths: Int[np.ndarray, " texts"], longest: int
) -> tuple[Int[np.ndarray, " windows"], Int[np.ndarray, " windows"], Int[np.ndarray, " windows"]]:
    """Cuts long texts into windows of nearly equal length, none with more pieces than `longest`; nothing is left out.

    Texts are counted in pieces without special ones; those without any give no window.

    Returns:
        Of each window, in order: the text's number, the place of its first piece there, and how many pieces it has.
    """
    lengths = lengths.astype(np.int64)
    counts = -(-lengths // longest)
    texts = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
    # window i of n begins at floor(i · length / n): lengths differ by one at most
    first = number * lengths[texts] // np.maximum(counts[texts], 1)
    last = (number + 1) * lengths[texts] // np.maximum(counts[texts], 1)
    return texts, first, last - first


class ParallelDataset(Examples[ParallelBatch]):
    """The pairs of a corpus under a recipe's limits.

    An update learns from `tokens_per_update` target tokens, or `batches.tokens` when None.

    Raises:
        UserError: all pairs are longer than `batches.max_length`.
    """

    item_name: ClassVar[str] = "training pairs"

    def __init__(self, data: TokenizedDataset, batches: BatchSettings, tokens_per_update: int | None = None) -> None:
        self.data = data
        self.tokens = batches.tokens
        self.wanted = tokens_per_update or batches.tokens
        self.kept, self.num_skipped = data.within(batches.max_length)
        if not len(self.kept):
            raise UserError(
                f"all {len(data):,} training pairs are longer than {batches.max_length} pieces",
                where="batches.max_length",
                remedy="raise it",
            )

    def __len__(self) -> int:
        return len(self.data)

    def make_batches(self, seed: int, epoch: int) -> Plan:
        sources, targets = self.data.source_lengths[self.kept], self.data.target_lengths[self.kept]
        return [self.kept[rows] for rows in make_batches(sources, targets, self.tokens, seed, epoch)]

    def accumulation_steps(self, batches: Plan) -> int:
        return count_accumulation_steps(batches, self.data.target_lengths, self.wanted)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> ParallelBatch:
        """The pairs, padded; nothing is drawn at random."""
        return collate(*self.data.rows(rows), rows)


def all_pairs_in_order(data: TokenizedDataset, batches: BatchSettings) -> ParallelDataset:
    """All pairs, however long, to measure a loss: a batch may then hold more tokens than the recipe says."""
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    limits = {"tokens": max(batches.tokens, longest), "max_length": longest}
    return ParallelDataset(data, batches.model_copy(update=limits))
