"""Texts of the questions, `METHOD.md` and `LIMITS.md`, as the report renders them."""

import re
import string

import pytest

from s2s.comparison.engine import all_experiments
from s2s.comparison.report.page import render_text

TEXTS = [(name, kind) for name in all_experiments() for kind in ("METHOD", "LIMITS")]


@pytest.mark.parametrize(("name", "kind"), TEXTS)
def test_question_text_is_rendered_without_markup_left(name, kind):
    text = all_experiments()[name].text(kind)
    html = render_text(text)
    assert "**" not in html
    assert not re.search(r"(^|>|\n)- ", html)
    assert html.count("<li>") == len(re.findall(r"^- ", text, flags=re.MULTILINE))
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("profile", ["quick", "lecture", "definitive"])
def test_question_methods_have_values_for_all_placeholders_and_no_other(contest, profile):
    comparison = contest(["lstm", "transformer"], profile=profile)
    for name, experiment in all_experiments().items():
        fields = {field for _, field, _, _ in string.Formatter().parse(experiment.text("METHOD")) if field}
        assert fields <= experiment.numbers(comparison).keys(), name
        assert experiment.text("METHOD").format(**experiment.numbers(comparison))


@pytest.mark.parametrize("lead", ["Training", "Learning rate", "Statistics"])
def test_questions_on_synthetic_tasks_describe_what_they_share_in_the_same_words(lead):
    names = ["copying", "associative-recall", "state-tracking", "capacity", "length-generalization"]
    texts = [all_experiments()[name].text("METHOD").split("\n\n") for name in names]
    shared = [" ".join(part.split()) for text in texts for part in text if part.startswith(f"**{lead}.**")]
    assert len(shared) == len(names)
    assert len(set(shared)) == 1
