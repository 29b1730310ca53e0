"""Error reports for NaN/Inf in losses and gradients: step, module and batch."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from s2s.data.dataset import BaseBatch
from s2s.errors import UserError
from s2s.training.distributed import SINGLE_PROCESS, Distributed

Batch = TypeVar("Batch", bound=BaseBatch)

_REMEDY = (
    "lower training.learning_rate, lengthen training.warmup, set training.clip, or look at these rows, and train anew: "
    "what is resumed comes to the same"
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
    found = _found(model, again, batches, update, noun)
    sum_of_all = UserError("the sum over all processes is not finite", where=f"update {update}", remedy=_REMEDY)
    if found is None and batches:
        sum_of_all = _error("the loss is not finite", update, batches[0], noun)
    everywhere = distributed.all_gather_object((found, sum_of_all))
    return next((error for error, _ in everywhere if error), everywhere[0][1])


def _found(
    model: nn.Module, again: Callable[[Batch], object], batches: Sequence[Batch], update: int, noun: str
) -> UserError | None:
    """Return the error for this rank's batches; None if all numbers are finite."""
    for batch in batches:
        module = _first_bad_output(model, again, batch)
        if module:
            return _error(f"the output of module {module} is not finite", update, batch, noun)
    bad = [n for n, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
    return _error(f"the gradient of {bad[-1]} is not finite", update, batches[0], noun) if bad else None


def check_weights(model: nn.Module, update: int) -> None:
    """Check that the weights are finite after a step; finite gradients can overflow them.

    Args:
        model: Model in training.
        update: Number of the step.

    Raises:
        UserError: A weight is NaN or infinite.
    """
    sound = torch.stack([p.detach().isfinite().all() for p in model.parameters()]).tolist()
    bad = [name for (name, _), finite in zip(model.named_parameters(), sound, strict=True) if not finite]
    if bad:
        raise UserError(f"{bad[0]} is not finite after the step", where=f"update {update}", remedy=_REMEDY)


def _error(what: str, update: int, batch: BaseBatch, noun: str) -> UserError:
    rows = ", ".join(str(int(i)) for i in batch.indices[:8])
    more = f" … ({len(batch.indices)} in all)" if len(batch.indices) > 8 else ""
    return UserError(f"{what}; batch of {noun} {rows}{more}", where=f"update {update}", remedy=_REMEDY)


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
