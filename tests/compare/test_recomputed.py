"""Recomputation of the numbers of a planted comparison from its files, in another way."""

import json
import math
import re
import statistics
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import nn

from s2s.comparison.runs import prepared, seeds_of
from s2s.data.tokenizers import BOS, EOS
from s2s.recipe.installed import module_of
from s2s.run.tasks import read
from s2s.tasks.seq2seq import build_model
from tests.compare import by_hand, recounting
from tests.compare.kept_comparison import LOOKED, MODELS, ROUNDS, SEEDS, cell, compared, figure, findings, result, table

pytestmark = pytest.mark.release

PAIRS = list(combinations(MODELS, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A comparison that is over."""
    return compared(tmp_path_factory.mktemp("kept") / "comparison", "parallelism", "memory", "gradients")


def _recipe(folder: Path, model: str) -> Any:
    """The contender's own, as it is kept."""
    contenders = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["contenders"]
    page = folder.parent / f"{model}.yaml"
    page.write_text(next(each["recipe"] for each in contenders if each["model"] == model), encoding="utf-8")
    return read(page)


def _ends(found: dict) -> tuple[float, float, float]:
    return found["value"], found["low"], found["high"]


# ---------------------------------------------------------------------------------------------------------------------
# what is counted


@pytest.fixture(scope="module")
def recounted(folder):
    """By model: what was done, in which form, at which length, counted number by number."""
    said = result(folder, "parallelism")["method"]
    vocabulary = int(re.search(r"vocabulary has only ([\d,]+)", said)[1].replace(",", ""))
    counts = {}
    for kind in MODELS:
        torch.manual_seed(9)
        model = module_of(kind).build(_recipe(folder, kind).model, vocabulary, vocabulary).train()
        own = recounting.recounted(model, (8, 16, 32), (4, 8, 16), torch.randint(4, vocabulary, (2, 1, 32)))
        counts |= {(kind, *key): each for key, each in own.items()}
    return counts


def test_depth_work_and_span_are_those_of_the_graph_of_single_numbers(folder, recounted):
    for kind in MODELS:
        points = cell(folder, "parallelism", f"{kind}--work")["points"]
        kept = {(kind, each["what"], each["n"]): each for each in points if each["form"] == "unfused"}
        mine = {key: own for key, own in recounted.items() if key[0] == kind}
        assert {key: {name: each[name] for name in mine[key]} for key, each in kept.items()} == mine


def test_the_table_says_of_depth_work_and_span_what_was_counted(folder, recounted):
    said = result(folder, "parallelism")
    chains, ratios = (figure(said, name) for name in ("depth", "work-span"))
    for kind in MODELS:
        own = [recounted[kind, "training", n] for n in (8, 16, 32)]
        assert chains[kind]["x"] == ratios[kind]["x"] == [8, 16, 32]
        assert chains[kind]["y"] == [each["depth"] for each in own]
        assert ratios[kind]["y"] == pytest.approx([each["work"] / each["span"] for each in own], rel=1e-12)
        assert findings(said, "sequential steps")[kind]["value"] == own[-1]["depth"]
        assert findings(said, "parallel computation")[kind]["value"] == pytest.approx(ratios[kind]["y"][-1])
    for row in table(said, "work"):
        own = recounted[row["model"], row["pass"], row["n"]]
        assert (row["work"], row["span"], row["undivided span"]) == (own["work"], own["span"], own["undivided"])
        assert row["work / undivided span"] == pytest.approx(own["work"] / own["undivided"])


def test_the_law_of_a_chain_is_that_of_the_lowest_criterion(folder, recounted):
    words = {
        "constant": "does not grow with n",
        "linear": "grows as n: by {:.3g} with each token",
        "logarithmic": "grows with log n: by {:.3g} with each doubling",
        "power": "grows as n^{:.2f}",
    }
    said = result(folder, "parallelism")
    law_of = {(row[0], row[2]): row[-2:] for row in _rows(said, "growth") if row[1] == "unfused"}
    for kind in MODELS:
        laws = []
        for what, lengths in (("training", (8, 16, 32)), ("generating", (4, 8, 16))):
            own = [recounted[kind, what, n] for n in lengths]
            found = [by_hand.law_by_akaike(lengths, [each[key] for each in own]) for key in ("depth", "count")]
            laws.append([words[law].format(rate) for law, rate in found])
            assert law_of[kind, what] == laws[-1]
        facts = findings(said, "sequential steps")[kind]["facts"]
        assert facts == {"chain in training": laws[0][0], "chain in generation": laws[1][0]}
    # a recurrence takes as many more steps with each token, whatever the token
    assert [recounted["rnn", "training", n]["depth"] - 12 * n for n in (8, 16, 32)] == [24] * 3


def _rows(said: dict, name: str) -> list[list]:
    return next(each["rows"] for each in said["tables"] if each["name"] == name)


# ---------------------------------------------------------------------------------------------------------------------
# gradients


def _by_differences(folder: Path, kind: str, seed: int) -> list[float]:
    """‖∂ loss / ∂ vector‖ of the last token fed, the one before it and so on: each number moved a little, up and down.

    The decoder reads all tokens at once, not one by one.
    """
    recipe = _recipe(folder, kind)
    data = prepared(recipe)
    sizes = data.source_tokenizer.size, data.target_tokenizer.size
    model = build_model(recipe.model_copy(update={"seeds": seeds_of(seed)}), *sizes).double().eval()
    read, written = ([w for i in range(20) for w in data.validation.pair(i)[side]] for side in (0, 1))
    span = LOOKED.span
    source = torch.tensor([[*read[: span - 1], EOS]])
    fed, answer = torch.tensor([[BOS, *written[:span]]]), written[span]
    width, step = recipe.model.width, 1e-4
    moved = torch.zeros(2 * span * width, span + 1, width, dtype=torch.float64)
    for row, (token, number) in enumerate((t, w) for t in range(1, span + 1) for w in range(width)):
        moved[2 * row, token, number], moved[2 * row + 1, token, number] = step, -step

    def move(_: nn.Module, asked: tuple, vectors: torch.Tensor) -> torch.Tensor | None:
        return vectors + moved if asked[0].shape == moved.shape[:2] else None

    hooks = [part.register_forward_hook(move) for part in model.modules() if isinstance(part, nn.Embedding)]
    with torch.no_grad():
        memory = model.encoder(source, torch.ones_like(source, dtype=torch.bool)).select(
            torch.zeros(len(moved), dtype=int)
        )
        context, state = model.decoder.start(memory, span + 1)
        last = model.decoder(context, state, fed.expand(len(moved), -1))[0][:, -1]
        losses = -torch.log_softmax(model.projection(last), dim=1)[:, answer]
    for hook in hooks:
        hook.remove()
    slopes = (losses[0::2] - losses[1::2]) / (2 * step)
    return slopes.reshape(span, width).norm(dim=1).flip(0).tolist()


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_kept_by_distance_are_those_of_finite_differences(folder, kind):
    kept = cell(folder, "gradients", f"{kind}--own--seed2")["curves"]["inputs"]
    assert kept["distance"] == list(range(LOOKED.span))
    assert kept["median"] == pytest.approx(_by_differences(folder, kind, 2), rel=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_a_factor_per_step_is_that_of_the_line_through_kept_gradients(folder, kind):
    slopes, fits, left = [], [], []
    for seed in SEEDS:
        kept = cell(folder, "gradients", f"{kind}--own--seed{seed}")["curves"]["inputs"]["median"][1:]
        slope, _, explained = by_hand.line(range(1, len(kept) + 1), [math.log(each) for each in kept])
        slopes.append(slope)
        fits.append(explained)
        left.append(kept[-1] / kept[0])
    wanted = [math.exp(each) for each in by_hand.student(slopes)]
    said = result(folder, "gradients")
    found = findings(said, "vanishing and exploding gradients")[kind]
    row = next(
        row for row in table(said, "gradient-factors") if (row["model"], row["with respect to"]) == (kind, "input")
    )
    ends = [row[name] for name in ("factor per step", "low", "high")]
    assert ends == pytest.approx(wanted, rel=6e-6)
    # the cell has it where the line fits, over all nine steps, and they halve the gradient at least, or double it
    there = np.mean(fits) >= 0.8 and (wanted[0] ** 8 <= 0.5 or wanted[0] ** 8 >= 2) and min(left) > 0
    assert list(_ends(found)) == (ends if there else [None] * 3)
    assert ("norm at distance 9 / norm at 1" in found["facts"]) == (not there)
    assert row["R²"] == pytest.approx(np.mean(fits), abs=3e-6)
    assert row["norm at the largest distance / norm at 1"] == pytest.approx(stats.gmean(left), rel=6e-6)
    if wanted[0] < 1:
        assert row["half-life (steps)"] == pytest.approx(math.log(2) / -math.log(wanted[0]), rel=1e-4)


def test_factors_of_turned_initialisations_are_those_of_their_slopes(folder):
    said = result(folder, "gradients")
    for row in table(said, "gradient-sweep"):
        part = {"rnn": "by-radius", "mingru": "by-bias"}[row["model"]]
        slopes = []
        for seed in SEEDS:
            values = cell(folder, "gradients", f"{row['model']}--{part}--seed{seed}")["values"]
            (fit,) = next(each["fits"] for each in values if each["value"] == row["value"])
            slopes += fit["slopes"]
        wanted = [math.exp(each) for each in by_hand.student(slopes)]
        assert len(slopes) == len(SEEDS)
        assert [row[name] for name in ("factor per step", "low", "high")] == pytest.approx(wanted, rel=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# memory


def test_exponents_of_memory_are_slopes_from_a_quarter_of_the_longest_on(folder):
    said = result(folder, "memory")
    rows = table(said, "exponents")
    assert {(row["model"], row["form"], row["pass"]) for row in rows} == {
        (kind, form, what)
        for kind, form in (*((kind, "as built") for kind in MODELS), ("transformer", "explicit attention"))
        for what in ("training", "inference")
    }
    for row in rows:
        points = cell(folder, "memory", f"{row['model']}--peaks")["peaks"]
        peaks = {
            each["n"]: each["bytes"] for each in points if (each["form"], each["what"]) == (row["form"], row["pass"])
        }
        least = next(each["bytes"] for each in points if tuple(each.values())[:3] == (row["form"], "inference", 1))
        peaks.pop(1)
        long = [n for n in peaks if n >= max(peaks) / 4]
        assert (row["from n"], row["to n"]) == (long[0], long[-1]) == (512, 2048)
        slope, explained, furthest, last = by_hand.exponent(long, [peaks[n] - least for n in long])
        assert row["b"] == pytest.approx(slope, rel=1e-9)
        assert row["R²"] == pytest.approx(explained, abs=1e-9)
        assert row["largest error (%)"] == pytest.approx(100 * furthest, rel=1e-6)
        assert row["b of the last two lengths"] == pytest.approx(last)
    memory = findings(said, "memory")
    for kind in MODELS:
        own = next(row for row in rows if (row["model"], row["form"], row["pass"]) == (kind, "as built", "training"))
        assert memory[kind]["value"] == own["b"]


# ---------------------------------------------------------------------------------------------------------------------
# speed


PLACES = ("1 thread", "2 threads")
RACES = {
    "n = 32": ("tokens", PLACES, 32),
    "n = 16": ("tokens", PLACES, 16),
    "n = 64": ("tokens", PLACES, 64),
    "one pair at a time": ("pair", PLACES, 32),
    "1 thread": ("tokens", PLACES[:1], 32),
    "2 threads": ("tokens", PLACES[1:], 32),
}


def _speeds_at(folder: Path, kind: str, batch: str, place: str, n: int) -> list[float]:
    rounds = [cell(folder, "parallelism", f"{kind}--round-{i}")["points"] for i in ROUNDS]
    there = [next(p for p in r if (p["batch"], p["place"], p["n"]) == (batch, place, n)) for r in rounds]
    return [point["rows"] * n / point["seconds"] for point in there]


def _speeds(folder: Path, race: str) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Tokens a second, by round, and where: each at the place where it has most in rounds steady at all of them."""
    batch, choice, n = RACES[race]
    speeds, where = {}, {}
    for kind in MODELS:
        each = {place: _speeds_at(folder, kind, batch, place, n) for place in choice}
        held = _steady(folder, *((kind, place) for place in choice))
        where[kind] = max(choice, key=lambda place: statistics.median(each[place][i] for i in held))
        speeds[kind] = each[where[kind]]
    return speeds, where


def _steady(folder: Path, *timed: tuple[str, str]) -> list[int]:
    """Rounds in which the products around these differ by at most 10 %, and are at most 25 % slower than ever.

    Of each place that one of them was timed at, around all of them.
    """
    rounds = set(range(len(ROUNDS)))
    for place in {place for _, place in timed}:
        products = [
            [s for kind, _ in timed for s in cell(folder, "parallelism", f"{kind}--round-{i}")["references"][place]]
            for i in ROUNDS
        ]
        fastest = min(map(min, products))
        rounds &= {i for i, own in enumerate(products) if max(own) <= 1.1 * min(own) and max(own) <= 1.25 * fastest}
    return sorted(rounds)


@pytest.mark.parametrize("race", RACES)
def test_speed_pairs_have_the_trimmed_t_test_of_logarithms(folder, race):
    found, where = _speeds(folder, race)
    speeds = {kind: np.log(own) for kind, own in found.items()}
    rows = [row for row in table(result(folder, "parallelism"), "pairs") if row["benchmark"] == race]
    assert [row["models"] for row in rows] == [f"{b} / {a}" for a, b in PAIRS]
    tests = []
    for (a, b), row in zip(PAIRS, rows, strict=True):
        held = _steady(folder, (a, where[a]), (b, where[b]))
        assert row["places"] == f"{where[b]} / {where[a]}"
        drifts = any(by_hand.trend(held, list(speeds[kind][held])) < 0.01 for kind in (a, b))
        assert row["steady"] == ("no" if drifts else "yes")
        assert len(held) == (6 if "rnn" in (a, b) else 7)
        one, two = speeds[a][held], speeds[b][held]
        # the lowest and the highest are left out
        value, error, freedom = stats.trim_mean(two - one, 0.2), _winsorized_error(two - one), len(held) - 3
        tests.append(2 * stats.t.sf(abs(value) / error, freedom))
        wanted = np.exp(value + error * np.array([0, *stats.t.ppf([0.025, 0.975], freedom)]))
        assert [row[name] for name in ("times as fast", "low", "high")] == pytest.approx(wanted, abs=5.1e-4)
        sides = [stats.t.sf((math.log(1.05) - way * value) / error, freedom) for way in (1, -1)]
        assert row["p (equal within 5%)"] == pytest.approx(max(sides), abs=5.1e-5)
        seen = 100 * math.expm1(_detectable(freedom, len(PAIRS)) * error)
        assert row["detectable with 80 % power (%)"] == (None if drifts else pytest.approx(seen, abs=0.051))
    assert [row["p (Holm)"] for row in rows] == pytest.approx(by_hand.holm(tests), abs=5.1e-5)


def _winsorized_error(values: np.ndarray) -> float:
    """Yuen and Dixon's standard error of a trimmed mean that leaves out one value on each side."""
    spread = np.std(stats.mstats.winsorize(values, limits=(0.2, 0.2)), ddof=1)
    count, left = len(values), len(values) - 2
    return float(spread * math.sqrt((count - 1) / (left * (left - 1))))


def _detectable(freedom: float, pairs: int) -> float:
    """In standard errors: what a two-sided t-test at 0.05 over the number of pairs finds in 80 % of the cases."""
    least = stats.t.isf(0.025 / pairs, freedom)
    return optimize.brentq(lambda away: stats.nct.sf(least, freedom, away) - 0.8, 0.1, 100)


def test_speeds_and_times_are_medians_over_rounds(folder):
    said = result(folder, "parallelism")
    speeds, where = _speeds(folder, "n = 32")
    for kind, own in speeds.items():
        found = findings(said, "training speed")[kind]
        # the rounds of the verdict
        other = found["rival"]
        held = _steady(folder, (kind, where[kind]), (other, where[other]))
        assert _ends(found) == pytest.approx(by_hand.median([own[i] for i in held]), rel=1e-9)
    batches = {"fixed tokens": "tokens", "one pair": "pair"}
    for row in table(said, "times"):
        own = _seconds(folder, row["model"], batches[row["batch"]], row["place"])[row["n"]]
        wanted = by_hand.median([1000 * each for each in own])
        assert [row[name] for name in ("ms", "low", "high")] == pytest.approx(wanted, abs=5.1e-5)
    for row in table(said, "exponents"):
        own = _seconds(folder, row["model"], batches[row["batch"]], row["place"])
        slopes = [np.polyfit(np.log(list(own)), np.log(each), 1)[0] for each in zip(*own.values(), strict=True)]
        assert [row[name] for name in ("b", "low", "high")] == pytest.approx(by_hand.median(slopes), abs=5.1e-4)


def _seconds(folder: Path, kind: str, batch: str, place: str) -> dict[int, list[float]]:
    points = [p for i in ROUNDS for p in cell(folder, "parallelism", f"{kind}--round-{i}")["points"]]
    return {
        n: [p["seconds"] for p in points if (p["batch"], p["place"], p["n"]) == (batch, place, n)] for n in (16, 32, 64)
    }


def test_the_verdict_on_speed_has_holms_p_beside_the_fastest_other(folder):
    said = result(folder, "parallelism")
    rows = {row["models"]: row for row in table(said, "pairs") if row["benchmark"] == "n = 32"}
    found = findings(said, "training speed")
    for kind, each in found.items():
        other = max((name for name in MODELS if name != kind), key=lambda name: found[name]["value"])
        row = rows.get(f"{kind} / {other}") or rows[f"{other} / {kind}"]
        times = row["times as fast"] ** (1 if row["models"].startswith(kind) else -1)
        assert each["rival"] == other
        assert each["difference"] == pytest.approx(times, rel=1e-3)
        assert each["p"] == pytest.approx(row["p (Holm)"], abs=5e-5)
        assert each["standing"] == ("undecided" if row["p (Holm)"] >= 0.05 else "better" if times > 1 else "worse")


def test_brents_bounds_follow_from_work_span_and_the_reference_products(folder, recounted):
    rows = table(result(folder, "parallelism"), "brent")
    for row in rows:
        cells = [cell(folder, "parallelism", f"{row['model']}--round-{i}") for i in ROUNDS]
        alone, together = (
            min(min(c["references"][p]) for c in cells) / cells[0]["flops"][p] for p in ("1 thread", "2 threads")
        )
        worth = alone / together
        assert row["p"] == pytest.approx(worth)
        if row["n"] > 32:
            # nothing was counted there
            assert row["lower bound"] is None
            continue
        if row["n"] in (16, 32):
            own = recounted[row["model"], "training", row["n"]]
            work, span = own["work"], own["span"]
            assert row["lower bound"] == pytest.approx(work / (work / worth + span))
            assert row["upper bound"] == pytest.approx(work / max(work / worth, span))
    assert len(rows) == 9
