"""A small training that diverges is a measurement: it has not solved its task."""

import pytest

from s2s.comparison.questions.long_range import measure as long_range
from s2s.comparison.questions.long_range.learning import Budget, Run
from s2s.comparison.questions.long_range.measure import Distances, Sizes
from s2s.comparison.questions.long_range.reach import Part, TaskRuns
from s2s.comparison.spec import Trial
from s2s.evaluation.survival import Times

TINY = Sizes(
    distances={"recall": Distances((1, 2), (4, 8), 6)},
    capacity=None,
    parameters=6_000,
    examples=100,
    held_out=10,
    tested=20,
    budget=Budget(updates=0, rows=16, batches=2, every=3, trial=3, warmup=2),
)


@pytest.mark.parametrize("after", [0, 3])
def test_a_training_that_diverges_counts_as_unsolved_however_soon_it_does(contest, monkeypatch, after):
    monkeypatch.setitem(long_range.SIZES, "quick", TINY)
    learned = Run._learn

    def diverges(run, until, goes_on):
        learned(run, min(until, after), goes_on)
        run.failure = "the loss is no number"

    made = contest(["rnn"])
    made.results_folder("long-range").mkdir(parents=True)
    rates = long_range.run_cached(
        made.results_folder("long-range"), lambda cell: {"best": 0.002}, Trial("rnn", "recall-full-rates")
    )
    assert rates.measured
    monkeypatch.setattr(Run, "_learn", diverges)
    cell = Trial("rnn", "recall-full", 1)
    found = long_range.measure(made, cell)
    assert (found["solved"], found["updates"], found["failure"]) == (None, after, "the loss is no number")
    assert len(found["looks"]) == bool(after)
    # whenever it diverged, it is one that has not solved the task in all of its updates
    measured = {Trial("rnn", "recall-full-rates"): {"best": 0.002, "tried": {}, "inside": True}, cell: found}
    trials = TaskRuns("rnn", Part("recall", "full"), {1: found})
    assert trials.times() == Times([], [6])
    assert "the training of 1 of 1 seeds failed: the loss is no number" in str(trials.gates())
    result = long_range.EXPERIMENT.result(made, measured)
    assert {finding.row for finding in result.findings} == {"long-term dependencies", "learning long-term dependencies"}
    assert all(finding.standing == "not measurable" for finding in result.findings)
