"""Error reports for NaN/Inf in losses and gradients: step, module and batch."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from s2s.data.dataset import BaseBatch
from s2s.errors import UserError
from s2s.training.distributed import SINGLE_PROCESS, Distributed

Batch = TypeVar("Batch", bound=BaseBatch)

REMEDY = (
    "lower training.learning_rate, raise training.warmup, set training.clip, or look at these rows; then start a new "
    "run, because resuming this one repeats the error"
)


def locate_nonfinite(
    model: nn.Module,
    again: Callable[[Batch], object],
    batches: Sequence[Batch],
    update: int,
    noun: str,
    distributed: Distributed = SINGLE_PROCESS,
) -> UserError:
    """Find where NaN/Inf appears first, and build the error that ends the training.

    The batches are computed again. The model has the weights before the step and no gradient. Each rank checks its own
    batches, and all ranks return the same error.

    Args:
        model: Model in training.
        again: Function that computes the gradient of a batch, as training did.
        batches: Micro-batches of the step on this rank.
        update: Number of the step.
        noun: Name of the examples in messages.
        distributed: Process group.

    Returns:
        An error that names the step, the first module with a non-finite output, and rows of the dataset.
    """

    def error(what: str, batch: BaseBatch) -> UserError:
        rows = ", ".join(str(int(i)) for i in batch.indices[:8])
        more = f" … ({len(batch.indices)} in all)" if len(batch.indices) > 8 else ""
        return UserError(f"{what}; batch of {noun} {rows}{more}", f"update {update}", REMEDY)

    found = None
    for batch in batches:
        if module := _first_bad_output(model, again, batch):
            found = error(f"the output of module {module} is not finite", batch)
            break
    else:
        bad = [n for n, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
        if bad:
            found = error(f"the gradient of {bad[-1]} is not finite", batches[0])
    if batches:
        sum_of_all = error("the loss is not finite", batches[0])
    else:
        sum_of_all = UserError("the sum over all processes is not finite", f"update {update}", REMEDY)
    everywhere = distributed.all_gather_object((found, sum_of_all))
    return next((error for error, _ in everywhere if error), everywhere[0][1])


def _first_bad_output(model: nn.Module, again: Callable[[Batch], object], batch: Batch) -> str | None:
    bad: list[str] = []

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def look(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and not torch.isfinite(output).all():
                bad.append(name)

        return module.register_forward_hook(look)

    # The hook of a parent runs after those of its children, so the first name is the innermost module.
    hooks = [watch(name, module) for name, module in model.named_modules() if name]
    try:
        again(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return bad[0] if bad else None
