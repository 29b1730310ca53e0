"""The estimated cost of a comparison agrees with the seconds of the kept one."""

import json
import tarfile
from collections import defaultdict
from pathlib import Path

import pytest

from s2s.comparison import engine
from s2s.comparison.cost import expected_seconds
from s2s.comparison.results import read_summary
from s2s.comparison.spec import CELLS
from s2s.files import COMPARISON

pytestmark = pytest.mark.release

KEPT = Path(__file__).parents[2] / "docs" / "comparison-lecture"
SUMMARY = read_summary(KEPT / COMPARISON)


@pytest.fixture(scope="module")
def comparison():
    """The kept lecture before its first trial."""
    return engine._comparison(KEPT, SUMMARY, engine.load_task(KEPT))


@pytest.fixture(scope="module")
def seconds() -> dict[str, dict[str, float]]:
    """Seconds of a core of each kept trial, by question.

    A training has its CPU time. The wall-clock time of other trials of the question, such as searches for a rate, is
    scaled by the share of the processor that the trainings had, because other programs ran beside them.
    """
    wall, cpu = defaultdict[str, dict[str, float]](dict), defaultdict[str, dict[str, float]](dict)
    with tarfile.open(KEPT / f"{CELLS}.tar.xz") as archive:
        for member in archive:
            parts = Path(member.name).parts
            if member.isfile() and len(parts) == 3 and (file := archive.extractfile(member)):
                stored = json.load(file)
                wall[parts[1]][Path(parts[2]).stem] = stored["seconds"]
                if isinstance((stored["measured"] or {}).get("seconds"), float):
                    cpu[parts[1]][Path(parts[2]).stem] = stored["measured"]["seconds"]
    found = {}
    for name, own in wall.items():
        trained = cpu[name]
        share = sum(trained.values()) / sum(own[key] for key in trained) if trained else 1.0
        found[name] = {key: trained.get(key, share * each) for key, each in own.items()}
    return found


@pytest.mark.parametrize("name", SUMMARY.experiments)
def test_estimated_seconds_of_a_question_are_within_a_quarter(comparison, seconds, name) -> None:
    question = engine.EXPERIMENTS[name]
    trials = question.trials(comparison)
    estimated = sum(expected_seconds(question, comparison, trial, 1) for trial in trials)
    measured = sum(seconds[name][trial.key] for trial in trials)
    assert 0.75 < estimated / measured < 1.25
