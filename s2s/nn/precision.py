"""The precision of matrix products."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def products_in(precision: torch.dtype, device: torch.device) -> Iterator[None]:
    """Within it, matrix products run in a precision; weights and sums stay in fp32.

    Weights are cast once. In torch's inference mode they would be cast again for each product: it keeps nothing, so no
    gradients are computed in another way there.
    """
    reduced = precision != torch.float32
    with ExitStack() as stack:
        if reduced and torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(device.type, precision if reduced else None, enabled=reduced))
        yield
