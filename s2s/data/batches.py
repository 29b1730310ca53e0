"""Batch sampler and collation of sentence pairs: length bucketing, token limit.

`ParallelDataset` serves a tokenized corpus to the trainer. `make_batches` groups pairs of similar length; the result is
a pure function of (lengths, seed, epoch), so a run resumes in the middle of an epoch without saved sampler state.
`collate` pads a batch and shifts its targets for teacher forcing.
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

# Random noise added to the sort key, so that each epoch has other batches: pairs whose length differences are closer
# than this may change places. Cost on Multi30k (4,096 tokens, vocabulary of 8,000): 95.5 % instead of 96.6 % real
# tokens. In return, two pairs of a batch meet again in 39 % of cases instead of 63 %.
_JITTER = 2.0
# Number of batch widths from each power of two to the next. In bf16, oneDNN compiles a kernel for each new shape of a
# matrix product and keeps a thousand of them, scattered over the heap. On IMDB (masked, 8,192 tokens, up to 256) 16
# widths give 25 shapes instead of 132, with 90 % of the CPU time and 58 % of the memory (docs/speed.md).
_WIDTHS = 16


@dataclass(frozen=True)
class ParallelBatch(BaseBatch):
    """A padded batch of sentence pairs; the loss is divided by the target tokens."""

    # token ids, each row ending with `EOS`, shape `(batch, source)`; or another encoder input, such as images
    source: Shaped[Tensor, "batch ..."]
    # padding mask of the source, True at real positions, shape `(batch, source)`
    source_valid: Bool[Tensor, "batch source"]
    target_in: Int[Tensor, "batch target"]  # decoder input: `BOS`, then the target tokens, shape `(batch, target)`
    target_out: Int[Tensor, "batch target"]  # expected output: the target tokens, then `EOS`, shape `(batch, target)`
    # padding mask of both targets, True at real positions, shape `(batch, target)`
    target_valid: Bool[Tensor, "batch target"]


def make_batches(source_lengths: Lengths, target_lengths: Lengths, budget: int, seed: int, epoch: int) -> Plan:
    """Group pairs of similar length into batches under a token limit (bucketing).

    Pairs are sorted by their longer side, which decides the cost of a batch, and then by target length minus source
    length, so that both sides of a batch have similar lengths. The second order alternates between ascending and
    descending from one length to the next, so that pairs at the borders are similar, too. The sorted list is cut into
    batches, each as large as the limit allows, and the batches are shuffled.

    Returns:
        The rows of each batch; every pair occurs once.

    Raises:
        UserError: A single pair exceeds the limit.

    Example:
        >>> lengths = np.array([3, 9, 4, 10, 3])
        >>> batches = make_batches(lengths, lengths, budget=20, seed=1, epoch=0)
        >>> [sorted(rows.tolist()) for rows in batches]
        [[1, 3], [0, 2, 4]]
    """
    longest = np.maximum(source_lengths, target_lengths).astype(np.int64)
    if len(longest) == 0:
        return []
    if longest.max() > budget:
        what = f"a batch has at most {budget} tokens, but the longest example has {longest.max()}"
        remedy = f"set batches.tokens={longest.max()} or higher, or batches.max_length={budget} or lower"
        raise UserError(what, where="batches.tokens", remedy=remedy)
    generator = np.random.default_rng([seed % 2**64, epoch])
    difference = target_lengths.astype(np.int64) - source_lengths + _JITTER * generator.random(len(longest))
    turned = (longest + generator.integers(2)) % 2 == 1
    order = np.lexsort((np.where(turned, -difference, difference), longest))
    batches = split_by_budget(order, longest[order], budget)
    shuffled = [batches[i] for i in generator.permutation(len(batches))]
    return largest_first(shuffled, source_lengths, target_lengths) if epoch == 0 else shuffled


def split_by_budget(order: np.ndarray, widths: Lengths, budget: int, most: int | None = None) -> Plan:
    """Cut an ordered list of examples into batches, each as large as the limits allow.

    Args:
        order: Rows of the examples, in order.
        widths: Padded width of each example, in the same order.
        budget: Largest number of rows × width of a batch.
        most: Largest number of rows of a batch; None for no limit.

    Example:
        >>> [rows.tolist() for rows in split_by_budget(np.arange(5), np.array([2, 2, 4, 4, 9]), budget=8)]
        [[0, 1], [2, 3], [4]]
    """
    counts = np.arange(1, len(order) + 1)
    batches, first = [], 0
    while first < len(order):
        # The width of the first example bounds the number of rows; wider examples after it only lower the bound.
        several = max(1, min(most or len(order), budget // widths[first]))
        longest = np.maximum.accumulate(widths[first : first + several])
        rows = max(1, int(np.searchsorted(longest * counts[: len(longest)], budget, side="right")))
        batches.append(order[first : first + rows])
        first += rows
    return batches


def widths_for(lengths: Lengths, most: int) -> Lengths:
    """Round lengths up to a few batch widths, so that few tensor shapes occur.

    Args:
        lengths: Tokens of each text including special tokens, shape `(texts,)`. Up to 32, each length is its own width.
        most: Largest possible length; no width exceeds it.

    Example:
        >>> widths_for(np.array([7, 32, 33, 100, 250]), 250)
        array([  7,  32,  34, 100, 250])
    """
    _, exponents = np.frexp(lengths)
    steps = np.maximum(1, 2 ** exponents.astype(np.int64) // (2 * _WIDTHS))
    return np.minimum(-(-lengths // steps) * steps, most)


def largest_first(batches: Plan, source_lengths: Lengths, target_lengths: Lengths) -> Plan:
    """Move the batches with the most positions, and with the most pairs of them, to the front."""
    widths = np.array([(source_lengths[rows].max(), target_lengths[rows].max()) for rows in batches], dtype=np.int64)
    sizes = np.array([len(rows) for rows in batches])
    most_positions = int((sizes * widths.sum(axis=1)).argmax())
    most_pairs = int((sizes * widths.max(axis=1) ** 2).argmax())
    worst = list(dict.fromkeys((most_positions, most_pairs)))
    return [batches[i] for i in worst] + [rows for i, rows in enumerate(batches) if i not in worst]


def count_accumulation_steps(batches: Plan, target_lengths: Lengths, tokens_per_update: int) -> int:
    """Compute the micro-batches per step for about a number of target tokens, `EOS` included."""
    usual = sum(int(target_lengths[rows].sum()) for rows in batches) / max(len(batches), 1)
    remedy = f"divide batches.tokens by {usual / tokens_per_update:.1f}"
    return batches_per_step(tokens_per_update, usual, "target tokens", "tokens_per_update", remedy)


def collate(sources: Rows, targets: Rows, indices: Sequence[int] | np.ndarray) -> ParallelBatch:
    """Pad sentence pairs to a batch, with targets shifted for teacher forcing.

    Args:
        sources: Token ids of each source, without special tokens.
        targets: Token ids of each target, without special tokens.
        indices: Corpus row of each pair.

    Example:
        >>> batch = collate([[7, 8], [9]], [[5], [6, 4]], [0, 1])
        >>> batch.source.tolist(), batch.target_in.tolist(), batch.target_out.tolist()
        ([[7, 8, 2], [9, 2, 0]], [[1, 5, 0], [1, 6, 4]], [[5, 2, 0], [6, 4, 2]])
    """
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
    """Pad texts, ending with `EOS` (and with `begin`, starting with `BOS`); return ids and padding mask."""
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
    lengths: Int[np.ndarray, " texts"], max_length: int
) -> tuple[Int[np.ndarray, " windows"], Int[np.ndarray, " windows"], Int[np.ndarray, " windows"]]:
    """Cut long texts into windows of nearly equal length that cover all tokens.

    Returns:
        For each window in order, shape `(windows,)`: number of the text, position of the first token, number of tokens.

    Example:
        >>> texts, first, sizes = windows(np.array([5, 0, 3]), max_length=3)
        >>> texts.tolist(), first.tolist(), sizes.tolist()
        ([0, 0, 2], [0, 2, 0], [2, 3, 3])
    """
    lengths = lengths.astype(np.int64)
    counts = -(-lengths // max_length)
    texts = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
    # Window i of n begins at floor(i · length / n), so lengths differ by one at most.
    first = number * lengths[texts] // np.maximum(counts[texts], 1)
    last = (number + 1) * lengths[texts] // np.maximum(counts[texts], 1)
    return texts, first, last - first


class ParallelDataset(Examples[ParallelBatch]):
    """A dataset of tokenized sentence pairs under a recipe's length and batch limits.

    Args:
        data: Tokenized pairs.
        batches: Batch settings: `tokens` per batch, and `max_length`, above which a pair is skipped.
        tokens_per_update: Target tokens per optimizer step (gradient accumulation); None for `batches.tokens`.

    Raises:
        UserError: All pairs are longer than `batches.max_length`.
    """

    item_name: ClassVar[str] = "training pairs"

    def __init__(self, data: TokenizedDataset, batches: BatchSettings, tokens_per_update: int | None = None) -> None:
        self.data = data
        self.tokens = batches.tokens
        self.wanted = tokens_per_update or batches.tokens
        self.kept, self.num_skipped = data.within(batches.max_length)
        if not len(self.kept):
            what = f"all {len(data):,} training pairs are longer than {batches.max_length} tokens"
            raise UserError(what, where="batches.max_length", remedy="raise it")

    def __len__(self) -> int:
        return len(self.data)

    def make_batches(self, seed: int, epoch: int) -> Plan:
        sources, targets = self.data.source_lengths[self.kept], self.data.target_lengths[self.kept]
        return [self.kept[rows] for rows in make_batches(sources, targets, self.tokens, seed, epoch)]

    def accumulation_steps(self, batches: Plan) -> int:
        return count_accumulation_steps(batches, self.data.target_lengths, self.wanted)

    def manifest_counts(self) -> dict[str, int]:
        return {"too_long": self.num_skipped}

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> ParallelBatch:
        """Pad the pairs; random choices depend on seed and row, not on the batch."""
        return collate(*self.data.draw(rows, seed), rows)


def all_pairs_in_order(data: TokenizedDataset, batches: BatchSettings) -> ParallelDataset:
    """Build a dataset of all pairs, whatever their length, to compute a loss."""
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    limits = {"tokens": max(batches.tokens, longest), "max_length": longest}
    return ParallelDataset(data, batches.model_copy(update=limits))
