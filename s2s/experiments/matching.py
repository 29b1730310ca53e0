"""Equal budgets: settings of a model that give it a wanted number of parameters."""

import bisect
import warnings
from collections.abc import Mapping
from typing import cast

import torch
from pydantic import ValidationError

from s2s.errors import UserError
from s2s.models.contract import parameter_count
from s2s.recipe.installed import module_of
from s2s.recipe.schema import Section

TOLERANCE = 0.05
_WIDEST = 4096


def settings_of(kind: str, options: Mapping[str, object]) -> Section:
    """A model's settings with these options, as far as it has them; its own defaults elsewhere.

    Args:
        kind: an installed model.
        options: by key; keys that the model does not know are left out, so one set serves all models.

    Raises:
        pydantic.ValidationError: a value does not fit.
    """
    known = module_of(kind).Settings
    return known.model_validate(
        {"kind": kind} | {key: value for key, value in options.items() if key in known.model_fields}
    )


def size_of(kind: str, settings: Section, source_size: int, target_size: int) -> int:
    """Trainable numbers of the model of these settings."""
    build = module_of(kind).build
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # torch warns of initialising a zero-sized bias, which some layers have
        warnings.simplefilter("ignore")
        try:
            # tensors without numbers are enough to be counted
            with torch.device("meta"):
                return parameter_count(build(settings, source_size, target_size))
        except (NotImplementedError, RuntimeError):
            return parameter_count(build(settings, source_size, target_size))


def matched(kind: str, pieces: int, parameters: int, options: Mapping[str, object], step: int = 2) -> Section:
    """Settings of a model that has about so many parameters: its width is solved for.

    Where a model has an inner size `feedforward`, it is kept at four times the width, or at `feedforward_ratio` times
    where the options say so.

    Args:
        kind: an installed model.
        pieces: size of the one vocabulary of both sides.
        parameters: the wanted number.
        options: what else is set, see `settings_of`; `feedforward_ratio` is no setting of any model.
        step: widths are multiples of it.

    Raises:
        UserError: no width comes within 5 %.
    """
    # heads do not divide every width
    widths = [width for width in range(step, _WIDEST, step) if _of_width(kind, options, width)]
    if not widths:
        raise UserError(f"{kind} takes no width up to {_WIDEST}", remedy="mend its Settings, or leave it out")

    def count_at(width: int) -> int:
        """Parameters at a width."""
        return size_of(kind, cast(Section, _of_width(kind, options, width)), pieces, pieces)

    after = bisect.bisect_left(widths, parameters, key=count_at)
    best = min(widths[max(0, after - 1) : after + 1], key=lambda width: abs(count_at(width) - parameters))
    count = count_at(best)
    if abs(count - parameters) > TOLERANCE * parameters:
        raise UserError(
            f"{kind} with {pieces:,} pieces cannot have {parameters:,} parameters within 5 %: nearest is {count:,}",
            remedy="compare at another size",
        )
    return cast(Section, _of_width(kind, options, best))


def _of_width(kind: str, options: Mapping[str, object], width: int) -> Section | None:
    ratio = options.get("feedforward_ratio", 4)
    inner = {"feedforward": int(float(str(ratio)) * width)}
    try:
        return settings_of(kind, inner | dict(options) | {"width": width})
    except ValidationError:
        return None
