"""Trains a run, from its recipe to the scores of its test set, and goes on with one: the same for every task."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from s2s.run.course import Running, plain
from s2s.run.folder import alone, check_free, check_resumable, created, folder_of, of_now
from s2s.run.loaded import load_tokenizers
from s2s.run.pretrained import begin_with, open_source
from s2s.run.room import room_to_train
from s2s.run.stopping import resumable
from s2s.run.tasks import task_of
from s2s.tasks.contract import Course, Prepared
from s2s.training.devices import choose
from s2s.training.divergence import check_sound
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
    return carry_out(recipe, console, overwrite=overwrite, data=data)


def resume(folder: Path, console: Console, overrides: Sequence[str] = (), recipe: "AnyTask | None" = None) -> Path:
    """Continues a run from its last checkpoint, as if it had never stopped.

    Args:
        folder: the run's folder.
        console: where progress is shown.
        overrides: `section.key=value`, for `data` and `device`; and `training.updates`, which the run keeps.
        recipe: as `check_resumable` gave it; None: it is asked.

    Raises:
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    return carry_out(recipe or check_resumable(folder, overrides), console, folder, overrides)


def carry_out(
    recipe: "AnyTask",
    console: Console,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
    data: Prepared | None = None,
) -> Path:
    """The story of a run: recipe, data, model, trainer; it trains, and its best checkpoint is loaded and tested.

    Args:
        recipe: what is trained, and how.
        console: where progress is shown.
        folder: of a run that goes on; None: a new one.
        overrides: with which a run goes on.
        overwrite: replace a run that is there.
        data: of the recipe, where they were prepared before.
    """
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
        kept = dict(zip(task.tokenizer_names(recipe), prepared.tokenizers, strict=True))
        folder = stack.enter_context(alone(folder) if folder else created(recipe, kept, overwrite))
        run = Running(task, Course(recipe, prepared, trainer), beginning, folder, console)
        again = ["s2s", "train", str(folder), "--resume", *overrides]
        stack.enter_context(resumable(folder, again, run.stands))
        with run.begin() as log:
            run.train(log)
            run.test(log, of_now(overrides))
        check_sound(folder, model, task.guessing(prepared))
    return folder
