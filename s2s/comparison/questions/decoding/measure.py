"""Measure the time of greedy generation against the lengths of source and target."""

from dataclasses import dataclass, replace

import torch
from pydantic import TypeAdapter

from s2s.comparison.instruments import Marks, rounded, undisturbed
from s2s.comparison.questions.decoding.analyse import (
    DecodingTimes,
    PlaceTimes,
    SourceTime,
    TargetTime,
    analyse,
    part,
)
from s2s.comparison.spec import Comparison, Experiment, Scale, Trial, check_translates
from s2s.comparison.speed_benchmark import (
    EQUAL_DEPTH_PART,
    MARGIN,
    ROUNDS,
    TYPICAL,
    measure_steadily,
    places,
    round_trials,
)
from s2s.comparison.tuning import at_equal_depth, can_have_equal_depth
from s2s.comparison.workload import (
    VOCABULARY,
    End,
    built,
    generated,
    measure_lengths,
    supported_lengths,
    texts,
    too_long,
)
from s2s.evaluation import gates
from s2s.models.base import Seq2Seq
from s2s.training.device import DeviceContext

_WARM_UPS = 1


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement, for one batch size."""

    rows: int  # sources in a batch
    sources: tuple[int, ...]  # source lengths, at a target of 32 tokens
    targets: tuple[int, ...]  # target lengths, at a source of 32 tokens; one run to the longest contains all
    repetitions: int  # of each in a round


_TARGETS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_SOURCES = (16, 32, 64, 128, 256, 512, 1024, 2048)
SIZES: dict[Scale, tuple[Sizes, ...]] = {
    "quick": (Sizes(1, _SOURCES[:5], _TARGETS[:7], 3),),
    "lecture": (Sizes(1, _SOURCES[:7], _TARGETS[:9], 3), Sizes(64, _SOURCES[:4], _TARGETS[:5], 2)),
    "definitive": (Sizes(1, _SOURCES, _TARGETS, 5), Sizes(64, _SOURCES[:6], _TARGETS[:11], 5)),
}


def _all_sizes(comparison: Comparison) -> dict[str, Sizes]:
    """Sizes of the measurements by the prefix of their trials' part; at equal depth only a usual sentence."""
    every = comparison.sizes(SIZES)
    found = {part(sizes.rows): sizes for sizes in every}
    if comparison.profile != "quick" and can_have_equal_depth(comparison.candidates):
        found[EQUAL_DEPTH_PART] = replace(every[0], sources=(), targets=(TYPICAL,))
    return found


def trials(comparison: Comparison) -> list[Trial]:
    """All rounds of the first batch size, then those of the next, then those at equal depth."""
    return [trial for prefix in _all_sizes(comparison) for trial in round_trials(comparison.models, prefix)]


def measure(comparison: Comparison, trial: Trial) -> DecodingTimes:
    """Measure the fastest time at each length and place."""
    prefix = trial.part.rpartition("-")[0]
    sizes, candidate = _all_sizes(comparison)[prefix], comparison.candidate(trial.model)
    if prefix == EQUAL_DEPTH_PART:
        candidate = at_equal_depth(candidate)
    where = [
        replace(place, device_context=DeviceContext(place.device_context.device, torch.float32))
        for place in places(comparison.device_context)
    ]
    longest = max((*sizes.sources, *sizes.targets))
    models = {
        device: built(comparison, candidate, longest, device).eval()
        for device in {place.device_context.device for place in where}
    }
    for model in models.values():
        check_translates(model, trial.model)

    def measure_places() -> DecodingTimes:
        times = []
        for place in where:
            device = place.device_context.device
            with undisturbed(), torch.inference_mode(), place.used():
                targets, no_target = _by_target(models[device], sizes, device)
                sources, no_source = _by_source(models[device], sizes, device)
            times.append(PlaceTimes(place.name, sources, targets, [*no_target, *no_source]))
        return DecodingTimes(places=times)

    all_rounds = round_trials(comparison.models, prefix)
    return measure_steadily(measure_places, where, comparison.results_folder(EXPERIMENT.name), all_rounds, trial)


def _by_target(model: Seq2Seq, sizes: Sizes, device: torch.device) -> tuple[list[TargetTime], list[End]]:
    """Measure all target lengths in runs to the longest one."""
    lengths = supported_lengths(model, sizes.targets)
    ends = [End(n, too_long(model, n), length="target") for n in sizes.targets[len(lengths) :][:1]]
    if not lengths:
        return [], ends
    runs = [_run(model, sizes.rows, TYPICAL, lengths[-1], device) for _ in range(_WARM_UPS + sizes.repetitions)]
    times = []
    for m in lengths:
        totals = [sum(seconds[: m + 1]) for seconds in runs[_WARM_UPS:]]
        # the second half of the target, with the most previous tokens
        last = [sum(seconds[m // 2 + 1 : m + 1]) / (m - m // 2) for seconds in runs[_WARM_UPS:]]
        times.append(TargetTime(m, _fastest(totals), _fastest(last)))
    return times, ends


def _by_source(model: Seq2Seq, sizes: Sizes, device: torch.device) -> tuple[list[SourceTime], list[End]]:
    """Measure each source length in runs of its own."""
    times: list[SourceTime] = []

    def at(n: int) -> str:
        count = _WARM_UPS + sizes.repetitions
        runs = [_run(model, sizes.rows, n, TYPICAL, device) for _ in range(count)][_WARM_UPS:]
        times.append(SourceTime(n, _fastest([sum(run) for run in runs]), _fastest([run[0] for run in runs])))
        return ""

    return times, [replace(end, length="source") for end in measure_lengths(model, sizes.sources, at)]


def _fastest(seconds: list[float]) -> float:
    # other load on the machine only ever adds to a time
    return rounded(min(seconds))


def _run(model: Seq2Seq, rows: int, source: int, target: int, device: torch.device) -> list[float]:
    """Seconds of encoding the source, and of each output token."""
    pairs = texts(rows, source, target, device)
    marks = Marks(device)
    marks.mark()
    for _ in generated(model, pairs, marks.mark):
        marks.mark()
    return marks.seconds()


EXPERIMENT = Experiment(
    "decoding",
    "How long does an output token take?",
    trials,
    measure,
    analyse,
    measurement=TypeAdapter(DecodingTimes),
    exclusive=True,
    tuning_level="depth",
    precision="fp32",
    numbers=lambda comparison: {
        "vocabulary": VOCABULARY,
        "typical": TYPICAL,
        "rounds": ROUNDS,
        "least": gates.ROUNDS,
        "drift": gates.DRIFT,
        "margin": MARGIN,
        "repetitions": min(sizes.repetitions for sizes in comparison.sizes(SIZES)),
    },
)
