"""Measure peak memory in training and inference, and the size of the decoder's state, against length."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from pydantic import TypeAdapter

from s2s.comparison.instruments import bytes_of, peak_bytes
from s2s.comparison.questions.memory.analyse import (
    FITTED_FROM,
    SHORTEST,
    SOURCE,
    MemoryUse,
    Peak,
    StateSize,
    analyse,
)
from s2s.comparison.spec import Comparison, Experiment, Scale, Trial
from s2s.comparison.speed_benchmark import MARGIN
from s2s.comparison.workload import (
    EXPLICIT,
    VOCABULARY,
    End,
    Form,
    Texts,
    backward,
    built,
    measure_lengths,
    other_forms,
    states_of,
    supported_lengths,
    texts,
)
from s2s.models.base import Seq2Seq
from s2s.process import machine_memory

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    lengths: tuple[int, ...]  # of source and target
    rows: int  # pairs in a batch
    written: tuple[int, ...]  # target lengths at which the decoder's state is measured


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes((64, 256, 512, 1024, 2048), 1, (16, 32, 64, 128, 256, 512)),
    "definitive": Sizes((64, 128, 256, 512, 768, 1024, 1536, 2048, 3072), 1, (16, 32, 64, 128, 256, 512, 1024)),
}
SIZES["lecture"] = SIZES["quick"]
# on a GPU, lengths continue until memory runs out
SIZES["definitive on a GPU"] = replace(
    SIZES["definitive"], lengths=tuple(n for k in range(6, 16) for n in (2**k, 3 * 2 ** (k - 1)))
)


def trials(comparison: Comparison) -> list[Trial]:
    """One trial for each model."""
    return [Trial(model, "peaks") for model in comparison.models]


def measure(comparison: Comparison, trial: Trial) -> MemoryUse:
    """Measure the peak of each form at each length, and the decoder's state by number of tokens."""
    candidate, sizes = comparison.candidate(trial.model), comparison.sizes(SIZES)
    model = built(comparison, candidate, max(sizes.lengths), comparison.device_context.device)
    peaks: list[Peak] = []
    ends: list[End] = []
    for form in (Form(), *other_forms(model, (EXPLICIT,))):
        ends += _measure_peaks(peaks, model, form, sizes, comparison.device_context.device)
    # in fp32 on the CPU, as decoding is measured
    model, states = built(comparison, candidate, max(sizes.written), _CPU).eval(), []
    for n in supported_lengths(model, sizes.written):
        pairs = texts(1, SOURCE, n, _CPU)
        with torch.no_grad():
            context, state = model.decoder.start(model.encoder(pairs.source, pairs.valid), n)
            state = model.decoder(context, state, pairs.target)[1]
        states.append(StateSize(n, bytes_of(state), bytes_of(context)))
    return MemoryUse(peaks, states, ends)


def _measure_peaks(peaks: list[Peak], model: Seq2Seq, form: Form, sizes: Sizes, device: torch.device) -> list[End]:
    def at(n: int) -> str:
        if why := _describe_excess([each for each in peaks if each.form == form.name], n, device):
            return why
        pairs = texts(sizes.rows, n, n, device)
        works = {"training": partial(_train, model, pairs, form), "inference": partial(_infer, model, pairs, form)}
        # warm up: tables of positions are built once, and gradients are allocated by the first backward pass
        works["inference"]()
        if n == SHORTEST:
            works["training"]()
        for what, work in works.items():
            peaks.append(Peak(form.name, what, n, peak_bytes(work, device)))
        return ""

    return measure_lengths(model, (SHORTEST, *sizes.lengths), at, form.name)


def _describe_excess(peaks: list[Peak], n: int, device: torch.device) -> str:
    """Return a reason if quadratic growth from the last length on would exceed half of the free memory.

    A GPU's allocator fails cleanly; a CPU's could crash the machine.
    """
    last = next((each for each in reversed(peaks) if each.what == "training" and each.n != SHORTEST), None)
    free = None if device.type == "cuda" else machine_memory("AVPHYS")
    if last is None or free is None or last.bytes * (n / last.n) ** 2 <= free / 2:
        return ""
    return "it could take more than half of the free memory"


def _train(model: Seq2Seq, pairs: Texts, form: Form) -> None:
    model.train()
    # the scores over the vocabulary cost the same for all models
    backward(states_of(model, pairs, form).sum(), form)


def _infer(model: Seq2Seq, pairs: Texts, form: Form) -> None:
    model.eval()
    with torch.no_grad():
        states_of(model, pairs, form)


EXPERIMENT = Experiment(
    "memory",
    "How does peak memory grow with length?",
    trials,
    measure,
    analyse,
    measurement=TypeAdapter(MemoryUse),
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
