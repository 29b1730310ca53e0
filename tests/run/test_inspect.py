"""`s2s inspect` for every task: what the page and the JSON hold, and that nobody's text becomes markup."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from s2s.data.tokenizers import train
from s2s.errors import UserError
from s2s.interpretability.figure import inspection_picture
from s2s.interpretability.inspection import Focus, Inspection
from s2s.interpretability.page import page
from s2s.recipe.installed import module_of
from s2s.recipe.schema import PieceSettings
from s2s.run.folder import opened
from s2s.run.loaded import load, look_into
from s2s.tasks.contract import Task
from s2s.tasks.masked_lm.task import TASK
from s2s.tasks.translation.task import TASK as TRANSLATION
from tests.faults.world import make_world

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "</script><script>alert(1)</script> <b>&amp;</b> ${x} {{ 7 * 7 }} text"
RUNS = {"t": "translation", "c": "classification", "m": "masked-lm", "i": "images"}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    return make_world(tmp_path_factory.mktemp("inspected") / "world")


def _found(world: Path, run: str, *inputs: str, **focus) -> Inspection:
    return look_into(opened(world / "runs" / run), Focus(inputs, **focus))


class Page(HTMLParser):
    """The elements of a page, its data and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.text, self.data, self._inside = [], "", "", ""
        self.addresses = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._inside = dict(attributes).get("id", tag) if tag in ("script", "style") else ""
        self.addresses += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "data":
            self.data += data
        elif not self._inside:
            self.text += data


@pytest.mark.parametrize("run", RUNS)
def test_an_example_of_the_runs_own_is_shown_with_all_that_its_model_has(world, run):
    found = _found(world, run)
    (example,) = found.examples
    assert found.task == RUNS[run]
    assert [maps.kind for maps in example.attention] == (["encoder", "decoder", "cross"] if run == "t" else ["encoder"])
    for maps in example.attention:
        assert maps.weights.shape == (1, 2, len(maps.rows), len(maps.columns))
        np.testing.assert_allclose(maps.weights.sum(axis=-1), 1, atol=1e-5)
    assert example.walk.difference < 1e-5
    methods = ["gradient x input", "integrated gradients", "attention rollout"]
    assert [saliency.method for saliency in example.saliency] == methods
    for saliency in example.saliency:
        assert saliency.weights.shape == (len(saliency.answers), len(saliency.words))
    np.testing.assert_allclose(example.saliency[2].weights.sum(axis=1), 1, atol=1e-5)
    assert [positions.name for positions in found.positions] == (["encoder", "decoder"] if run == "t" else ["encoder"])
    for positions in found.positions:
        np.testing.assert_allclose(positions.products, positions.vectors @ positions.vectors.T)
    shown = Page(page(found))
    assert shown.tags.count("script") == 2
    # nothing is fetched from anywhere
    assert all(address.startswith("#") for address in shown.addresses)
    data = json.loads(shown.data)["examples"][0]
    assert [maps["kind"] for maps in data["attention"]] == [maps.kind for maps in example.attention]
    assert json.loads(found.to_json())["examples"][0]["walk"]["place"] == example.walk.place
    assert inspection_picture(found, Focus()).axes


def test_what_users_write_is_text_on_the_page_and_no_markup(world):
    for run, output in (("t", "</script>"), ("c", None)):
        found = _found(world, run, HOSTILE, word="text", output=output)
        text = page(found)
        shown = Page(text)
        assert shown.tags == Page(page(_found(world, run, "text", output=output))).tags
        # in the data's script, no such character ends it or begins another
        assert not re.search("[<>&]", re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
        assert "alert(1)" in shown.text
        assert "7 * 7" in shown.text
        pieces = json.loads(shown.data)["examples"][0]["attention"][0]["rows"]
        assert pieces == list(found.examples[0].attention[0].rows)
        inspection_picture(found, Focus()).draw_without_rendering()


def test_a_browser_draws_the_page_and_runs_nothing_of_what_users_wrote(world, tmp_path):
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    hostile = HOSTILE.replace("alert(1)", "document.title='stolen'")
    (tmp_path / "page.html").write_text(page(_found(world, "c", hostile, word="text")), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--proxy-server=127.0.0.1:9", "--dump-dom"]
    words = [browser, *options, (tmp_path / "page.html").as_uri()]
    done = subprocess.run(words, capture_output=True, timeout=120, check=False, encoding="utf-8")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    # set by the last line of the page's script
    assert 'data-drawn="1"' in done.stdout
    assert "stolen</title>" not in done.stdout
    shown = Page(done.stdout)
    assert shown.tags.count("script") == 2
    # a map and lines for each head, and strips of the walk
    assert shown.tags.count("canvas") > 20
    assert shown.tags.count("line") > 5


def test_two_texts_show_the_word_that_they_share(world):
    for run in ("c", "m"):
        found = _found(world, run, "text number one", "a number of texts")
        assert found.word.word in ("number", "text", "texts")
        assert len(found.examples) == 2
        assert {example.walk.word for example in found.examples} == {found.word.word}
        assert page(found).count('class="walk"') == 2
        assert f"{found.word.word}: cosine" in str(found)


def test_a_masked_word_is_read_as_a_blank_is(world):
    run = load(world / "runs/m")
    tokenizer = train(["text number one two three"] * 3, PieceSettings(kind="word", size=20), "shared")
    words = replace(run, model=TASK.build(run.recipe, (tokenizer,)).eval(), tokenizers=(tokenizer,))
    blank = TASK.inspect(words, Focus(("text ___ one",))).examples[0]
    assert list(blank.attention[0].rows) == ["▁text", "___", "▁one", "</s>"]
    for word in ("number", "two"):
        masked = TASK.inspect(words, Focus((f"text {word} one",), word=word)).examples[0]
        assert masked.output == blank.output
        assert list(masked.attention[0].rows) == list(blank.attention[0].rows)
        for found, expected in zip(masked.saliency, blank.saliency, strict=True):
            np.testing.assert_array_equal(found.weights, expected.weights)
    # of two texts nothing is masked: the word itself is compared
    two = TASK.inspect(words, Focus(("text number one", "number three")))
    assert [example.attention[0].rows.count("___") for example in two.examples] == [0, 0]
    with pytest.raises(UserError, match="is no word to name"):
        TASK.inspect(words, Focus(("text",), word="</s>"))


def test_gradients_of_a_translation_add_up_to_what_each_piece_has_from_the_source(world):
    found = _found(world, "t", "A dog runs.", output="Ein Hund.")
    (integrated,) = [s for s in found.examples[0].saliency if s.method == "integrated gradients"]
    assert len(integrated.answers) == len("Ein Hund.") + 1
    assert integrated.difference < 0.01 * np.abs(integrated.weights.sum(axis=1)).max() + 1e-4


def test_of_a_long_text_the_page_shows_the_beginning_and_the_json_all(world, monkeypatch):
    monkeypatch.setattr("s2s.interpretability.page._MOST", 200)
    found = _found(world, "c", "a text that is longer than that")
    data = json.loads(Page(page(found)).data)["examples"][0]
    assert data["cut"] == 10
    assert np.array(data["attention"][0]["weights"]).shape == (1, 2, 10, 10)
    assert len(json.loads(found.to_json())["examples"][0]["attention"]["encoder_tokens"]) == 32


@pytest.mark.parametrize(("kind", "kinds"), [("gru", []), ("lstm-attention", ["cross"]), ("conv", ["cross"])])
def test_what_a_model_has_not_is_left_out(world, kind, kinds):
    run = load(world / "runs/t")
    module = module_of(kind)
    recipe = run.recipe.model_copy(update={"model": module.Settings(kind=kind, width=8)})
    other = replace(run, recipe=recipe, model=TRANSLATION.build(recipe, run.tokenizers).eval())
    found = TRANSLATION.inspect(other, Focus(("a text", "no text"), output="ein"))
    for example in found.examples:
        assert [maps.kind for maps in example.attention] == kinds
        assert example.walk is None
        methods = ["gradient x input", "integrated gradients", "attention rollout"]
        assert [saliency.method for saliency in example.saliency] == methods[: 3 if kinds else 2]
    assert found.word.word == "text"
    assert found.word.looked == [[], []]
    text = page(found)
    assert ('id="walk"' in text, "This model has none." in text) == (False, not kinds)
    assert inspection_picture(found, Focus()).axes
    if kinds:
        with pytest.raises(UserError, match="no layer 9"):
            inspection_picture(found, Focus(layer=9))


def test_a_task_without_an_answer_refuses_in_words(world):
    run = load(world / "runs/c")
    with pytest.raises(UserError, match="nothing to look into where the task is classification"):
        Task.inspect(None, run, Focus())
