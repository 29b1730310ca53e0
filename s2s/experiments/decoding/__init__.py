"""Greedy generation, timed against the lengths of source and target."""

from dataclasses import dataclass

import torch

from s2s.experiments.contest import Cell, Contest, Experiment, Measured, Scale, check_translates
from s2s.experiments.decoding.conclude import TYPICAL, conclude
from s2s.experiments.instruments import Marks, reference, round_figures, undisturbed
from s2s.experiments.workload import VOCABULARY, Form, built, fitting, generated, out_of_memory, texts
from s2s.models.contract import Seq2Seq

_WARM_UPS = 1


@dataclass(frozen=True)
class Sizes:
    """How much is measured, for one batch."""

    rows: int  # sources that are translated at once
    sources: tuple[int, ...]  # lengths of the source, at a target of 32 tokens
    # lengths of the target, at a source of 32 tokens; one run to the longest has all of them in it
    targets: tuple[int, ...]
    repetitions: int  # of each, at least


_TARGETS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
SIZES: dict[Scale, tuple[Sizes, ...]] = {
    "quick": (
        Sizes(1, (16, 32, 64, 128, 256, 512, 1024), _TARGETS[:9], 10),
        Sizes(64, (16, 32, 64, 128, 256), _TARGETS[:7], 10),
    ),
    "definitive": (
        Sizes(1, (16, 32, 64, 128, 256, 512, 1024, 2048), _TARGETS, 20),
        Sizes(64, (16, 32, 64, 128, 256, 512), _TARGETS[:11], 10),
    ),
}


def cells(contest: Contest) -> list[Cell]:
    """One for each model and batch; models in turn."""
    return [
        Cell(model, f"batch-{sizes.rows}", seconds=5 if sizes.rows == 1 else 12)
        for sizes in contest.sizes(SIZES)
        for model in contest.models
    ]


def measure(contest: Contest, cell: Cell) -> Measured:
    """Seconds of every repetition."""
    sizes = next(sizes for sizes in contest.sizes(SIZES) if cell.part == f"batch-{sizes.rows}")
    longest, device = max(*sizes.sources, *sizes.targets), contest.computer.device
    model = built(contest, contest.contestant(cell.model), Form(), longest, device).eval()
    check_translates(model, cell.model)
    measured: Measured = {"rows": sizes.rows, "reference": reference(device), "sources": [], "targets": [], "notes": []}
    with undisturbed(), torch.inference_mode():
        _by_target(measured, model, sizes, device)
        _by_source(measured, model, sizes, device)
    return measured


def _by_target(measured: Measured, model: Seq2Seq, sizes: Sizes, device: torch.device) -> None:
    """Each repetition is one run to the longest target; shorter ones are its beginnings."""
    targets = fitting(model, sizes.targets)
    if len(targets) < len(sizes.targets):
        measured["notes"].append({"length": "target", "n": sizes.targets[len(targets)], "why": _TOO_LONG})
    if not targets:
        return
    runs = [_run(model, sizes.rows, TYPICAL, targets[-1], device) for _ in range(_WARM_UPS + sizes.repetitions)]
    for m in targets:
        totals = [sum(seconds[: m + 1]) for seconds in runs[_WARM_UPS:]]
        # the last tokens of the run, where the past is longest
        last = [sum(seconds[m // 2 + 1 : m + 1]) / (m - m // 2) for seconds in runs[_WARM_UPS:]]
        measured["targets"].append({"m": m, "seconds": round_figures(totals), "last": round_figures(last)})


def _by_source(measured: Measured, model: Seq2Seq, sizes: Sizes, device: torch.device) -> None:
    """The source is read anew for each length and repetition."""
    for n in sizes.sources:
        if not fitting(model, (n,)):
            measured["notes"].append({"length": "source", "n": n, "why": _TOO_LONG})
            return
        try:
            count = _WARM_UPS + sizes.repetitions
            runs = [_run(model, sizes.rows, n, TYPICAL, device) for _ in range(count)][_WARM_UPS:]
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            measured["notes"].append({"length": "source", "n": n, "why": "memory ran out"})
            return
        totals, reading = [sum(seconds) for seconds in runs], [seconds[0] for seconds in runs]
        measured["sources"].append({"n": n, "seconds": round_figures(totals), "reading": round_figures(reading)})


_TOO_LONG = "the model reads no texts of this length"


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
    cells,
    measure,
    conclude,
    alone=True,
    numbers=lambda contest: {
        "vocabulary": VOCABULARY,
        "typical": TYPICAL,
        "repetitions": min(sizes.repetitions for sizes in contest.sizes(SIZES)),
    },
)
