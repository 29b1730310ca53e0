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
from s2s.recipe.schema import FineTunedRecipe, TokenizerSettings, TrainRecipe
from s2s.run.folder import RECIPE, TOKENIZER, check_is_run, resolve_run_path
from s2s.run.inference import check_saved, find_checkpoint
from s2s.run.published.description import HUB, POOLER
from s2s.run.tasks import read
from s2s.training.checkpoint import Checkpoints
from s2s.training.optimization import layer_name
from s2s.training.tensor_files import read_weights

_REPORT = "init_from.json"


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
        parts = {
            "loaded": [*_grouped(self.loaded), *(f"{name} ({rows})" for name, rows in self.partly.items())],
            "left out": _grouped(self.left_out),
            "new": _grouped(self.new),
        }
        lines = (f"  {word:10}  {', '.join(names) or 'none'}" for word, names in parts.items())
        return "\n".join([f"from {self.source}", *lines])

    @staticmethod
    def read(path: Path) -> "LoadReport":
        """Read the report that a run saved; a damaged file raises a `UserError`."""
        return read_json(path, LoadReport, "restore it; it names the tensors with their own learning rate")

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

    def __str__(self) -> str:
        return f"{self.recipe.name} ({self.recipe.task}), checkpoint {self.checkpoint}"

    def adapt_recipe(self, recipe: FineTunedRecipe) -> FineTunedRecipe:
        """Return the new recipe with this run's tokenizer section, and an absolute path in `init_from`."""
        there: Any = self.recipe
        cut = there.tokenizer.of("source") if isinstance(there.tokenizer, TokenizerSettings) else there.tokenizer
        # With two vocabularies, one is this run's; the section says how the other is trained.
        shared = getattr(recipe.tokenizer, "shared", True)
        same = cut.model_dump() if shared else {"source": cut}
        own, changes = recipe.tokenizer, {"tokenizer": recipe.tokenizer.model_copy(update=same)}
        whole = False
        if len(self.tokenizers) == 2 and isinstance(own, TokenizerSettings):
            whole = True
            changes = {"tokenizer": there.tokenizer.model_copy(update={"sampling": own.sampling})}
        if whole and "tie" not in recipe.model.model_fields_set and hasattr(there.model, "tie"):
            # Shared embeddings stay shared; the default of `tie` is that of a single vocabulary.
            changes["model"] = recipe.model.model_copy(update={"tie": there.model.tie})
        origin = recipe.init_from or ""
        origin = origin if origin.startswith(HUB) else str(Path(origin).absolute())
        return recipe.model_copy(update=changes | {"init_from": origin})


def open_pretrained(recipe: FineTunedRecipe) -> PretrainedRun:
    """Open the run of a recipe's `init_from`.

    Raises:
        UserError: The folder is not a run, has no checkpoint or no tokenizer, or the whole model is requested but one
            model has one vocabulary and the other has two.
    """
    path = resolve_run_path(Path(recipe.init_from or ""))
    check_is_run(path)
    checkpoint = find_checkpoint(path, None)
    names = sorted(file.stem for file in (checkpoint / TOKENIZER).glob("*.model"))
    if not names:
        raise UserError("the run has no tokenizer, so it reads no text", f"init_from: {path}", "name another run")
    if recipe.init.parts == "all":
        two, section = "source" in names, recipe.tokenizer
        has_sides = isinstance(section, TokenizerSettings)
        if two and not has_sides:
            what, remedy = "that run has two vocabularies, and this model has one", "set init.parts: encoder"
            raise UserError(f"{what}, so token ids differ", "init.parts: all", remedy)
        if not two and isinstance(section, TokenizerSettings) and not section.shared:
            what = "that run has one vocabulary, and this model has two"
            remedy = "set tokenizer.shared: true, or init.parts: encoder"
            raise UserError(f"{what}, so token ids differ", "init.parts: all", remedy)
    elif "source" in names:
        # With two tokenizers, the encoder uses the source's.
        names = ["source"]
    there = checkpoint / TOKENIZER
    return PretrainedRun(checkpoint, read(checkpoint / RECIPE), tuple(Tokenizer.load(there, name) for name in names))


@dataclass(frozen=True)
class Initialization:
    """Initialization of a model from another run.

    Attributes:
        recipe: Recipe of the new model.
        load_report: Loaded tensors.
        source: The other run; None if it was not opened.
    """

    recipe: FineTunedRecipe
    load_report: LoadReport
    source: PretrainedRun | None = None

    @property
    def scales(self) -> dict[str, float]:
        """Learning-rate factors by tensor name, for the `Trainer`."""
        return dict.fromkeys(self.load_report.names(), self.recipe.init.learning_rate_scale)

    def save(self, folder: Path) -> None:
        """Save the load report in a run's folder, so that resuming needs no other run."""
        write_atomically(folder / _REPORT, json.dumps(asdict(self.load_report), indent=1, ensure_ascii=False) + "\n")

    def log_summary(self, print_fn: Callable[[str], None]) -> None:
        """Print the loaded, skipped and new tensors, and the settings that differ."""
        print_fn(str(self.load_report))
        init = self.recipe.init
        if self.source is not None:
            cut = self.source.tokenizers
            sizes = " and ".join(f"{each.size:,}" for each in cut)
            print_fn(f"  tokenizer{'s' * len(cut[1:]):3}{sizes} tokens ({cut[0].kind})")
            ours, theirs = self.recipe.model.model_dump(), self.source.recipe.model.model_dump()
            for key in ours:
                is_loaded = init.parts == "all" or not key.startswith("decoder_")
                if is_loaded and key in theirs and ours[key] != theirs[key]:
                    print_fn(f"  differs     model.{key} is {ours[key]}, there {theirs[key]}")
        if init.freeze != "nothing":
            print_fn(f"  frozen      {'embeddings' if init.freeze == 'embeddings' else 'all loaded tensors'}")
        if init.learning_rate_scale != 1:
            print_fn(f"  slower      loaded tensors have {init.learning_rate_scale:g} times the learning rate")


def initialize_from(
    model: nn.Module, recipe: FineTunedRecipe, source: PretrainedRun | None, folder: Path | None
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
    if folder is not None and Checkpoints(folder).last() is not None and (folder / _REPORT).exists():
        report = LoadReport.read(folder / _REPORT)
    else:
        source = source or open_pretrained(recipe)
        check_saved(source.checkpoint)
        tensors = read_weights(source.checkpoint / "model.safetensors")
        pooler = source.checkpoint / POOLER
        tensors |= read_weights(pooler) if pooler.exists() else {}
        report = load_encoder_weights(model, tensors, str(source), recipe.init.parts == "all")
    freeze_loaded(model, report.names(), recipe.init.freeze)
    return Initialization(recipe, report, source)


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
    tables = {*_embeddings(model), "projection.weight", "projection.bias"}
    loaded, partly, wrong = [], {}, []
    with torch.no_grad():
        for name, tensor in tensors.items():
            if not (whole or name.startswith("encoder.")) or name not in wanted:
                continue
            mine = wanted[name]
            if mine.shape == tensor.shape:
                mine.copy_(tensor)
                loaded.append(name)
            elif name in tables and mine.shape[1:] == tensor.shape[1:]:
                rows = min(len(mine), len(tensor))
                mine[:rows] = tensor[:rows].to(mine)
                partly[name] = f"{rows:,} of {len(tensor):,} rows"
                if len(mine) > rows:
                    partly[name] += f", {len(mine) - rows:,} new"
            else:
                there, here = (" × ".join(f"{size:,}" for size in t.shape) for t in (tensor, mine))
                wrong.append(f"{name} is {there} there and {here} here")
    if wrong:
        raise UserError(
            f"{len(wrong)} tensors of {source} have another shape; {wrong[0]}",
            where="init_from",
            remedy="give `model` the same width and the same sizes as that run's recipe.yaml",
        )
    if not (loaded or partly):
        raise UserError(
            f"no tensor of {source} matches this model's encoder",
            where="init_from",
            remedy="set model.kind to that of the run, or name another run; a language model has no encoder",
        )
    known = {*loaded, *partly}
    return LoadReport(
        source, loaded, partly, [n for n in tensors if n not in known], [n for n in wanted if n not in known]
    )


def freeze_loaded(model: nn.Module, names: Sequence[str], which: str) -> list[str]:
    """Freeze loaded tensors, and return their names.

    Args:
        model: The model, changed in place.
        names: Names of the loaded tensors.
        which: `nothing`, `embeddings` or `all`.
    """
    tables = _embeddings(model)
    frozen = [n for n in names if which == "all" or (which == "embeddings" and n in tables)]
    parameters = dict(model.named_parameters())
    for name in frozen:
        parameters[name].requires_grad_(False)
    return frozen


def _embeddings(model: nn.Module) -> set[str]:
    return {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
