"""s2s: sequence-to-sequence models, from the first RNN to the Transformer, trained and compared honestly.

What a notebook needs is here, and loaded when it is asked for: `s2s.load`, `s2s.train`, `s2s.read_recipe`,
`s2s.score`, `s2s.compare`, `s2s.Comparison`. Everything else is in rooms of its own, which `docs/architecture.md`
describes.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2s.api import Comparison, compare, load, read_recipe, score, train

__version__ = "0.1.0"
__all__ = ["Comparison", "compare", "load", "read_recipe", "score", "train"]


def __getattr__(name: str) -> object:
    """The public names, imported when they are first asked for: they load torch, and `s2s --help` does not need it."""
    if name not in __all__:
        raise AttributeError(f"module 's2s' has no attribute {name!r}")
    from s2s import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
