"""Memory check before training, and a helpful out-of-memory error during training."""

import contextlib
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.models.meta_device import on_meta_device
from s2s.process import limit, machine_memory
from s2s.recipe.schema import TrainRecipe
from s2s.run.folder import RECIPE
from s2s.tasks.base import AnyContext, AnyTask
from s2s.training.device import OutOfMemory, is_out_of_memory, strip_source_locations

# In fp32: the parameter, its gradient, and Adam's two moment estimates.
_BYTES = 16
_COUNTED = "counted_by_s2s"
# Keys of `batches` that set the batch size, in the different tasks.
_SIZES = ("tokens", "rows", "images", "captions")


@contextmanager
def check_memory(task: AnyTask, recipe: TrainRecipe) -> Iterator[None]:
    """Refuse a model whose parameters cannot be trained in memory; a context manager.

    Parameters are counted when modules register them, before they are initialized, so that no memory is filled. First
    the model is built on the meta device with a vocabulary of bytes, so that a model that cannot fit is refused
    before the data are read.

    Raises:
        UserError: The parameters so far need more memory than the machine has.
    """
    there, counted = _memory(recipe.device.kind), 0

    def count(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        nonlocal counted
        # Tied parameters are registered several times. An attribute marks them, because a reference would prevent
        # moving them to a device.
        if parameter is None or hasattr(parameter, _COUNTED):
            return
        setattr(parameter, _COUNTED, True)
        counted += parameter.numel()
        if counted * _BYTES > there:
            raise too_large()

    def too_large() -> UserError:
        return UserError(
            f"training a model of more than {counted:,} parameters needs more than {counted * _BYTES / 2**30:,.0f} GiB "
            f"of memory; available: {there / 2**30:,.1f} GiB",
            where="model",
            remedy="lower model.width, model.feedforward, the numbers of layers or tokenizer.size",
        )

    hook = register_module_parameter_registration_hook(count)
    try:
        # A model that cannot be built on the meta device is counted when it is built in memory.
        with (
            contextlib.suppress(RuntimeError, NotImplementedError, ValueError, TypeError),
            warnings.catch_warnings(action="ignore"),
            on_meta_device(),
        ):
            # The classes may be unknown yet; torch warns of a head without outputs.
            byte = Tokenizer(b"", "bytes", "identity", lowercase=False)
            task.build(recipe, (byte, byte))
        counted = 0
        yield
    except RuntimeError as error:
        # A single tensor may exceed the largest possible allocation.
        if not is_out_of_memory(error):
            raise
        raise too_large() from None
    finally:
        hook.remove()


@contextmanager
def explain_oom(train_context: AnyContext, folder: Path) -> Iterator[None]:
    """Turn an out-of-memory error into one with smaller settings; a context manager.

    Args:
        train_context: The training in progress, whose batch settings are halved in the remedy.

    Raises:
        OutOfMemory: The body ran out of memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        what = f"out of memory in a batch: {strip_source_locations(error)}"
        raise OutOfMemory(what, str(folder), _smaller_batches_command(train_context, folder)) from None


def _smaller_batches_command(train_context: AnyContext, folder: Path) -> str:
    """Return a command for half the batch size with the same number of items per step."""
    recipe, trainer = train_context.recipe, train_context.trainer
    sizes = {key: value for key, value in dict(recipe.batches).items() if key in _SIZES and value is not None}
    halved = [f"batches.{key}={value // 2}" for key, value in sizes.items() if value > 1]
    if not halved:
        return "a batch has only one example: use a smaller model or shorter examples"
    training = dict(recipe.training)
    if "tokens_per_update" in training:
        halved.append(f"training.tokens_per_update={training['tokens_per_update'] or sizes['tokens']}")
    elif "examples_per_update" in training:
        examples = sum(len(rows) for batches in trainer.groups for rows in batches)
        halved.append(f"training.examples_per_update={max(1, round(examples / len(trainer.groups)))}")
    launch = trainer.device_context.distributed.launch
    words = ["train", str(folder / RECIPE), f"run.dir={folder.with_name(f'{folder.name}-smaller')}", *halved]
    # A new run, because results depend on the batches bit by bit, and a run must keep its own.
    return (
        "start a run with smaller micro-batches, and more of them per update: "
        f"{shlex.join(launch.command(words) if launch else ['s2s', *words])}\n  → or free memory"
    )


def _memory(kind: str) -> int:
    """Return the memory of the device, or the limit of this process, in bytes."""
    if kind in ("auto", "cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_properties(0).total_memory
    found = [machine_memory("PHYS") or sys.maxsize, limit("AS") or sys.maxsize]
    with contextlib.suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found)
