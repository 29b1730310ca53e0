"""A finished comparison of four models, with every kind of figure, finding and mishap, as the runner leaves it."""

import math
from pathlib import Path

import pytest

from s2s.comparison.report.drawing import draw
from s2s.comparison.results import (
    Axis,
    CandidateSummary,
    Failure,
    Figure,
    Heatmap,
    Mark,
    Result,
    Series,
    Summary,
    Table,
    Verdict,
    write,
)

ODD = 'Über-LSTM <"R&D"> of a very long name, really'
MODELS = ["rnn", "lstm-attention", "transformer", ODD]
REASON = "out of memory: <2 GiB> & 'more' were asked for"
RATES = ("0.0003", "0.001", "0.003")


def comparison() -> tuple[Summary, list[Result]]:
    """What was found; gradients are still to come."""
    results = [parallelism(), long_range(), quality()]
    recipe = "name: compare\nmodel: {kind: X, width: 64}  # <&>\ntraining:\n  learning_rate: 1.0e-03\n"
    contenders = [
        CandidateSummary(
            model=model,
            settings={"kind": model, "width": 64 + 2 * i} | ({"heads": 4} if i == 2 else {}),
            parameters=412_345 + 1_111 * i,
            learning_rate=0.001,
            rates={rate: None if i == 0 and rate == "0.003" else 2.1 + 0.1 * j for j, rate in enumerate(RATES)},
            inside=True,
            tuning_seconds=31.4 + i,
            recipe=recipe.replace("X", f'"{model}"'),
        )
        for i, model in enumerate(MODELS)
    ]
    machine = {
        "processor": "Imaginary CPU <8 cores> & more",
        "device": "cpu, 2 threads",
        "python": "3.11.2",
        "torch": "2.13.0",
        "commit": "0123abc",
        "date": "2025-11-21 10:00",
    }
    summary = Summary(
        command=f"s2s compare rnn lstm-attention transformer '{ODD}' --seeds 3 --experiment parallelism",
        profile="quick",
        match="parameters",
        models=MODELS,
        seeds=[1, 2, 3],
        experiments=[*(result.experiment for result in results), "gradients"],
        contenders=contenders,
        machine=machine,
        seconds=754.2,
    )
    return summary, results


def times() -> Figure:
    """Two forms of three models; slopes of about one."""
    lengths = [float(2**k) for k in range(4, 11)]
    series = []
    for i, model in enumerate(MODELS[:3]):
        for variant, factor, power in (("loop", 4.0, 1.0), ("fused", 1.0, (1.0, 0.9, 0.3)[i])):
            y = [0.08 * factor * (i + 1) * n**power for n in lengths]
            label = f"{model}, {variant}"
            low, high = [v * 0.92 for v in y], [v * 1.1 for v in y]
            series.append(Series(label=label, model=model, x=lengths, y=y, low=low, high=high))
    series.append(Series(label="linear in length", model="", x=lengths, y=[0.05 * n for n in lengths], reference=True))
    return Figure(
        name="time-against-length",
        title="Time of a forward and backward pass against length",
        x=Axis(label="length", unit="tokens", log=True),
        y=Axis(label="time", unit="ms", log=True),
        series=series,
        caption="Median of 10 rounds; bars are 95 % intervals. A slope of one is linear.",
    )


def depths() -> Figure:
    """Points at names; on a logarithmic axis."""
    return Figure(
        name="depth",
        title="Longest chain of dependent operations",
        kind="points",
        x=Axis(label="form"),
        y=Axis(label="operations", log=True),
        series=[
            Series(
                label=model, model=model, x=["forward", "backward", "one decoding step"], y=[1e3 / 9**i, 2e3 / 9**i, 30]
            )
            for i, model in enumerate(MODELS[:3])
        ],
    )


def speeds() -> list[Verdict]:
    """Cells with an interval, without one, and failed ones."""
    findings = [
        Verdict(
            row="sequential steps",
            model=m,
            value=v,
            quantity="exponent of depth",
            facts={"in training": w},
            figure="depth",
        )
        for m, v, w in zip(
            MODELS[:3], (1.0, 1.0, 0.0), ("grows with length", "grows with length", "constant"), strict=True
        )
    ]
    findings += [
        Verdict(
            row="training speed",
            model=model,
            value=speed,
            low=speed * 0.95,
            high=speed * 1.04,
            unit="tokens/s",
            quantity=f"at length {64 + i}",
            rival="transformer" if i else "gru",
            difference=0.71 if i else 1.1,
            difference_low=0.65 if i else 0.9,
            difference_high=0.8 if i else 1.3,
            difference_unit="times as fast",
            p=0.0004 if i else 0.31,
            test="t-test over rounds, Holm",
            figure="time-against-length",
        )
        for i, (model, speed) in enumerate(zip(MODELS[:3], (18_432.7, 13_100.2, 15_020.0), strict=True))
    ]
    findings += [Verdict(row=row, model=ODD, failed=REASON) for row in ("sequential steps", "training speed")]
    return findings


def parallelism() -> Result:
    """Times against lengths, with variants; one model ran out of memory."""
    return Result(
        experiment="parallelism",
        question="How do time and the chain of operations grow with length?",
        method="Each pass is timed ten times after two for warming up.\n\nModels take turns, so that a busy machine "
        "slows all of them. Large batches hide recurrence; generation is sequential for all.",
        limits="Two cores; a fused kernel hides its own loop.",
        models=MODELS,
        seeds=[1],
        findings=speeds(),
        figures=[times(), depths()],
        tables=[
            Table(
                name="exponents",
                title="Fitted exponents <of time>",
                columns=["model", "forward", "kernel launches", "FLOP/s"],
                rows=[["rnn", 0.98, 1024, 1.23e9], ["transformer", 1.4142135, 64, 4.5e10], [ODD, None, None, None]],
            )
        ],
        failures=[Failure(task="odd--forward", model=ODD, reason=REASON)],
        seconds=61.7,
    )


def recalls() -> Figure:
    """Curves with intervals, and what they are compared with."""
    distances = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
    series = []
    for i, model in enumerate(MODELS):
        y = [100 / (1 + math.exp((math.log2(d) - 3 - 1.2 * i) * 2)) for d in distances]
        low, high = [max(0.0, v - 6) for v in y], [min(100.0, v + 6) for v in y]
        series.append(Series(label=model, model=model, x=distances, y=y, low=low, high=high))
    series.append(Series(label="memoryless baseline", model="", x=distances, y=[12.5] * 6, reference=True))
    return Figure(
        name="recall",
        title="First-token recall against distance",
        x=Axis(label="distance", unit="tokens", log=True),
        y=Axis(label="accuracy", unit="%"),
        series=series,
        marks=[Mark(at=32.0, label="trained to 32 <&>"), Mark(at=512.0, label="asked for")],
        caption="Bars are Wilson intervals over 3 seeds.",
    )


def decays() -> Figure:
    """Long curves with bands; some values are zero."""
    steps = [float(t) for t in range(60)]
    return Figure(
        name="gradient-decay",
        title="What is left of a gradient",
        x=Axis(label="distance", unit="steps"),
        y=Axis(label="‖∂L/∂h‖", log=True),
        series=[
            Series(
                label=f"{model}{form}",
                model=model,
                x=steps,
                y=[(0.5 + 0.12 * i + 0.05 * bool(form)) ** t if t < 58 or i else 0.0 for t in steps],
                low=[(0.48 + 0.12 * i + 0.05 * bool(form)) ** t for t in steps],
                high=[(0.52 + 0.12 * i + 0.05 * bool(form)) ** t for t in steps],
            )
            for i, model in enumerate(MODELS)
            for form in ("", " after training")
        ],
    )


def paths() -> Figure:
    """Matrices in a logarithmic key; a value is not known."""
    words = ["the", "old", "woman", "who", "sleeps", "reads", "a", "book", "."]
    return Figure(
        name="paths",
        title="Which source word an output depends on",
        kind="heatmaps",
        x=Axis(label="source word"),
        y=Axis(label="‖∂output/∂source‖", log=True),
        heatmaps=[
            Heatmap(
                label=f"lstm-attention, {path}",
                model="lstm-attention",
                rows=[f"{w}-{i}" for i, w in enumerate(words)],
                columns=words,
                values=[[None if (i, j) == (8, 0) else math.exp(-abs(i - j) * s) for j in range(9)] for i in range(9)],
            )
            for path, s in (("whole", 0.8), ("attention cut", 0.3), ("recurrence cut <off>", 1.5), ("both", 3.0))
        ],
    )


def shuffles() -> Figure:
    """Matrices with values below and above zero."""
    return Figure(
        name="shuffled",
        title="What shuffling the source words costs",
        kind="heatmaps",
        y=Axis(label="change of accuracy", unit="%"),
        heatmaps=[
            Heatmap(
                label=model,
                model=model,
                rows=["no positions", "learned", "sinusoidal"],
                columns=["none", "learned", "sin."],
                values=[[-40.0 + 12 * i + 9 * j + 7 * k for j in range(3)] for i in range(3)],
            )
            for k, model in enumerate(MODELS[:2])
        ],
    )


def reaches() -> list[Verdict]:
    """Cells of all models but the last."""
    what = {"unit": "tokens", "quantity": "largest distance solved ≥ 95 %", "figure": "recall"}
    said = {"rival": "transformer", "standing": "worse", "p": 0.02}
    return [
        Verdict(row=row, model=model, value=4.0 * 2**i, low=4.0 * 2**i, high=8.0 * 2**i, **what, **said)
        for row in ("long-term dependencies", "learning long-term dependencies")
        for i, model in enumerate(MODELS[:-1])
    ]


def long_range() -> Result:
    """Accuracies against distance, a long curve with a zero, and matrices."""
    return Result(
        experiment="long-range",
        question="How far back can a model reach?",
        method="Trained on distances up to 32 & tested beyond.",
        models=MODELS,
        seeds=[1, 2, 3],
        findings=reaches(),
        figures=[recalls(), decays(), paths(), shuffles()],
        seconds=301.0,
    )


def scores() -> Figure:
    """Bars with intervals, and what they are compared with."""
    return Figure(
        name="scores",
        title="Translation scores",
        kind="bars",
        x=Axis(label="metric"),
        y=Axis(label="score"),
        series=[
            Series(
                label=model,
                model=model,
                x=["BLEU", "chrF"],
                y=[20.123 + 3 * i, 41.5 + 2 * i],
                low=[19.0 + 3 * i, 40.0 + 2 * i],
                high=[21.5 + 3 * i, 43.0 + 2 * i],
            )
            for i, model in enumerate(MODELS)
        ]
        + [Series(label="copying the source", model="", x=["BLEU", "chrF"], y=[3.1, 18.2], reference=True)],
    )


def buckets() -> Figure:
    """Bars of two forms of two models."""
    return Figure(
        name="by-length",
        title="BLEU by length of the source",
        kind="bars",
        x=Axis(label="source length", unit="words"),
        y=Axis(label="BLEU"),
        series=[
            Series(label=f"{m}{v}", model=m, x=["1–5", "6–9", "10–14", "15–40"], y=[30 - d * b - k for b in range(4)])
            for m, d in (("rnn", 6.0), ("transformer", 1.0))
            for k, v in ((0, ""), (2, ", no dropout"))
        ],
    )


def sizes() -> Figure:
    """Points, one of them missing, and a fitted line."""
    return Figure(
        name="size",
        title="Loss against parameters",
        kind="points",
        x=Axis(label="parameters", log=True),
        y=Axis(label="validation loss", unit="nats/token"),
        series=[
            Series(
                label=model,
                model=model,
                x=[1e4 * 4**k for k in range(4)],
                y=[None if k == 1 and i == 1 else 4.0 * 0.8**k + 0.1 * i for k in range(4)],
            )
            for i, model in enumerate(MODELS)
        ]
        + [Series(label="fit", model="rnn", x=[1e4, 64e4], y=[4.0, 4.0 * 0.8**3], reference=True)],
    )


def quality() -> Result:
    """Scores as bars and as points."""
    findings = [
        Verdict(
            row="translation quality",
            model=model,
            value=20.123 + 3 * i,
            unit="BLEU",
            reasons=[f"{i} & <some> of 100 %"],
            standing=standing,
            variations={"half the updates": True, "another rate": i > 0},
            tokens=1_160_000.0 * (1 + i),
            figure="scores",
        )
        for i, (model, standing) in enumerate(zip(MODELS[:2], ("worse", "better"), strict=True))
    ]
    learning = "its loss still falls by 0.12 nats with each doubling of the tokens"
    findings.append(
        Verdict(
            row="translation quality",
            model="transformer",
            value=30.0,
            unit="BLEU",
            reasons=[learning],
            standing="still learning",
        )
    )
    return Result(
        experiment="quality",
        question="How good are translations?",
        method="BLEU and chrF by sacreBLEU.",
        models=MODELS,
        seeds=[1, 2, 3],
        findings=findings,
        figures=[scores(), buckets(), sizes()],
    )


def save(folder: Path, summary: Summary, results: list[Result]) -> Path:
    """Writes a comparison as the runner does."""
    folder.mkdir(parents=True, exist_ok=True)
    write(summary, folder / "comparison.json")
    for result in results:
        (folder / result.experiment).mkdir(exist_ok=True)
        write(result, folder / result.experiment / "result.json")
    return folder


FIGURES = {figure.name: figure for result in comparison()[1] for figure in result.figures}


@pytest.fixture
def models() -> list[str]:
    """Those compared."""
    return list(MODELS)


@pytest.fixture(params=FIGURES)
def figure(request: pytest.FixtureRequest) -> Figure:
    """Each figure of the comparison."""
    return FIGURES[request.param]


@pytest.fixture
def found() -> tuple[Summary, list[Result]]:
    """What the comparison found."""
    return comparison()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The comparison's folder with the first experiment alone, which is soon drawn; nothing was drawn in it."""
    summary, results = comparison()
    return save(tmp_path / "compare-1", summary, results[:1])


@pytest.fixture(scope="session")
def drawn_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The comparison's folder with everything drawn; not to be changed."""
    folder = save(tmp_path_factory.mktemp("drawn") / "compare-1", *comparison())
    draw(folder)
    return folder
