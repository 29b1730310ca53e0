"""The table for papers and for other programs holds what the results hold."""

import csv
import re

import pytest

from benchmarks.comparison import _figure, _words
from s2s.comparison.plans import CLAIMS
from s2s.comparison.report.claims import claim_lines, claim_rows, command_for
from s2s.comparison.report.table import LEGEND, describe, escaped, matrix, steadiness, table_as_latex
from s2s.comparison.results import Verdict, read_result


def test_table_csv_has_every_cell_with_all_digits(drawn_folder, found):
    with (drawn_folder / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    there = {(row["row"], row["model"]): row for row in rows}
    assert len(there) == len(rows)
    findings = [finding for result in found[1] for finding in result.findings]
    for finding in findings:
        row = there.pop((finding.row, finding.model))
        for key in ("value", "low", "high"):
            assert row[key] == "" or float(row[key]) == getattr(finding, key)
        assert (row["unit"], row["quantity"], row["failed"]) == (finding.unit, finding.quantity, finding.failed)
        assert row["robustness"] == steadiness(finding)
        assert row["verdict"] == ("" if finding.failed else describe(finding))
        assert (row["rival"], row["p"]) == (finding.rival, "" if finding.p is None else str(finding.p))
    assert {row["standing"] for row in there.values()} == {"not measured"}


def test_claims_csv_has_every_claim_with_its_evidence(drawn_folder, found):
    with (drawn_folder / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    claims = {claim.name: claim for result in found[1] for claim in result.claims}
    assert [int(row["number"]) for row in rows] == [text.number for name, text in CLAIMS.items() if name in claims]
    for row in rows:
        name = next(name for name, text in CLAIMS.items() if str(text.number) == row["number"])
        assert (row["claim"], row["verdict"]) == (CLAIMS[name].sentence, claims[name].verdict)
        assert row["measured"].startswith(claims[name].measured)
        assert all(each.model in row["measured"] for each in claims[name].numbers)
        path, figure = row["evidence"].split(", figure ")
        assert figure in {each.name for each in read_result(drawn_folder / path).figures}
        assert row["command"] == command_for(found[0].command, CLAIMS[name].experiment)


def test_claim_lines_have_verdicts_and_numbers(found, models):
    waits, faster = claim_lines(claim_rows(models, found[1]))
    assert waits.startswith("yes         1  In training, a recurrent network waits")
    assert waits.endswith("(rnn 48, lstm-attention 48 (32 a doubling), transformer 0, " + models[-1] + " 0)")
    assert faster.endswith("(rnn 18.4, lstm-attention 13.1, transformer <never> tokens/s)")


def test_table_latex_has_all_columns_and_escapes_texts(drawn_folder, models):
    text = (drawn_folder / "table.tex").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) > 6
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(models)}
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    bare = re.sub(r"\\[#$%&_{}]|\$[^$]*\$", "", text.split(r"\caption")[1])
    assert not set("#$%^_~") & set(bare)
    assert r"\textless{}" in escaped("<")
    # the legend is printed, not a comment
    assert f"\\par\\smallskip {escaped(LEGEND)}\n\\end{{table}}" in text
    assert "sequential steps $\\downarrow$ & 1 & 1 & 0 & \\textit{failed} \\\\" in text
    # without a verdict, only a model that still learns has a figure
    assert "translation quality $\\uparrow$ & 20.1 & 23.1 & " in text
    assert "\\quad & worse & better & still learning &  \\\\" in text


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50 % & _a_ {b} #1 $x^2", r"50 \% \& \_a\_ \{b\} \#1 \$x\textasciicircum{}2"),
        ("1.2 × 10⁻⁵", r"1.2 $\times$ 10$^{-5}$"),
        ("−6.8–0", "$-$6.8--0"),
        ("\\begin~", r"\textbackslash{}begin\textasciitilde{}"),
    ],
)
def test_table_escaped_text_is_latex(text, latex):
    assert escaped(text) == latex


def test_table_latex_without_rows(found):
    summary = found[0]
    text = table_as_latex(matrix(summary, ["rnn"], []), ["rnn"], "none")
    assert text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    assert "% not measured yet: sequential steps, " in text


def _line(found, standings, good=True):
    """The row of translation quality, with these standings and rising figures."""
    summary, results = found
    findings = [
        Verdict(row="translation quality", model=f"m{i}", value=float(i), reasons=[f"is {s} {i}"], standing=s)
        for i, s in enumerate(standings)
    ]
    result = results[2].model_copy(update={"findings": findings})
    lines = matrix(summary, [f"m{i}" for i in range(len(standings))], [result])
    return next(line for line in lines if line.name == "translation quality")


@pytest.mark.parametrize(
    ("standing", "label"), [("tie", "equal"), ("undecided", "not significant"), ("better", "better")]
)
def test_table_outcomes_are_words(found, standing, label):
    line = _line(found, [standing, "worse"])
    assert line.boxes[0].label == label
    assert f"{label} & worse" in table_as_latex([line], ["m0", "m1"], "")
    assert _words(line.boxes[0]).startswith("- `m0`: " + label)


def test_table_cell_without_an_estimate_has_a_word(found):
    summary, results = found
    row = "vanishing and exploding gradients"
    findings = [
        Verdict(row=row, model="a", value=0.9, unit="per step", facts={"what becomes of it": "vanishes"}),
        Verdict(row=row, model="b", facts={"at distance 9, times what it is at 1": 2.0}),
    ]
    result = results[2].model_copy(update={"experiment": "gradients", "findings": findings})
    one, other = next(line for line in matrix(summary, ["a", "b"], [result]) if line.name == row).boxes
    assert (one.word, one.open) == ("measured", False)
    assert (other.word, other.open, other.value) == ("no factor", True, "")
    assert _words(other) == "- `b`: no factor; at distance 9, times what it is at 1: 2."
    assert _figure(other) == "*no factor*"


def test_table_still_learning_model_has_its_figure(found):
    box = _line(found, ["worse", "still learning"]).boxes[1]
    assert (box.open, box.word, _figure(box)) == (True, "still learning", "*1, still learning*")


@pytest.mark.parametrize(
    ("ends", "text", "latex"),
    [
        ((2048.0, 2048.0), "≥ 2,048, not significant", r"$\geq$ 2,048"),
        ((900.0, 2048.0), "≥ 2,048 (900–2,048), not significant", r"$\geq$ 2,048"),
        ((63.8844, 63.8934), "≥ 63.9, not significant", r"$\geq$ 63.9"),
    ],
)
def test_table_lower_bound_has_a_sign(found, ends, text, latex):
    row = "long-term dependencies"
    low, high = ends
    cell = Verdict(row=row, model="a", value=high, low=low, high=high, at_least=True, standing="undecided")
    result = found[1][2].model_copy(update={"experiment": "long-range", "findings": [cell]})
    line = next(line for line in matrix(found[0], ["a"], [result]) if line.name == row)
    assert _figure(line.boxes[0]) == text
    assert latex in table_as_latex([line], ["a"], "")


@pytest.mark.parametrize(
    ("standing", "steady"),
    [
        ("better", True),
        ("tie", True),
        ("", True),
        ("undecided", False),
        ("still learning", False),
        ("not measurable", False),
    ],
)
def test_steadiness_is_empty_without_an_outcome(found, standing, steady):
    one = _line(found, [standing]).boxes[0].finding.model_copy(update={"variations": {"half the updates": True}})
    assert bool(steadiness(one)) is steady


def test_steadiness_joins_numbers():
    kept = dict.fromkeys(["n = 16", "n = 1,024", "batch 8", "half the rate"], True) | {"n = 64": False}
    finding = Verdict(row="training speed", model="a", standing="better", variations=kept)
    assert steadiness(finding) == "same in 4 of 5 variations: n = 16, 1,024, batch 8, half the rate; different: n = 64"
