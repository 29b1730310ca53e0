"""Freezing of parameters (`training.freeze`)."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from s2s.errors import UserError
from s2s.recipe.wording import suggestion
from s2s.training.optimization import layer_name


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude parameters from training, by patterns of names.

    Args:
        model: Model whose parameters are frozen, in place.
        patterns: Names of parameters or modules with `*` as a wildcard: `encoder.layers.0`, `*.embedding`, `*.bias`. A
            module's name freezes all its parameters. A tied tensor has several names, and any of them freezes it.

    Raises:
        UserError: A pattern matches nothing, or no parameter remains to train.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        >>> freeze(model, ["0", "*.bias"])
        >>> [name for name, p in model.named_parameters() if p.requires_grad]
        ['1.weight']
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
    """Return True if the parameter or a module around it matches the pattern."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:depth]), pattern) for depth in range(1, len(parts) + 1))
