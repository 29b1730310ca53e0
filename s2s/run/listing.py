"""Tables of runs and sweeps with their validation and test scores, and means over seeds."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from s2s.errors import UserError
from s2s.files import EXPORTED, LARGE_BYTES, UNFINISHED
from s2s.json_files import read_json
from s2s.recipe.schema import RunSettings, SeedSettings, TrainRecipe
from s2s.run.folder import RECIPE, TEST_SCORES, flatten, identify_folder
from s2s.run.tasks import read
from s2s.training.validation import Validation

_SEED = re.compile(r"-seed\d+$")
_IN_OTHER_COLUMNS = ("name", "description", "task", "run", "seeds")

_INTERVAL = "95 % interval, Student's t"


@dataclass(frozen=True)
class ListedRun:
    """A run and its scores.

    Attributes:
        path: Folder of the run.
        recipe: Recipe of the run.
        update: Last saved optimizer step; 0 if there is none.
        scores: Headline scores on the test set by name; empty if the run has not been tested.
        best: Best validation of the run; None before the first one.
    """

    path: Path
    recipe: TrainRecipe
    update: int
    scores: dict[str, float]
    best: Validation | None

    @property
    def seed(self) -> str:
        """The seed, or the three seeds separated by slashes if they differ."""
        seeds = self.recipe.seeds
        return "/".join(dict.fromkeys(map(str, (seeds.initialization, seeds.data, seeds.dropout))))

    @property
    def settings(self) -> str:
        """The recipe without name, folder and seeds; equal for runs that differ only in their seeds."""
        plain = {"name": "", "description": "", "run": RunSettings(), "seeds": SeedSettings()}
        return self.recipe.model_copy(update=plain).model_dump_json()

    @property
    def validation(self) -> dict[str, float]:
        """The best value of `validation.metric`, by its name; empty before the first validation."""
        return {self.recipe.validation.metric: self.best.value} if self.best else {}


class _State(BaseModel):
    """The field of a checkpoint's state that is listed."""

    validations: list[Validation]


class _Summary(BaseModel):
    scores: dict[str, float]


class _Evaluation(BaseModel):
    """The field of an evaluation that is listed."""

    summary: _Summary


def list_run(path: Path) -> ListedRun:
    """Read the recipe and the scores of a run.

    Raises:
        UserError: A file is damaged.
    """
    scores, checkpoints = path / TEST_SCORES, (path / "checkpoints").glob("[0-9]*")
    found = (
        read_json(scores, _Evaluation, "evaluate the run again", LARGE_BYTES).summary.scores if scores.exists() else {}
    )
    last = max((each for each in checkpoints if each.name.isdigit()), key=lambda each: int(each.name), default=None)
    state = read_json(last / "state.json", _State, "restore the file") if last else _State(validations=[])
    best = max(state.validations, key=lambda validation: validation.rank, default=None)
    return ListedRun(path, read(path / RECIPE), int(last.name) if last else 0, found, best)


def list_runs(folder: Path, refuse: Callable[[UserError], object]) -> list[ListedRun]:
    """Read the recipes and the scores of all runs in a folder, in the order of their names.

    Args:
        folder: Folder that contains the runs.
        refuse: Receives the error of a damaged run, which is left out.

    Raises:
        UserError: There is no such folder.
    """
    if not folder.is_dir():
        raise UserError("there is no such folder", str(folder), "name the folder that contains the runs")
    places = [path for path in sorted(folder.iterdir()) if (path / RECIPE).is_file() and not _is_other(path)]
    found = list[ListedRun]()
    for path in places:
        try:
            found.append(list_run(path))
        except UserError as error:
            refuse(error)
    return found


def rows(runs: Sequence[ListedRun]) -> list[dict[str, object]]:
    """Return runs as rows of a table, with a column for each score.

    Settings that differ between runs of the same name, such as those of a sweep, have columns, too.
    """
    settings = [flatten(run.recipe.model_dump(mode="json")) for run in runs]
    found = list[dict[str, object]]()
    for run, own in zip(runs, settings, strict=True):
        same = [each for each in settings if each["name"] == own["name"]]
        varied = [key for key in own if any(key in each and each[key] != own[key] for each in same)]
        described: dict[str, object] = {"run": str(run.path), "task": run.recipe.task, "model": run.recipe.model.kind}
        described |= {"seed": run.seed, "update": run.update}
        described |= {key: own[key] for key in varied if key.partition(".")[0] not in _IN_OTHER_COLUMNS}
        validation = {f"validation_{name}": value for name, value in run.validation.items()}
        found.append(described | validation | run.scores)
    return found


def format_sweep(runs: Sequence[tuple[Mapping[str, str], ListedRun]]) -> str:
    """Return the scores of a sweep as a table, best validation first, with means over seeds.

    Args:
        runs: The runs, each with its value of each swept key.
    """
    from s2s.evaluation.inference import mean

    def shown(scores: Sequence[Mapping[str, float]]) -> str:
        means = {name: mean([each[name] for each in scores]) for name in _shared(scores)}
        ends = {name: "" if e.low is None else f" ({e.low:.2f} to {e.high:.2f})" for name, e in means.items()}
        return " · ".join(f"{name} {e.value:.2f}{ends[name]}" for name, e in means.items()) or "–"

    groups = dict[tuple[str, ...], list[ListedRun]]()
    for values, run in runs:
        groups.setdefault(tuple(value for key, value in values.items() if key != "seed"), []).append(run)
    keys = [key for key in (runs[0][0] if runs else ()) if key != "seed"]
    lines, unranked = list[tuple[tuple[float, float], tuple[str, ...]]](), (-math.inf, -math.inf)
    for values, group in groups.items():
        ranks = [run.best.rank if run.best else unranked for run in group]
        cells = shown([run.validation for run in group]), shown([run.scores for run in group])
        rank = sum(each[0] for each in ranks) / len(ranks), sum(each[1] for each in ranks) / len(ranks)
        lines.append((rank, (*values, str(len(group)), *cells)))
    ordered = [cells for _, cells in sorted(lines, key=lambda line: line[0], reverse=True)]
    table = _aligned([(*keys, "seeds", "validation", "test scores"), *ordered])
    smallest = min(map(len, groups.values()), default=1)
    return table if len(runs) == len(groups) else f"{table}\nmeans over seeds ({_INTERVAL}{_hint(smallest)})"


def format_runs(runs: Sequence[ListedRun]) -> str:
    """Return runs and scores as a table, with the means of runs that differ only in their seeds."""
    lines: list[tuple[str, ...]] = [("run", "task", "model", "seed", "update", "validation", "test scores")]
    for run in runs:
        described = (str(run.path), run.recipe.task, run.recipe.model.kind, run.seed, f"{run.update:,}")
        scores = (" · ".join(f"{name} {v:.2f}" for name, v in each.items()) for each in (run.validation, run.scores))
        lines.append((*described, *(each or "–" for each in scores)))
    return "\n".join([_aligned(lines), *_means(runs)])


def _is_other(path: Path) -> bool:
    """Return True for a folder with a recipe that is no run: of a comparison, an export, or a half-written one."""
    return bool(identify_folder(path)) or (path / EXPORTED).exists() or path.name.startswith(UNFINISHED)


def _shared(scores: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the names that all runs have: one may have been evaluated with other metrics."""
    return [name for name in scores[0] if all(name in each for each in scores)]


def _hint(seeds: int) -> str:
    # Student's t with one degree of freedom: 12.7 standard errors on each side, of half the difference each.
    return "; of two seeds it is 13 times as wide as their difference: train more" if seeds == 2 else ""


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def _means(runs: Sequence[ListedRun]) -> list[str]:
    """Return a line with mean and 95 % interval over seeds for each score of runs that differ only in their seeds."""
    from s2s.evaluation.inference import mean

    lines = list[str]()
    tested = sorted((run for run in runs if run.scores), key=lambda run: run.settings)
    for _, same in itertools.groupby(tested, key=lambda run: run.settings):
        group = {run.seed: run for run in same}
        if len(group) < 2:
            continue
        scores = [run.scores for run in group.values()]
        found = {name: mean([each[name] for each in scores]) for name in _shared(scores)}
        first = next(iter(group.values()))
        name, kind = _SEED.sub("", str(first.path)), first.recipe.model.kind
        lines.append(f"mean of {len(group)} seeds ({_INTERVAL}{_hint(len(group))}), {name}, {kind}:")
        lines += [f"  {name:10} {each.value:.2f} ({each.low:.2f} to {each.high:.2f})" for name, each in found.items()]
    return ["", *lines] if lines else []
