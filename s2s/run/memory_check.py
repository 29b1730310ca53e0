"""Whether a model can be trained on this machine at all, and what to do when an update finds no memory."""

import contextlib
import os
import resource
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from s2s.errors import UserError
from s2s.models.meta_device import on_meta_device
from s2s.recipe.schema import AnyRecipe
from s2s.run.folder import RECIPE
from s2s.tasks.base import Task, TrainContext
from s2s.training.device import is_out_of_memory, strip_source_locations
from s2s.training.step import StepResult

# in fp32: the number itself, its gradient, and Adam's two averages
_BYTES = 16
_COUNTED = "counted_by_s2s"
# the keys of `batches` that say how many a batch holds, as the tasks call them
_SIZES = ("tokens", "rows", "images", "captions")


class OutOfMemory(UserError):
    """An update found no memory."""


@contextmanager
def check_memory(task: Task[Any, Any, Any], recipe: AnyRecipe) -> Iterator[None]:
    """Within it, a model is refused as soon as its parameters are more than can be trained here.

    They are counted as modules take them, before they are drawn, so that no memory is filled. At first the model is
    built with five pieces and without memory: what cannot fit is told before the data are read.

    Raises:
        UserError: the parameters that there are so far would need more memory than the machine has.
    """
    there, counted = _memory(recipe.device.kind), 0

    def count(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        """Adds what a module takes."""
        nonlocal counted
        # tied ones are registered several times; a reference to them would keep them from being moved to a device
        if parameter is None or hasattr(parameter, _COUNTED):
            return
        setattr(parameter, _COUNTED, True)
        counted += parameter.numel()
        if counted * _BYTES > there:
            raise _too_large(counted, there)

    hook = register_module_parameter_registration_hook(count)
    try:
        # a model that cannot be built without memory is counted when it is built with it
        with contextlib.suppress(RuntimeError, NotImplementedError, ValueError, TypeError), on_meta_device():
            task.build_on_meta(recipe)
        counted = 0
        yield
    except RuntimeError as error:
        # one tensor may be too large to be asked for
        if not is_out_of_memory(error):
            raise
        raise _too_large(counted, there) from None
    finally:
        hook.remove()


@contextmanager
def explain_oom(train_context: TrainContext[Any, Any, Any], folder: Path) -> Iterator[None]:
    """Within it, a gradient for which there is no memory is told, and with which settings it takes less.

    Raises:
        OutOfMemory: there was none.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        what = f"no memory for a batch: {strip_source_locations(error)}"
        raise OutOfMemory(what, str(folder), _smaller_batches_command(train_context, folder)) from None


def updates(train_context: TrainContext[Any, Any, Any], folder: Path) -> Iterator[StepResult]:
    """The trainer's updates until those of the recipe are done; see `Trainer.updates` and `room_to_update`.

    What is done between two of them is not counted among them.
    """
    with explain_oom(train_context, folder):
        yield from train_context.trainer.updates(train_context.recipe.training.updates)


def _smaller_batches_command(train_context: TrainContext[Any, Any, Any], folder: Path) -> str:
    """The command of a run whose batches are half as large, and whose updates learn from as much as this one's."""
    recipe, trainer = train_context.recipe, train_context.trainer
    sizes = {key: value for key, value in dict(recipe.batches).items() if key in _SIZES and value is not None}
    halved = [f"batches.{key}={value // 2}" for key, value in sizes.items() if value > 1]
    if not halved:
        return "a batch has one example: make the model smaller, or the examples shorter"
    training = dict(recipe.training)
    if "tokens_per_update" in training:
        halved.append(f"training.tokens_per_update={training['tokens_per_update'] or sizes['tokens']}")
    elif "examples_per_update" in training:
        examples = sum(len(rows) for batches in trainer.groups for rows in batches)
        halved.append(f"training.examples_per_update={max(1, round(examples / len(trainer.groups)))}")
    place = folder.with_name(f"{folder.name}-smaller")
    words, launch = (
        ["train", str(folder / RECIPE), f"run.dir={place}", *halved],
        trainer.device_context.distributed.launch,
    )
    # the bits of a run depend on its batches, so a run keeps its own
    return (
        "start a run of smaller batches, more of which make the same update: "
        f"{shlex.join(launch.command(words) if launch else ['s2s', *words])}\n  → or free memory"
    )


def _too_large(parameters: int, there: int) -> UserError:
    return UserError(
        f"a model of more than {parameters:,} parameters takes {parameters * _BYTES / 2**30:,.0f} GiB and more to "
        f"train, and there are {there / 2**30:,.1f}",
        where="model",
        remedy="lower model.width, model.feedforward, the numbers of layers or tokenizer.size",
    )


def _memory(kind: str) -> int:
    """Bytes that the device has, or that this process may have of them."""
    if kind in ("auto", "cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_properties(0).total_memory
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    found += [limit] if limit != resource.RLIM_INFINITY else []
    with contextlib.suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found)
