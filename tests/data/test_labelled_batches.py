"""Batches of labelled texts hold every text once and stay within their limits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from s2s.data.batches import collate_sources, split_by_budget
from s2s.data.dataset import group_into_steps
from s2s.data.tokenized import RaggedArray
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.errors import UserError
from s2s.tasks.classification.data import LabelledTexts
from s2s.tasks.classification.recipe import TextBatchSettings


def _lists(rows: list[list[int]]) -> RaggedArray:
    return RaggedArray.from_rows(rows)


def _texts(count: int = 300, **changes) -> LabelledTexts:
    generator = np.random.default_rng(0)
    lengths = np.minimum(generator.lognormal(3, 0.7, count).astype(int), 90)
    rows = [generator.integers(4, 50, length).tolist() for length in lengths]
    wanted = changes.pop("examples_per_update", None)
    begin = changes.pop("begin", False)
    dropout = changes.pop("word_dropout", 0.0)
    batches = TextBatchSettings(**({"tokens": 400, "max_length": 60} | changes))
    return LabelledTexts(_lists(rows), generator.integers(0, 3, count), batches, begin, wanted, dropout)


@pytest.mark.parametrize("padding", ["buckets", "batch"])
def test_labelled_batches_balanced_epochs_have_equally_many_examples_of_each_class(padding):
    texts = _texts(padding=padding)
    texts.labels = np.repeat([0, 1, 2], [250, 40, 10])
    texts.balanced = True
    seen = []
    for epoch in (0, 1):
        numbered = np.concatenate(texts.make_batches(1, epoch))
        rows = numbered % 300
        assert len(np.unique(numbered)) == 300
        assert np.bincount(texts.labels[rows]).tolist() == [100, 100, 100]
        counts = np.bincount(rows, minlength=300)
        # without replacement: a row of the frequent class at most once, those of rare classes equally often, up to one
        for label, times in ((0, {0, 1}), (1, {2, 3}), (2, {10})):
            assert set(counts[texts.labels == label].tolist()) == times
        assert np.array_equal(numbered, np.concatenate(texts.make_batches(1, epoch)))
        seen.append(set(rows[texts.labels[rows] == 0].tolist()))
    assert len(seen[0] | seen[1]) > 130


def test_labelled_batches_repeats_in_a_balanced_epoch_drop_other_tokens():
    texts = _texts(word_dropout=0.5)
    repeats = np.array([5, 305, 605])
    sources = [source[valid].tolist() for source, valid in zip(*texts.read(repeats, 3), strict=True)]
    assert len({tuple(source) for source in sources}) == 3
    batch = texts.collate(repeats, 3)
    assert (batch.indices.tolist(), batch.labels.tolist()) == ([5] * 3, [texts.labels[5]] * 3)


PADDINGS = ["buckets", "batch", "max_length"]


@pytest.mark.parametrize("rows", [None, 7])
@pytest.mark.parametrize("padding", PADDINGS)
def test_labelled_batches_every_text_is_in_one_batch_and_no_batch_passes_its_limits(padding, rows):
    texts = _texts(padding=padding, rows=rows)
    for epoch in (0, 1):
        plan = texts.make_batches(1, epoch)
        assert sorted(int(row) for batch in plan for row in batch) == list(range(300))
        for batch in (texts.collate(rows, 0) for rows in plan):
            assert batch.source.numel() <= 400
            assert rows is None or len(batch.labels) <= rows


@given(
    widths=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    tokens=st.integers(30, 90),
    rows=st.none() | st.integers(1, 5),
)
@settings(deadline=None)
def test_labelled_batches_batch_ends_only_where_one_more_text_would_pass_a_limit(widths, tokens, rows):
    naive: list[list[int]] = [[]]
    for row, width in enumerate(widths):
        wide = max([width, *(widths[other] for other in naive[-1])])
        if naive[-1] and (len(naive[-1]) == rows or (len(naive[-1]) + 1) * wide > tokens):
            naive.append([])
        naive[-1].append(row)
    found = split_by_budget(np.arange(len(widths)), np.array(widths), tokens, rows)
    assert [batch.tolist() for batch in found] == naive


def test_labelled_batches_buckets_waste_little_and_hold_other_texts_together_in_each_epoch():
    share = {padding: _texts(3000, tokens=4000, padding=padding).padding_share(1) for padding in PADDINGS}
    assert share["buckets"] < 0.08 < share["batch"] <= share["max_length"]
    texts = _texts(3000, tokens=4000)
    together = []
    for epoch in (1, 2):
        number = {int(row): i for i, rows in enumerate(texts.make_batches(1, epoch)) for row in rows}
        together.append({(a, b) for a in range(300) for b in range(a) if number[a] == number[b]})
    assert len(together[0] & together[1]) < 0.8 * len(together[0])
    assert [rows.tolist() for rows in texts.make_batches(1, 1)] == [rows.tolist() for rows in texts.make_batches(1, 1)]


@pytest.mark.parametrize("padding", PADDINGS)
def test_share_of_padding_is_that_of_the_batches(padding):
    texts = _texts(padding=padding, begin=True)
    batches = [texts.collate(rows, 0) for rows in texts.make_batches(3, 0)]
    real = sum(int(batch.source_valid.sum()) for batch in batches)
    positions = sum(batch.source.numel() for batch in batches)
    assert texts.padding_share(3) == pytest.approx(1 - real / positions)
    assert sum(batch.tokens for batch in batches) == real == texts.lengths.sum()
    assert batches[0].real_share == pytest.approx(float(batches[0].source_valid.float().mean()))


def test_batches_of_long_texts_have_few_shapes():
    generator = np.random.default_rng(0)
    rows = [generator.integers(4, 50, length).tolist() for length in generator.integers(1, 254, 4000)]
    texts = LabelledTexts(_lists(rows), np.zeros(4000, dtype=int), TextBatchSettings(tokens=1000, max_length=254))
    shapes = {tuple(texts.collate(rows, 0).source.shape) for rows in texts.make_batches(1, 0)}
    wide = {width for _, width in shapes if width > 64}
    # for each width as many rows as the limit allows, or fewer where the next width begins
    assert wide == {*range(68, 129, 4), *range(136, 250, 8), 254}
    assert len([shape for shape in shapes if shape[1] in wide]) < 3 * len(wide)


def test_labelled_batches_first_batch_of_all_is_the_worst():
    texts = _texts(padding="buckets")
    sizes = [texts.collate(rows, 0).source.numel() for rows in texts.make_batches(1, 0)]
    assert sizes[0] == max(sizes)


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("width", [None, 9])
def test_labelled_batches_collating_is_the_naive_loop(begin, width):
    rows = [[5, 6, 7], [], [8]]
    source, valid = collate_sources(rows, begin, width)
    wanted = [[BOS] * begin + row + [EOS] for row in rows]
    wide = width or max(map(len, wanted))
    assert source.tolist() == [row + [PAD] * (wide - len(row)) for row in wanted]
    assert valid.tolist() == [[True] * len(row) + [False] * (wide - len(row)) for row in wanted]


def test_labelled_batches_long_text_loses_its_end_and_is_counted():
    lists = _lists([[4, 5, 6, 7, 8], [4, 5, 6], [4]])
    for begin, cut in ((False, 1), (True, 2)):
        texts = LabelledTexts(lists, np.array([0, 1, 0]), TextBatchSettings(max_length=4), begin)
        assert texts.truncated == cut == (texts.whole_lengths > 4).sum()
        batch = texts.collate(np.array([0, 2]), 0)
        assert batch.source[0].tolist() == ([BOS, 4, 5, EOS] if begin else [4, 5, 6, EOS])
        assert batch.source_valid[1].sum() == 2 + begin
        assert (batch.labels.tolist(), batch.indices.tolist(), batch.count) == ([0, 0], [0, 2], 2)


def test_labelled_batches_updates_have_about_as_many_texts_as_wanted():
    texts = _texts(examples_per_update=60)
    batches = texts.make_batches(1, 0)
    together = texts.accumulation_steps(batches)
    assert together > 1
    groups = group_into_steps(batches, together)
    assert 40 < np.mean([sum(map(len, group)) for group in groups[:-1]]) < 80
    assert sum(len(rows) for group in groups for rows in group) == 300
    with pytest.raises(
        UserError, match=r"training.examples_per_update: .* update of 3 texts is less(.|\n)*batches.rows=3"
    ):
        _texts(tokens=2000, examples_per_update=3).accumulation_steps(_texts(tokens=2000).make_batches(1, 0))


def test_labelled_batches_some_texts_of_a_corpus_are_those_texts():
    texts = _texts(50)
    rows = np.array([40, 3, 17])
    some = texts.subset(rows)
    assert some.lengths.tolist() == texts.lengths[rows].tolist()
    assert len(some.pieces.lengths) == len(some)
    assert torch.equal(some.collate(np.array([2, 0]), 0).source, texts.collate(np.array([17, 40]), 0).source)
    assert some.collate(np.array([1]), 0).labels.tolist() == [texts.labels[3]]


@pytest.mark.parametrize("padding", PADDINGS)
def test_labelled_batches_word_dropout_leaves_out_a_share_of_each_text_by_seed_and_row(padding):
    whole, thin = (_texts(padding=padding, word_dropout=share) for share in (0.0, 0.3))
    kept = 0
    for rows in thin.make_batches(1, 1):
        batch, full = thin.collate(rows, 7), whole.collate(rows, 7)
        assert batch.tokens == int(batch.source_valid.sum())
        assert batch.source.numel() <= full.source.numel()
        for i, row in enumerate(rows.tolist()):
            chance = np.random.default_rng([7, row]).random(int(whole.lengths[row]) - 1)
            read = full.source[i, : len(chance)][torch.from_numpy(chance >= 0.3)].tolist()
            assert batch.source[i][batch.source_valid[i]].tolist() == [*read, EOS]
            kept += len(read)
        # in another batch, the same; with another seed, not
        alone = thin.collate(rows[:1], 7)
        assert torch.equal(alone.source[0][alone.source_valid[0]], batch.source[0][batch.source_valid[0]])
    assert kept / int((whole.lengths - 1).sum()) == pytest.approx(0.7, abs=0.03)
    assert thin.collate(np.arange(9), 8).tokens != thin.collate(np.arange(9), 9).tokens
