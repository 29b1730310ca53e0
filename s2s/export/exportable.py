"""Supported export formats of a recipe, checked without importing torch."""

from importlib.util import find_spec
from typing import Literal

from s2s.errors import UserError
from s2s.recipe.schema import TrainRecipe

Format = Literal["ctranslate2", "onnx", "hub"]

POSITIONS = 2048
"""Maximum length in tokens of an exported model without a limit: its position table is finite."""


def exportable(recipe: TrainRecipe) -> list[str]:
    """Return the engines that can run a recipe's model; ONNX is tried during the export."""
    return [*(name for name, obstacle in _OBSTACLES.items() if obstacle(recipe) is None), "onnx"]


def check_exportable(recipe: TrainRecipe, to: Format, where: str) -> None:
    """Refuse a model that an engine does not support."""
    if to in _OBSTACLES and (obstacle := _OBSTACLES[to](recipe)):
        others = [f"--to {name}" for name in (*exportable(recipe), "hub")]
        raise UserError(f"cannot be exported to {to}: {obstacle}", where, f"choose {' or '.join(others)}")


def check_installed(*packages: str) -> None:
    """Refuse to continue if a package for exporting is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise UserError(
                f"{package} is not installed", remedy="in the repository: pip install -c constraints.txt -e '.[export]'"
            )


def _ctranslate2(recipe: TrainRecipe) -> str | None:
    """Return the reason why CTranslate2 cannot run a recipe's model; None if it can."""
    model = recipe.model
    if recipe.task != "translation":
        return f"it runs translation models only, and this is a run of {recipe.task}"
    if model.kind != "transformer":
        return f"it knows the Transformer, and model.kind is {model.kind}"
    for side in ("encoder", "decoder"):
        positions = getattr(model, f"{side}_positions")
        # CTranslate2's encoders have no ALiBi, and its decoders use other slopes if the number of heads is no power
        # of two.
        if positions == "alibi":
            return f"model.{side}_positions is alibi, which is computed in another way there"
    return None


_OBSTACLES = {"ctranslate2": _ctranslate2}
