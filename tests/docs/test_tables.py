"""The tables that benchmarks write into README and docs agree with the kept results."""

import csv
import json
import re
import statistics
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from benchmarks import (
    claims,
    classification,
    comparison,
    keeping,
    language_models,
    results,
    serving,
    speedrun,
    tasks,
)
from benchmarks.cost import cost_tables
from benchmarks.keeping import written
from s2s.comparison.plans import CLAIMS, ROWS
from s2s.comparison.report.claims import claim_rows, tally
from s2s.comparison.reproduce.induction import Induction
from s2s.comparison.reproduce.mqar import Mqar
from s2s.comparison.results import RESULT, read_result, read_summary, write
from s2s.data.exercises import CHEATS
from s2s.data.synthetic_tasks import Copying, StateTracking, most_frequent_share
from s2s.files import COMPARISON
from s2s.models.base import count_parameters
from s2s.models.transformer import Settings, build
from s2s.recipe.page import read_value
from s2s.run.tasks import read
from tests.docs.runner import ROOT, page_path

FOLDERS = [folder for folder in comparison.PLACES.values() if folder.is_dir()]
TABLES = [
    ("scores", "results", results.table, 3),
    ("ladder", "results", results.ladder, 1),
    ("classification", "classification", classification.table, 2),
    ("scores", "tasks", tasks.table, 4),
    ("README", "claims", lambda: claims.short_table(FOLDERS), 12),
    ("comparison", "claims", lambda: claims.table(FOLDERS), 12),
    ("comparison", "cost", lambda: cost_tables(comparison.PLACES["lecture"]), 12),
    ("comparison", "comparison", lambda: f"{comparison.table()}\n{comparison.verdicts()}", len(ROWS)),
    ("language-models", "language_models", language_models.table, 1),
    ("speedrun", "speedrun", lambda: speedrun.tables(json.loads(speedrun.ENTRIES.read_text(encoding="utf-8"))), 2),
    ("serving", "serving", lambda: serving.table(json.loads((ROOT / "docs/results/serve.json").read_text())), 1),
]


@pytest.mark.parametrize(
    ("page", "marker", "table", "rows"), TABLES, ids=[f"{page}-{marker}" for page, marker, *_ in TABLES]
)
def test_table_of_page_is_that_of_kept_results(page, marker, table, rows):
    text = page_path(page).read_text(encoding="utf-8")
    assert written(text, table(), marker) == text
    assert table().count("\n|") >= rows


def test_scores_in_the_list_of_recipes_are_those_of_kept_results():
    assert json.loads(keeping.MEASURED.read_text(encoding="utf-8")) == keeping.recipe_scores()


@pytest.mark.parametrize(
    ("scores", "expected"), [([95.0, 94.0, 96.0], True), ([95.0, 94.9, 95.0], False), ([97.0, 97.0], False)]
)
def test_speedrun_record_needs_three_seeds_whose_mean_reaches_the_goal(scores, expected):
    assert speedrun.is_record({"corpus": "built-in", "bleu": scores}) == expected
    assert not speedrun.is_record({"corpus": "built-in", "bleu": scores, "busy": True})


def test_rungs_are_compared_in_pairs_by_welchs_test_and_holms_correction():
    scores = {"b": [30.0, 31.0, 30.4], "a": [10.0, 10.5, 10.1], "c": [31.0, 31.2, 30.9]}
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in results.differences(scores)[1:]]
    assert head[1:] == ["`a`", "`b`"]
    pairs = {("b", "a"): rows[0][1], ("c", "a"): rows[1][1], ("c", "b"): rows[1][2]}
    p_values = {pair: scipy.stats.ttest_ind(scores[pair[0]], scores[pair[1]], equal_var=False).pvalue for pair in pairs}
    order = sorted(p_values, key=p_values.get)
    # Holm's step-down by hand: the least times three, the next times two, the greatest itself, never falling
    corrected = np.maximum.accumulate([p_values[pair] * left for pair, left in zip(order, (3, 2, 1), strict=True)])
    for pair, p in zip(order, corrected, strict=True):
        more = statistics.mean(scores[pair[0]]) - statistics.mean(scores[pair[1]])
        assert pairs[pair] == f"{more:.2f} ({f'p = {p:.2g}' if p >= 0.0001 else 'p < 0.0001'})"
    assert rows[0][2] == ""
    assert results.differences({"a": [1.0, 2.0, 3.0]}) == []


def test_scores_by_length_are_means_over_seeds():
    ends = {"a": [(10.0, 5.0), (20.0, 15.0)], "b": [(40.0, 10.0)], "old": [()]}
    lengths = [{"shortest": 4, "longest": 9, "unit": "words"}, {"shortest": 10, "longest": 30, "unit": "words"}]
    runs = [
        {
            "kind": kind,
            "tests": [{"lowercase": True, "buckets": [b | {"bleu": x} for b, x in zip(lengths, own, strict=False)]}],
        }
        for kind, seeds in ends.items()
        for own in seeds
    ]
    _, head, _, *rows = results.by_length(runs)
    assert [cell.strip() for cell in head.split("|")[2:-2]] == ["seeds", "4–9 words", "10–30 words"]
    assert rows == ["| `b` | 1 | 40.0 | 10.0 | 25 % |", "| `a` | 2 | 15.0 | 10.0 | 67 % |"]
    assert results.by_length([run for run in runs if run["kind"] == "old"]) == []


def test_comparison_tables_have_every_row():
    assert all(row in text for text in (comparison.table().lower(), comparison.verdicts().lower()) for row in ROWS)


def test_table_of_variants_has_their_parameters():
    recipe = read(ROOT / "recipes/translate.yaml")
    plain, size = recipe.model, recipe.tokenizer.size
    page = page_path("variants").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|.*\| (none|[+−][\d,]+) \|$", page, flags=re.MULTILINE)
    assert len(rows) == 13
    before = count_parameters(build(plain, size, size))
    described = (
        f"width k = {plain.width}, h = {plain.heads} heads, inner size f = {plain.feedforward}, "
        f"{plain.encoder_layers} + {plain.decoder_layers} layers, {plain.encoder_positions} positions, "
        f"a vocabulary of {size:,} tokens, {before:,} parameters"
    )
    assert described in " ".join(page.split())
    for lines, cost in rows:
        changes = dict(line.split(": ") for line in re.findall(r"`([^`]*)`", lines))
        settings = Settings.model_validate(plain.model_dump() | {key: read_value(v) for key, v in changes.items()})
        found = count_parameters(build(settings, size, size)) - before
        assert (f"{found:+,}".replace("-", "−") if found else "none") == cost, lines


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_tally_of_a_report_counts_the_verdicts_of_its_claims(folder):
    with (folder / "claims.csv").open(encoding="utf-8", newline="") as file:
        verdicts = [row["verdict"] for row in csv.DictReader(file)]
    models = list(dict.fromkeys(each.model for each in read_summary(folder / COMPARISON).contenders))
    found = tally(claim_rows(models, [read_result(path) for path in sorted(folder.glob(f"*/{RESULT}"))]))
    yes, no, undecided = (verdicts.count(word) for word in ("yes", "no", "undecided"))
    assert found.split("; ") == [
        f"Claims that hold here: {yes} of {len(verdicts)}",
        f"that do not hold: {no}",
        f"undecided: {undecided}.",
    ]


def test_verdicts_on_another_device_have_a_column(tmp_path):
    """The kept lecture as if a GPU had measured one of its questions with the opposite verdict."""
    kept = comparison.PLACES["lecture"]
    folder = tmp_path / "comparison-gpu"
    summary = read_summary(kept / COMPARISON)
    machine = summary.machine | {"device": "NVIDIA H200, fp32", "processor": "another"}
    (folder / "decoding").mkdir(parents=True)
    write(summary.model_copy(update={"machine": machine, "experiments": ["decoding"]}), folder / COMPARISON)
    result = read_result(kept / "decoding" / RESULT)
    (claim,) = result.claims
    other = claim.model_copy(update={"verdict": "yes", "sentence": "Said there."})
    write(result.model_copy(update={"claims": [other]}), folder / "decoding" / RESULT)
    here, both = claims.table([kept]), claims.table([kept, folder])
    assert here.startswith("Measured on two processor cores.")
    assert both.startswith("Measured on two processor cores and NVIDIA H200.")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in both.splitlines() if line.startswith("|")]
    assert rows[0][1:3] == ["holds on two processor cores?", "holds on NVIDIA H200?"]
    first = [[cell.strip() for cell in line.split("|")[1:-1]] for line in here.splitlines() if line.startswith("|")]
    assert [row[:2] + row[3:] for row in rows[2:]] == first[2:]
    number = CLAIMS[claim.name].number
    answers = {row[0]: row[2] for row in rows[2:]}
    said = [name for name, answer in answers.items() if answer != "–"]
    assert [name.startswith(f"**{number} {CLAIMS[claim.name].sentence}**<br>") for name in said] == [True]
    assert answers[said[0]] == "✔ yes"
    evidence = "[✔ yes](comparison-gpu/decoding/result.json) on NVIDIA H200. Said there."
    assert f"- **{number}** {evidence}" in both
    assert f"- **{number}** [✘ no](comparison-lecture/decoding/result.json). {claim.sentence}" in both
    assert f"- {number}: `{summary.command}`, another, NVIDIA H200, fp32" in both
    short = [line.split("|")[1:-1] for line in claims.short_table([kept, folder]).splitlines()]
    assert short[0][-2:] == ["holds on two processor cores?", "holds on NVIDIA H200?"]
    assert {row[0]: row[-2:] for row in short[2:]}[str(number)] == [claim.verdict, "yes"]


def test_command_reference_is_the_help_of_the_commands():
    made = subprocess.run([sys.executable, "docs/commands.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "docs/commands.md").read_text(encoding="utf-8"), (
        "python docs/commands.py > docs/commands.md"
    )


SHORTCUTS = {
    "copying": Copying(26, range(1, 31), (), whole=False).shortcut_accuracy,
    "positions-length": Copying(16, range(1, 21), (), whole=False).shortcut_accuracy,
    "induction": Induction()._shortcut_accuracy,
    "mqar": lambda width: most_frequent_share(Mqar().pairs, Mqar().values),
    "agreement": CHEATS["agreement"].accuracy,
    "state-tracking": StateTracking("parity", range(1, 41), ()).shortcut_accuracy,
}


@pytest.mark.parametrize("name", SHORTCUTS)
def test_stored_reproduction_has_the_shortcut_baseline_of_its_task(name):
    stored = json.loads((ROOT / f"docs/results/reproductions/{name}.json").read_text(encoding="utf-8"))
    (line,) = [each for each in stored["figures"][0]["series"] if each["reference"]]
    assert line["y"] == pytest.approx([100 * SHORTCUTS[name](int(x)) for x in line["x"]])


def test_claim_14_is_decided_by_the_seeds_of_the_ladder():
    scores: dict[str, list[float]] = {}
    for path in sorted(ROOT.glob("docs/results/multi30k_*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        (test,) = [each for each in run["tests"] if each["lowercase"]]
        scores.setdefault(run["kind"], []).append(test["scores"]["bleu"]["value"])
    scores = {kind: own for kind, own in scores.items() if len(own) > 2}
    others = {kind: own for kind, own in scores.items() if kind != "transformer"}
    tests = {kind: scipy.stats.ttest_ind(scores["transformer"], own, equal_var=False) for kind, own in others.items()}
    ahead = [kind for kind, own in others.items() if statistics.mean(own) > statistics.mean(scores["transformer"])]
    assert ahead == ["lstm-attention"]
    # Holm's correction by hand: each p-value times the number of tests with none smaller, never falling
    order = sorted(tests, key=lambda kind: tests[kind].pvalue)
    corrected = np.maximum.accumulate([tests[kind].pvalue * (len(order) - i) for i, kind in enumerate(order)])
    p = corrected[order.index("lstm-attention")]
    lines = claims.table(FOLDERS).splitlines()
    (row,) = [line for line in lines if line.startswith("| **14 ") and "lower-cased" in line]
    models = ("rnn", "lstm", "lstm-attention", "mingru", "conv", "transformer")
    means = [f"{statistics.mean(scores[kind]):.1f}" for kind in models]
    assert [cell.strip().strip("*") for cell in row.split("|")[2:-1]] == ["✘ no" if p < 0.05 else "undecided", *means]
    (reason,) = [line for line in lines if line.startswith("- **14** ") and "(ladder.md)" in line]
    assert f"lstm-attention against transformer: p = {p:.2g}" in reason


def test_readme_row_of_claim_5_has_the_distance_that_decides_it():
    (row,) = [line for line in claims.short_table(FOLDERS).splitlines() if line.startswith("|5|")]
    (verdict,) = [
        each
        for each in read_result(comparison.PLACES["lecture"] / "long-range" / RESULT).claims
        if each.name == "forgets"
    ]
    (lstm,) = [each for each in verdict.numbers if each.model == "lstm"]
    assert f"only at {lstm.value:,.0f} symbols" in row
    assert row.endswith(f"|{verdict.verdict}|")
