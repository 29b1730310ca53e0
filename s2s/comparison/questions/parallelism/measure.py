"""Operations, work and span counted; times measured against length, in rounds, with one thread and with all."""

import gc
from dataclasses import dataclass, replace
from typing import Any

import torch

from s2s.comparison.instruments import Marks, flops_of_reference, rounded, undisturbed, unfused
from s2s.comparison.operations import Operations
from s2s.comparison.questions.parallelism.analyse import analyse
from s2s.comparison.questions.parallelism.seen import TYPICAL
from s2s.comparison.spec import Candidate, Comparison, Experiment, Measured, Scale, Trial
from s2s.comparison.speed_benchmark import MARGIN, ROUNDS, Place, measure_steadily, places, rivals, round_trials
from s2s.comparison.workload import (
    UNFUSED,
    VOCABULARY,
    Form,
    Texts,
    backward,
    built,
    generated,
    is_out_of_memory,
    loss_of,
    other_forms,
    states_of,
    supported_lengths,
    texts,
    too_long,
)
from s2s.evaluation import gates
from s2s.models.base import Seq2Seq

WORK = "work"
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    counted: tuple[int, ...]  # lengths at which operations are counted
    written: tuple[int, ...]  # lengths at which operations of generation are counted
    lengths: tuple[int, ...]  # lengths at which time is measured
    tokens: int  # target tokens of a batch where they are fixed
    repetitions: int  # in each round
    patience: float  # seconds; a form whose step takes longer is not measured at this length and beyond
    variants: bool  # whether other forms than the model as built are measured, too


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(
        counted=(16, 64, 256, 1024),
        written=(8, 16, 32),
        lengths=(32, 64, 256, 1024),
        tokens=1024,
        repetitions=3,
        patience=3.0,
        variants=False,
    )
}
SIZES["lecture"] = replace(SIZES["quick"], lengths=(16, 32, 64, 128, 256, 512, 1024))
SIZES["definitive"] = replace(
    SIZES["lecture"],
    written=(8, 16, 32, 64, 128),
    lengths=(*SIZES["lecture"].lengths, 2048),
    tokens=2048,
    repetitions=5,
    variants=True,
)
# a GPU that computes with a thousand tokens waits for its next operation most of the time
_BUSY = 65_536
SIZES["quick on a GPU"] = replace(SIZES["quick"], tokens=_BUSY)
SIZES["lecture on a GPU"] = replace(SIZES["lecture"], tokens=_BUSY)
# there lengths go on to where memory or patience ends
SIZES["definitive on a GPU"] = replace(SIZES["definitive"], lengths=tuple(2**k for k in range(4, 17)), tokens=_BUSY)


def trials(comparison: Comparison) -> list[Trial]:
    """Counting once for each model, then the rounds."""
    return [Trial(model, WORK) for model in comparison.models] + _rounds(comparison)


def _rounds(comparison: Comparison) -> list[Trial]:
    return round_trials(comparison.models)


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """Counts, or measures times."""
    candidate, sizes = comparison.candidate(trial.model), comparison.sizes(SIZES)
    if trial.part == WORK:
        return counted(comparison, candidate, sizes)
    where = places(comparison.device_context)
    folder = comparison.results_folder(EXPERIMENT.name)
    return measure_steadily(
        lambda: timed(comparison, candidate, sizes, where), where, folder, _rounds(comparison), trial
    )


def counted(comparison: Comparison, candidate: Candidate, sizes: Sizes) -> Measured:
    """Operations, work and span of one pair: in reading and writing, with gradients, and in generation.

    They are counted on a processor, without kernels that hide a loop or a softmax; the operations that are launched
    also as built, on the device in use.
    """
    longest = max(sizes.counted + sizes.written)
    slow = built(comparison, candidate, longest, _CPU)
    fast = (
        slow
        if comparison.device_context.device == _CPU
        else built(comparison, candidate, longest, comparison.device_context.device)
    )
    points = []
    lengths = supported_lengths(slow, sizes.counted + sizes.written)
    for model in (slow, fast) if lengths else ():
        # tables that grow with the longest text shall have grown
        states_of(model, texts(1, max(lengths), max(lengths), next(model.parameters()).device), Form())
    # with one thread, the backward pass is seen wherever it runs
    with torch.autograd.set_multithreading_enabled(False):
        for n in supported_lengths(slow, sizes.counted):
            points += _learning(slow, n, UNFUSED, _CPU) + _learning(fast, n, Form(), comparison.device_context.device)
        for n in supported_lengths(slow, sizes.written):
            # drawn before: what a model has no part in is not counted
            pairs = texts(1, n, n, _CPU)
            with torch.no_grad(), unfused(), Operations() as operations:
                for _ in generated(slow, pairs):
                    pass
            points.append(_point(UNFUSED, "generating", n, operations))
    return {"points": points}


def _learning(model: Seq2Seq, n: int, form: Form, device: torch.device) -> list[Measured]:
    pairs = texts(1, n, n, device)
    model.zero_grad()
    with Operations() as operations:
        states = states_of(model, pairs, form)
        forward = _point(form, "forward", n, operations)
        # the loss over the vocabulary is the same for all models, and not what is asked
        backward(states.sum(), form)
    return [forward, _point(form, "training", n, operations)]


def _point(form: Form, what: str, n: int, operations: Operations) -> Measured:
    kinds = ("depth", "count", "work", "span", "undivided")
    return {"form": form.name, "what": what, "n": n, **{kind: getattr(operations, kind) for kind in kinds}}


def timed(comparison: Comparison, candidate: Candidate, sizes: Sizes, where: list[Place]) -> Measured:
    """The fastest seconds of a training step, for each kind of batch, place, form and length."""
    flops = {place.name: flops_of_reference(place.device_context) for place in where}
    measured: Measured = {"points": [], "notes": [], "flops": flops}
    longest, devices = max(sizes.lengths), {place.device_context.device for place in where}
    models = {device: built(comparison, candidate, longest, device) for device in devices}
    compared = rivals([place.name for place in where])
    with undisturbed():
        for place in where:
            model = models[place.device_context.device]
            others = other_forms(model) if sizes.variants and place is where[-1] else []
            forms = {"pair": [Form(), *others]}
            if place.name in compared:
                # beside a GPU no model is ranked by what one thread does with the GPU's large batches
                forms = {"tokens": [Form()], **forms}
            with place.used():
                for batch, own in forms.items():
                    for form in own:
                        labels = {"form": form.name, "batch": batch, "place": place.name}
                        _series(measured, model, form, place, sizes, labels)
    return measured


def _series(measured: Measured, model: Seq2Seq, form: Form, place: Place, sizes: Sizes, labels: dict[str, str]) -> None:
    """Measure all lengths, up to the longest or the end of memory or patience."""
    for n in sizes.lengths:
        rows = 1 if labels["batch"] == "pair" else sizes.tokens // n
        if not rows:
            return
        why = too_long(model, n)
        seconds: list[float] = []
        try:
            pairs = texts(rows, n, n, place.device_context.device)
            # the first step warms up
            while not why and len(seconds) <= sizes.repetitions:
                seconds.append(_step(model, pairs, form, place))
                why = f"a step took {seconds[-1]:.1f} s" if seconds[-1] > sizes.patience else ""
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            why = "memory ran out"
        if why:
            # what a failed step held is given back, for the others
            model.zero_grad()
            gc.collect()
            measured["notes"].append({**labels, "n": n, "why": why})
            return
        # what else the machine does only ever adds to a time
        measured["points"].append({**labels, "n": n, "rows": rows, "seconds": rounded(min(seconds[1:]))})


def _step(model: Seq2Seq, pairs: Texts, form: Form, place: Place) -> float:
    """Seconds of a forward pass with the loss and a backward pass."""
    model.zero_grad()
    marks = Marks(place.device_context.device)
    marks.mark()
    backward(loss_of(model, pairs, form, place.device_context), form)
    marks.mark()
    return marks.seconds()[0]


def _numbers(comparison: Comparison) -> dict[str, Any]:
    numbers = {"vocabulary": VOCABULARY, "rounds": ROUNDS, "least": gates.ROUNDS, "margin": MARGIN, "typical": TYPICAL}
    return vars(comparison.sizes(SIZES)) | numbers | {"drift": gates.DRIFT, "busy": gates.BUSY}


EXPERIMENT = Experiment(
    "parallelism",
    "How much of the work can be done at once, and what does length cost in time?",
    trials,
    measure,
    analyse,
    exclusive=True,
    tuning_level="depth",
    numbers=_numbers,
)
