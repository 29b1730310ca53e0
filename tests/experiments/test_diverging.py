"""A small training that diverges is a measurement: it has not solved its task."""

import pytest

from s2s.errors import UserError
from s2s.experiments import long_range
from s2s.experiments.contest import Cell
from s2s.experiments.long_range import Distances, Sizes
from s2s.experiments.long_range.learning import Budget, Run

TINY = Sizes(
    distances={"recall": Distances((1, 2), (4, 8), 6, 1.0)},
    capacity=None,
    parameters=6_000,
    examples=100,
    held_out=10,
    tested=20,
    budget=Budget(updates=0, rows=16, batches=2, every=3, trial=3, warmup=2),
)


@pytest.mark.parametrize("after", [0, 3])
def test_a_training_that_diverges_counts_as_unsolved_unless_nothing_was_seen_of_it(contest, monkeypatch, after):
    monkeypatch.setitem(long_range.SIZES, "quick", TINY)
    learned = Run._learn

    def diverges(run, until, goes_on):
        learned(run, min(until, after), goes_on)
        run.failure = "the loss is no number"

    made = contest(["rnn"])
    made.cells_of("long-range").mkdir(parents=True)
    rates = long_range.keep(made.cells_of("long-range"), lambda cell: {"best": 0.002}, Cell("rnn", "recall-full-rates"))
    assert rates.measured
    monkeypatch.setattr(Run, "_learn", diverges)
    cell = Cell("rnn", "recall-full", 1)
    if not after:
        with pytest.raises(UserError, match=r"training fails at rate 0.002 after 0 updates: the loss is no number"):
            long_range.measure(made, cell)
        return
    found = long_range.measure(made, cell)
    assert (found["solved"], found["updates"], found["failure"]) == (None, 6, "the loss is no number")
    assert len(found["looks"]) == 1
