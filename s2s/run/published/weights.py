"""Tensors by name: others' as they are read, ours as they are written."""

from pathlib import Path

import torch
from torch import Tensor

from s2s.errors import UserError
from s2s.training.checkpoint import read_tensors, save_tensors


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

    def save(self, path: Path) -> None:
        """Writes them as a checkpoint has them."""
        save_tensors(self.tensors, path)
