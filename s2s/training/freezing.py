"""`training.freeze`: parts of a model that stay as they are."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from s2s.errors import UserError
from s2s.recipe.wording import suggestion
from s2s.training.optimization import layer_name


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Keeps the parameters that the patterns name from learning.

    A pattern names a parameter or a module of a model, with all that is in it: `encoder.layers.0`, `*.embedding`,
    `*.bias`. A tied tensor has several names, and any of them freezes it.

    Raises:
        UserError: a pattern names nothing, or nothing is left to learn.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        found = [p for name, p in named if _is_named(name, pattern)]
        if not found:
            groups = list(dict.fromkeys(layer_name(name) for name, _ in named))
            raise UserError(
                f"{pattern!r} names no part of the model", where="training.freeze", remedy=suggestion(pattern, groups)
            )
        for p in found:
            p.requires_grad_(False)
    if patterns and not any(p.requires_grad for _, p in named):
        raise UserError(
            "nothing of the model is left to learn", where="training.freeze", remedy="leave out one of its patterns"
        )


def _is_named(name: str, pattern: str) -> bool:
    """Whether a parameter's name, or that of a module around it, is of the pattern."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:depth]), pattern) for depth in range(1, len(parts) + 1))
