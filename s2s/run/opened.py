"""A run whose recipe was read: what commands ask of it before anything heavy is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError, quoted
from s2s.run.folder import RECIPE, check_is_run, check_sections
from s2s.run.tasks import read, schema_of

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask


@dataclass(frozen=True)
class Opened:
    """A run, or a checkpoint, whose recipe was read.

    Attributes:
        path: its folder.
        overrides: `section.key=value`, for what may change after training.
        kept: its recipe.
        recipe: with the overrides.
    """

    path: Path
    overrides: tuple[str, ...]
    kept: "AnyTask"
    recipe: "AnyTask"


def opened(path: Path, overrides: Sequence[str] = (), tasks: Sequence[str] = ()) -> Opened:
    """Reads the recipe of a run.

    Args:
        path: of a run or a checkpoint.
        overrides: `section.key=value`.
        tasks: of which it must be; any when empty.

    Raises:
        UserError: it is neither, or of another task, or an override would make the model another one.
    """
    check_is_run(path)
    kept = read(path / RECIPE)
    schema = schema_of(kept)
    if tasks and kept.task not in tasks:
        other = schema.command in ("translate", "classify")
        raise UserError(
            f"is a run of task {kept.task}, not {tasks[0]}",
            where=str(path),
            remedy=f"use `s2s {schema.command} {quoted(path)}`" if other else f"name a run of task {tasks[0]}",
        )
    check_sections(overrides, schema.changeable, "a trained model keeps its recipe")
    return Opened(path, tuple(overrides), kept, read(path / RECIPE, overrides) if overrides else kept)


def opened_together(paths: Sequence[Path], overrides: Sequence[str], options: Mapping[str, object]) -> list[Opened]:
    """Reads the recipes of runs that are to be scored together.

    Args:
        paths: of the runs.
        overrides: `section.key=value`, for all of them.
        options: of `s2s evaluate`, with what was given for each.

    Raises:
        UserError: no run is named, or one twice, or they are of different tasks; or an option says nothing to them.
    """
    if not paths:
        raise UserError("no run is named", remedy="s2s evaluate runs/NAME")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("the same run is named twice", remedy="name each run once")
    runs = [opened(path) for path in paths]
    if len({run.kept.task for run in runs}) > 1:
        raise UserError(
            f"runs of different tasks: {', '.join(f'{run.path} ({run.kept.task})' for run in runs)}",
            remedy="evaluate runs of one task together",
        )
    known = schema_of(runs[0].kept).scored_by
    if wrong := [option for option, value in options.items() if value and option not in known]:
        raise UserError(f"{', '.join(wrong)} says nothing to runs of {runs[0].kept.task}", remedy="leave it out")
    return [opened(path, overrides) for path in paths] if overrides else runs
