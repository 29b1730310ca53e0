"""Tensors by name: others' as they are read, ours as they are written."""

from pathlib import Path

import torch
from torch import Tensor

from s2s.errors import UserError
from s2s.training.tensor_files import read_tensors, save_tensors


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
            try:
                self.tensors = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:
                raise UserError(f"cannot be read: {error!s:.200}", str(path), "fetch the model again") from None

    def take(self, name: str, zeros: tuple[int, ...] | None = None) -> Tensor:
        """The tensor of that name; where it may be missing, zeros of a shape.

        Raises:
            UserError: there is none.
        """
        if name not in self.tensors and zeros is not None:
            return torch.zeros(zeros)
        if name not in self.tensors:
            raise UserError(f"has no tensor {name}", str(self.path), "fetch the model again")
        return self.tensors[name].float()

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
