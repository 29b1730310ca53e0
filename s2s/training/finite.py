"""What to say when a loss or a gradient is not finite: update, module and batch by name."""

import torch
from torch import Tensor, nn

from s2s.data.batches import Batch
from s2s.errors import UserError
from s2s.models.contract import Seq2Seq
from s2s.training.devices import Computer


def explain(model: Seq2Seq, batches: list[Batch], update: int, computer: Computer) -> UserError:
    """The error that stops training: which update, which module first, which rows of the corpus.

    Args:
        model: with the gradients of the failed update.
        batches: the update's micro-batches.
        update: its number.
        computer: device and precision of the forward pass that is repeated to find the module.
    """
    for batch in batches:
        module = _first_bad_output(model, batch, computer)
        if module:
            return _error(f"the output of module {module} is not finite", update, batch)
    bad = [n for n, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
    where = f"the gradient of {bad[-1]}" if bad else "the loss"
    return _error(f"{where} is not finite", update, batches[0])


def _error(what: str, update: int, batch: Batch) -> UserError:
    rows = ", ".join(str(int(i)) for i in batch.indices[:8])
    more = f" … ({len(batch.indices)} in all)" if len(batch.indices) > 8 else ""
    return UserError(
        f"{what}; batch of training pairs {rows}{more}",
        where=f"update {update}",
        remedy="lower training.learning_rate, lengthen training.warmup, set training.clip, or look at these rows; "
        "checkpoints are whole, the last one resumes",
    )


def _first_bad_output(model: Seq2Seq, batch: Batch, computer: Computer) -> str | None:
    found: list[str] = []

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def look(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and not torch.isfinite(output).all():
                found.append(name)

        return module.register_forward_hook(look)

    # a parent's hook runs after its children's: the first name found is the innermost module
    hooks = [watch(name, module) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad(), computer.mixed_precision():
            model(batch.source, batch.source_valid, batch.target_in)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
