"""Scores of runs on their corpora: on a split of which nothing was learned, whatever the task."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
from rich.console import Console

from s2s.data.text_files import line_pairs
from s2s.errors import UserError
from s2s.files import explained
from s2s.run import manifest
from s2s.run.folder import MANIFEST, Opened, opened
from s2s.run.loaded import load
from s2s.run.tasks import task_of
from s2s.tasks.contract import Evaluation, Prepared, Scoring, Task
from s2s.training.devices import prepare_process
from s2s.training.progress import Meter, meter, silent


def evaluate(
    run: Opened | Path,
    split: str = "test",
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    keep: bool = True,
    meter: Meter = silent,
    lowercase: bool = False,
    files: tuple[Path, Path] | None = None,
) -> Any:
    """Scores a run on a split, as its task does.

    Args:
        run: as it was opened, or its folder.
        split: `test` or `validation`.
        checkpoint: see `load`.
        overrides: of a folder, `section.key=value`, for what may change after training.
        keep: whether this is the run's result, kept in its folder.
        meter: shows how far it is.
        lowercase: of translations: without regard to case.
        files: of translations: sources and references, line by line, in the place of a split.

    Raises:
        UserError: it is not a run, its recipe has no such split, or the files have not equally many lines, or none.
    """
    run = opened(run, overrides) if isinstance(run, Path) else run
    loaded = load(run, checkpoint)
    task = task_of(loaded.recipe)
    part = _from_files(*files) if files else part_to_score(run, loaded.recipe, split)
    evaluation = task.evaluate(loaded, part, Scoring(split, lowercase, files), meter)
    if keep:
        evaluation.keep()
    return evaluation


def part_to_score(run: Opened, recipe: Any, split: str) -> Any:
    """The examples of a split, of which a run has learned none, by its recipe with what was changed for now.

    Raises:
        UserError: the recipe has no such split, or other examples would be held out than for the training.
    """
    source = task_of(recipe).source(recipe)
    part = source.part(split)
    wanted = getattr(recipe.data, split)
    if part is None and isinstance(wanted, int):
        part = getattr(source.load(), split)
        folder = run.path if (run.path / MANIFEST).exists() else run.path.parent.parent
        starts = manifest.read(folder / MANIFEST)
        kept = starts[0]["hashes"].get(_name(split)) if starts else None
        # a run that held nothing out for this split has learned from all that could be drawn now
        held_out = isinstance(getattr(run.kept.data, split), int)
        if not held_out or kept not in (None, source.digest(part)):
            raise UserError(
                f"the {split} set is drawn from the training data, and would not be the one that was held out when the "
                "run was trained: training has seen some of it",
                where=f"{run.path}: data.{split}: {wanted}",
                remedy=f"restore the training data and data.seed, or name a file or split: data.{split}=NAME",
            )
    if part is None:
        raise UserError(f"the run's recipe has no {split} set", remedy=f"name one: data.{split}=NAME")
    return part


def hashes_of(task: Task[Any, Any, Any], recipe: Any, data: Prepared) -> dict[str, str]:
    """What a run's manifest keeps of its data, so that they are known again: what is learned, and what is held out."""
    parts, source = data.corpus.parts(), task.source(recipe)
    held_out = [
        name for name in ("validation", "test") if name in parts and isinstance(getattr(recipe.data, name), int)
    ]
    return data.hashes() | {_name(name): source.digest(parts[name]) for name in held_out}


def _name(split: str) -> str:
    return f"held_out_{split}"


def _from_files(source: Path, reference: Path) -> datasets.Dataset:
    rows = list(line_pairs(source, reference))
    if not rows:
        raise UserError("has no lines", where=str(source), remedy="name a file with a sentence a line")
    return datasets.Dataset.from_list(rows)


def score_together(
    runs: Sequence[Opened], scoring: Scoring, checkpoint: str | None, tell: Callable[[str], None]
) -> tuple[list[Evaluation], Sequence[Any]]:
    """Scores runs of one task and, where there are several, tests each against the first.

    Returns:
        The evaluations and the comparisons; that scores could not be kept is told beside them.
    """
    prepare_process(runs[0].recipe.device)
    # beside the results, which may go into a file; nothing where nobody looks
    console = Console(stderr=True)
    shown = meter(console) if console.is_terminal else silent
    evaluations = [
        evaluate(run, scoring.split, checkpoint, (), False, shown, scoring.lowercase, scoring.files) for run in runs
    ]
    comparisons = task_of(runs[0].recipe).compare(evaluations) if len(runs) > 1 else ()
    # what another search, checkpoint or corpus scores is not the run's result
    for evaluation in evaluations if checkpoint is None and not runs[0].overrides else ():
        try:
            evaluation.keep()
        except OSError as error:
            tell(f"the scores are shown, but not kept: {explained(error)}")
    return evaluations, comparisons
