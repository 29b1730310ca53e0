"""Files of tensors (safetensors): written as the user's umask says, read with every value checked to be finite."""

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

ANOTHER = "use another checkpoint of the run; where it has no other one, train it again"
"""The remedy for a damaged checkpoint."""


def save_weights(model: nn.Module, path: Path) -> None:
    """Writes a model's parameters; tied ones once."""
    save_tensors({name: p.detach() for name, p in model.named_parameters()}, path)


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Writes tensors under their names."""
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        # it gives the system's errors as text
        number = re.search(r"os error (\d+)", str(error))
        if not number:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
    # safetensors lets nobody else read what it writes; the user's own mask shall decide
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def load_weights(model: nn.Module, path: Path) -> None:
    """Reads what `save_weights` wrote.

    Raises:
        UserError: the file is missing or damaged, holds a NaN or an infinity, or belongs to another model.
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
    """Refuses tensors of a file that have not the names, shapes and kinds of the wanted ones; some `may` be missing."""
    wrong = sorted((set(tensors) ^ set(wanted)) - (set(may) - set(tensors)))
    likes = {name: (t.shape, t.dtype) for name, t in tensors.items()}
    wrong += [name for name, t in wanted.items() if name in likes and likes[name] != (t.shape, t.dtype)]
    if wrong:
        alone = "; an encoder alone, without a head, is for init_from" if tensors.keys() < wanted.keys() else ""
        raise UserError(
            f"{len(wrong)} tensors do not fit the model, first {wrong[0]}",
            where=str(path),
            remedy="file and recipe are not of one training: restore the one that was changed, or remove this "
            f"checkpoint and go on from an older one{alone}",
        )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the processor.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        # safetensors waits for a pipe, and calls a file that may not be read missing
        open_regular(path, ANOTHER).close()
        return load_file(path)
    except FileNotFoundError:
        raise UserError("there is no such file", where=str(path), remedy=ANOTHER) from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path), remedy=ANOTHER) from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Reads tensors that a model computes with; see `read_tensors`.

    Raises:
        UserError: the file is missing or damaged, or a tensor holds a NaN or an infinity.
    """
    tensors = read_tensors(path)
    check_finite(tensors, path)
    return tensors


def check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuses weights with a NaN or an infinity: a model would answer with them all the same.

    Raises:
        UserError: with the name of the first such tensor.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(
                f"tensor {name} holds NaN or infinity",
                where=str(path),
                remedy=f"{ANOTHER}; if training ended so, lower training.learning_rate and train again",
            )
