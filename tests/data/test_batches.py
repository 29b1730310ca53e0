"""Batches hold every pair once and stay within their budget of tokens."""

import gzip
import itertools
import os
from dataclasses import fields
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from s2s.data.batches import ParallelBatch, collate, collate_sources, count_accumulation_steps, make_batches, widths_for
from s2s.data.dataset import group_into_steps
from s2s.data.tokenizers import BOS, EOS, PAD, train_pair
from s2s.errors import UserError
from s2s.recipe.schema import TokenizerSettings

lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=80).map(
    lambda pairs: (np.array([p[0] for p in pairs], dtype=np.int32), np.array([p[1] for p in pairs], dtype=np.int32))
)
seeds = st.integers(-(2**70), 2**70)
pieces = st.lists(st.lists(st.integers(4, 40), max_size=9), min_size=1, max_size=9)


def cost(rows, sources, targets):
    return len(rows) * max(sources[rows].max(), targets[rows].max())


def as_lists(batches):
    return [rows.tolist() for rows in batches]


@given(sides=lengths, budget=st.integers(30, 200), seed=seeds, epoch=st.integers(0, 3))
def test_batches_every_pair_comes_once_and_no_batch_is_over_budget_or_empty(sides, budget, seed, epoch):
    batches = make_batches(*sides, budget, seed, epoch)
    assert all(len(rows) and cost(rows, *sides) <= budget for rows in batches)
    assert sorted(row for rows in batches for row in rows.tolist()) == list(range(len(sides[0])))


def test_batches_no_budget_is_overshot_by_one_nor_missed_by_one():
    sides = np.random.default_rng(0).integers(1, 31, (2, 1000))
    largest = [max(cost(rows, *sides) for rows in make_batches(*sides, budget, 1, 0)) for budget in range(30, 200)]
    assert all(used <= budget for budget, used in enumerate(largest, start=30))
    assert sum(used == budget for budget, used in enumerate(largest, start=30)) > 100


@given(sides=lengths, budget=st.integers(30, 200), seed=seeds, epoch=st.integers(0, 3))
def test_batch_is_cut_off_only_where_the_next_pair_would_not_fit(sides, budget, seed, epoch):
    longest = np.maximum(*sides) if len(sides[0]) else np.empty(0)
    batches = make_batches(*sides, budget, seed, epoch)
    in_order = sorted(batches, key=lambda rows: (longest[rows].max(), longest[rows].min(), -len(rows)))
    for rows, later in itertools.pairwise(in_order):
        assert (len(rows) + 1) * longest[later].min() > budget


@given(sides=lengths, budget=st.integers(30, 200), seed=seeds, epoch=st.integers(0, 3))
def test_batches_plan_depends_on_its_arguments_alone(sides, budget, seed, epoch):
    first = as_lists(make_batches(*sides, budget, seed, epoch))
    np.random.seed(1)  # noqa: NPY002
    copies = [side.astype(np.int64) for side in sides]
    assert as_lists(make_batches(*copies, budget, seed, epoch)) == first


def test_epochs_and_seeds_differ_in_batches_and_in_their_order():
    generator = np.random.default_rng(0)
    sides = generator.integers(1, 30, 2000), generator.integers(1, 30, 2000)
    plans = [
        as_lists(make_batches(*sides, 200, seed, epoch)) for seed, epoch in ((1, 0), (1, 1), (1, 2), (2, 0), (-1, 0))
    ]
    contents = {frozenset(frozenset(rows) for rows in batches) for batches in plans}
    assert len(contents) == len(plans)
    widths = [[max(sides[0][rows].max(), sides[1][rows].max()) for rows in batches] for batches in plans]
    assert all(w != sorted(w) for w in widths)
    assert len({tuple(w) for w in widths}) == len(plans)


@given(sides=lengths, budget=st.integers(30, 200), seed=seeds)
def test_batches_that_need_most_memory_come_first_in_the_first_epoch(sides, budget, seed):
    sources, targets = sides
    batches = make_batches(sources, targets, budget, seed, 0)
    positions = [len(rows) * (sources[rows].max() + targets[rows].max()) for rows in batches]
    pairs = [len(rows) * max(sources[rows].max(), targets[rows].max()) ** 2 for rows in batches]
    assert max(positions[:1], default=0) == max(positions, default=0)
    assert max(pairs[:2], default=0) == max(pairs, default=0)


def test_batches_later_epochs_begin_anywhere():
    sides = np.arange(1, 101), np.arange(1, 101)
    firsts = {len(make_batches(*sides, 200, 1, epoch)[0]) for epoch in range(1, 12)}
    assert len(firsts) > 2


def test_batches_of_one_epoch_never_change():
    # a checkpoint stores a place in the epoch: other batches would resume another training
    lengths = np.random.default_rng(1).integers(1, 30, (2, 400))
    batches = make_batches(*lengths, budget=400, seed=3, epoch=1)
    assert (len(batches), crc32(np.concatenate(batches).astype(np.int64).tobytes())) == (22, 2249957097)


def test_batches_pair_over_budget_is_named():
    message = r"batches\.tokens: a batch has at most 8 tokens, but the longest example has 9(.|\n)*batches\.tokens=9"
    with pytest.raises(UserError, match=message):
        make_batches(np.array([1, 2, 8]), np.array([8, 9, 1]), 8, 1, 0)
    assert len(make_batches(np.array([1, 2, 8]), np.array([8, 9, 1]), 9, 1, 0)) == 3


@given(sides=lengths, tokens=st.integers(1, 2000))
@example(sides=(np.array([1, 1]), np.array([6, 6])), tokens=6)
@example(sides=(np.array([1, 1]), np.array([6, 6])), tokens=5)
def test_updates_join_a_constant_number_of_batches_in_order(sides, tokens):
    batches = make_batches(*sides, 100, 1, 0)
    mean = sides[1].sum() / max(len(batches), 1)
    if tokens < 0.5 * mean:
        with pytest.raises(UserError, match=rf"training\.tokens_per_update: .* {tokens} target tokens(.|\n)*→ divide"):
            count_accumulation_steps(batches, sides[1], tokens)
        return
    micro_batches = count_accumulation_steps(batches, sides[1], tokens)
    groups = group_into_steps(batches, micro_batches)
    assert [rows.tolist() for group in groups for rows in group] == as_lists(batches)
    assert all(len(group) == micro_batches for group in groups[:-1])
    assert all(1 <= len(group) <= micro_batches for group in groups[-1:])
    if batches:
        assert abs(micro_batches * mean - tokens) <= 0.5 * mean + 1e-6


def naive(rows, first, last):
    """What collating means, spelt out cell by cell."""
    width = max(len(row) for row in rows) + 1
    padded, valid = [], []
    for row in rows:
        cells = [*first, *row, *last]
        padded.append(cells + [PAD] * (width - len(cells)))
        valid.append([True] * len(cells) + [False] * (width - len(cells)))
    return padded, valid


@given(sources=pieces, data=st.data(), kind=st.sampled_from([list, lambda row: np.array(row, dtype=np.int32)]))
def test_batches_collating_is_the_naive_loop(sources, data, kind):
    targets = data.draw(
        st.lists(st.lists(st.integers(4, 40), max_size=9), min_size=len(sources), max_size=len(sources))
    )
    indices = list(range(7, 7 + len(sources)))
    batch = collate([kind(row) for row in sources], [kind(row) for row in targets], indices)
    source, source_valid = naive(sources, [], [EOS])
    target_in, valid = naive(targets, [BOS], [])
    target_out, valid_too = naive(targets, [], [EOS])
    assert valid == valid_too
    expected = [source, source_valid, target_in, target_out, valid, indices]
    names = ("source", "source_valid", "target_in", "target_out", "target_valid", "indices")
    found = [getattr(batch, name) for name in names]
    assert [tensor.tolist() for tensor in found] == expected
    integers, flags = torch.int64, torch.bool
    assert [tensor.dtype for tensor in found] == [integers, flags, integers, integers, flags, integers]
    assert batch.count == batch.tokens == sum(len(row) + 1 for row in targets)
    cells = [cell for row in source_valid + valid for cell in row]
    assert batch.real_share == sum(cells) / len(cells)
    alone = collate_sources([kind(row) for row in sources])
    assert torch.equal(alone[0], batch.source)
    assert torch.equal(alone[1], batch.source_valid)


def test_batch_moves_whole_and_keeps_its_row_numbers_here():
    batch = collate([[4, 5], [6]], [[7], [8, 9]], [3, 1])
    moved = batch.to("meta")
    assert isinstance(moved, ParallelBatch)
    where = {
        f.name: value.device.type for f in fields(moved) if isinstance(value := getattr(moved, f.name), torch.Tensor)
    }
    assert where == dict.fromkeys(where, "meta") | {"indices": "cpu"}
    assert len(where) == 6
    assert (moved.tokens, moved.real_share, moved.indices.tolist()) == (5, batch.real_share, [3, 1])


@pytest.fixture(scope="module")
def multi30k_lengths() -> tuple[np.ndarray, np.ndarray]:
    folder = Path(os.environ.get("S2S_DATA", Path(__file__).parents[3] / "shared" / "data")) / "multi30k"
    if not folder.exists():
        pytest.skip(f"Multi30k is not there: {folder}")
    sides = []
    for side in ("en", "de"):
        with gzip.open(folder / f"train.{side}.gz", "rt", encoding="utf-8", newline="\n") as lines:
            sides.append([line.rstrip("\n") for line in lines])
    # half of the lines have nearly the same pieces, in half of the time
    tokenizers = train_pair(*(side[::2] for side in sides), TokenizerSettings(size=8000))
    encoded = [t.encode_batch(side) for t, side in zip(tokenizers, sides, strict=True)]
    return tuple(np.array([len(row) + 1 for row in rows]) for rows in encoded)


@pytest.mark.parametrize(("budget", "least"), [(1024, 0.97), (4096, 0.95), (8192, 0.93)])
def test_multi30k_batches_are_nearly_all_real_and_nearly_full(multi30k_lengths, budget, least):
    sources, targets = multi30k_lengths
    for epoch in range(3):
        batches = make_batches(sources, targets, budget, 1, epoch)
        positions = sum(len(rows) * (sources[rows].max() + targets[rows].max()) for rows in batches)
        assert (sources.sum() + targets.sum()) / positions >= least
        assert np.mean([cost(rows, sources, targets) for rows in batches]) >= 0.98 * budget


def test_batches_widths_are_few_and_a_little_larger_than_what_they_hold():
    lengths = np.arange(1, 1025)
    widths = widths_for(lengths, 1024)
    # the same, looked up in the list of all widths: each to 32, then 16 from each power of two to the next
    all_widths = [*range(1, 33), *(first + i * first // 16 for first in (32, 64, 128, 256, 512) for i in range(1, 17))]
    assert widths.tolist() == [min(width for width in all_widths if width >= length) for length in lengths]
    assert widths_for(widths, 1024).tolist() == widths.tolist()
    assert widths_for(lengths[:1000], 1000).max() == 1000


def test_batches_two_pairs_of_a_multi30k_batch_are_mostly_apart_in_the_next_epoch(multi30k_lengths):
    sources, targets = multi30k_lengths
    first, second = (make_batches(sources, targets, 4096, 1, epoch) for epoch in (0, 1))
    batch_of = np.empty(len(sources), dtype=int)
    for number, rows in enumerate(second):
        batch_of[rows] = number
    again = sum((np.bincount(batch_of[rows]) ** 2).sum() - len(rows) for rows in first)
    assert again / sum(len(rows) * (len(rows) - 1) for rows in first) < 0.5
