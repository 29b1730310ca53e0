"""Count operations, work and span; measure the time of a training step against length, in rounds."""

import gc
from dataclasses import dataclass, replace

import torch
from pydantic import TypeAdapter

from s2s.comparison.instruments import Marks, flops_of_product, product, rounded, undisturbed, unfused
from s2s.comparison.operations import Operations
from s2s.comparison.questions.parallelism.analyse import Count, Counts, StepTime, StepTimes, analyse
from s2s.comparison.spec import Candidate, Comparison, Experiment, Scale, Trial
from s2s.comparison.speed_benchmark import (
    EQUAL_DEPTH_PART,
    MARGIN,
    ROUNDS,
    TYPICAL,
    Place,
    measure_steadily,
    places,
    rivals,
    round_trials,
)
from s2s.comparison.tuning import at_equal_depth, can_have_equal_depth
from s2s.comparison.workload import (
    UNFUSED,
    VOCABULARY,
    End,
    Form,
    Texts,
    backward,
    built,
    generated,
    loss_of,
    measure_lengths,
    other_forms,
    states_of,
    supported_lengths,
    texts,
)
from s2s.evaluation import gates
from s2s.models.base import Seq2Seq

_WORK = "work"
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    counted: tuple[int, ...]  # lengths at which operations are counted
    written: tuple[int, ...]  # lengths at which operations of generation are counted
    lengths: tuple[int, ...]  # lengths at which time is measured
    tokens: int  # target tokens of a `tokens` batch
    repetitions: int  # in each round
    patience: float  # seconds; a form whose step takes longer is not measured at this length and beyond
    variants: bool  # True to time other forms than the model as built, too


AT_LEAST = 0.5
"""Seconds in which the step at the length of the verdicts is repeated."""

SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(
        counted=(16, 64, 256),
        written=(8, 16, 32),
        lengths=(32, 64, 256),
        tokens=1024,
        repetitions=3,
        patience=3.0,
        variants=False,
    )
}
SIZES["lecture"] = replace(SIZES["quick"], counted=(16, 64, 256, 1024), lengths=(16, 32, 64, 128, 256, 512, 1024))
SIZES["definitive"] = replace(
    SIZES["lecture"],
    written=(8, 16, 32, 64, 128),
    lengths=(*SIZES["lecture"].lengths, 2048),
    tokens=2048,
    repetitions=5,
    variants=True,
)
# with a thousand tokens, a GPU is idle most of the time
_BUSY = 65_536
SIZES["quick on a GPU"] = replace(SIZES["quick"], tokens=_BUSY)
SIZES["lecture on a GPU"] = replace(SIZES["lecture"], tokens=_BUSY)
# on a GPU, lengths continue until memory or patience ends
SIZES["definitive on a GPU"] = replace(SIZES["definitive"], lengths=tuple(2**k for k in range(4, 17)), tokens=_BUSY)


def trials(comparison: Comparison) -> list[Trial]:
    """One trial that counts for each model, then the rounds, then those at equal depth."""
    found = [Trial(model, _WORK) for model in comparison.models] + round_trials(comparison.models)
    if comparison.profile != "quick" and can_have_equal_depth(comparison.candidates):
        found += round_trials(comparison.models, EQUAL_DEPTH_PART)
    return found


def measure(comparison: Comparison, trial: Trial) -> Counts | StepTimes:
    """Count operations, or measure times."""
    candidate, sizes = comparison.candidate(trial.model), comparison.sizes(SIZES)
    if trial.part == _WORK:
        return counted(comparison, candidate, sizes)
    where, folder = places(comparison.device_context), comparison.results_folder(EXPERIMENT.name)
    prefix = trial.part.rpartition("-")[0]
    if prefix == EQUAL_DEPTH_PART:
        candidate, sizes = at_equal_depth(candidate), replace(sizes, lengths=(TYPICAL,), variants=False)
    all_rounds = round_trials(comparison.models, prefix)
    return measure_steadily(lambda: timed(comparison, candidate, sizes, where), where, folder, all_rounds, trial)


def counted(comparison: Comparison, candidate: Candidate, sizes: Sizes) -> Counts:
    """Count operations, work and span of one pair: forward pass, training, and generation.

    Counted on the CPU without fused kernels, which hide loops and softmaxes; launched operations are also counted as
    built, on the comparison's device.
    """
    device, longest = comparison.device_context.device, max(sizes.counted + sizes.written)
    slow = built(comparison, candidate, longest, _CPU)
    fast = slow if device == _CPU else built(comparison, candidate, longest, device)
    points: list[Count] = []
    lengths = supported_lengths(slow, sizes.counted + sizes.written)
    for model in (slow, fast) if lengths else ():
        # build tables for the longest text first
        states_of(model, texts(1, max(lengths), max(lengths), next(model.parameters()).device), Form())
    # with one thread, the backward pass is followed on any device
    with torch.autograd.set_multithreading_enabled(False):
        for n in supported_lengths(slow, sizes.counted):
            for model, form, where in ((slow, UNFUSED, _CPU), (fast, Form(), device)):
                pairs = texts(1, n, n, where)
                model.zero_grad()
                with Operations() as operations:
                    states = states_of(model, pairs, form)
                    points.append(_count(form, "forward", n, operations))
                    # the loss over the vocabulary costs the same for all models
                    backward(states.sum(), form)
                points.append(_count(form, "training", n, operations))
        for n in supported_lengths(slow, sizes.written):
            pairs = texts(1, n, n, _CPU)
            with torch.no_grad(), unfused(), Operations() as operations:
                for _ in generated(slow, pairs):
                    pass
            points.append(_count(UNFUSED, "generating", n, operations))
    return Counts(points)


def _count(form: Form, what: str, n: int, found: Operations) -> Count:
    return Count(form.name, what, n, found.depth, found.count, found.work, found.span, found.undivided)


def timed(comparison: Comparison, candidate: Candidate, sizes: Sizes, where: list[Place]) -> StepTimes:
    """Measure the fastest training step of each form, kind of batch and length at each place."""
    points: list[StepTime] = []
    ends: list[End] = []
    models = {
        device: built(comparison, candidate, max(sizes.lengths), device)
        for device in {place.device_context.device for place in where}
    }
    compared = rivals([place.name for place in where])
    with undisturbed():
        for place in where:
            model = models[place.device_context.device]
            others = other_forms(model) if sizes.variants and place is where[-1] else []
            batches = {"pair": [Form(), *others]}
            if place.name in compared:
                # next to a GPU, one CPU thread is not timed on the GPU's large batches
                batches = {"tokens": [Form()], **batches}
            with place.used():
                for batch, forms in batches.items():
                    for form in forms:
                        ends += _time_lengths(points, model, form, batch, place, sizes)
    products = {}
    for place in where:
        with place.used():
            products[place.name] = rounded(product(place.device_context))
    flops = {place.name: flops_of_product(place.device_context) for place in where}
    return StepTimes(points=points, notes=ends, flops=flops, products=products)


def _time_lengths(
    points: list[StepTime], model: Seq2Seq, form: Form, batch: str, place: Place, sizes: Sizes
) -> list[End]:
    def at(n: int) -> str:
        rows = 1 if batch == "pair" else sizes.tokens // n
        pairs = texts(rows, n, n, place.device_context.device)
        seconds: list[float] = []
        # Where models are compared, the fastest of three steps of 30 ms would vary by up to 40 % between rounds.
        least = AT_LEAST if n == TYPICAL else 0.0
        # the first step warms up
        while len(seconds) <= sizes.repetitions or sum(seconds[1:]) < least:
            seconds.append(_step(model, pairs, form, place))
            if seconds[-1] > sizes.patience:
                return f"a step took {seconds[-1]:.1f} s"
        # other load on the machine only ever adds to a time
        points.append(StepTime(form.name, batch, place.name, n, rows, rounded(min(seconds[1:]))))
        return ""

    lengths = [n for n in sizes.lengths if batch == "pair" or n <= sizes.tokens]
    ends = measure_lengths(model, lengths, at, form.name, batch, place.name)
    if ends:
        # free what a failed step held
        model.zero_grad()
        gc.collect()
    return ends


def _step(model: Seq2Seq, pairs: Texts, form: Form, place: Place) -> float:
    """Seconds of a forward pass with the loss and a backward pass."""
    model.zero_grad()
    marks = Marks(place.device_context.device)
    marks.mark()
    backward(loss_of(model, pairs, form, place.device_context), form)
    marks.mark()
    return marks.seconds()[0]


EXPERIMENT = Experiment(
    "parallelism",
    "How much of the work can run in parallel, and how does time grow with length?",
    trials,
    measure,
    analyse,
    measurement=TypeAdapter(StepTimes | Counts),
    exclusive=True,
    tuning_level="depth",
    numbers=lambda comparison: (
        vars(comparison.sizes(SIZES))
        | {"vocabulary": VOCABULARY, "rounds": ROUNDS, "least": gates.ROUNDS, "margin": MARGIN, "typical": TYPICAL}
        | {"drift": gates.DRIFT, "busy": gates.BUSY, "at_least": AT_LEAST}
    ),
)
