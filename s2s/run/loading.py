"""From a run's folder to a model that is ready to translate."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from s2s.data.tokenizers import Tokenizer
from s2s.decoding.translator import Translator
from s2s.errors import UserError, quoted
from s2s.models.contract import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.reading import read
from s2s.recipe.schema import DeviceSettings, Recipe, TokenizerSettings
from s2s.run.folder import RECIPE, TOKENIZER, check_is_run, check_sections, sides
from s2s.run.tasks import check_task
from s2s.training.checkpoint import Checkpoints, load_weights
from s2s.training.devices import Computer, choose, prepare_process, seed_for


@dataclass(frozen=True)
class LoadedRun:
    """A trained model with all that is needed to use it.

    Attributes:
        checkpoint: the folder its weights came from.
        recipe: what it was trained by, with the caller's overrides.
        model: in evaluation mode, on the computer's device.
        source_tokenizer: cuts the source.
        target_tokenizer: joins the target.
        computer: device and precision.
    """

    checkpoint: Path
    recipe: Recipe
    model: Seq2Seq
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    computer: Computer

    def translator(self) -> Translator:
        """Text in, text out, as `decoding` in the recipe says."""
        return Translator(self.model, self.source_tokenizer, self.target_tokenizer, self.recipe.decoding)


def load_run(path: Path, checkpoint: str | None = None, overrides: Sequence[str] = ()) -> LoadedRun:
    """Loads a trained model.

    Args:
        path: a run's folder, or that of one checkpoint.
        checkpoint: `best`, `last`, `average` or a checkpoint's name; the average where there is one, else the best,
            when None.
        overrides: `section.key=value`, for what may change after training: `data`, `decoding`, `device`.

    Raises:
        UserError: it is not a run of translation, it has no such checkpoint, or a file is damaged.
    """
    check_task(path, "translation", {"classification": f"s2s classify {quoted(path)}"})
    check_sections(overrides, ("data", "decoding", "device"), "a trained model keeps its recipe")
    folder = find_checkpoint(path, checkpoint)
    recipe = read(folder / RECIPE, overrides)
    computer = computer_for(recipe.device, overrides)
    source, target = load_tokenizers(folder / TOKENIZER, recipe.tokenizer)
    model = build_model(recipe, source.size, target.size)
    load_weights(model, folder / "model.safetensors")
    return LoadedRun(folder, recipe, model.to(computer.device).eval(), source, target, computer)


def prepare_for(path: Path, overrides: Sequence[str] = ()) -> None:
    """Prepares this process as a run's recipe or an override asks, for a command that is about to load the run.

    Args:
        path: of a run or a checkpoint.
        overrides: `section.key=value`.

    Raises:
        UserError: it is neither, or an override is wrong.
    """
    check_is_run(path)
    prepare_process(read(path / RECIPE, overrides).device)


def computer_for(settings: DeviceSettings, overrides: Sequence[str]) -> Computer:
    """What the recipe or an override asks for; what there is, where a run comes from a machine with other devices.

    Raises:
        UserError: an override asks for what is not here.
    """
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
    if (path / "model.safetensors").exists():
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


def build_model(recipe: Recipe, source_size: int, target_size: int) -> Seq2Seq:
    """A model as the recipe describes it, with the initial weights that its seed gives."""
    torch.manual_seed(seed_for(recipe.seeds.initialization))
    return module_of(recipe.model.kind).build(recipe.model, source_size, target_size)


def load_tokenizers(folder: Path, settings: TokenizerSettings) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target; one and the same where they are shared."""
    found = [Tokenizer.load(folder, side) for side in sides(settings)]
    return found[0], found[-1]
