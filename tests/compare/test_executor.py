"""The trials of several questions run beside each other, and each question is analysed once its own have ended."""

import io
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from rich.console import Console

from s2s.comparison.engine import EXPERIMENTS, group_questions
from s2s.comparison.executor import load_result, run_questions, run_trials
from s2s.comparison.progress import Progress
from s2s.comparison.spec import Analysis, Comparison, Experiment, Trial
from s2s.comparison.workers import Workers


class Threads(Workers):
    """Workers that are threads of this process, which start at once."""

    def map_unordered(self, call, items):
        begun, calls = 0, {}
        with ThreadPoolExecutor(self.number) as pool:
            while calls or begun < len(items):
                calls |= {pool.submit(call, item): item for item in items[begun:]}
                begun = len(items)
                ended, _ = wait(calls, return_when=FIRST_COMPLETED)
                yield from ((calls.pop(each), each.result()) for each in ended)


def measure(folder: Path, comparison: Comparison, trial: Trial) -> dict[str, str]:
    """Write a file named after the part; part "last" waits until "next" is measured."""
    until = time.monotonic() + 60
    while trial.part == "last" and not (folder / "next").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    (folder / trial.part).touch()
    return {"part": trial.part}


def _experiment(name: str, folder: Path, *parts: str, exclusive: bool = False) -> tuple[Experiment, list[Trial]]:
    trials = [Trial("rnn", part) for part in parts]
    analyse = lambda comparison, measured: Analysis([])  # noqa: E731
    call = partial(measure, folder)
    return Experiment(name, "", lambda c: trials, call, analyse, TypeAdapter(dict), exclusive), trials


def _run(
    comparison: Comparison, questions: list[tuple[Experiment, list[Trial]]], number: int
) -> list[tuple[str, list]]:
    finished = []
    with Threads(number) as workers, Progress(0.0, Console(file=io.StringIO())) as progress:
        run_questions(questions, comparison, progress, workers, lambda e, r: finished.append((e.name, [*r])))
    return finished


def test_next_question_starts_while_the_last_trial_of_the_one_before_runs(contest, tmp_path):
    comparison = contest(["rnn"])
    questions = [_experiment("memory", tmp_path, "first", "last"), _experiment("decoding", tmp_path, "next", "after")]
    expected = [(each.name, trials) for each, trials in questions]
    assert _run(comparison, questions, 2) == expected
    # nothing is measured again
    (tmp_path / "next").unlink()
    assert _run(comparison, questions, 2) == expected
    assert not (tmp_path / "next").exists()


def test_questions_beside_each_other_have_the_results_of_one_after_another(contest, tmp_path):
    comparison = contest(["rnn"])
    questions = [_experiment("memory", tmp_path, "a", "b"), _experiment("decoding", tmp_path, "c")]
    _run(comparison, questions, 1)
    with Progress(0.0, Console(file=io.StringIO())) as progress:
        for question, trials in questions:
            stored = {trial: load_result(comparison.results_folder(question.name), trial) for trial in trials}
            assert stored == run_trials(question, comparison, trials, progress, Workers(1))
            assert [each.measured for each in stored.values()] == [{"part": trial.part} for trial in trials]


@pytest.mark.parametrize("number", [1, 8])
def test_trainings_start_when_their_search_has_ended(contest, tmp_path, number):
    """A training that finds no result of its search would search, too, at the same time."""
    events = []

    def note(comparison: Comparison, trial: Trial) -> dict[str, str]:
        events.append(("starts", trial))
        time.sleep(0.02)
        events.append(("ends", trial))
        return {}

    def question(name: str) -> tuple[Experiment, list[Trial]]:
        search = Trial("rnn", f"{name}-rates")
        trials = [search, *(Trial("rnn", name, seed, search=search) for seed in (1, 2))]
        return replace(_experiment(name, tmp_path)[0], measure=note), trials

    questions = [question("copying"), question("capacity")]
    assert _run(contest(["rnn"]), questions, number) == [(each.name, trials) for each, trials in questions]
    for trial in (trial for _, trials in questions for trial in trials if trial.search):
        assert events.index(("ends", trial.search)) < events.index(("starts", trial))
    # a stored search holds nothing back
    _, trials = questions[0]
    (contest(["rnn"]).results_folder("copying") / f"{trials[1].key}.json").unlink()
    events.clear()
    _run(contest(["rnn"]), questions, number)
    assert events == [("starts", trials[1]), ("ends", trials[1])]


@pytest.mark.parametrize("number", [1, 2])
def test_exclusive_question_is_run_alone(contest, tmp_path, number):
    questions = [_experiment("memory", tmp_path, "a", exclusive=True)]
    assert _run(contest(["rnn"]), questions, number) == [("memory", [Trial("rnn", "a")])]
    with pytest.raises(ValueError):  # noqa: PT011
        _run(contest(["rnn"]), [*questions, _experiment("decoding", tmp_path, "b")], number)


def test_groups_of_questions_hold_what_neither_times_nor_needs_the_others():
    def names(*questions: str) -> list[list[str]]:
        return [[each.name for each in group] for group in group_questions([EXPERIMENTS[name] for name in questions])]

    assert names("parallelism", "copying", "quality", "gradients", "bottleneck") == [
        ["parallelism"],
        ["copying", "quality"],
        ["gradients", "bottleneck"],
    ]
    # both would train the models of `quality`
    assert names("copying", "gradients", "capacity", "bottleneck") == [
        ["copying", "gradients", "capacity"],
        ["bottleneck"],
    ]
    assert names("copying", "decoding", "transfer") == [["copying"], ["decoding"], ["transfer"]]
    assert names("classification", "text-length") == [["classification"], ["text-length"]]
