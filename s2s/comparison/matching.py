"""Equal budgets: settings of a model that give it a wanted number of parameters."""

import bisect
import warnings
from collections.abc import Callable, Mapping
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


@dataclass(frozen=True)
class ModelSpec:
    """Builds and sizes the models of a task."""

    section: Callable[[str], type[Section]]  # the section of a kind of model
    build: Callable[[str, Section], nn.Module]  # the whole model of a kind, by its section
    pieces: int  # size of the vocabulary

    def parameters(self, kind: str, settings: Section) -> int:
        """Trainable numbers of the whole model of these settings."""
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            # torch warns of initialising a zero-sized bias, which some layers have
            warnings.simplefilter("ignore")
            try:
                # tensors without numbers are enough to be counted
                with on_meta_device():
                    return count_parameters(self.build(kind, settings))
            except (NotImplementedError, RuntimeError):
                return count_parameters(self.build(kind, settings))


def translators(source_size: int, target_size: int) -> ModelSpec:
    """The `ModelSpec` of translation."""
    return ModelSpec(
        translator_settings,
        lambda kind, settings: module_of(kind).build(settings, source_size, target_size),
        source_size,
    )


def settings_of(
    kind: str, options: Mapping[str, object], section: Callable[[str], type[Section]] = translator_settings
) -> Section:
    """A model's settings with these options, as far as it has them; its own defaults elsewhere.

    Args:
        kind: an installed model.
        options: by key; keys that the model does not know are left out, so one set serves all models.
        section: the section of a kind of model.

    Raises:
        pydantic.ValidationError: a value does not fit.
    """
    known = section(kind)
    return known.model_validate(
        {"kind": kind} | {key: value for key, value in options.items() if key in known.model_fields}
    )


def non_width_settings(settings: Section) -> dict[str, object]:
    """A model's settings but its width, as `settings_of` takes them; an inner size as its ratio to the width."""
    given = settings.model_dump()
    options = {key: value for key, value in given.items() if key not in ("kind", "width", "feedforward")}
    if "feedforward" in given and "width" in given:
        options["feedforward_ratio"] = given["feedforward"] / given["width"]
    return options


def size_of(kind: str, settings: Section, source_size: int, target_size: int) -> int:
    """Trainable numbers of the translator of these settings."""
    return translators(source_size, target_size).parameters(kind, settings)


def without_embeddings(model: Seq2Seq) -> int:
    """Trainable numbers of a translator but its embeddings and its projection onto the vocabulary (Kaplan 2020)."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    # a tied projection is one of the tables
    left_out = {id(p) for module in (*tables, model.projection) for p in module.parameters()}
    return sum(p.numel() for p in model.parameters() if p.requires_grad and id(p) not in left_out)


def match_translator(kind: str, pieces: int, parameters: int, options: Mapping[str, object], step: int = 2) -> Section:
    """Settings of a translator with one vocabulary that has about so many parameters; see `solved`."""
    return match_parameters(kind, translators(pieces, pieces), parameters, options, step)


def match_parameters(
    kind: str, model_spec: ModelSpec, parameters: int, options: Mapping[str, object], step: int = 2
) -> Section:
    """Settings of a model that has about so many parameters: its width is solved for.

    Where a model has an inner size `feedforward`, it is kept at four times the width, or at `feedforward_ratio` times
    where the options say so.

    Args:
        kind: an installed model.
        model_spec: builds and sizes the models of the task.
        parameters: the wanted number.
        options: what else is set, see `settings_of`; `feedforward_ratio` is no setting of any model.
        step: widths are multiples of it.

    Raises:
        UserError: no width comes within 5 % (`NoSuchSize`).
    """

    def count_at(width: int) -> int:
        """Parameters at a width."""
        return model_spec.parameters(kind, cast(Section, _of_width(kind, model_spec, options, width)))

    widths, end = [], 64
    while not widths or (end < _WIDEST and count_at(widths[-1]) < parameters):
        if end >= _WIDEST:
            raise UserError(f"{kind} takes no width up to {_WIDEST}", remedy="mend its Settings, or leave it out")
        end = min(4 * end, _WIDEST)
        # heads do not divide every width
        widths = [width for width in range(step, end, step) if _of_width(kind, model_spec, options, width)]
    after = bisect.bisect_left(widths, parameters, key=count_at)
    best = min(widths[max(0, after - 1) : after + 1], key=lambda width: abs(count_at(width) - parameters))
    count = count_at(best)
    if abs(count - parameters) > TOLERANCE * parameters:
        raise NoSuchSize(
            f"{kind} with {model_spec.pieces:,} pieces cannot have {parameters:,} parameters within 5 %: nearest is "
            f"{count:,}",
            remedy="compare at another size: set model.width, layers, or tokenizer.size",
        )
    return cast(Section, _of_width(kind, model_spec, options, best))


def _of_width(kind: str, model_spec: ModelSpec, options: Mapping[str, object], width: int) -> Section | None:
    ratio = options.get("feedforward_ratio", 4)
    inner = {"feedforward": int(float(str(ratio)) * width)}
    try:
        return settings_of(kind, inner | dict(options) | {"width": width}, model_spec.section)
    except ValidationError:
        return None
