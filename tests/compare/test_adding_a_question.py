"""docs/adding-a-question.md: the package on the page, measured on planted runs and analysed."""

import json
import re
from pathlib import Path

import pytest
from scipy import stats

from s2s.comparison import questions
from s2s.comparison.engine import all_experiments
from s2s.comparison.plans import CLAIMS, TABLES, ClaimText, Row
from s2s.comparison.request import Order, order
from s2s.comparison.results import Result

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-question.md"
FOLDER = "s2s/comparison/questions/length_ratio"


def _run(folder: Path, translations: list[str]) -> None:
    folder.mkdir(parents=True)
    (folder / "cost.json").write_text(json.dumps({"seconds": 1.0, "cpu_seconds": 1.0}))
    texts = {"translations": translations, "references": ["a b c d"] * len(translations)}
    (folder / "evaluation-test.json").write_text(json.dumps(texts))


def test_question_of_the_page_is_measured_and_analysed(contest, tmp_path, monkeypatch):
    page = PAGE.read_text(encoding="utf-8")
    files = dict(re.findall(rf"`{FOLDER}/(\S+)`:\n\n```\w+\n(.*?)```", page, flags=re.DOTALL))
    assert list(files) == ["measure.py", "analyse.py", "METHOD.md", "LIMITS.md"]
    (tmp_path / "added" / "length_ratio").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "added" / "length_ratio" / name).write_text(text, encoding="utf-8")
    (tmp_path / "added" / "length_ratio" / "__init__.py").touch()
    monkeypatch.setattr(questions, "__path__", [*questions.__path__, str(tmp_path / "added")])
    row, claim = re.findall(r'```python\n("[^"].*)\n```', page)
    for table, line in ((TABLES["translation"], row), (CLAIMS, claim)):
        for name, entry in eval(f"{{{line}}}", {"Row": Row, "ClaimText": ClaimText}).items():
            assert name not in table
            monkeypatch.setitem(table, name, entry)
    assert [each.number for each in CLAIMS.values()] == list(range(1, len(CLAIMS) + 1))
    experiment = all_experiments()["length-ratio"]
    assert experiment.rows == ["length of translations"]
    asked = order(Order(("rnn", "gru-attention"), experiments=("length-ratio",)))
    assert asked.summary.experiments == ["length-ratio"]
    made = contest(["rnn", "gru-attention"])
    _run(made.folder / "runs" / "rnn-seed1", ["a b c", "a b"] * 30)
    _run(made.folder / "runs" / "gru-attention-seed1", ["a b c d", "a b c", "a b c d e"] * 20)
    measured = {cell: experiment.measure(made, cell) for cell in experiment.trials(made)}
    result = experiment.result(made, measured)
    rnn, gru = result.findings
    assert (rnn.value, gru.value) == (2.5 / 4, 1.0)
    assert (rnn.facts, gru.facts) == ({"words lacking (%)": 37.5}, {"words lacking (%)": 0})
    (decided,) = result.claims
    assert (decided.name, CLAIMS[decided.name].experiment, decided.verdict) == ("complete", "length-ratio", "yes")
    assert [number.value for number in decided.numbers] == [2.5 / 4, 1.0]
    assert decided.p == pytest.approx(stats.ttest_rel([4, 3, 5] * 20, [3, 2] * 30).pvalue)
    assert result.tables[0].rows == [["rnn", 2.5 / 4], ["gru-attention", 1.0]]
    assert (result.method + "\n", result.limits + "\n") == (files["METHOD.md"], files["LIMITS.md"])
    assert Result.model_validate_json(result.model_dump_json()) == result
    assert experiment.result(made, {}).findings == []
