"""Greedy generation, timed against the lengths of source and target."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from s2s.comparison.instruments import Marks, rounded, undisturbed
from s2s.comparison.questions.decoding.analyse import TYPICAL, analyse, part
from s2s.comparison.spec import Comparison, Experiment, Measured, Scale, Trial, check_translates
from s2s.comparison.speed_benchmark import MARGIN, ROUNDS, Place, measure_steadily, places, round_trials
from s2s.comparison.workload import VOCABULARY, built, generated, is_out_of_memory, supported_lengths, texts, too_long
from s2s.evaluation import gates
from s2s.models.base import Seq2Seq
from s2s.training.device import DeviceContext

_WARM_UPS = 1


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement, for one batch size."""

    rows: int  # sources that are translated at once
    sources: tuple[int, ...]  # lengths of the source, at a target of 32 tokens
    # lengths of the target, at a source of 32 tokens; one run to the longest has all of them in it
    targets: tuple[int, ...]
    repetitions: int  # of each in a round


_TARGETS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_SOURCES = (16, 32, 64, 128, 256, 512, 1024, 2048)
SIZES: dict[Scale, tuple[Sizes, ...]] = {
    "quick": (Sizes(1, _SOURCES[:7], _TARGETS[:9], 3), Sizes(64, _SOURCES[:4], _TARGETS[:5], 2)),
    "definitive": (Sizes(1, _SOURCES, _TARGETS, 5), Sizes(64, _SOURCES[:6], _TARGETS[:11], 5)),
}
SIZES["lecture"] = SIZES["quick"]


def trials(comparison: Comparison) -> list[Trial]:
    """The rounds of one sentence, then those of many."""
    return [trial for sizes in comparison.sizes(SIZES) for trial in round_trials(comparison.models, part(sizes.rows))]


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """The fastest seconds at each length, at each place."""
    sizes = next(sizes for sizes in comparison.sizes(SIZES) if trial.part.startswith(part(sizes.rows) + "-"))
    where = [
        replace(place, device_context=DeviceContext(place.device_context.device, torch.float32))
        for place in places(comparison.device_context)
    ]
    longest = max(*sizes.sources, *sizes.targets)
    devices = {place.device_context.device for place in where}
    models = {
        device: built(comparison, comparison.candidate(trial.model), longest, device).eval() for device in devices
    }
    for model in models.values():
        check_translates(model, trial.model)
    together = round_trials(comparison.models, part(sizes.rows))
    folder = comparison.results_folder(EXPERIMENT.name)
    return measure_steadily(
        lambda: {"places": [_timed(models, place, sizes) for place in where]}, where, folder, together, trial
    )


def _timed(models: Mapping[torch.device, Seq2Seq], place: Place, sizes: Sizes) -> Measured:
    measured: Measured = {"place": place.name, "sources": [], "targets": [], "notes": []}
    device = place.device_context.device
    with undisturbed(), torch.inference_mode(), place.used():
        _by_target(measured, models[device], sizes, device)
        _by_source(measured, models[device], sizes, device)
    return measured


def _by_target(measured: Measured, model: Seq2Seq, sizes: Sizes, device: torch.device) -> None:
    """Each repetition is one run to the longest target; shorter ones are its beginnings."""
    targets = supported_lengths(model, sizes.targets)
    for n in sizes.targets[len(targets) :][:1]:
        measured["notes"].append({"length": "target", "n": n, "why": too_long(model, n)})
    if not targets:
        return
    runs = [_run(model, sizes.rows, TYPICAL, targets[-1], device) for _ in range(_WARM_UPS + sizes.repetitions)]
    for m in targets:
        totals = [sum(seconds[: m + 1]) for seconds in runs[_WARM_UPS:]]
        # the last tokens of the run, where the past is longest
        last = [sum(seconds[m // 2 + 1 : m + 1]) / (m - m // 2) for seconds in runs[_WARM_UPS:]]
        measured["targets"].append({"m": m, "seconds": _fastest(totals), "last": _fastest(last)})


def _by_source(measured: Measured, model: Seq2Seq, sizes: Sizes, device: torch.device) -> None:
    """The source is read anew for each length and repetition."""
    for n in sizes.sources:
        if why := too_long(model, n):
            measured["notes"].append({"length": "source", "n": n, "why": why})
            return
        try:
            count = _WARM_UPS + sizes.repetitions
            runs = [_run(model, sizes.rows, n, TYPICAL, device) for _ in range(count)][_WARM_UPS:]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            measured["notes"].append({"length": "source", "n": n, "why": "memory ran out"})
            return
        totals, reading = [sum(seconds) for seconds in runs], [seconds[0] for seconds in runs]
        measured["sources"].append({"n": n, "seconds": _fastest(totals), "reading": _fastest(reading)})


def _fastest(seconds: list[float]) -> float:
    # what else the machine does only ever adds to a time
    return rounded(min(seconds))


def _run(model: Seq2Seq, rows: int, source: int, target: int, device: torch.device) -> list[float]:
    """Seconds of reading the source, and of each output token."""
    pairs = texts(rows, source, target, device)
    marks = Marks(device)
    marks.mark()
    for _ in generated(model, pairs, marks.mark):
        marks.mark()
    return marks.seconds()


EXPERIMENT = Experiment(
    "decoding",
    "What does an output token cost?",
    trials,
    measure,
    analyse,
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
