"""What becomes of a model's measurements when more trials choose another learning rate or depth for it.

A comparison may be gone on with by a version that tries more than the one that began it, and with models that are new:
all of them are chosen for by the same rule then, and none keeps what it was measured by under another.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from pathlib import Path

from s2s.contender import file_name
from s2s.experiments.contest import CELLS, Experiment
from s2s.experiments.whole_runs import RUNS
from s2s.results import Contender


def rechosen(before: Sequence[Contender], now: Sequence[Contender]) -> dict[str, str]:
    """Models that have another rate or size than they were measured with: by name, both choices in words.

    Args:
        before: what was chosen when measurements were made; empty where none were.
        now: what all trials choose.
    """
    old = {each.model: each for each in before}
    return {
        each.model: f"{_words(each)}, no longer {_words(old[each.model])}"
        for each in now
        if each.model in old and _words(each) != _words(old[each.model])
    }


def _words(each: Contender) -> str:
    return f"the rate {each.learning_rate:g} and {each.parameters:,} parameters"


def set_aside(folder: Path, models: Collection[str], experiments: Iterable[Experiment]) -> Path | None:
    """Moves measurements and trained models out of the way, so that they are made again; their trials stay.

    Of experiments that measure in rounds all models' are moved: they are of use only beside each other.

    Args:
        folder: of the comparison.
        models: whose they are.
        experiments: all that measure models as they were chosen, or do not.

    Returns:
        Where they are now, a folder in that of the comparison; None where there were none.
    """
    names = "|".join(re.escape(file_name(model)) for model in models)
    cell, run = re.compile(rf"({names})(--.*)?\.(json|txt)"), re.compile(rf"(transfer-\w+-)?({names})-seed\d+(\..*)?")
    found = [
        path
        for each in experiments
        for path in sorted((folder / CELLS / each.name).glob("*"))
        if each.chosen and (each.alone or cell.fullmatch(path.name))
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
