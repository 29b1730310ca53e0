"""Table of runs with their test scores, and means over seeds."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from s2s.errors import UserError
from s2s.files import LARGE_BYTES
from s2s.json_files import read_json
from s2s.recipe.schema import RunSettings, SeedSettings, TrainRecipe
from s2s.run.folder import RECIPE, identify_folder
from s2s.run.tasks import read

_SCORES = "evaluation-test.json"


@dataclass(frozen=True)
class ListedRun:
    """A run and its scores.

    Attributes:
        path: Folder of the run.
        recipe: Recipe of the run.
        update: Last saved optimizer step; 0 if there is none.
        scores: Headline scores on the test set by name; empty if the run has not been tested.
    """

    path: Path
    recipe: TrainRecipe
    update: int
    scores: dict[str, float]

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

    def row(self) -> dict[str, str | int | float]:
        """Return the run as a row of a table, with a column for each score."""
        described = {"run": str(self.path), "task": self.recipe.task, "model": self.recipe.model.kind}
        return {**described, "seed": self.seed, "update": self.update, **self.scores}


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
    scores, checkpoints = path / _SCORES, (path / "checkpoints").glob("[0-9]*")
    found = (
        read_json(scores, _Evaluation, "evaluate the run again", LARGE_BYTES).summary.scores if scores.exists() else {}
    )
    update = max((int(each.name) for each in checkpoints if each.name.isdigit()), default=0)
    return ListedRun(path, read(path / RECIPE), update, found)


def list_runs(folder: Path) -> list[ListedRun]:
    """Read the recipes and the scores of all runs in a folder, in the order of their names.

    Raises:
        UserError: There is no such folder, or a file of a run is damaged.
    """
    if not folder.is_dir():
        raise UserError("there is no such folder", str(folder), "name the folder that contains the runs")
    places = [path for path in sorted(folder.iterdir()) if (path / RECIPE).is_file() and not identify_folder(path)]
    return [list_run(path) for path in places]


def format_runs(runs: Sequence[ListedRun]) -> str:
    """Return runs and scores as a table, with the means of runs that differ only in their seeds."""
    rows = [("run", "task", "model", "seed", "update", "test scores")]
    for run in runs:
        scores = " · ".join(f"{name} {value:.2f}" for name, value in run.scores.items())
        cells = (str(run.path), run.recipe.task, run.recipe.model.kind, run.seed, f"{run.update:,}", scores or "–")
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *_means(runs)])


def _means(runs: Sequence[ListedRun]) -> list[str]:
    """Return a line with mean and 95 % interval over seeds for each score of runs that differ only in their seeds."""
    from s2s.evaluation.inference import mean

    lines = list[str]()
    tested = sorted((run for run in runs if run.scores), key=lambda run: run.settings)
    for _, same in itertools.groupby(tested, key=lambda run: run.settings):
        group = {run.seed: run for run in same}
        if len(group) < 2:
            continue
        found = {name: mean([run.scores[name] for run in group.values()]) for name in next(iter(group.values())).scores}
        first = next(iter(group.values()))
        lines.append(
            f"mean of {len(group)} seeds (95 % interval, Student's t), {first.recipe.name}, {first.recipe.model.kind}:"
        )
        lines += [f"  {name:10} {each.value:.2f} ({each.low:.2f} to {each.high:.2f})" for name, each in found.items()]
    return ["", *lines] if lines else []
