"""Every command and Python block of README and docs is executed, in order."""

import contextlib
import random
import re
from itertools import islice

import pytest

import s2s
from s2s.data.phrasebook import draw_phrases
from s2s.data.phrasebook.scenes import Chooser
from tests.docs.pages import PAGES
from tests.docs.runner import NOT_EXECUTED, ROOT, Session, codes, execute_page, executed, page_names, page_path

QUICK = [name for name in page_names() if executed(name, PAGES[name], slow=False)]
LONG = [n for n in page_names() if len(executed(n, PAGES[n], slow=True)) > len(executed(n, PAGES[n], slow=False))]


@pytest.mark.parametrize("name", QUICK)
def test_page_commands_work(name, small_run, tmp_path, monkeypatch):
    _execute(name, small_run, tmp_path, monkeypatch, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_page_commands_that_take_long_work(name, small_run, tmp_path, monkeypatch):
    _execute(name, small_run, tmp_path, monkeypatch, slow=True)


def _execute(name, small_run, tmp_path, monkeypatch, slow):
    for package in PAGES[name].needs:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        execute_page(name, PAGES[name], Session(name, monkeypatch, stack, small_run), slow)


def test_not_executed_commands_have_a_reason_that_holds():
    found = {name: [code.text for code in codes(page_path(name).read_text(encoding="utf-8"))] for name in PAGES}
    every = [text for texts in found.values() for text in texts]
    assert [pattern for pattern in NOT_EXECUTED if not any(re.search(pattern, text) for text in every)] == []
    for name, page in PAGES.items():
        for pattern, reason in (page.not_executed | page.not_compared).items():
            assert any(re.search(pattern, text) for text in found[name]), f"{name}: no command matches {pattern!r}"
            for test in re.findall(r"tests/\S+\.py", reason):
                assert name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not mention {name}"


def test_pages_table_has_every_page_with_code():
    assert list(PAGES) == page_names()


def test_readme_shows_a_test_sentence_of_its_recipe_and_has_at_most_900_words():
    text = page_path("README").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    recipe = s2s.read_recipe(ROOT / "recipes/translate.yaml")
    ((shown, translation),) = re.findall(r'^echo "(.*)" \| s2s translate runs/translate  # (.*)$', text, re.M)
    # sentences are drawn until it comes, which takes less than the whole test set
    test = islice(draw_phrases(Chooser(random.Random(recipe.data.seed)), "test", recipe.data.test), recipe.data.test)
    assert next(phrase.target for phrase in test if phrase.source == shown) == translation


def test_install_commands_of_readme_are_those_of_ci():
    found = [code.text for code in codes(page_path("README").read_text(encoding="utf-8"))]
    assert len([text for text in found if text.startswith("pip install -c constraints.txt -e")]) == 2
    assert "README.md" in (ROOT / ".ci" / "run").read_text()
