"""Workloads of time and memory measurements: models of any length, in several forms, on random tokens."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from s2s.comparison.instruments import unfused
from s2s.comparison.operations import Operations
from s2s.comparison.spec import Candidate, Comparison
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.training.device import DeviceContext, derive_seed, is_out_of_memory
from s2s.training.loss import cross_entropy

VOCABULARY = 1000
"""Size of the vocabulary; small, so that the output projection does not dominate the cost of length."""
_FIRST_WORD = 4  # after the special tokens

AS_BUILT = "as built"
# a short length for which the same kernels are selected as for long ones
_LIKE_LONG = 64


@dataclass(frozen=True)
class Form:
    """A way to compute the same model: as built, with explicit attention weights, or without fused kernels."""

    name: str = AS_BUILT
    explicit: bool = False  # True to compute attention weights explicitly
    fused: bool = True  # False to run recurrent layers step by step, and attention explicitly

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Context manager that computes models in this form."""
        with unfused() if not self.fused else sdpa_kernel(SDPBackend.MATH) if self.explicit else nullcontext():
            yield


EXPLICIT = Form("explicit attention", explicit=True)
UNFUSED = Form("unfused", fused=False)


@dataclass(frozen=True)
class End:
    """First length that was not measured, why, and what was measured."""

    n: int
    why: str
    form: str = ""
    batch: str = ""
    place: str = ""
    length: str = ""  # of the `source` or the `target`


@dataclass(frozen=True)
class Texts:
    """Random source and target sequences without padding."""

    source: Int[Tensor, "batch source"]
    valid: Bool[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]

    @property
    def target_valid(self) -> Bool[Tensor, "batch target"]:
        """True everywhere."""
        return torch.ones_like(self.target, dtype=torch.bool)


def other_forms(model: Seq2Seq, among: Sequence[Form] = (EXPLICIT, UNFUSED)) -> list[Form]:
    """Return the forms that launch other numbers of operations than the model as built, and than each other."""
    forms, counts = [], {_launched(model, Form())}
    for form in among:
        count = _launched(model, form)
        if count not in counts:
            forms.append(form)
            counts.add(count)
    return forms


def _launched(model: Seq2Seq, form: Form) -> int:
    """Number of operations of a forward pass without dropout."""
    pairs = texts(1, _LIKE_LONG, _LIKE_LONG, next(model.parameters()).device)
    learning = model.training
    model.eval()
    with torch.no_grad(), Operations() as operations:
        states_of(model, pairs, form)
    model.train(learning)
    return operations.count


def built(comparison: Comparison, candidate: Candidate, longest: int, device: torch.device) -> Seq2Seq:
    """Build a model with the candidate's settings, and with position tables for the longest text."""
    settings = candidate.settings
    given = settings.model_dump()
    if "max_positions" in given:
        settings = type(settings).model_validate(given | {"max_positions": max(given["max_positions"], longest + 1)})
    torch.manual_seed(derive_seed(comparison.seeds[0]))
    return module_of(candidate.kind).build(settings, VOCABULARY, VOCABULARY).to(device).train()


def supported_lengths(model: Seq2Seq, lengths: tuple[int, ...]) -> list[int]:
    """Return the lengths that the model supports on both sides."""
    limits = [limit for limit in (model.encoder.max_positions, model.decoder.max_positions) if limit is not None]
    return [n for n in lengths if n <= min(limits, default=n)]


def too_long(model: Seq2Seq, length: int) -> str:
    """Return the reason why a model cannot be measured at a length; empty if it can."""
    return "" if supported_lengths(model, (length,)) else "the model reads no texts of this length"


def measure_lengths(model: Seq2Seq, lengths: Sequence[int], measure: Callable[[int], str], *labels: str) -> list[End]:
    """Measure one length after the other until the model, memory or something else ends it.

    Args:
        model: The model.
        lengths: Rising lengths.
        measure: Measures at a length; returns why neither it nor longer ones are measured, or nothing.
        labels: Form, batch and place of the `End`.

    Returns:
        The first length that was not measured, if any.
    """
    for n in lengths:
        try:
            why = too_long(model, n) or measure(n)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            why = "memory ran out"
        if why:
            return [End(n, why, *labels)]
    return []


def texts(rows: int, source: int, target: int, device: torch.device) -> Texts:
    """Draw random tokens, always the same for a shape.

    Args:
        rows: Batch size.
        source: Source length.
        target: Target length.
        device: Device of the tensors.
    """
    generator = torch.Generator().manual_seed(rows)
    words = [torch.randint(_FIRST_WORD, VOCABULARY, (rows, n), generator=generator) for n in (source, target)]
    return Texts(words[0].to(device), torch.ones(rows, source, dtype=torch.bool, device=device), words[1].to(device))


def states_of(model: Seq2Seq, pairs: Texts, form: Form) -> Float[Tensor, "batch target width"]:
    """Decoder states with teacher forcing."""
    with form.taken():
        return model(pairs.source, pairs.valid, pairs.target)


def loss_of(model: Seq2Seq, pairs: Texts, form: Form, device_context: DeviceContext) -> Float[Tensor, ""]:
    """Cross-entropy in the training precision, without label smoothing."""
    with device_context.mixed_precision():
        states = states_of(model, pairs, form)
        return cross_entropy(states, model.projection.weight, pairs.target, pairs.target_valid)[0]


def backward(loss: Tensor, form: Form) -> None:
    """Backward pass in the given form."""
    with form.taken():
        loss.backward()


def generated(
    model: Seq2Seq, pairs: Texts, tick: Callable[[], None] = lambda: None
) -> Iterator[Int[Tensor, "batch 1"]]:
    """Greedy generation of as many tokens as the target has; the end-of-sentence token does not stop it.

    Args:
        model: The model.
        pairs: Sources, and the first target token.
        tick: Called after the source is encoded.

    Yields:
        The next tokens, shape (batch, 1).
    """
    steps = pairs.target.shape[1]
    context, state = model.decoder.start(model.encoder(pairs.source, pairs.valid), steps)
    tick()
    token = pairs.target[:, :1]
    for _ in range(steps):
        output, state = model.decoder(context, state, token)
        token = model.projection(output[:, -1]).argmax(dim=1, keepdim=True)
        yield token
