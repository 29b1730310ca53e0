"""Sampling rates of a mixture, compared with the formula."""

import itertools
from collections import Counter

import numpy as np
import pytest

from s2s.data.mixing import MixedDataset, counts, rates, stream
from s2s.recipe.pairs import BatchSettings


class Numbers:
    """Pairs of which each is its own number, so that a batch shows what is in it."""

    def __init__(self, first, size):
        self.first = first
        self.source_lengths = np.arange(size) % 5 + 2
        self.target_lengths = np.full(size, 3)

    def draw(self, indices, seed):
        sources = [np.full(self.source_lengths[i] - 1, self.first + i) for i in indices]
        return sources, [np.full(2, self.first + i) for i in indices]


SIZES = {"large": 900, "middle": 90, "small": 10}


def mixture(mixing):
    starts = itertools.accumulate(SIZES.values(), initial=10)
    corpora = {name: Numbers(first, size) for (name, size), first in zip(SIZES.items(), starts, strict=False)}
    return MixedDataset(corpora, BatchSettings(tokens=64), mixing)


@pytest.mark.parametrize("mixing", ["size", "equal", 1.0, 2.0, 5.0])
def test_mixing_epoch_draws_at_the_rates_of_the_formula(mixing):
    sizes = np.array(list(SIZES.values()))
    power = {"size": 1, "equal": 0}.get(mixing, 1 / mixing if isinstance(mixing, float) else 0)
    wanted = sizes**power / (sizes**power).sum()
    np.testing.assert_allclose(rates(list(sizes), mixing), wanted)
    found = counts(list(sizes), mixing)
    assert found.sum() == sizes.sum()
    assert np.abs(found - wanted * sizes.sum()).max() < 1
    examples = mixture(mixing)
    rows = np.concatenate(examples.make_batches(3, 1)) % 1000
    of = np.searchsorted([900, 990], rows, side="right")
    assert np.bincount(of).tolist() == found.tolist()


def test_mixing_by_size_every_example_comes_once_an_epoch():
    assert sorted(np.concatenate(mixture("size").make_batches(3, 4)).tolist()) == list(range(1000))


def test_mixing_none_comes_again_before_all_others_have_come():
    examples = mixture("equal")
    seen = Counter()
    for epoch in range(5):
        seen.update(examples.rows_of(7, epoch).tolist())
        for first, size in ((0, 900), (900, 90), (990, 10)):
            times = [seen[row] for row in range(first, first + size)]
            assert max(times) - min(times) <= 1


def test_mixing_stream_is_the_same_however_it_is_cut():
    whole = stream(7, 0, 40, 2, 1)
    parts = [stream(7, a, b, 2, 1) for a, b in itertools.pairwise((0, 3, 3, 7, 20, 40))]
    assert whole.tolist() == np.concatenate(parts).tolist()
    assert all(sorted(whole[i : i + 7].tolist()) == list(range(7)) for i in range(0, 35, 7))
    assert whole.tolist() != stream(7, 0, 40, 2, 0).tolist()


def test_mixing_plan_is_a_function_of_seed_and_epoch_alone_and_batches_hold_what_it_says():
    one, other = mixture(2.0), mixture(2.0)
    other.make_batches(9, 9)
    assert [b.tolist() for b in one.make_batches(5, 2)] == [b.tolist() for b in other.make_batches(5, 2)]
    assert [b.tolist() for b in one.make_batches(5, 2)] != [b.tolist() for b in one.make_batches(5, 3)]
    for rows in one.make_batches(5, 0):
        batch = one.collate(rows, 0)
        assert batch.source[:, 0].tolist() == (rows % 1000 + 10).tolist() == batch.target_out[:, 0].tolist()
        assert batch.indices.tolist() == (rows % 1000).tolist()
        assert batch.source.numel() <= 64


class Random(Numbers):
    """Pairs whose targets are random, as a function of seed and row."""

    def draw(self, indices, seed):
        sources, _ = super().draw(indices, seed)
        return sources, [np.random.default_rng([seed, i]).integers(10, 10_000, 2) for i in indices.tolist()]


def test_mixing_repeats_of_an_example_in_an_epoch_have_other_random_choices():
    examples = MixedDataset({"large": Random(0, 90), "small": Random(90, 10)}, BatchSettings(tokens=64), "equal")
    drawn = {}
    for rows in examples.make_batches(1, 0):
        targets = examples.collate(rows, 7).target_out[:, :2].tolist()
        for row, target in zip(rows.tolist(), targets, strict=True):
            drawn.setdefault(row % 100, set()).add(tuple(target))
            # not the batch, but the number alone decides
            assert examples.collate(np.array([row]), 7).target_out[0, :2].tolist() == target
    assert [len(drawn[row]) for row in range(90, 100)] == [5] * 10
    first = np.arange(90, 100)
    assert (
        examples.collate(first, 7).target_out[:, :2].tolist()
        == np.array(Random(90, 10).draw(first - 90, 7)[1]).tolist()
    )
