"""Tensors by name: published ones as read, and ours as saved."""

from pathlib import Path

import torch
from torch import Tensor

from s2s.errors import UserError
from s2s.files import open_regular
from s2s.run.published.description import AGAIN
from s2s.training.tensor_files import check_finite, read_tensors, save_tensors


class Weights:
    """Tensors of a file in fp32, or none without a file.

    Pickled files are loaded as tensors only: other objects are refused.

    Args:
        path: A safetensors or pickle file; None: no tensors.
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
        """Return a tensor in fp32.

        Args:
            zeros: Shape of the zeros to return if the tensor is missing; None: it must exist.

        Raises:
            UserError: The tensor does not exist.
        """
        if name not in self.tensors and zeros is not None:
            return torch.zeros(zeros)
        if name not in self.tensors:
            raise UserError(f"has no tensor {name}", str(self.path), AGAIN)
        return self.tensors[name].float()

    def table(self, name: str) -> Tensor:
        """Return a matrix with one vector per row; see `take`.

        Raises:
            UserError: The tensor does not exist, or is not a matrix.
        """
        found = self.take(name)
        if found.dim() != 2 or not len(found):
            raise UserError(f"tensor {name} is not a matrix", str(self.path), AGAIN)
        return found

    def take_over(
        self, theirs: "Weights", there: str, here: str, columns: Tensor | None = None, rows: Tensor | None = None
    ) -> None:
        """Copy a linear layer or a norm under our name, with permuted dimensions.

        Args:
            there: Name of the published module.
            here: Name of our module.
            columns: Order of the inputs; None: unchanged.
            rows: Order of the outputs; None: unchanged.
        """
        weight, bias = (theirs.take(f"{there}.{kind}") for kind in ("weight", "bias"))
        self.tensors[f"{here}.weight"] = weight[:, columns] if columns is not None else weight
        self.tensors[f"{here}.bias"] = bias
        if rows is not None:
            self.tensors |= {f"{here}.{kind}": self.tensors[f"{here}.{kind}"][rows] for kind in ("weight", "bias")}

    def save(self, path: Path) -> None:
        """Save the tensors in the format of a checkpoint."""
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
        raise UserError("does not contain named tensors", str(path), AGAIN)
    return dict(found)
