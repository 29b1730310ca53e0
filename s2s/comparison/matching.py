"""Parameter matching: find the width with which a model has a given number of parameters."""

import bisect
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from pydantic import ValidationError
from torch import nn

from s2s.comparison.spec import NoSuchSize
from s2s.errors import UserError
from s2s.models.base import Seq2Seq, count_parameters
from s2s.models.meta_device import on_meta_device
from s2s.recipe.installed import module_of, translator_settings
from s2s.recipe.schema import Section

TOLERANCE = 0.05
_WIDEST = 4096
_counts: dict[Hashable, int] = {}


@dataclass(frozen=True)
class ModelSpec:
    """Builder of the models of a task, and counter of their parameters.

    Attributes:
        section: Returns the settings class of a kind of model.
        build: Builds the whole model of a kind from its settings.
        pieces: Size of the vocabulary.
        key: Everything that the number of parameters depends on, except kind and settings.
    """

    section: Callable[[str], type[Section]]
    build: Callable[[str, Section], nn.Module]
    pieces: int
    key: Hashable

    def parameters(self, kind: str, settings: Section) -> int:
        """Count the trainable parameters of the whole model with these settings."""
        # Each question and each resume match the same candidates, and building a model takes a while.
        place = self.key, id(module_of(kind)), settings.model_dump_json()
        if place not in _counts:
            _counts[place] = self._count(kind, settings)
        return _counts[place]

    def _count(self, kind: str, settings: Section) -> int:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            # torch warns about the initialization of a zero-sized bias, which some layers have.
            warnings.simplefilter("ignore")
            try:
                # Tensors without storage are enough for counting.
                with on_meta_device():
                    return count_parameters(self.build(kind, settings))
            except (NotImplementedError, RuntimeError):
                return count_parameters(self.build(kind, settings))


def translators(source_size: int, target_size: int) -> ModelSpec:
    """Return the `ModelSpec` of translation."""
    return ModelSpec(
        translator_settings,
        lambda kind, settings: module_of(kind).build(settings, source_size, target_size),
        source_size,
        ("translation", source_size, target_size),
    )


def settings_of(
    kind: str, options: Mapping[str, object], section: Callable[[str], type[Section]] = translator_settings
) -> Section:
    """Return a model's settings with these options, and defaults elsewhere.

    Args:
        kind: Kind of an installed model.
        options: Settings by key; keys that the model does not have are ignored, so that one set serves all models.
        section: Returns the settings class of a kind of model.

    Returns:
        Validated settings of the model.

    Raises:
        pydantic.ValidationError: A value is invalid.
    """
    known = section(kind)
    return known.model_validate(
        {"kind": kind} | {key: value for key, value in options.items() if key in known.model_fields}
    )


def non_width_settings(settings: Section) -> dict[str, object]:
    """Return a model's settings without its width, for `settings_of`; the inner size becomes a ratio to the width."""
    given = settings.model_dump()
    options = {key: value for key, value in given.items() if key not in ("kind", "width", "feedforward")}
    if "feedforward" in given and "width" in given:
        options["feedforward_ratio"] = given["feedforward"] / given["width"]
    return options


def size_of(kind: str, settings: Section, source_size: int, target_size: int) -> int:
    """Count the trainable parameters of a translator with these settings."""
    return translators(source_size, target_size).parameters(kind, settings)


def without_embeddings(model: Seq2Seq) -> int:
    """Count the trainable parameters without embeddings and output projection (Kaplan et al. 2020)."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    # A tied projection shares its weight with one of the tables.
    left_out = {id(p) for module in (*tables, model.projection) for p in module.parameters()}
    return sum(p.numel() for p in model.parameters() if p.requires_grad and id(p) not in left_out)


def match_translator(kind: str, pieces: int, parameters: int, options: Mapping[str, object], step: int = 2) -> Section:
    """Match a translator with one vocabulary; see `match_parameters`."""
    return match_parameters(kind, translators(pieces, pieces), parameters, options, step)


def match_parameters(
    kind: str, model_spec: ModelSpec, parameters: int, options: Mapping[str, object], step: int = 2
) -> Section:
    """Return settings of a model with the width that gives it about this number of parameters.

    An inner size `feedforward` is four times the width, or `feedforward_ratio` times if the options have this key.

    Args:
        kind: Kind of an installed model.
        model_spec: How models of the task are built.
        parameters: Target number of parameters.
        options: Further settings; see `settings_of`.
        step: Widths are multiples of it.

    Returns:
        Settings whose number of parameters is within 5 % of `parameters`.

    Raises:
        NoSuchSize: No width comes within 5 %.
        UserError: No width is valid at all.
    """

    def count_at(width: int) -> int:
        return model_spec.parameters(kind, cast(Section, _settings_at_width(kind, model_spec, options, width)))

    widths, end = [], 64
    while not widths or (end < _WIDEST and count_at(widths[-1]) < parameters):
        if end >= _WIDEST:
            raise UserError(f"{kind} has no valid width up to {_WIDEST}", remedy="fix its Settings, or leave it out")
        end = min(4 * end, _WIDEST)
        # Not every width is divisible by the number of heads.
        widths = [width for width in range(step, end, step) if _settings_at_width(kind, model_spec, options, width)]
    after = bisect.bisect_left(widths, parameters, key=count_at)
    best = min(widths[max(0, after - 1) : after + 1], key=lambda width: abs(count_at(width) - parameters))
    count = count_at(best)
    if abs(count - parameters) > TOLERANCE * parameters:
        if "width" not in model_spec.section(kind).model_fields:
            raise NoSuchSize(
                f"{kind} has {count:,} parameters instead of {parameters:,}, and no setting width to vary",
                remedy="add width to its Settings, or leave it out",
            )
        raise NoSuchSize(
            f"{kind} with {model_spec.pieces:,} tokens cannot have {parameters:,} parameters within 5 %: nearest is "
            f"{count:,}",
            remedy="compare at another size: set model.width, layers, or tokenizer.size",
        )
    return cast(Section, _settings_at_width(kind, model_spec, options, best))


def _settings_at_width(kind: str, model_spec: ModelSpec, options: Mapping[str, object], width: int) -> Section | None:
    ratio = options.get("feedforward_ratio", 4)
    inner = {"feedforward": int(float(str(ratio)) * width)}
    try:
        return settings_of(kind, inner | dict(options) | {"width": width}, model_spec.section)
    except ValidationError:
        return None
