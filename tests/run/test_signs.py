"""Signs of `s2s diagnose` for captions, documents and mixtures, each computed in another way or after a fault."""

import json
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.data.tokenizers import EOS
from s2s.diagnosis.report import held_out
from s2s.errors import UserError
from s2s.evaluation.signs import entropy
from s2s.inspection.inspection import InspectionRequest
from s2s.run.folder import open_run
from s2s.run.inference import evaluate, evaluation_split, inspect_input, load
from s2s.run.tasks import task_of
from s2s.tasks.captioning.diagnosis import facts_wrong
from s2s.tasks.language_model.diagnosis import Expected, ends
from s2s.tasks.text_to_text.data import Mixture, in_pieces
from s2s.training.progress import no_progress_bar

pytestmark = pytest.mark.slow

SMALL = ["training.updates=4", "training.warmup=2", "validation.every=2", "model.width=16", "model.heads=2",
         "model.feedforward=16", "device.precision=fp32", "device.threads=1"]  # fmt: skip
TASKS = ("en-de", "de-en", "plural", "cases", "acceptable")
OWN = {
    "captioning": ["data.train=60", "data.validation=10", "data.test=20", "decoding.max_length=12"],
    "lm_builtin": ["data.train=200", "data.validation=10", "data.test=20", "tokenizer.size=350"],
    "text_to_text": [
        *("tokenizer.size=400", "decoding.max_ratio=1", "decoding.max_extra=2"),
        *(f"data.corpora.{name}.{split}={size}" for name in TASKS for split, size in
          (("train", 40), ("validation", 4), ("test", 10))),
        "data.corpora.words={objective: span-corruption, metric: loss, source: de, train: 60, validation: 6, test: 6}",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("signs")
    for name, own in OWN.items():
        small = [word for word in SMALL if name != "lm_builtin" or not word.startswith("model.feed")]
        _s2s("train", name, *small, *own, f"run.dir={folder / name}")
    return folder


def _s2s(*words: object) -> str:
    done = CliRunner().invoke(commands, [str(w) for w in words], standalone_mode=False, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def _signs(run: Path, tmp_path: Path) -> dict:
    before = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    _s2s("diagnose", run, "--only", "signs", "--json", tmp_path / "found.json")
    assert {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()} == before
    return json.loads((tmp_path / "found.json").read_text())["signs"]


def _sign(found: dict, name: str) -> dict:
    (sign,) = [sign for sign in found["signs"] if sign["name"] == name]
    return sign


def _symptoms(run: Path, change=None):
    """What the task itself finds in its whole test set, the model changed before."""
    loaded = load(run)
    part = evaluation_split(open_run(run), loaded.recipe, "test")
    if change:
        change(loaded.model)
    found = task_of(loaded.recipe).diagnose(loaded, part, np.arange(len(part)), no_progress_bar)
    return {sign.name: sign for sign in found.signs}, found


def test_language_model_signs_agree_with_its_evaluation(runs, tmp_path):
    run = runs / "lm_builtin"
    found = _signs(run, tmp_path)
    scored = evaluate(run, keep=False)
    assert f"{scored.headline_metrics()['bits_per_byte']:.4f} bits per byte" in found["summary"]
    # with two pieces in sight, as evaluation has it with a context of two
    near = evaluate(run, keep=False, overrides=["scoring.context=2", "scoring.stride=1"])
    worth = near.headline_metrics()["loss"] - scored.headline_metrics()["loss"]
    assert _sign(found, "ignores what came before")["value"] == pytest.approx(worth, abs=1e-5)
    assert {"repeats itself", "says always the same", "ends too rarely", "ends too often", "unknown tokens",
            "not spelt exactly"} < {sign["name"] for sign in found["signs"]}  # fmt: skip
    assert len(found["worst"]) == 10
    costs = np.array(scored.nats)
    dearest = int((costs / np.array([len(p) + 1 for p in _pieces(run)])).argmax())
    assert found["worst"][0]["score"].startswith(f"document {dearest + 1}, ")


def _pieces(run: Path) -> list[list[int]]:
    loaded = load(run)
    return loaded.tokenizers[0].encode_batch(evaluation_split(open_run(run), loaded.recipe, "test")["text"][:])


def test_language_model_signs_count_document_ends():
    places = np.arange(6)

    def found(end: list[float]) -> dict:
        said = Expected(np.array([0, 0, 0, 1, 1, 1]), places % 3, places, np.ones(6), places, np.array(end))
        return {sign.name: sign for sign in ends(said)}

    sure = found([0.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    assert sure["ends too rarely"].value == 1
    assert not any(sign.found for sign in sure.values())
    assert found([0.1, 0.1, 0.1, 0.0, 0.2, 0.1])["ends too rarely"].found
    often = found([0.5, 0.5, 1.0, 0.5, 0.6, 1.0])
    assert often["ends too often"].found
    assert often["ends too often"].value == pytest.approx(2.05)


def test_language_model_signs_find_a_model_of_ends_only(runs):
    def only_ends(model):
        with torch.no_grad():
            model.projection.weight.zero_()
            model.projection = torch.nn.Linear(model.projection.in_features, model.projection.out_features)
            model.projection.weight.zero_()
            model.projection.bias.zero_()
            model.projection.bias[EOS] = 20.0

    signs, found = _symptoms(runs / "lm_builtin", only_ends)
    assert signs["ends too often"].found
    assert signs["ignores what came before"].found
    assert signs["ignores what came before"].value == pytest.approx(0, abs=1e-5)
    assert {worst.output for worst in found.worst} == {"(the end)"}


def test_diagnose_reports_ignored_images(runs, tmp_path):
    run = runs / "captioning"
    found = _signs(run, tmp_path)
    exact = evaluate(run, keep=False).headline_metrics()
    assert f"CIDEr-D {exact['cider']:.2f}, BLEU {exact['bleu']:.2f}" in found["summary"]
    assert len(found["worst"]) == 10

    def blind(model):
        model.encoder.register_forward_hook(
            lambda module, given, memory: replace(memory, states=0 * memory.states, summary=0 * memory.summary)
        )

    signs, _ = _symptoms(run, blind)
    assert signs["ignores the image"].found
    assert signs["ignores the image"].value == pytest.approx(0, abs=1e-6)
    assert signs["says always the same"].found


def test_captioning_signs_count_wrong_facts_by_kind(runs):
    run = runs / "captioning"
    part = evaluation_split(open_run(run), load(run).recipe, "test")
    right = [several[0] for several in part.captions]
    assert not any(sign.found or sign.value for sign in facts_wrong(right, part))
    turned = str.maketrans({"b": "s", "s": "b"})
    wrong = [" ".join(w.translate(turned) if w in ("big", "small") else w for w in text.split()) for text in right]
    wrong = [text.replace("sig", "small").replace("bmall", "big") for text in wrong]
    found = {sign.name: sign for sign in facts_wrong(wrong, part)}
    assert found["wrong size"].value == 100
    assert [name for name, sign in found.items() if sign.found] == ["wrong size"]


def test_text_to_text_signs_agree_with_its_evaluation(runs, tmp_path):
    run = runs / "text_to_text"
    found = _signs(run, tmp_path)
    scored = {task.task: task for task in evaluate(run, keep=False).tasks}
    for name in ("en-de", "de-en", "plural", "cases"):
        texts = scored[name].texts
        assert (
            f"{name}: 10 sentences: BLEU {texts['bleu'].value:.2f}, chrF {texts['chrf'].value:.2f}" in found["summary"]
        )
        assert _sign(found, f"{name}: ignores the source")
    right = scored["acceptable"].classes.accuracy
    assert f"acceptable: 10 examples: accuracy {right.value:.2f} %" in found["summary"]
    assert _sign(found, "acceptable: majority class only")["value"] == pytest.approx(right.value)
    assert not [sign for sign in found["signs"] if sign["name"].startswith("words:")]
    # two of each task that is answered, each with its place among all
    assert [worst["score"].split(": ")[0] for worst in found["worst"]] == [name for name in TASKS for _ in range(2)]


def test_text_to_text_signs_skip_tasks_without_examples(runs):
    """Of 610 examples, 24 are looked at, and none of the few of some tasks."""
    run = open_run(runs / "text_to_text", ["data.corpora.en-de.test=600", "data.corpora.words.test=2"])
    loaded = load(run)
    assert len(held_out(run, loaded, "test")) == 24
    part = evaluation_split(run, loaded.recipe, "test").select(np.array([0, 300, 599]))
    assert list(part.parts) == ["en-de"]
    found = task_of(loaded.recipe).diagnose(loaded, part, np.array([0, 300, 599]), no_progress_bar)
    assert found.summary.startswith("en-de: 3 sentences")


def test_text_to_text_signs_count_windows_of_span_corruption(runs):
    loaded = load(runs / "text_to_text")
    recipe, tokenizer = loaded.recipe, loaded.tokenizers[0]
    texts = ["Der Mann schläft. " * 100, "", "Ja."]
    part = Mixture({"words": datasets.Dataset.from_dict({"source": texts, "target": texts})})
    found = task_of(recipe).diagnose(loaded, part, np.arange(3), no_progress_bar)
    pieces, _ = in_pieces(part.parts["words"], recipe.data.corpora["words"], tokenizer, recipe.batches.max_length)
    windows = len(pieces.target_lengths)
    assert windows > len(texts)
    _, wanted = pieces.draw(np.arange(windows), 0)
    assert found.chance_loss == pytest.approx(entropy(np.concatenate([*wanted, np.full(windows, EOS)])))


def test_inspect_text_to_text_without_examples_is_refused(runs):
    run = open_run(runs / "text_to_text", ["data.corpora.cases.test=null"])
    with pytest.raises(UserError, match="cases has no test set"):
        inspect_input(run, InspectionRequest(task="cases"))
    loaded, alone = load(run), load(run).recipe.data.corpora["words"]
    only = loaded.recipe.model_copy(update={"data": loaded.recipe.data.model_copy(update={"corpora": {"w": alone}})})
    with pytest.raises(UserError, match="the run was trained with span corruption only"):
        task_of(only).inspect(replace(loaded, recipe=only), InspectionRequest(("Ja.",)))
