"""What to say when a loss or a gradient is not finite: update, module and batch by name."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from s2s.data.examples import Collated
from s2s.errors import UserError

Batch = TypeVar("Batch", bound=Collated)


def explain(
    model: nn.Module, forward: Callable[[Batch], None], batches: Sequence[Batch], update: int, noun: str
) -> UserError:
    """The error that stops training: which update, which module first, which rows of the corpus.

    Args:
        model: with the gradients of the failed update.
        forward: runs the model over a batch, as training did; repeated to find the module.
        batches: the update's micro-batches.
        update: its number.
        noun: what the examples are called.
    """
    for batch in batches:
        module = _first_bad_output(model, forward, batch)
        if module:
            return _error(f"the output of module {module} is not finite", update, batch, noun)
    bad = [n for n, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
    where = f"the gradient of {bad[-1]}" if bad else "the loss"
    return _error(f"{where} is not finite", update, batches[0], noun)


def _error(what: str, update: int, batch: Collated, noun: str) -> UserError:
    rows = ", ".join(str(int(i)) for i in batch.indices[:8])
    more = f" … ({len(batch.indices)} in all)" if len(batch.indices) > 8 else ""
    return UserError(
        f"{what}; batch of {noun} {rows}{more}",
        where=f"update {update}",
        remedy="lower training.learning_rate, lengthen training.warmup, set training.clip, or look at these rows; "
        "checkpoints are whole, the last one resumes",
    )


def _first_bad_output(model: nn.Module, forward: Callable[[Batch], None], batch: Batch) -> str | None:
    found: list[str] = []

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def look(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and not torch.isfinite(output).all():
                found.append(name)

        return module.register_forward_hook(look)

    # a parent's hook runs after its children's: the first name found is the innermost module
    hooks = [watch(name, module) for name, module in model.named_modules() if name]
    try:
        forward(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
