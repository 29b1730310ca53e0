"""A whole comparison in a folder, begun and concluded by the real command's functions, from cells that are cheap.

Operations and gradients are measured in tiny models; times, peaks, answers and translations are planted in the files
that a measurement would have left. Nothing here knows what a result should say of them.
"""

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from s2s.comparison import engine, setup
from s2s.comparison.executor import machine_here
from s2s.comparison.questions.gradients import measure as gradients
from s2s.comparison.questions.long_range import measure as long_range
from s2s.comparison.questions.parallelism import measure as parallelism
from s2s.comparison.request import Order, order
from s2s.comparison.translation import counts_of
from s2s.evaluation.metrics import exact_share, score
from s2s.run.manifest import code_version

MODELS = ("rnn", "mingru", "transformer")
SEEDS = (1, 2, 3, 4)
ROUNDS = tuple(range(1, 9))
DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TINY = (
    *("data.train=300", "data.validation=20", "data.test=null", "tokenizer.size=300", "batches.tokens=512"),
    *("training.updates=8", "training.warmup=2", "model.width=32", "model.feedforward=64", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1"),
    *("device.kind=cpu", "device.precision=fp32", "device.threads=1"),
)
COUNTED = parallelism.Sizes(
    counted=(8, 16, 32),
    written=(4, 8, 16),
    lengths=(16, 32, 64),
    tokens=64,
    repetitions=1,
    patience=60.0,
    variants=False,
)
LONG_RANGE = long_range.SIZES["quick"]
# one text and one initialisation a cell: what a cell keeps of a gradient by distance is then the gradient itself
LOOKED = gradients.Sizes(span=10, texts=1, together=1, weights=1, followed=1, settle=2, deep_seeds=0, learned=False)


def compared(folder: Path, *experiments: str) -> Path:
    """Plants, measures what is left of these experiments, and concludes; the folder is the comparison's."""
    planned = order(Order((*MODELS, *TINY), seeds=len(SEEDS), experiments=experiments, out=folder))
    setup.create(folder, planned.base, planned.summary)
    planted = {"parallelism": _rounds, "memory": _peaks, "long-range": _recall, "quality": _translations}
    for model in MODELS:
        _plant(folder, "tuning", _tuning(model))
        for experiment in planted.keys() & experiments:
            _plant(folder, experiment, planted[experiment](model))
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(parallelism.SIZES, "quick", COUNTED)
        patch.setitem(gradients.SIZES, "quick", LOOKED)
        # what is planted has as many seeds as all else
        whole = {name: replace(each, forms=("head", "full")) for name, each in LONG_RANGE.distances.items()}
        patch.setitem(long_range.SIZES, "quick", replace(LONG_RANGE, distances=whole, further=0, other=True))
        # in this process, where the sizes are these
        patch.setattr(engine, "number_for", lambda device_context: 1)
        engine.resume(folder, Console(file=io.StringIO()))
    torch.set_num_threads(threads)
    return folder


def cell(folder: Path, experiment: str, key: str) -> dict[str, Any]:
    """What a measurement left."""
    return json.loads((folder / "cells" / experiment / f"{key}.json").read_text(encoding="utf-8"))["measured"]


def result(folder: Path, experiment: str) -> dict[str, Any]:
    """What an experiment says."""
    return json.loads((folder / experiment / "result.json").read_text(encoding="utf-8"))


def findings(said: dict, row: str) -> dict[str, dict]:
    """A row of the table of verdicts, by model."""
    return {each["model"]: each for each in said["findings"] if each["row"] == row}


def table(said: dict, name: str) -> list[dict[str, Any]]:
    """The rows of a table, by head."""
    found = next(each for each in said["tables"] if each["name"] == name)
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def figure(said: dict, name: str) -> dict[str, dict]:
    """The curves of a figure, by label."""
    return next({each["label"]: each for each in own["series"]} for own in said["figures"] if own["name"] == name)


def _plant(folder: Path, experiment: str, cells: dict[str, dict]) -> None:
    where = folder / "cells" / experiment
    where.mkdir(parents=True, exist_ok=True)
    for key, measured in cells.items():
        by = {"machine": machine_here("fp32"), "code": code_version(), "threads": 1}
        kept = {"measured": measured, "failed": "", "seconds": 1.0, **by}
        (where / f"{key}.json").write_text(json.dumps(kept), encoding="utf-8")


def _tuning(model: str) -> dict[str, dict]:
    """One layer and the rate 0.004 are the best."""
    return {
        f"{model}--layers-{layers}-rate-{millionths}": {"loss": layers + loss, "seconds": 1.0, "updates": 2}
        for layers in (1, 2)
        for millionths, loss in ((1000, 3.0), (2000, 2.0), (4000, 1.0), (8000, 2.5))
    }


def _rounds(model: str) -> dict[str, dict]:
    """Rounds in which the machine was slow for one model alone, for all a little, and too much: the second counts."""
    chance = np.random.default_rng([3, MODELS.index(model)])
    slow = {3: 1.2 if model == "rnn" else 1.0, 6: 1.09, 7: 1.3}
    base = {"rnn": 3e-4, "mingru": 2.7e-4, "transformer": 2.5e-4}[model]
    # how much slower than two threads one is; rnn is faster on it
    alone = 0.8 if model == "rnn" else 1.6
    cells = {}
    for i in ROUNDS:
        points = [
            {"form": "as built", "batch": batch, "place": place, "n": n, "rows": rows}
            | {"seconds": float(f"{base * rows * n**0.8 * gain * slow.get(i, 1.0) * chance.lognormal(0, 0.1):.5g}")}
            for place, gain in (("1 thread", alone), ("2 threads", 1.0))
            for batch in ("tokens", "pair")
            for n in COUNTED.lengths
            for rows in [1 if batch == "pair" else COUNTED.tokens // n]
        ]
        held = [float(f"{0.001 * slow.get(i, 1.0) * part:.5g}") for part in (1.0, chance.uniform(1.0, 1.005))]
        cells[f"{model}--round-{i}"] = {
            "points": points,
            "notes": [],
            "flops": {"1 thread": 2 * 512**3, "2 threads": 2 * 512**3},
            "references": {"1 thread": [2 * each for each in held], "2 threads": held},
            "tries": 1,
        }
    return cells


def _peaks(model: str) -> dict[str, dict]:
    """Peaks that no power law fits without a rest."""
    steep = {"rnn": 0.0, "mingru": 0.3, "transformer": 2.0}[model]
    forms = ("as built", "explicit attention") if model == "transformer" else ("as built",)
    peaks = [
        {"form": form, "what": what, "n": n, "bytes": round(900_000 + share * (4_000 * n + rise * n**2))}
        for form in forms
        for rise in [steep * (5 if form == "explicit attention" else 1)]
        for n in (1, 64, 256, 512, 768, 1024, 2048)
        for what, share in (("training", 1.0), ("inference", 0.3))
    ]
    states = [{"n": n, "state": 128 * n, "context": 4096} for n in (16, 32, 64)]
    return {f"{model}--peaks": {"peaks": peaks, "states": states, "notes": []}}


def _recall(model: str) -> dict[str, dict]:
    chance = np.random.default_rng([5, MODELS.index(model)])
    middle = {"rnn": 5.0, "mingru": 6.6, "transformer": 7.4}[model]
    tried = {"updates": 60, "solved": None, "loss": 0.5, "left chance": True}
    rates = {"best": 0.002, "other": 0.004, "inside": True, "tried": dict.fromkeys(("0.001", "0.002", "0.004"), tried)}
    cells = {f"{model}--recall-{form}-rates": rates for form in ("full", "head")}
    for seed in SEEDS:
        for form in ("full", "head", "full-other"):
            falls = middle + chance.normal(0, 0.8)
            share = 0.03 + 0.95 / (1 + np.exp(2 * (np.log2(DISTANCES) - falls)))
            right = chance.binomial(200, share).tolist()
            solved = int(chance.integers(4, 28)) * 50 if chance.uniform() < 0.75 else None
            cells[f"{model}--recall-{form}--seed{seed}"] = _answered(right, solved)
    return cells


def _answered(right: list[int], solved: int | None) -> dict:
    count = len(DISTANCES)
    return {
        "distances": list(DISTANCES),
        "trained": 6,
        "asked": [200] * count,
        "right": right,
        "half": right,
        "baseline": [1 / 32] * count,
        "cheat": "knows all but the first symbol",
        "cheating": [1 / 31] * count,
        "title": "first-token recall",
        "unit": "symbols",
        "settings": {"width": 8},
        "parameters": 1000,
        "rate": 0.002,
        "budget": 1500,
        "updates": solved or 1500,
        "solved": solved,
        "looks": [[750, 0.31, 80.0], [1100, 0.3, 90.0], [1500, 0.3, 90.0]],
        "seconds": 1.0,
    }


WORDS = (
    *(
        "the",
        "a",
        "house",
        "dog",
        "runs",
        "co-operates",
        "U.S.",
        "it's",
        "don't",
        "1,000.5",
        "3,5",
        "10-15",
        "3.",
        ".5",
    ),
    *("&quot;quoted&quot;", "AT&amp;T", "(so)", "[12]", "x/y", "50%", "$4", "a:b", "Straße", "„ja“", "naïve", "what?!"),
    *("e.g.", "-5", "1990-", "_x_", "a@b.de", "...", "…", "ends", "old", "new", "sees", "cats", "and", "or"),
)


def _translations(model: str) -> dict[str, dict]:
    """Translations with so many wrong words; one model says too much, the others too little, and one seed nothing.

    Other seeds of a model differ by luck alone, so that it matters how often luck is counted.
    """
    chosen = random.Random(0)
    references = [" ".join(chosen.choices(WORDS, k=chosen.randint(1, 14))) + "." for _ in range(60)]
    references[0] = "-".join(WORDS[:6]) + " <skipped> end-\nof line"
    cells = {}
    for seed in SEEDS:
        chance = random.Random(f"{model} {seed}")
        wrong = {"rnn": 0.2, "mingru": 0.3, "transformer": 0.17}[model]
        texts = [" ".join(_spoilt(text.split(), wrong, model, chance)) for text in references]
        if (model, seed) == ("mingru", 4):
            texts = [" ".join(chance.choices(("the", "said"), k=len(text.split()))) for text in references]
        cells[f"{model}--run--seed{seed}"] = _scored(texts, references, wrong, seed)
    return cells


def _spoilt(words: list[str], wrong: float, model: str, chance: random.Random) -> list[str]:
    known = [chance.choice(WORDS) if chance.random() < wrong else word for word in words]
    if model == "transformer":
        return [each for word in known for each in ([word, "and"] if chance.random() < 0.06 else [word])]
    return [word for word in known if chance.random() > 0.04]


def _scored(texts: list[str], references: list[str], wrong: float, seed: int) -> dict:
    """What a run keeps of its test, scored as a run's test is."""
    return {
        "split": "test",
        "beam": 5,
        "scores": {
            name: {"name": name, "value": value, "low": value, "high": value, "signature": ""}
            for name, value in (score(texts, references) | {"ter": 50.0}).items()
        },
        "exact": exact_share(texts, references),
        "counts": {metric: counts_of(metric, texts, references) for metric in ("bleu", "chrf")},
        "sources": [f"source {n}" for n in range(len(texts))],
        "references": references,
        "translations": texts,
        "updates": [1, 2, 4, 8],
        "tokens": [100, 200, 400, 800],
        "seconds": [0.5, 1.0, 2.0, 4.0],
        "losses": [3.0, 2.02 + wrong, 2.01 + wrong, 2.0 + wrong],
        "bleus": [1.0, 1.5, 1.8, 2.0],
        "source_use": {"right": 2.0 + wrong, "exchanged": 4.0, "pairs": 20},
        "rate": {"chosen": 0.004, "tried": [0.002, 0.004, 0.008], "losses": [2.2, 2.1, 2.3], "inside": True},
        "parameters": 1000,
        "flops": 6000.0,
        "run_seconds": 5.0,
        "cpu_seconds": 5.0 + seed,
    }
