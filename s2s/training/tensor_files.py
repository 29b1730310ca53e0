"""Tensor files (safetensors), with a check for NaN/Inf."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.files import open_regular

ANOTHER = "use another checkpoint of the run, or train it again"
"""Remedy in errors for a damaged checkpoint."""


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's parameters; tied parameters are written once.

    Args:
        model: Model with the weights.
        path: File to write.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> one, other = nn.Linear(2, 2), nn.Linear(2, 2)
        >>> with TemporaryDirectory() as folder:
        ...     save_weights(one, Path(folder) / "model.safetensors")
        ...     load_weights(other, Path(folder) / "model.safetensors")
        >>> torch.equal(one.weight, other.weight)
        True
    """
    save_tensors({name: p.detach() for name, p in model.named_parameters()}, path)


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a safetensors file.

    Args:
        tensors: Tensors by name.
        path: File to write.

    Raises:
        OSError: The file cannot be written.
    """
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        # safetensors reports errors of the operating system as text.
        number = re.search(r"os error (\d+)", str(error))
        if not number:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
    # safetensors makes its files private; the user's umask should decide.
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load parameters from a file of `save_weights`, in place.

    Raises:
        UserError: The file is missing or damaged, contains NaN or infinity, or belongs to another model.
    """
    tensors = read_weights(path)
    wanted = {name: p for name, p in model.named_parameters()}
    check_shapes(tensors, wanted, path)
    with torch.no_grad():
        for name, p in wanted.items():
            p.copy_(tensors[name])


def check_shapes(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path, may: Collection[str] = ()
) -> None:
    """Check names, shapes and data types of the tensors of a file.

    Args:
        tensors: Tensors of the file.
        wanted: Tensors with the expected names, shapes and data types.
        path: File, for the error message.
        may: Names that may be missing.

    Raises:
        UserError: A tensor is missing, unexpected, or of another shape or data type.
    """
    wrong = sorted((set(tensors) ^ set(wanted)) - (set(may) - set(tensors)))
    likes = {name: (t.shape, t.dtype) for name, t in tensors.items()}
    wrong += [name for name, t in wanted.items() if name in likes and likes[name] != (t.shape, t.dtype)]
    if wrong:
        alone = "; an encoder without a head can only be used by init_from" if tensors.keys() < wanted.keys() else ""
        raise UserError(
            f"{len(wrong)} tensors do not fit the model, first {wrong[0]}",
            where=str(path),
            remedy="file and recipe belong to different trainings: restore the one that was changed, or delete this "
            f"checkpoint and resume from an older one{alone}",
        )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, on the CPU.

    Raises:
        UserError: The file is missing or damaged.
    """
    try:
        # Opened first, because safetensors would wait for a pipe, and reports a file without read permission as
        # missing.
        open_regular(path, ANOTHER).close()
        return load_file(path)
    except FileNotFoundError:
        raise UserError("there is no such file", where=str(path), remedy=ANOTHER) from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path), remedy=ANOTHER) from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors for computation, and check them for NaN/Inf.

    Raises:
        UserError: The file is missing or damaged, or a tensor contains NaN or infinity.
    """
    tensors = read_tensors(path)
    check_finite(tensors, path)
    return tensors


def check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Check weights for NaN/Inf; a model would compute outputs from them nevertheless.

    Raises:
        UserError: A tensor contains NaN or infinity; the message names the first one.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(
                f"tensor {name} contains NaN or infinity",
                where=str(path),
                remedy=f"{ANOTHER}; if training produced them, lower training.learning_rate",
            )
