"""Peaks of memory in training and inference, and what a decoder keeps, against length."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from s2s.comparison.instruments import bytes_of, free_bytes, peak_bytes
from s2s.comparison.questions.memory.analyse import FITTED_FROM, SHORTEST, SOURCE, analyse, curve
from s2s.comparison.spec import Candidate, Comparison, Experiment, Measured, Scale, Trial
from s2s.comparison.speed_benchmark import MARGIN
from s2s.comparison.workload import (
    EXPLICIT,
    VOCABULARY,
    Form,
    Texts,
    backward,
    built,
    is_out_of_memory,
    other_forms,
    states_of,
    supported_lengths,
    texts,
    too_long,
)
from s2s.models.base import Seq2Seq


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    lengths: tuple[int, ...]  # of source and target
    rows: int  # pairs at once
    written: tuple[int, ...]  # tokens after which the decoder's state is looked at


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes((64, 256, 512, 1024, 2048), 1, (16, 32, 64, 128, 256, 512)),
    "definitive": Sizes((64, 128, 256, 512, 768, 1024, 1536, 2048, 3072), 1, (16, 32, 64, 128, 256, 512, 1024)),
}
# there the lengths go on to where memory ends
SIZES["lecture"] = SIZES["quick"]
SIZES["definitive on a GPU"] = replace(
    SIZES["definitive"], lengths=tuple(n for k in range(6, 16) for n in (2**k, 3 * 2 ** (k - 1)))
)


def trials(comparison: Comparison) -> list[Trial]:
    """One for each model."""
    return [Trial(model, "peaks") for model in comparison.models]


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """Peaks in bytes for each form and length; bytes of the state after ever more tokens."""
    candidate = comparison.candidate(trial.model)
    sizes = comparison.sizes(SIZES)
    measured: Measured = {"peaks": [], "states": [], "notes": []}
    longest, device = max(sizes.lengths), comparison.device_context.device
    model = built(comparison, candidate, longest, device)
    for form in (Form(), *other_forms(model, (EXPLICIT,))):
        _peaks(measured, model, form, sizes, device)
    measured["states"] = _states(comparison, candidate, sizes)
    return measured


def _peaks(measured: Measured, model: Seq2Seq, form: Form, sizes: Sizes, device: torch.device) -> None:
    """Measure one form at all lengths, up to the longest or the end of memory."""
    for n in (SHORTEST, *sizes.lengths):
        why = too_long(model, n)
        if not why and _too_much(measured, form, n, device):
            why = "it could take more than half of the free memory"
        if why:
            measured["notes"].append({"form": form.name, "n": n, "why": why})
            return
        pairs = texts(sizes.rows, n, n, device)
        works: dict[str, Callable[[], object]] = {
            "training": partial(_train, model, pairs, form),
            "inference": partial(_infer, model, pairs, form),
        }
        try:
            # a table of positions is made once, and gradients are made by the first backward pass
            works["inference"]()
            if n == SHORTEST:
                works["training"]()
            for what, work in works.items():
                peak = peak_bytes(work, device)
                measured["peaks"].append({"form": form.name, "what": what, "n": n, "bytes": peak})
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            measured["notes"].append({"form": form.name, "n": n, "why": "memory ran out"})
            return


def _too_much(measured: Measured, form: Form, n: int, device: torch.device) -> bool:
    """Return True if memory that grows quadratically from here on would exceed half of the free memory.

    A GPU's allocator fails cleanly; a CPU's would take the machine down.
    """
    lengths, peaks = curve(measured, form.name, "training")
    free = None if device.type == "cuda" else free_bytes(device)
    return bool(lengths) and free is not None and peaks[-1] * (n / lengths[-1]) ** 2 > free / 2


def _train(model: Seq2Seq, pairs: Texts, form: Form) -> None:
    """Forward and backward pass; the gradient is added to the one that is there."""
    model.train()
    states = states_of(model, pairs, form)
    # the scores over the vocabulary are the same for all models, and grow with n and the vocabulary
    backward(states.sum(), form)


def _infer(model: Seq2Seq, pairs: Texts, form: Form) -> None:
    model.eval()
    with torch.no_grad():
        states_of(model, pairs, form)


def _states(comparison: Comparison, candidate: Candidate, sizes: Sizes) -> list[Measured]:
    """Bytes of one row's state after so many tokens, and of what every step reads; in fp32, as decoding is."""
    cpu = torch.device("cpu")
    model = built(comparison, candidate, max(sizes.written), cpu).eval()
    states = []
    for n in supported_lengths(model, sizes.written):
        pairs = texts(1, SOURCE, n, cpu)
        with torch.no_grad():
            context, state = model.decoder.start(model.encoder(pairs.source, pairs.valid), n)
            state = model.decoder(context, state, pairs.target)[1]
        states.append({"n": n, "state": bytes_of(state), "context": bytes_of(context)})
    return states


EXPERIMENT = Experiment(
    "memory",
    "How does memory grow with length?",
    trials,
    measure,
    analyse,
    exclusive=True,
    tuning_level="depth",
    precision="fp32",
    numbers=lambda comparison: {
        "vocabulary": VOCABULARY,
        "rows": comparison.sizes(SIZES).rows,
        "source": SOURCE,
        "share": FITTED_FROM,
        "margin": MARGIN,
    },
)
