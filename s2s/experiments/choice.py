"""What becomes of a model's measurements when more trials choose another learning rate or depth for it.

A comparison may be gone on with by a version that tries more than the one that began it, and with models that are new:
all of them are chosen for by the same rule then, and none keeps what it was measured by under another.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

from s2s.contender import file_name
from s2s.experiments.contest import CELLS, Choice, Experiment
from s2s.experiments.whole_runs import RUNS
from s2s.results import Contender

_RATE = "learning_rate"


def rechosen(before: Sequence[Contender], now: Sequence[Contender]) -> dict[str, dict[str, str]]:
    """Models that have another rate or other settings than they were measured with: by name, and by what differs.

    Settings that only one of the two versions knows do not count.

    Args:
        before: what was chosen when measurements were made; empty where none were, without rates where none were tried.
        now: what all trials choose.
    """
    # what depends on no choice was measured without one
    old = {each.model: _choice(each) for each in before if each.rates}
    found = {}
    for each in now:
        was, chosen = old.get(each.model, {}), _choice(each)
        differing = [key for key in chosen if key in was and was[key] != chosen[key]]
        if differing:
            found[each.model] = {key: f"{chosen[key]} (was {was[key]})" for key in differing}
    return found


def _choice(each: Contender) -> dict[str, object]:
    return {_RATE: each.learning_rate} | each.settings


def reshaped(others: Mapping[str, Collection[str]]) -> list[str]:
    """Of the models that `rechosen` names those that differ in more than their rate."""
    return [model for model, differing in others.items() if {*differing} - {_RATE}]


def set_aside(
    folder: Path, models: Collection[str], others: Collection[str], experiments: Iterable[Experiment]
) -> Path | None:
    """Moves measurements and trained models out of the way, so that they are made again; their trials stay.

    Of experiments that measure in rounds all models' are moved: they are of use only beside each other.

    Args:
        folder: of the comparison.
        models: whose they are.
        others: those of them that are other models now, not the same with another rate.
        experiments: all that measure models as they were chosen, or do not.

    Returns:
        Where they are now, a folder in that of the comparison; None where there were none.
    """
    by_choice: dict[Choice, Collection[str]] = {"rate": models, "depth": others, "": ()}
    cells = {choice: re.compile(rf"({_either(its)})(--.*)?\.(json|txt)") for choice, its in by_choice.items() if its}
    run = re.compile(rf"(transfer-\w+-)?({_either(models)})-seed\d+(\..*)?")
    found = [
        path
        for each in experiments
        if each.chosen in cells
        for path in sorted((folder / CELLS / each.name).glob("*"))
        if each.alone or cells[each.chosen].fullmatch(path.name)
    ]
    found += [path for path in sorted((folder / RUNS).glob("*")) if run.fullmatch(path.name)]
    if not found:
        return None
    aside = next(place for n in count(1) if not (place := folder / f"set-aside-{n}").exists())
    for path in found:
        place = aside / path.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.rename(place)
    return aside


def _either(models: Collection[str]) -> str:
    """A pattern of their names in the names of files."""
    return "|".join(re.escape(file_name(model)) for model in models)
