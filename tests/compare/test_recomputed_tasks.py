"""The kept questions on synthetic tasks, computed again from their trainings by another way."""

import itertools
import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.compare.kept_comparison import findings, result, table

pytestmark = pytest.mark.release

LECTURE = Path(__file__).parents[2] / "docs/comparison-lecture"
QUESTIONS = {
    # question: (part that decides, claim, models ahead, models behind)
    "copying": ("copying-64", "copies", ("lstm-attention", "conv", "transformer"), ("rnn", "lstm", "mingru")),
    "associative-recall": (
        *("recall-64", "recalls"),
        *(("lstm-attention", "conv", "transformer"), ("rnn", "lstm", "mingru")),
    ),
    "state-tracking": ("s3-64", "tracks", ("rnn", "lstm", "lstm-attention"), ("transformer",)),
    "capacity": ("copying-32", "bits", ("lstm-attention", "conv", "transformer"), ("rnn", "lstm", "mingru")),
}


def _trainings(question: str) -> dict[tuple[str, str], list[dict]]:
    """Measurements by model and part."""
    found: dict[tuple[str, str], list[dict]] = {}
    with tarfile.open(LECTURE / "cells.tar.xz") as kept:
        for name in sorted(kept.getnames()):
            named = re.fullmatch(rf"cells/{question}/(.+?)--(.+)--seed\d+\.json", name)
            if named:
                run = json.load(kept.extractfile(name))["measured"]
                found.setdefault((named[1], named[2]), []).append({"bits": None} | run)
    return found


def _mastered(run: dict) -> int:
    """The largest size up to which no size is below 95 %."""
    wrong = next((i for i, share in enumerate(run["right"]) if share < 0.95), len(run["sizes"]))
    return run["sizes"][wrong - 1] if wrong else 0


def _score(run: dict) -> float:
    """Score of a training: the size that it mastered, or the bits that it conveys if they were measured."""
    return _mastered(run) if run["bits"] is None else max(run["bits"])


def _exact_p(one: list[dict], other: list[dict]) -> float:
    """Exact test of the difference of log-rank scores, over all ways to divide the trainings."""
    sizes = np.array([_score(run) for run in (*one, *other)], dtype=float)
    ended = np.array([_mastered(run) < run["sizes"][-1] for run in (*one, *other)])
    hazard = [
        sum((ended & (sizes == t)).sum() / (sizes >= t).sum() for t in np.unique(sizes[ended]) if t <= s) for s in sizes
    ]
    scores = ended - np.array(hazard)
    measured = abs(scores[: len(one)].sum())
    ways = [abs(scores[list(way)].sum()) for way in itertools.combinations(range(len(sizes)), len(one))]
    return float(np.mean(np.array(ways) >= measured - 1e-9))


@pytest.mark.parametrize("question", QUESTIONS)
def test_medians_and_claim_follow_from_the_trainings(question):
    part, name, ahead, behind = QUESTIONS[question]
    runs, said = _trainings(question), result(LECTURE, question)
    by_model = {model: own for (model, of), own in runs.items() if of == part}
    assert by_model.keys() == {"rnn", "lstm", "lstm-attention", "mingru", "conv", "transformer"}
    (row,) = {each["row"] for each in said["findings"]}
    for model, own in by_model.items():
        sizes = sorted(_score(run) for run in own)
        # of an even number, Kaplan and Meier's median is the lower of the two in the middle
        assert findings(said, row)[model]["value"] == pytest.approx(sizes[(len(sizes) - 1) // 2])
    p_values = {pair: _exact_p(by_model[pair[0]], by_model[pair[1]]) for pair in itertools.product(ahead, behind)}
    higher = {
        (a, b): np.mean([_score(run) for run in by_model[a]]) > np.mean([_score(run) for run in by_model[b]])
        for a, b in p_values
    }
    (claim,) = (each for each in said["claims"] if each["name"] == name)
    holds = all(higher.values()) and max(p_values.values()) < 0.05
    assert (claim["verdict"] == "yes") == holds
    if holds:
        assert claim["p"] == pytest.approx(max(p_values.values()))


@pytest.mark.parametrize("question", ["copying", "associative-recall", "state-tracking"])
def test_longer_trainings_are_four_times_as_long_and_in_the_sentence(question):
    part, name, ahead, behind = QUESTIONS[question]
    runs, said = _trainings(question), result(LECTURE, question)
    short, longer = ({m: own for (m, of), own in runs.items() if of == each} for each in (part, f"{part}-longer"))
    (budget,) = {run["budget"] for own in longer.values() for run in own}
    assert {4 * run["budget"] for own in short.values() for run in own} == {budget}
    assert {model: len(own) for model, own in longer.items()} == dict.fromkeys(short, 4)
    (claim,) = (each for each in said["claims"] if each["name"] == name)
    sentence = claim["sentence"].partition(f" Within {budget:,} updates: ")[2]
    for model, own in longer.items():
        median = sorted(_mastered(run) for run in own)[1]
        bound = "at least " if median == own[0]["sizes"][-1] else ""
        assert re.search(rf"(^|, | and ){bound}{median}†? \([^)]*\b{model}\b", sentence)
    least, most = (
        pick(_mastered(run) for model in models for run in longer[model])
        for pick, models in ((min, ahead), (max, behind))
    )
    assert least > most
    assert claim["stable"][f"{budget:,} updates"]


def test_bits_are_at_least_those_of_fanos_inequality_and_at_most_those_of_the_string():
    """Fano (1961): of strings of H bits with a share e of mistakes, at least H (1 - e) - 1 bits were conveyed."""
    for (model, _), runs in _trainings("capacity").items():
        for run in runs:
            for size, right, bits in zip(run["sizes"], run["right"], run["bits"], strict=True):
                assert bits <= 4 * size, model
                # a cross-entropy is no tight bound, so half a bit for each string is allowed
                assert bits >= 4 * size * right - 1.5, (model, size)


def test_page_tells_the_bits_of_all_seeds():
    page = (LECTURE.parent / "comparison.md").read_text(encoding="utf-8")
    runs = _trainings("capacity")
    for numbers in (32, 16):
        (row,) = re.findall(rf"\| vectors of {numbers} numbers, (?:eight|three) seeds \|(.*)\|", page)
        order = ("rnn", "mingru", "lstm", "lstm-attention", "conv", "transformer")
        for model, cell in zip(order, row.split("|"), strict=True):
            bits = [round(max(run["bits"])) for run in runs[model, f"copying-{numbers}"]]
            ends = dict.fromkeys([f"{min(bits)}", f"{max(bits)}"])
            assert cell.strip() == " to ".join(ends), model
    with_attention = [
        max(run["bits"]) for (model, _), own in runs.items() if model in QUESTIONS["capacity"][2] for run in own
    ]
    assert f"{min(with_attention):.0f} to {max(with_attention):.0f} of the 64 bits tested arrive" in page


@pytest.mark.parametrize("question", QUESTIONS)
def test_tables_have_every_training(question):
    runs, said = _trainings(question), result(LECTURE, question)
    assert len(table(said, "runs")) == sum(map(len, runs.values()))
    for row in table(said, "pairs"):
        assert 0 <= row["p (log-rank)"] <= row["p (Holm within task and width)"] <= 1


def test_correlation_of_gradients_and_updates_follows_from_the_trainings():
    runs, said = _trainings("initialization"), result(LECTURE, "initialization")
    for model, found in findings(said, "initialisation").items():
        if found["failed"]:
            continue
        own = [run for (name, _), each in runs.items() if name == model for run in each]
        slopes: dict[float, list[float]] = {}
        for run in own:
            slopes.setdefault(run["value"], []).append(float("inf") if run["slope"] is None else abs(run["slope"]))
        distances = {value: np.mean(each) for value, each in slopes.items()}
        away = [distances[run["value"]] for run in own]
        waits = [run["solved"] or 10**6 for run in own]
        signs = np.array(
            [
                np.sign(np.nan_to_num(away[j] - away[i], nan=0.0)) * np.sign(waits[j] - waits[i])
                for i, j in itertools.combinations(range(len(own)), 2)
            ]
        )
        # Kendall's τ-b: ties in either count half on both sides of the root
        ties = [sum(a == b for a, b in itertools.combinations(values, 2)) for values in (away, waits)]
        tau = signs.sum() / np.sqrt((len(signs) - ties[0]) * (len(signs) - ties[1]))
        assert found["facts"]["Kendall's τ of |log factor| and updates"] == pytest.approx(tau, abs=0.006)
        medians = {
            value: np.median([run["solved"] or run["budget"] for run in own if run["value"] == value])
            for value in {run["value"] for run in own}
        }
        nearest = min(medians, key=lambda value: np.mean([abs(run["slope"]) for run in own if run["value"] == value]))
        assert found["value"] == pytest.approx(medians[nearest], rel=0.35)
        # the p-value from a sample of the orders of initialisations
        chance, ranks = np.random.default_rng(0), stats.rankdata([*distances.values()])
        places = [[*distances].index(run["value"]) for run in own]
        drawn = [abs(stats.kendalltau(chance.permutation(ranks)[places], waits).statistic) for _ in range(4_000)]
        p = np.mean(np.array(drawn) >= abs(tau) - 1e-9)
        assert p == pytest.approx(found["facts"]["p of τ"], abs=3 * np.sqrt(max(p, 1e-3) / 4_000))


def test_page_compares_models_of_equal_parameters():
    page = " ".join((LECTURE.parent / "comparison.md").read_text(encoding="utf-8").split())
    copied, recalled, tracked = (_trainings(each) for each in ("copying", "associative-recall", "state-tracking"))

    def of(runs, model: str, part: str) -> tuple[str, str]:
        sizes = sorted(_mastered(run) for run in runs[model, part])
        return f"{runs[model, part][0]['parameters']:,}", " to ".join(dict.fromkeys([f"{sizes[0]}", f"{sizes[-1]}"]))

    for model, said in (
        ("transformer", "a Transformer ({}) copies all {}"),
        ("lstm-attention", "the LSTM with attention ({}) {}"),
        ("lstm", "the LSTM ({}) {}"),
    ):
        assert said.format(*of(copied, model, "copying-32")) in page
    assert of(copied, "rnn", "copying-64") == ("22,720", "0")
    assert of(copied, "mingru", "copying-64") == ("22,720", "1")
    assert {of(recalled, model, "recall-64") for model in ("rnn", "mingru")} == {("45,760", "1")}
    with_attention = {of(recalled, model, "recall-32") for model in ("lstm-attention", "conv", "transformer")}
    sizes = sorted(size for size, _ in with_attention)
    assert f"with {sizes[0]} to {sizes[-1]} parameters" in page
    assert {pairs for _, pairs in with_attention} == {"64"}
    assert of(tracked, "lstm", "s3-32") == ("27,974", "500")
    assert of(tracked, "transformer", "s3-32") == ("30,566", "2")


def test_page_has_the_numbers_of_the_trainings():
    page = re.sub(r"\s+", " ", (LECTURE.parent / "comparison.md").read_text(encoding="utf-8"))
    facts = findings(result(LECTURE, "initialization"), "initialisation")
    for model in ("rnn", "lstm", "mingru"):
        (row,) = re.findall(rf"\| `{model}`, [a-z ]+ −?[\d.]+ to \d \|(.*?)\| (?=\| `|Kendall)", page)
        shown = dict(re.findall(r"([\d.]+) \(([\d,]+|not within 3,000)\)", row))
        measured = {
            re.search(r"factor ([\d.]+)", key)[1]: str(value).replace("over", "not within")
            for key, value in facts[model]["facts"].items()
            if key.startswith("updates at")
        }
        assert shown == measured
        assert f"({facts[model]['value']:.0f})**" in row
    taus = [each["facts"]["Kendall's τ of |log factor| and updates"] for each in facts.values() if not each["failed"]]
    found = re.search(r"initialisations and seeds, is ([\d.]+) to ([\d.]+) \(p ≤ ([\d.]+),", page)
    assert [float(number) for number in found.groups()[:2]] == pytest.approx([min(taus), max(taus)], abs=0.006)
    assert float(found[3]) == max(each["facts"]["p of τ"] for each in facts.values() if not each["failed"])
    recall = {m: own for (m, part), own in _trainings("associative-recall").items() if part == "recall-64"}
    solved = [run["solved"] for m in ("lstm-attention", "conv", "transformer") for run in recall[m]]
    assert f"all 64 pairs after {min(solved)} to {max(solved)} updates" in page
    narrow = {m: own for (m, part), own in _trainings("associative-recall").items() if part == "recall-32"}
    solved = [run["solved"] for m in ("lstm-attention", "conv", "transformer") for run in narrow[m]]
    assert f"at width 32 after {min(solved)} to {max(solved)};" in page
    guessed = [round(100 * run["right"][1]) for m in ("rnn", "lstm", "mingru") for run in recall[m]]
    assert f"({min(guessed)} to {max(guessed)} % with two pairs)" in page


def test_length_generalization_follows_from_the_trainings():
    """The claim by Student's formula, and each number of its sentence in docs/comparison.md."""
    runs, said = _trainings("length-generalization"), result(LECTURE, "length-generalization")
    shares = {
        part: np.array([[100 * run["right"][run["sizes"].index(size)] for size in (20, 40)] for run in own])
        for (_, part), own in runs.items()
        if part.startswith(("copying", "reversal"))
    }
    kinds = ("sinusoidal", "learned", "rope", "alibi", "relative", "none")
    mean = {kind: shares[f"copying-{kind}-64"].mean(axis=0) for kind in kinds}
    lost = shares["copying-sinusoidal-64"] @ [1, -1] - 5
    t = lost.mean() / (lost.std(ddof=1) / np.sqrt(len(lost)))
    (claim,) = said["claims"]
    assert claim["verdict"] == "no"
    assert claim["p"] == pytest.approx(2 * stats.t.sf(t, len(lost) - 1))
    assert claim["numbers"][0]["value"] == pytest.approx(mean["sinusoidal"][1])
    page = (LECTURE.parent / "comparison.md").read_text(encoding="utf-8")
    told = " ".join(page.partition("### Strings longer than trained on")[2].partition("\n## ")[0].split())
    for share in [mean[kind][1] for kind in kinds] + [
        shares[f"reversal-{kind}-64"].mean(axis=0)[1] for kind in ("alibi", "rope", "relative")
    ]:
        assert f" {share:.1f}" in told
    assert [kind for kind in kinds if mean[kind] @ [1, -1] < 5 and mean[kind][0] >= 95] == ["alibi"]
    longer = {kind: shares[f"copying-{kind}-64-longer"] for kind in kinds}
    (row,) = re.findall(r"\| the same, 6,000 updates \(%\) \|(.*)\| of reversed", told)
    order = ("sinusoidal", "learned", "rope", "none", "relative", "alibi")
    for kind, cell in zip(order, row.split("|"), strict=False):
        assert cell.split()[0] == f"{longer[kind][:, 1].mean():.1f}"
    solved = [kind for kind in kinds if all(run["solved"] for run in runs["transformer", f"copying-{kind}-64-longer"])]
    assert solved == [kind for kind in kinds if kind != "none"]
    assert f"but without positions ({longer['none'][:, 0].mean():.0f} %)" in told
    lost = longer["sinusoidal"] @ [1, -1] - 5
    assert stats.ttest_1samp(lost, 0).pvalue < 0.001
    assert lost.mean() > 0
    assert claim["stable"]["6,000 updates"]
    (endings,) = (each for each in said["tables"] if each["name"] == "endings")
    early, late = (endings["columns"].index(name) for name in ("stops too early (%)", "does not stop in time (%)"))
    copied = {row[1]: row for row in endings["rows"] if row[0] == "copying a string"}
    assert f"With rotary positions {copied['rope'][early]:.0f} % of the answers stop too early" in told
    others = [copied[kind][late] for kind in ("sinusoidal", "learned", "relative", "none")]
    assert f"{min(others):.0f} to {max(others):.0f} % do not stop in time" in told
    added = [row[2] for row in endings["rows"] if row[0] == "adding two numbers"]
    (budget,) = {run["budget"] for (_, part), own in runs.items() if part.startswith("addition") for run in own}
    text = f"within {budget:,} updates with any kind ({min(added):.0f} to {max(added):.0f} % at the trained length)"
    assert text in told
