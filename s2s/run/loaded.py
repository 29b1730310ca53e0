"""From a run's folder to a model that is ready to be used, whatever its task."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError, quoted
from s2s.recipe.schema import DeviceSettings
from s2s.run.folder import RECIPE, TOKENIZER, Opened, opened
from s2s.run.tasks import read, task_of
from s2s.tasks.contract import Loaded
from s2s.training.checkpoint import Checkpoints, load_weights
from s2s.training.devices import Computer, choose, prepare_process

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask

_WEIGHTS = "model.safetensors"


def load(run: Opened | Path, checkpoint: str | None = None, overrides: Sequence[str] = ()) -> Loaded[Any, Any]:
    """Loads a trained model.

    Args:
        run: as it was opened; or a run's folder, or that of one checkpoint.
        checkpoint: `best`, `last`, `average` or a checkpoint's name; the average where there is one, else the best,
            when None.
        overrides: of a folder, for what may change after training.

    Raises:
        UserError: it is no run, it has no such checkpoint, or a file is damaged.
    """
    run = opened(run, overrides) if isinstance(run, Path) else run
    folder = find_checkpoint(run.path, checkpoint)
    kept, recipe = run.kept, run.recipe
    if (folder / RECIPE).read_bytes() != (run.path / RECIPE).read_bytes():
        # what was trained is what the checkpoint says
        kept, recipe = read(folder / RECIPE), read(folder / RECIPE, run.overrides)
    task = task_of(recipe)
    task.check_use(kept, recipe)
    computer = _computer_for(recipe.device, run.overrides)
    tokenizers = load_tokenizers(folder, recipe)
    model = task.build(recipe, tokenizers)
    load_weights(model, folder / _WEIGHTS)
    return Loaded(run.path, folder, recipe, model.to(computer.device).eval(), tokenizers, computer)


def ready(run: Opened, checkpoint: str | None = None) -> Loaded[Any, Any]:
    """Loads a trained model into a process that is then as its recipe asks: for a command that uses it alone."""
    prepare_process(run.recipe.device)
    return load(run, checkpoint)


def load_tokenizers(folder: Path, recipe: "AnyTask") -> tuple[Tokenizer, ...]:
    """The tokenizers that a run, or a checkpoint, keeps."""
    return tuple(Tokenizer.load(folder / TOKENIZER, name) for name in task_of(recipe).tokenizer_names(recipe))


def _computer_for(settings: DeviceSettings, overrides: Sequence[str]) -> Computer:
    """What the recipe or an override asks for; what there is, where a run comes from a machine with other devices."""
    try:
        return choose(settings)
    except UserError:
        if any(override.startswith("device.") for override in overrides):
            raise
        return choose(settings.model_copy(update={"kind": "auto"}))


def find_checkpoint(path: Path, name: str | None) -> Path:
    """The folder of a run's checkpoint.

    Raises:
        UserError: there is none of that name.
    """
    if (path / _WEIGHTS).exists():
        if name is not None:
            raise UserError("is a checkpoint itself", where=str(path), remedy=f"leave out --checkpoint {name}")
        return path
    checkpoints = Checkpoints(path)
    average = checkpoints.folder / "average"
    if name is None:
        found = average if average.exists() else checkpoints.best()
    elif name in ("best", "last"):
        found = checkpoints.best() if name == "best" else checkpoints.last()
    else:
        found = checkpoints.folder / (name.zfill(7) if name.isdigit() else name)
    if found is None:
        raise UserError(
            "has no checkpoint yet",
            where=str(path),
            remedy=f"train it to the first one: s2s train {quoted(path)} --resume",
        )
    if not found.exists():
        there = ", ".join(sorted(p.name for p in checkpoints.folder.glob("[!.]*"))) or "none"
        raise UserError(
            f"no checkpoint {name!r}; there: {there}", where=str(path), remedy="name one of these, best or last"
        )
    return found
