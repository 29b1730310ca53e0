"""`s2s inspect` for every task: what the page and the JSON hold, and that nobody's text becomes markup."""

import io
import json
import re
import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from rich.console import Console

import s2s
from s2s.cli.main import commands
from s2s.data.tokenizers import BOS, train
from s2s.errors import UserError
from s2s.inspection.figure import inspection_picture
from s2s.inspection.inspection import Inspection, InspectionRequest
from s2s.inspection.page import page
from s2s.recipe.installed import module_of
from s2s.recipe.schema import PieceSettings
from s2s.run import training
from s2s.run.folder import open_run
from s2s.run.inference import inspect_input, load
from s2s.run.tasks import read
from s2s.tasks.language_model.diagnosis import CausalReader
from s2s.tasks.language_model.task import TASK as LANGUAGE
from s2s.tasks.masked_lm.task import TASK
from s2s.tasks.translation.task import TASK as TRANSLATION
from tests.faults.world import COURSE, MODEL, make_world

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "</script><script>alert(1)</script> <b>&amp;</b> ${x} {{ 7 * 7 }} text"
RUNS = {
    **{"t": "translation", "c": "classification", "m": "masked-lm", "i": "images"},
    **{"l": "language-model", "x": "text-to-text", "p": "captioning"},
}
MIXTURE = (
    f"task: text-to-text\nname: x\ntokenizer: {{kind: bytes}}\n{MODEL}\n{COURSE}"
    "decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}\ndata: {corpora: {"
    "there: {prefix: 'to German: ', train: 40, validation: 2, test: 2}, "
    "good: {prefix: 'good? ', source: sentence, target: judgement, answers: [acceptable, unacceptable], "
    "metric: accuracy, train: 40, validation: 2, test: 2}}}\n"
)
CAPTIONS = (
    "task: captioning\nname: p\ndata: {train: 20, validation: 2, test: 2, size: 16}\nstem: {size: 4}\n"
    f"tokenizer: {{kind: word, size: 40}}\n{MODEL}\n{COURSE}decoding: {{beam: 1, max_length: 4}}\n"
)
WRITING = {"t", "x", "p"}  # with an encoder and a decoder


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("inspected") / "world")
    for name, recipe in {"x": MIXTURE, "p": CAPTIONS}.items():
        (folder / f"{name}.yaml").write_text(recipe)
        training.train(
            read(folder / f"{name}.yaml", [f"run.dir={folder / 'runs' / name}"]), Console(file=io.StringIO())
        )
    return folder


def _found(world: Path, run: str, *inputs: str, **focus) -> Inspection:
    return inspect_input(open_run(world / "runs" / run), InspectionRequest(inputs, **focus))


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
def test_inspect_shows_attention_saliency_and_positions_of_every_task(world, run):
    found = _found(world, run)
    (example,) = found.examples
    assert found.task == RUNS[run]
    assert bool(re.search(r"^\S+ [0-9.]+ · .*; true class: \w+$", example.remark)) == (run in "ci")
    kinds = ["encoder", "decoder", "cross"] if run in WRITING else ["decoder"] if run == "l" else ["encoder"]
    assert [maps.kind for maps in example.attention] == kinds
    for maps in example.attention:
        assert maps.weights.shape == (1, 2, len(maps.rows), len(maps.columns))
        np.testing.assert_allclose(maps.weights.sum(axis=-1), 1, atol=1e-5)
    assert example.walk.difference < 1e-5
    own = example.attention[0].weights[0, example.walk.head, example.walk.place]
    np.testing.assert_allclose(example.walk.weights, own, atol=1e-5)
    methods = ["gradient x input", "integrated gradients", "attention rollout"]
    assert [saliency.method for saliency in example.saliency] == methods
    for saliency in example.saliency:
        assert saliency.weights.shape == (len(saliency.answers), len(saliency.words))
    np.testing.assert_allclose(example.saliency[2].weights.sum(axis=1), 1, atol=1e-5)
    assert [positions.name for positions in found.positions] == [kind for kind in kinds if kind != "cross"]
    for positions in found.positions:
        np.testing.assert_allclose(positions.products, positions.vectors @ positions.vectors.T)
    shown = Page(page(found))
    assert shown.tags.count("script") == 2
    # nothing is fetched from anywhere
    assert all(address.startswith("#") for address in shown.addresses)
    data = json.loads(shown.data)["examples"][0]
    assert [maps["kind"] for maps in data["attention"]] == [maps.kind for maps in example.attention]
    assert json.loads(found.to_json())["examples"][0]["walk"]["place"] == example.walk.place
    assert inspection_picture(found, InspectionRequest()).axes


def test_inspect_page_escapes_user_text(world):
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
        inspection_picture(found, InspectionRequest()).draw_without_rendering()


def test_inspect_page_in_a_browser_runs_no_user_text(world, tmp_path):
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


def test_inspect_compares_the_shared_word_of_two_texts(world):
    for run in ("c", "m", "l"):
        found = _found(world, run, "text number one", "a number of texts")
        assert found.word.word in ("number", "text", "texts")
        assert len(found.examples) == 2
        assert {example.walk.word for example in found.examples} == {found.word.word}
        assert page(found).count('class="walk"') == 2
        assert f"{found.word.word}: cosine" in str(found)


def test_inspect_masks_a_word_as_a_blank(world):
    run = load(world / "runs/m")
    tokenizer = train(["text number one two three"] * 3, PieceSettings(kind="word", size=20), "shared")
    words = replace(run, model=TASK.build(run.recipe, (tokenizer,)).eval(), tokenizers=(tokenizer,))
    blank = TASK.inspect(words, InspectionRequest(("text ___ one",))).examples[0]
    assert list(blank.attention[0].rows) == ["▁text", "___", "▁one", "</s>"]
    for word in ("number", "two"):
        masked = TASK.inspect(words, InspectionRequest((f"text {word} one",), word=word)).examples[0]
        assert masked.output == blank.output
        assert list(masked.attention[0].rows) == list(blank.attention[0].rows)
        for found, expected in zip(masked.saliency, blank.saliency, strict=True):
            np.testing.assert_array_equal(found.weights, expected.weights)
    # of two texts nothing is masked: the word itself is compared
    two = TASK.inspect(words, InspectionRequest(("text number one", "number three")))
    assert [example.attention[0].rows.count("___") for example in two.examples] == [0, 0]
    with pytest.raises(UserError, match="is not a word of the text"):
        TASK.inspect(words, InspectionRequest(("text",), word="</s>"))


def test_inspect_treats_a_blank_of_the_corpus_as_text(world):
    run = load(world / "runs/m")
    # more pieces than are read, of a tokenizer that can fill no blank
    for text in ("a ___ of text", f"{'text ' * 100}___ and ___"):
        found = TASK.inspect(run, InspectionRequest(part=datasets.Dataset.from_dict({"text": [text]}))).examples[0]
        assert text.startswith(found.source.removesuffix(" …"))
        assert "_" in found.attention[0].rows or found.source != text
    with pytest.raises(UserError, match="single bytes"):
        TASK.inspect(run, InspectionRequest(("a ___ of text",)))


def test_inspect_integrated_gradients_of_a_translation_are_complete(world):
    found = _found(world, "t", "A dog runs.", output="Ein Hund.")
    (integrated,) = [s for s in found.examples[0].saliency if s.method == "integrated gradients"]
    assert len(integrated.answers) == len("Ein Hund.") + 1
    assert integrated.difference < 0.01 * np.abs(integrated.weights.sum(axis=1)).max() + 1e-4
    assert np.isclose(integrated.weights.sum(axis=1), integrated.total, atol=1e-6).any()
    assert [s.total for s in found.examples[0].saliency if s is not integrated] == [None, None]
    # the page shows the error beside the sum
    shown = json.loads(Page(page(found)).data)["examples"][0]["saliency"][1]
    assert shown["total"] == pytest.approx(integrated.total, rel=1e-2)


def test_inspect_page_truncates_a_long_text_and_json_does_not(world, monkeypatch):
    monkeypatch.setattr("s2s.inspection.page._MOST", 200)
    found = _found(world, "c", "a text that is longer than that")
    data = json.loads(Page(page(found)).data)["examples"][0]
    assert data["cut"] == 10
    assert np.array(data["attention"][0]["weights"]).shape == (1, 2, 10, 10)
    assert len(json.loads(found.to_json())["examples"][0]["attention"]["encoder_tokens"]) == 32


@pytest.mark.parametrize(("kind", "kinds"), [("gru", []), ("lstm-attention", ["cross"]), ("conv", ["cross"])])
def test_inspect_leaves_out_what_the_model_lacks(world, kind, kinds):
    run = load(world / "runs/t")
    module = module_of(kind)
    recipe = run.recipe.model_copy(update={"model": module.Settings(kind=kind, width=8)})
    other = replace(run, recipe=recipe, model=TRANSLATION.build(recipe, run.tokenizers).eval())
    found = TRANSLATION.inspect(other, InspectionRequest(("a text", "no text"), output="ein"))
    for example in found.examples:
        assert [maps.kind for maps in example.attention] == kinds
        assert example.walk is None
        methods = ["gradient x input", "integrated gradients", "attention rollout"]
        assert [saliency.method for saliency in example.saliency] == methods[: 3 if kinds else 2]
    assert found.word.word == "text"
    assert found.word.looked == [[], []]
    text = page(found)
    assert ('id="walk"' in text, "This model has none." in text) == (False, not kinds)
    assert inspection_picture(found, InspectionRequest()).axes
    if kinds:
        with pytest.raises(UserError, match="no layer 9"):
            inspection_picture(found, InspectionRequest(layer=9))


@pytest.mark.parametrize("ending", ["html", "json", "png", ""])
def test_inspect_refuses_a_missing_layer_or_head(world, tmp_path, monkeypatch, ending):
    run, shown = load(world / "runs/t"), ["--output", str(tmp_path / f"shown.{ending}")] if ending else []
    for kind, asked, said in (
        ("gru", ["--layer", "0"], "--layer 0: the model has no attention"),
        ("gru", ["--head", "1"], "--head 1: the model's encoder has no attention heads"),
        ("lstm-attention", ["--layer", "1"], "there is no layer 1"),
        ("lstm-attention", ["--head", "1"], "--head 1: the model's encoder has no attention heads"),
        ("lstm-attention", ["--layer", "0"], ""),
    ):
        recipe = run.recipe.model_copy(update={"model": module_of(kind).Settings(kind=kind, width=8)})
        other = replace(run, recipe=recipe, model=TRANSLATION.build(recipe, run.tokenizers).eval())
        monkeypatch.setattr("s2s.run.inference.load_for_inference", lambda *_, other=other: other)
        words = ["inspect", str(world / "runs/t"), "a text", "--translation", "ein", *shown, *asked]
        with pytest.raises(UserError, match=said) if said else nullcontext():
            CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
        assert bool(list(tmp_path.iterdir())) == (not said and bool(ending))


def test_inspect_causal_reader_equals_the_language_model(world):
    run = load(world / "runs/l")
    text = "text number"
    for kind in ("transformer", "gru"):
        section = module_of(kind).LanguageSettings(kind=kind, width=16)
        recipe = run.recipe.model_copy(update={"model": section})
        model = LANGUAGE.build(recipe, run.tokenizers).eval()
        tokens = torch.tensor([[BOS, *run.tokenizers[0].encode(text)]])
        reader, valid = CausalReader(model.decoder).eval(), torch.ones_like(tokens, dtype=torch.bool)
        torch.testing.assert_close(reader(tokens, valid).states, model(tokens))
        # a vector in another's place changes what comes after it, and nothing before
        vectors = reader.embedding(tokens).detach().clone()
        vectors[0, 4] = 1.0
        changed = (reader.read(vectors, valid).states - model(tokens)).abs().sum(dim=2)[0] > 1e-6
        assert changed.tolist() == [place >= 4 for place in range(tokens.shape[1])]
        # what was put in the place of its vectors is gone again
        torch.testing.assert_close(reader(tokens, valid).states, model(tokens))
        other = replace(run, recipe=recipe, model=model)
        example = LANGUAGE.inspect(other, InspectionRequest((text,))).examples[0]
        scores = model.logits(tokens)[0, -1]
        assert example.output == run.tokenizers[0].tokens([int(scores.argmax())])[0]
        integrated = example.saliency[1]
        assert integrated.difference <= 0.005 * abs(integrated.weights.sum()) + 1e-4
        assert [maps.kind for maps in example.attention] == ([] if kind == "gru" else ["decoder"])
        for maps in example.attention:
            assert np.triu(maps.weights, 1).max() == 0
            assert maps.rows[:-1] == maps.columns[1:]


def test_inspect_text_to_text_uses_the_named_task(world):
    found = _found(world, "x", "A dog runs.", task="good").examples[0]
    assert found.source == "good? A dog runs."
    assert found.output in ("acceptable", "unacceptable")
    shares = dict(part.split() for part in found.remark.split(" · "))
    assert float(shares[found.output]) == max(map(float, shares.values()))
    assert sum(map(float, shares.values())) == pytest.approx(1, abs=2e-3)
    # the decoder read that answer, and not what it would have written
    (cross,) = [maps for maps in found.attention if maps.kind == "cross"]
    assert len(cross.rows) == len(found.output) + 1
    assert _found(world, "x", task="good").examples[0].source.startswith("good? ")
    assert _found(world, "x").examples[0].source.startswith("to German: ")
    with pytest.raises(UserError, match="no task is named"):
        _found(world, "x", "A dog runs.")
    with pytest.raises(UserError, match="has no other tasks"):
        commands.main(["inspect", str(world / "runs/t"), "--task", "good"], standalone_mode=False)


@pytest.mark.parametrize("prefix", ["interlingually to German: ", "interlingually to:"])
def test_inspect_of_a_translation_chooses_no_word_of_the_prefix(world, prefix):
    run = open_run(world / "runs/t", [f"data.prefix={json.dumps(prefix)}"])
    texts = ("A dog runs.", "The dog sleeps.")
    found = inspect_input(run, InspectionRequest(texts))
    assert [example.source for example in found.examples] == [prefix + text for text in texts]
    assert found.word.word == "dog"
    (alone,) = inspect_input(run, InspectionRequest(("A fox",))).examples
    assert alone.walk.word == ("fox" if prefix.endswith(" ") else "to:A")
    # the only example of the corpus that is asked for has the prefix once
    example = inspect_input(run, InspectionRequest()).examples[0]
    assert example.source.count(prefix) == 1
    assert example.walk.word not in prefix.split()
    with pytest.raises(UserError, match="the sentence is empty"):
        inspect_input(run, InspectionRequest((" ",)))


def test_inspect_shows_attention_of_caption_pieces_to_patches(world, tmp_path):
    found = _found(world, "p")
    (example,) = found.examples
    assert example.image.shape == (3, 16, 16)
    assert example.patches == 4
    for maps in example.attention:
        if maps.kind != "decoder":
            assert list(maps.columns) == [f"{row},{column}" for row in range(1, 5) for column in range(1, 5)]
    assert example.walk.word == "3,3"
    Image.fromarray(example.image.transpose(1, 2, 0)).save(tmp_path / "same.png")
    again = _found(world, "p", str(tmp_path / "same.png"), word="1,2").examples[0]
    assert again.output == example.output
    assert again.walk.word == "1,2"
    np.testing.assert_allclose(again.attention[2].weights, example.attention[2].weights, atol=1e-6)
    inspection_picture(found, InspectionRequest()).draw_without_rendering()


def test_inspect_draws_a_layer_that_only_the_encoder_of_images_has(world):
    found = _found(world, "p")
    encoder, *others = found.examples[0].attention
    deeper = replace(encoder, weights=np.concatenate([np.zeros_like(encoder.weights), encoder.weights]))
    example = replace(found.examples[0], attention=[deeper, *others])
    figure = inspection_picture(replace(found, examples=[example]), InspectionRequest(layer=1))
    titles = {axes.get_title() for axes in figure.subfigs[0].axes}
    assert {"layer 1, head 0", *(f"for {piece}" for piece in others[-1].rows)} <= titles


def test_api_of_other_runs_refuses_what_does_not_apply(world):
    captions, images, mixture = (s2s.load(world / "runs" / name) for name in "pix")
    picture = next((world / "i").rglob("*.png"))
    with pytest.raises(UserError, match=r"^images: is one path(.|\n)*list"):
        captions.caption(str(picture))
    with pytest.raises(UserError, match=r"^images: 5 is no list of paths"):
        captions.caption(5)
    with pytest.raises(UserError, match=r"^images\[1\]: None is no path"):
        captions.caption([picture, None])
    with pytest.raises(UserError, match="a run of task images cannot count tokens"):
        images.count_tokens(["a"])
    with pytest.raises(UserError, match=r"^prefixes: has no effect on a task with given answers"):
        mixture.candidates(["a"], task="good", prefixes=["accept"])
    # a path is as good as its text
    assert (
        images.inspect(picture).inspection.examples[0].source
        == images.inspect(str(picture)).inspection.examples[0].source
    )
