"""Train and compare sequence-to-sequence models, from RNNs to the Transformer.

The public API is `s2s.load`, `s2s.train`, `s2s.read_recipe`, `s2s.runs`, `s2s.score`, `s2s.compare` and
`s2s.Comparison`, each imported on first use. `docs/architecture.md` describes the packages.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2s.api import Comparison, compare, load, read_recipe, runs, score, train

__version__ = "1.0.0"
__all__ = ["Comparison", "compare", "load", "read_recipe", "runs", "score", "train"]


def __getattr__(name: str) -> object:
    """Import a public name on first use, because the API loads torch."""
    if name not in __all__:
        raise AttributeError(f"module 's2s' has no attribute {name!r}")
    from s2s import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
