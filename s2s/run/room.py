"""Whether a model can be trained on this machine at all, asked before the data are read and while it is built."""

import contextlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from s2s.errors import UserError
from s2s.models.numberless import numberless
from s2s.recipe.schema import AnyRecipe
from s2s.tasks.contract import Task

# in fp32: the number itself, its gradient, and Adam's two averages
_BYTES = 16
_COUNTED = "counted_by_s2s"


@contextmanager
def room_to_train(task: Task[Any, Any, Any], recipe: AnyRecipe) -> Iterator[None]:
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
        with contextlib.suppress(RuntimeError, NotImplementedError, ValueError, TypeError), numberless():
            task.build_smallest(recipe)
        counted = 0
        yield
    except RuntimeError as error:
        # one tensor may be too large to be asked for
        if "allocate memory" not in str(error):
            raise
        raise _too_large(counted, there) from None
    finally:
        hook.remove()


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
