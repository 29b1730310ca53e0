"""Initialization from another run (`init_from`): its encoder, or the whole model."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.files import write_atomically
from s2s.json_files import read_json
from s2s.recipe.schema import FineTunedRecipe, InitSettings, TokenizerSettings, TrainRecipe
from s2s.run.folder import RECIPE, TOKENIZER, check_is_run
from s2s.run.hub import is_on_hub, resolve_run_path
from s2s.run.inference import check_saved, find_checkpoint
from s2s.run.published.description import POOLER
from s2s.run.tasks import read
from s2s.training.checkpoint import Checkpoints
from s2s.training.optimization import layer_name
from s2s.training.tensor_files import read_weights

_ENCODER = "encoder."
_KEPT = "init_from.json"


@dataclass(frozen=True)
class LoadReport:
    """Report of the tensors that were loaded from another run.

    Attributes:
        loaded: Names of tensors loaded in full.
        partly: Tensors of which only the first rows were loaded, with a note such as `8,000 of 8,001 rows`.
        left_out: Tensors of the other run that the new model does not have.
        new: Tensors that are newly initialized.
    """

    source: str
    loaded: list[str]
    partly: dict[str, str]
    left_out: list[str]
    new: list[str]

    def __str__(self) -> str:
        partly = [f"{name} ({rows})" for name, rows in self.partly.items()]
        parts = (
            ("loaded", [*_grouped(self.loaded), *partly]),
            ("left out", _grouped(self.left_out)),
            ("newly made", _grouped(self.new)),
        )
        return "\n".join([f"from {self.source}", *(f"  {w:10}  {', '.join(n) or 'nothing'}" for w, n in parts)])

    @staticmethod
    def read(path: Path) -> "LoadReport":
        """Read the report that a run saved.

        Raises:
            UserError: The file is damaged.
        """
        return read_json(path, LoadReport, "restore it; without it nobody knows what learns how fast")

    def names(self) -> list[str]:
        """Return the names of all loaded tensors, full or partial."""
        return [*self.loaded, *self.partly]


def _grouped(names: Iterable[str]) -> list[str]:
    counts: dict[str, list[str]] = {}
    for name in names:
        counts.setdefault(layer_name(name), []).append(name)
    return [same[0] if len(same) == 1 else f"{group} ({len(same)} tensors)" for group, same in counts.items()]


@dataclass(frozen=True)
class PretrainedRun:
    """A run that initializes a new model.

    Attributes:
        tokenizers: Tokenizer of the encoder's input; with `init.parts: all` and two vocabularies, also the
            target's.
    """

    checkpoint: Path
    recipe: TrainRecipe
    tokenizers: tuple[Tokenizer, ...]

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the encoder's input."""
        return self.tokenizers[0]

    def __str__(self) -> str:
        return f"{self.recipe.name} ({self.recipe.task}), checkpoint {self.checkpoint}"

    def adapt_recipe(self, recipe: FineTunedRecipe) -> FineTunedRecipe:
        """Adapt a new recipe to this run.

        Returns:
            The recipe with this run's tokenizer section, and an absolute path in `init_from`.
        """
        there: Any = self.recipe
        cut = there.tokenizer.of("source") if isinstance(there.tokenizer, TokenizerSettings) else there.tokenizer
        # With two vocabularies, one is this run's; the section says how the other is trained.
        shared = getattr(recipe.tokenizer, "shared", True)
        same = cut.model_dump() if shared else {"source": cut}
        whole = len(self.tokenizers) == 2 and isinstance(recipe.tokenizer, TokenizerSettings)
        changes = {"tokenizer": there.tokenizer if whole else recipe.tokenizer.model_copy(update=same)}
        if whole and "tie" not in recipe.model.model_fields_set and hasattr(there.model, "tie"):
            # Shared embeddings stay shared; the default of `tie` is that of a single vocabulary.
            changes["model"] = recipe.model.model_copy(update={"tie": there.model.tie})
        origin = recipe.init_from or ""
        origin = origin if is_on_hub(origin) else str(Path(origin).absolute())
        return recipe.model_copy(update=changes | {"init_from": origin})

    def differences(self, recipe: TrainRecipe) -> list[str]:
        """List model settings that differ: `model.dropout is 0.3, there 0.1`."""
        whole = isinstance(recipe, FineTunedRecipe) and recipe.init.parts == "all"
        ours, theirs = recipe.model.model_dump(), self.recipe.model.model_dump()
        return [
            f"model.{key} is {ours[key]}, there {theirs[key]}"
            for key in ours
            if key in theirs and ours[key] != theirs[key] and (whole or not key.startswith("decoder_"))
        ]


def open_pretrained(recipe: TrainRecipe) -> PretrainedRun | None:
    """Open the run that initializes a recipe's model.

    Returns:
        The run; None if the recipe has no `init_from`.

    Raises:
        UserError: The folder is not a run, has no checkpoint or no tokenizer, or the whole model is requested but one
            model has one vocabulary and the other has two.
    """
    if not isinstance(recipe, FineTunedRecipe) or recipe.init_from is None:
        return None
    path = resolve_run_path(recipe.init_from)
    check_is_run(path)
    checkpoint = find_checkpoint(path, None)
    names = sorted(file.stem for file in (checkpoint / TOKENIZER).glob("*.model"))
    if not names:
        raise UserError("has no tokenizer: it reads no text", where=f"init_from: {path}", remedy="name another run")
    if recipe.init.parts == "all":
        names = _both_sides(recipe, names)
    elif "source" in names:
        # With two tokenizers, the encoder uses the source's.
        names = ["source"]
    there = checkpoint / TOKENIZER
    return PretrainedRun(checkpoint, read(checkpoint / RECIPE), tuple(Tokenizer.load(there, name) for name in names))


def _both_sides(recipe: TrainRecipe, names: list[str]) -> list[str]:
    """Check the tokenizers for loading a whole model: one in both models, or two."""
    section, two = getattr(recipe, "tokenizer", None), "source" in names
    sides = isinstance(section, TokenizerSettings)
    if two and not sides:
        what, remedy = "that run has two vocabularies, and this model one", "set init.parts: encoder"
    elif not two and sides and not section.shared:
        what = "that run has one vocabulary, and this model two"
        remedy = "set tokenizer.shared: true, or init.parts: encoder"
    else:
        return names
    raise UserError(f"{what}: the vector of a piece would become that of another one", "init.parts: all", remedy)


@dataclass(frozen=True)
class Initialization:
    """Initialization of a model, from another run or new.

    Attributes:
        recipe: Recipe of the new model.
        load_report: Loaded tensors; None if nothing was loaded.
        source: The other run; None if it was not opened.
    """

    recipe: TrainRecipe
    load_report: LoadReport | None = None
    source: PretrainedRun | None = None

    @property
    def init(self) -> InitSettings:
        """Settings for the loaded tensors."""
        return self.recipe.init if isinstance(self.recipe, FineTunedRecipe) else InitSettings()

    @property
    def scales(self) -> dict[str, float]:
        """Learning-rate factors by tensor name, for the `Trainer`."""
        return dict.fromkeys(self.load_report.names() if self.load_report else (), self.init.learning_rate_scale)

    def save(self, folder: Path) -> None:
        """Save the load report in a run's folder, so that resuming needs no other run."""
        if self.load_report is not None:
            write_atomically(folder / _KEPT, json.dumps(asdict(self.load_report), indent=1, ensure_ascii=False) + "\n")

    def log_summary(self, print_fn: Callable[[str], None]) -> None:
        """Print the loaded, skipped and new tensors; nothing if no tensors were loaded."""
        if self.load_report is None:
            return
        print_fn(str(self.load_report))
        if self.source is not None:
            cut = self.source.tokenizers
            sizes = " and ".join(f"{each.size:,}" for each in cut)
            print_fn(f"  tokenizer{'s' * len(cut[1:]):3}taken over: {sizes} pieces ({cut[0].kind})")
            for difference in self.source.differences(self.recipe):
                print_fn(f"  differs     {difference}")
        init = self.init
        if init.freeze != "nothing":
            print_fn(f"  frozen      {'tables of vectors' if init.freeze == 'embeddings' else 'all that was loaded'}")
        if init.learning_rate_scale != 1:
            print_fn(f"  slower      what was loaded learns at {init.learning_rate_scale:g} of the learning rate")


def initialize_from(
    model: nn.Module, recipe: TrainRecipe, source: PretrainedRun | None, folder: Path | None
) -> Initialization:
    """Load the weights that a recipe's `init_from` names, and freeze them as set.

    Args:
        model: The new model, changed in place.
        source: The run to load from; None: opened as the recipe says.
        folder: Folder of a resumed run. Its checkpoint has the weights, so only the load report is read. None: a new
            run.

    Raises:
        UserError: The shapes do not match, or the run to load from does not exist.
    """
    if not isinstance(recipe, FineTunedRecipe) or recipe.init_from is None:
        return Initialization(recipe)
    if folder is not None and Checkpoints(folder).last() is not None and (folder / _KEPT).exists():
        taken = LoadReport.read(folder / _KEPT)
    else:
        source = source or open_pretrained(recipe)
        if source is None:
            return Initialization(recipe)
        check_saved(source.checkpoint)
        tensors = read_weights(source.checkpoint / "model.safetensors")
        pooler = source.checkpoint / POOLER
        tensors |= read_weights(pooler) if pooler.exists() else {}
        taken = load_encoder_weights(model, tensors, str(source), recipe.init.parts == "all")
    freeze_loaded(model, taken.names(), recipe.init.freeze)
    return Initialization(recipe, taken, source)


def load_encoder_weights(
    model: nn.Module, tensors: Mapping[str, Tensor], source: str, whole: bool = False
) -> LoadReport:
    """Copy tensors with equal names and shapes into an encoder, or the whole model.

    For embeddings with a different number of rows, the common rows are copied: a masked-language model has an extra
    row for the mask token, and learned positions may have another maximum length.

    Args:
        model: The model, changed in place.
        tensors: Tensors to load, by name.
        source: Name of their origin, for messages.
        whole: Load all tensors, not only those of the encoder.

    Raises:
        UserError: A tensor has another shape, or no name matches.
    """
    wanted = dict(model.named_parameters())
    tables = {*_tables(model), "projection.weight", "projection.bias"}
    loaded, partly, wrong = [], {}, []
    with torch.no_grad():
        for name, tensor in tensors.items():
            if not (whole or name.startswith(_ENCODER)) or name not in wanted:
                continue
            mine = wanted[name]
            if mine.shape == tensor.shape:
                mine.copy_(tensor)
                loaded.append(name)
            elif name in tables and mine.shape[1:] == tensor.shape[1:]:
                rows = min(len(mine), len(tensor))
                mine[:rows] = tensor[:rows].to(mine)
                partly[name] = f"{rows:,} of {len(tensor):,} rows" + (
                    f", {len(mine) - rows:,} newly made" if len(mine) > rows else ""
                )
            else:
                wrong.append(f"{name} is {_shape(tensor)} there and {_shape(mine)} here")
    if wrong:
        raise UserError(
            f"{len(wrong)} tensors of {source} have another shape; {wrong[0]}",
            where="init_from",
            remedy="give `model` the same width and the same sizes as that run's recipe.yaml",
        )
    if not (loaded or partly):
        raise UserError(
            f"no tensor of {source} has a place in this model's encoder",
            where="init_from",
            remedy="set model.kind to that of the run, or name another run",
        )
    known = {*loaded, *partly}
    return LoadReport(
        source, loaded, partly, [n for n in tensors if n not in known], [n for n in wanted if n not in known]
    )


def freeze_loaded(model: nn.Module, names: Sequence[str], which: str) -> list[str]:
    """Freeze loaded tensors.

    Args:
        model: The model, changed in place.
        names: Names of the loaded tensors.
        which: `nothing`, `embeddings` or `all`.

    Returns:
        The names of the frozen tensors.
    """
    tables = _tables(model)
    frozen = [n for n in names if which == "all" or (which == "embeddings" and n in tables)]
    parameters = dict(model.named_parameters())
    for name in frozen:
        parameters[name].requires_grad_(False)
    return frozen


def _tables(model: nn.Module) -> set[str]:
    return {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}


def _shape(tensor: Tensor) -> str:
    return " × ".join(f"{size:,}" for size in tensor.shape)
