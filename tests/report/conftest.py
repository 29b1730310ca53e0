"""A finished comparison of four models, with every kind of figure, verdict and failure."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from s2s.comparison.report import drawing
from s2s.comparison.report.figures import Drawing, drawn
from s2s.comparison.results import (
    Axis,
    CandidateSummary,
    Claim,
    ClaimNumber,
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
    """The summary and the results; gradients are not finished."""
    results = [parallelism(), long_range(), quality()]
    recipe = "name: compare\nmodel: {kind: X, width: 64}  # <&>\ntraining:\n  learning_rate: 1.0e-03\n"
    candidates = [
        CandidateSummary(
            model=model,
            settings={"kind": model, "width": 64 + 2 * i} | ({"heads": 4} if i == 2 else {}),
            traits="scan + attention" if i == 1 else "",
            parameters=412_345 + 1_111 * i,
            learning_rate=0.001,
            rates={rate: None if i == 0 and rate == "0.003" else 2.1 + 0.1 * j for j, rate in enumerate(RATES)},
            inside=True,
            tuning_seconds=31.4 + i,
            recipe=recipe.replace("X", f'"{model}"'),
        )
        for i, model in enumerate(MODELS)
    ]
    machine = {"processor": "Imaginary CPU <8 cores> & more", "device": "cpu, 2 threads", "python": "3.11.2"}
    summary = Summary(
        command=f"s2s compare rnn lstm-attention transformer '{ODD}' --seeds 3 --experiment parallelism",
        profile="quick",
        match="parameters",
        models=MODELS,
        seeds=[1, 2, 3],
        experiments=[*(result.experiment for result in results), "gradients"],
        contenders=candidates,
        machine=machine | {"torch": "2.13.0", "commit": "0123abc", "date": "2025-11-21 10:00"},
        seconds=754.2,
    )
    return summary, results


def times() -> Figure:
    """Lines: two forms of three models, with slopes of about one, and a guide line."""
    lengths = [float(2**k) for k in range(4, 11)]
    series = []
    for i, model in enumerate(MODELS[:3]):
        for form, factor, power in (("loop", 4.0, 1.0), ("fused", 1.0, (1.0, 0.9, 0.3)[i])):
            y = [0.08 * factor * (i + 1) * n**power for n in lengths]
            low, high = [v * 0.92 for v in y], [v * 1.1 for v in y]
            series.append(Series(label=f"{model}, {form}", model=model, x=lengths, y=y, low=low, high=high))
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
    """Points at names, on a logarithmic axis."""
    forms = ["forward", "backward", "one decoding step"]
    return Figure(
        name="depth",
        title="Longest chain of dependent operations",
        kind="points",
        x=Axis(label="form"),
        y=Axis(label="operations", log=True),
        series=[
            Series(label=model, model=model, x=forms, y=[1e3 / 9**i, 2e3 / 9**i, 30])
            for i, model in enumerate(MODELS[:3])
        ],
    )


def speeds() -> list[Verdict]:
    """Cells with an interval, without one, and failed ones."""
    grows = ((1.0, "grows with length"), (1.0, "grows with length"), (0.0, "constant"))
    steps = {"row": "sequential steps", "quantity": "exponent of depth", "figure": "depth"}
    findings = [
        Verdict(model=model, value=value, facts={"in training": word}, **steps)
        for model, (value, word) in zip(MODELS[:3], grows, strict=True)
    ]
    for i, (model, speed) in enumerate(zip(MODELS[:3], (18_432.7, 13_100.2, 15_020.0), strict=True)):
        difference, low, high, p = (0.71, 0.65, 0.8, 0.0004) if i else (1.1, 0.9, 1.3, 0.31)
        found = Verdict(
            row="training speed",
            model=model,
            value=speed,
            low=speed * 0.95,
            high=speed * 1.04,
            unit="tokens/s",
            quantity=f"at length {64 + i}",
            rival="transformer" if i else "gru",
            difference=difference,
            difference_low=low,
            difference_high=high,
            difference_unit="times as fast",
            p=p,
            test="t-test over rounds, Holm",
            figure="time-against-length",
        )
        findings.append(found)
    return findings + [Verdict(row=row, model=ODD, failed=REASON) for row in ("sequential steps", "training speed")]


def claims() -> list[Claim]:
    """A claim that holds, one of counts with notes, and one that another model contradicts, not in their order."""
    values = ((18.4327, 17.5, 19.2), (13.1, None, None), (None, None, None))
    numbers = [
        ClaimNumber(model=model, value=value, low=low, high=high, note="" if value else "<never>", best=i == 0)
        for i, (model, (value, low, high)) in enumerate(zip(MODELS, values, strict=False))
    ]
    counts = [
        ClaimNumber(model=model, value=48.0 * (i < 2), note="32 a doubling" * (i == 1))
        for i, model in enumerate(MODELS)
    ]
    return [
        Claim(
            name="trains-faster",
            measured="tokens, sentences of <32>",
            unit="tokens/s",
            verdict="no",
            sentence="rnn trains 1.4 times as fast as transformer & co.",
            numbers=numbers,
            p=0.0004,
            test="t-test over rounds",
            figure="time-against-length",
            stable={"n = 16": True, "n = 64": True, "1 thread": False},
        ),
        Claim(
            name="waits",
            measured="steps",
            verdict="yes",
            sentence="One more token adds 48 (rnn).",
            numbers=counts,
            figure="depth",
        ),
    ]


def parallelism() -> Result:
    """Times against length; one model ran out of memory."""
    table = Table(
        name="exponents",
        title="Fitted exponents <of time>",
        columns=["model", "forward", "kernel launches", "FLOP/s"],
        rows=[["rnn", 0.98, 1024, 1.23e9], ["transformer", 1.4142135, 64, 4.5e10], [ODD, None, None, None]],
    )
    return Result(
        experiment="parallelism",
        question="How do time and the chain of operations grow with length?",
        method="Each pass is timed ten times after two for warming up.\n\nModels take turns, so that a busy machine "
        "slows all of them. Large batches hide recurrence; generation is sequential for all.",
        limits="Two cores; a fused kernel hides its own loop.",
        models=MODELS,
        seeds=[1],
        findings=speeds(),
        claims=claims(),
        figures=[times(), depths()],
        tables=[table],
        failures=[Failure(task="odd--forward", model=ODD, reason=REASON)],
        seconds=61.7,
    )


def recalls() -> Figure:
    """Lines with intervals, a baseline and marks."""
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
    """Long lines with bands; some values are zero."""
    steps = [float(t) for t in range(60)]
    series = []
    for i, model in enumerate(MODELS):
        for form in ("", " after training"):
            factor = 0.5 + 0.12 * i + 0.05 * bool(form)
            y = [factor**t if t < 58 or i else 0.0 for t in steps]
            low, high = ([(factor + d) ** t for t in steps] for d in (-0.02, 0.02))
            series.append(Series(label=f"{model}{form}", model=model, x=steps, y=y, low=low, high=high))
    return Figure(
        name="gradient-decay",
        title="What is left of a gradient",
        x=Axis(label="distance", unit="steps"),
        y=Axis(label="‖∂L/∂h‖", log=True),
        series=series,
    )


def paths() -> Figure:
    """Heat-maps with a logarithmic colour bar; one value is missing."""
    words = ["the", "old", "woman", "who", "sleeps", "reads", "a", "book", "."]
    rows = [f"{w}-{i}" for i, w in enumerate(words)]
    maps = []
    for path, s in (("whole", 0.8), ("attention cut", 0.3), ("recurrence cut <off>", 1.5), ("both", 3.0)):
        values = [[None if (i, j) == (8, 0) else math.exp(-abs(i - j) * s) for j in range(9)] for i in range(9)]
        label = f"lstm-attention, {path}"
        maps.append(Heatmap(label=label, model="lstm-attention", rows=rows, columns=words, values=values))
    return Figure(
        name="paths",
        title="Which source word an output depends on",
        kind="heatmaps",
        x=Axis(label="source word"),
        y=Axis(label="‖∂output/∂source‖", log=True),
        heatmaps=maps,
    )


def shuffles() -> Figure:
    """Heat-maps with values below and above zero."""
    rows, columns = ["no positions", "learned", "sinusoidal"], ["none", "learned", "sin."]
    maps = []
    for k, model in enumerate(MODELS[:2]):
        values = [[-40.0 + 12 * i + 9 * j + 7 * k for j in range(3)] for i in range(3)]
        maps.append(Heatmap(label=model, model=model, rows=rows, columns=columns, values=values))
    return Figure(
        name="shuffled",
        title="What shuffling the source words costs",
        kind="heatmaps",
        y=Axis(label="change of accuracy", unit="%"),
        heatmaps=maps,
    )


def long_range() -> Result:
    """Accuracy against distance, cells of all models but the last, long lines and heat-maps."""
    what = {"unit": "tokens", "quantity": "largest distance solved ≥ 95 %", "figure": "recall"}
    said = {"rival": "transformer", "standing": "worse", "p": 0.02}
    findings = [
        Verdict(row=row, model=model, value=4.0 * 2**i, low=4.0 * 2**i, high=8.0 * 2**i, **what, **said)
        for row in ("long-term dependencies", "learning long-term dependencies")
        for i, model in enumerate(MODELS[:-1])
    ]
    return Result(
        experiment="long-range",
        question="How far back can a model reach?",
        method="Trained on distances up to 32 & tested beyond.",
        models=MODELS,
        seeds=[1, 2, 3],
        findings=findings,
        figures=[recalls(), decays(), paths(), shuffles()],
        seconds=301.0,
    )


def scores() -> Figure:
    """Bars with intervals, and a baseline."""
    metrics = ["BLEU", "chrF"]
    series = []
    for i, model in enumerate(MODELS):
        y, low, high = ([b + 3 * i, c + 2 * i] for b, c in ((20.123, 41.5), (19.0, 40.0), (21.5, 43.0)))
        series.append(Series(label=model, model=model, x=metrics, y=y, low=low, high=high))
    series.append(Series(label="copying the source", model="", x=metrics, y=[3.1, 18.2], reference=True))
    return Figure(
        name="scores",
        title="Translation scores",
        kind="bars",
        x=Axis(label="metric"),
        y=Axis(label="score"),
        series=series,
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
    x = [1e4 * 4**k for k in range(4)]
    series = []
    for i, model in enumerate(MODELS):
        y = [None if k == 1 and i == 1 else 4.0 * 0.8**k + 0.1 * i for k in range(4)]
        series.append(Series(label=model, model=model, x=x, y=y))
    series.append(Series(label="fit", model="rnn", x=[1e4, 64e4], y=[4.0, 4.0 * 0.8**3], reference=True))
    return Figure(
        name="size",
        title="Loss against parameters",
        kind="points",
        x=Axis(label="parameters", log=True),
        y=Axis(label="validation loss", unit="nats/token"),
        series=series,
    )


def quality() -> Result:
    """Scores as bars and as points; one model is still learning."""
    row = {"row": "translation quality", "unit": "BLEU"}
    findings = [
        Verdict(
            model=model,
            value=20.123 + 3 * i,
            reasons=[f"{i} & <some> of 100 %"],
            standing=standing,
            variations={"half the updates": True, "another rate": i > 0},
            tokens=1_160_000.0 * (1 + i),
            figure="scores",
            **row,
        )
        for i, (model, standing) in enumerate(zip(MODELS[:2], ("worse", "better"), strict=True))
    ]
    learning = "its loss still falls by 0.12 nats with each doubling of the tokens"
    findings.append(Verdict(model="transformer", value=30.0, reasons=[learning], standing="still learning", **row))
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
    """Write a comparison as `s2s compare` does."""
    folder.mkdir(parents=True, exist_ok=True)
    write(summary, folder / "comparison.json")
    for result in results:
        (folder / result.experiment).mkdir(exist_ok=True)
        write(result, folder / result.experiment / "result.json")
    return folder


FIGURES = {figure.name: figure for result in comparison()[1] for figure in result.figures}


@pytest.fixture
def models() -> list[str]:
    """The candidates."""
    return list(MODELS)


@pytest.fixture(params=FIGURES)
def figure(request: pytest.FixtureRequest) -> Figure:
    """Each figure of the comparison."""
    return FIGURES[request.param]


@pytest.fixture
def found() -> tuple[Summary, list[Result]]:
    """The summary and the results."""
    return comparison()


@pytest.fixture(scope="session")
def drawn_once() -> Callable[..., Drawing]:
    """`drawn`, once for each figure: that it gives the same again has a test of its own."""
    known: dict[tuple[str, tuple[str, ...], bool], Drawing] = {}

    def once(figure: Figure, models: list[str], linear: bool = False) -> Drawing:
        asked = figure.model_dump_json(), tuple(models), linear
        if asked not in known:
            known[asked] = drawn(figure, models, linear)
        return known[asked]

    return once


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn_once: Callable[..., Drawing]) -> Path:
    """Folder of the comparison with the first question alone; nothing is drawn yet."""
    monkeypatch.setattr(drawing, "drawn", drawn_once)
    summary, results = comparison()
    return save(tmp_path / "compare-1", summary, results[:1])


@pytest.fixture(scope="session")
def drawn_folder(tmp_path_factory: pytest.TempPathFactory, drawn_once: Callable[..., Drawing]) -> Path:
    """Folder of the comparison with its report; not to be changed."""
    folder = save(tmp_path_factory.mktemp("drawn") / "compare-1", *comparison())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "drawn", drawn_once)
        drawing.draw(folder)
    return folder
