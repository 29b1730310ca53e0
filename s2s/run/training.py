"""Trains a run, from its recipe to the scores of its test set, and goes on with one: the same for every task."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from s2s.run.course import follow, plain
from s2s.run.folder import alone, check_free, check_resumable, created, folder_of
from s2s.run.loaded import load_tokenizers
from s2s.run.pretrained import begin_with, open_source
from s2s.run.room import room_to_train
from s2s.run.tasks import task_of
from s2s.tasks.contract import Course, Prepared
from s2s.training.devices import choose
from s2s.training.trainer import Trainer

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask


def train(recipe: "AnyTask", console: Console, overwrite: bool = False, data: Prepared | None = None) -> Path:
    """Trains a new run; its folder is made only when data, tokenizers and model are found good.

    Args:
        recipe: what is trained, and how.
        console: where progress is shown.
        overwrite: replace a run that is there.
        data: of the recipe, where they were prepared before.

    Returns:
        The run's folder.
    """
    check_free(folder_of(recipe), overwrite)
    return _train(recipe, console, overwrite=overwrite, data=data)


def resume(folder: Path, console: Console, overrides: Sequence[str] = ()) -> Path:
    """Continues a run from its last checkpoint, as if it had never stopped.

    Args:
        folder: the run's folder.
        console: where progress is shown.
        overrides: `section.key=value`, for `data` and `device`; and `training.updates`, which the run keeps.

    Raises:
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    return _train(check_resumable(folder, overrides), console, folder, overrides)


def _train(
    recipe: "AnyTask",
    console: Console,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
    data: Prepared | None = None,
) -> Path:
    """The whole story: recipe, data, model, trainer; then it trains, and the best checkpoint is loaded and tested."""
    task, say = task_of(recipe), plain(console)
    with room_to_train(task, recipe):
        if folder is None:
            task.check(recipe)
        computer = choose(recipe.device)
        say(f"{recipe.name} on {computer}")

        source = open_source(recipe) if folder is None else None
        recipe = source.adapt(recipe) if source else recipe
        tokenizers = load_tokenizers(folder, recipe) if folder else (source.tokenizer,) if source else ()
        prepared = data or task.prepare(recipe, tokenizers, say)
        recipe = task.resolved(recipe, prepared)

        model = task.build(recipe, prepared.tokenizers)
        beginning = begin_with(model, recipe, source, folder)
        examples, loss = task.examples(recipe, prepared, model.to(computer.device)), task.loss(recipe)
        trainer = Trainer(model, examples, loss, recipe.training, recipe.seeds, computer, beginning.scales)

    with ExitStack() as stack:
        if folder is None:
            kept = dict(zip(task.tokenizer_names(recipe), prepared.tokenizers, strict=True))
            folder = stack.enter_context(created(recipe, kept, overwrite))
        else:
            stack.enter_context(alone(folder))
        follow(task, Course(recipe, prepared, trainer), beginning, folder, console, overrides)
    return folder
