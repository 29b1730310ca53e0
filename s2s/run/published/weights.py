"""Tensors by name: others' as they are read, ours as they are written."""

from pathlib import Path

import torch
from torch import Tensor

from s2s.errors import UserError
from s2s.files import open_regular
from s2s.run.published.description import AGAIN
from s2s.training.tensor_files import check_finite, read_tensors, save_tensors


class Weights:
    """The tensors of a file, in fp32; none without one.

    A file of pickled tensors is read as nothing but tensors: what else may be in it is refused.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.tensors: dict[str, Tensor] = {}
        if path is not None and path.suffix == ".safetensors":
            self.tensors = read_tensors(path)
        elif path is not None:
            self.tensors = _unpickled(path)
        if path is not None:
            check_finite(self.tensors, path)

    def take(self, name: str, zeros: tuple[int, ...] | None = None) -> Tensor:
        """The tensor of that name; where it may be missing, zeros of a shape.

        Raises:
            UserError: there is none.
        """
        if name not in self.tensors and zeros is not None:
            return torch.zeros(zeros)
        if name not in self.tensors:
            raise UserError(f"has no tensor {name}", str(self.path), AGAIN)
        return self.tensors[name].float()

    def table(self, name: str) -> Tensor:
        """A matrix of that name, a vector a row; see `take`."""
        found = self.take(name)
        if found.dim() != 2 or not len(found):
            raise UserError(f"tensor {name} is no matrix", str(self.path), AGAIN)
        return found

    def take_over(
        self, theirs: "Weights", there: str, here: str, columns: Tensor | None = None, rows: Tensor | None = None
    ) -> None:
        """A linear layer or a norm of others under our name, reading and giving its numbers in this order."""
        weight, bias = (theirs.take(f"{there}.{kind}") for kind in ("weight", "bias"))
        self.tensors[f"{here}.weight"] = weight[:, columns] if columns is not None else weight
        self.tensors[f"{here}.bias"] = bias
        if rows is not None:
            self.tensors |= {f"{here}.{kind}": self.tensors[f"{here}.{kind}"][rows] for kind in ("weight", "bias")}

    def save(self, path: Path) -> None:
        """Writes them as a checkpoint has them."""
        save_tensors(self.tensors, path)


def _unpickled(path: Path) -> dict[str, Tensor]:
    try:
        with open_regular(path, AGAIN) as file:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"cannot be read: {what:.200}", str(path), AGAIN) from None
    if not isinstance(found, dict) or not all(isinstance(k, str) and isinstance(t, Tensor) for k, t in found.items()):
        raise UserError("holds no tensors by their names", str(path), AGAIN)
    return dict(found)
