"""What a model can become outside of s2s: the one place that knows, asked before anything heavy is loaded."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from s2s.errors import UserError

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask

Format = Literal["ctranslate2", "onnx", "hub"]

POSITIONS = 2048
"""Pieces of a text that an exported model knows, where ours has no limit: its table of positions has an end."""


def exportable(recipe: "AnyTask") -> list[str]:
    """The engines that can run a recipe's model.

    ONNX holds any, as far as a recipe tells; what its graphs cannot hold is refused when they are made. A folder for
    the hub can be made of any.
    """
    return [*(name for name, obstacle in _OBSTACLES.items() if obstacle(recipe) is None), "onnx"]


def check_exportable(recipe: "AnyTask", to: Format, where: str) -> None:
    """Refuses what an engine has no means for.

    Raises:
        UserError: the engine cannot compute the model; it says what of it.
    """
    if to in _OBSTACLES and (obstacle := _OBSTACLES[to](recipe)):
        others = [f"--to {name}" for name in (*exportable(recipe), "hub")]
        raise UserError(f"cannot be exported to {to}: {obstacle}", where, f"choose {' or '.join(others)}")


def check_installed(*packages: str) -> None:
    """Refuses to go on without what makes or loads an export.

    Raises:
        UserError: one of the packages is not installed.
    """
    for package in packages:
        if find_spec(package) is None:
            raise UserError(f"{package} is not installed", remedy="in the repository: pip install -e '.[export]'")


def _ctranslate2(recipe: "AnyTask") -> str | None:
    """What of a recipe CTranslate2 cannot compute; None where it can compute all."""
    model = recipe.model
    if recipe.task != "translation":
        return f"it translates, and this is a run of {recipe.task}"
    if model.kind != "transformer":
        return f"it knows the Transformer, and model.kind is {model.kind}"
    for side in ("encoder", "decoder"):
        positions = getattr(model, f"{side}_positions")
        # its encoders have none, and its decoders' slopes are not ours where heads are no power of two
        if positions == "alibi":
            return f"model.{side}_positions is alibi, which is computed in another way there"
    return None


_OBSTACLES = {"ctranslate2": _ctranslate2}
