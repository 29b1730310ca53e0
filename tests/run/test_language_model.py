"""A run of a language model: learning, scoring, writing, and what is asked of it."""

import math
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from scipy.stats import chisquare

import s2s
from s2s.cli.evaluate import evaluate as evaluate_command
from s2s.cli.generate import generate
from s2s.data.phrasebook import phrases
from s2s.data.tokenized import encode_texts
from s2s.data.tokenizers import BOS, EOS, PAD, UNK
from s2s.data.tokenizers import train as train_pieces
from s2s.decoding.generate import one_line
from s2s.diagnosis.report import self_test
from s2s.errors import UserError
from s2s.evaluation.inference import Estimate
from s2s.models.language_model import LanguageModel
from s2s.recipe.schema import DeviceSettings, PieceSettings
from s2s.run.folder import open_run
from s2s.run.inference import evaluate, load
from s2s.run.tasks import inspected, read
from s2s.run.training import resume, train
from s2s.tasks.base import LoadedModel
from s2s.tasks.language_model.data import Windows
from s2s.tasks.language_model.generation import Sampling, Writing, generate_texts, grow_text, sample, write
from s2s.tasks.language_model.induction import recall
from s2s.tasks.language_model.scoring import LanguageScores, interval_of, measure, size_of, spans
from s2s.tasks.language_model.task import LanguageModelTask
from s2s.training.device import select_device

RECIPE = """
name: tiny
task: language-model
data: {train: texts.txt, document: line, validation: 8, test: 8}
tokenizer: {kind: bytes}
batches: {tokens: 128, length: 32}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, decoder_layers: 1}
training: {updates: 4, warmup: 2}
validation: {every: 2, samples: 2}
device: {kind: cpu, precision: fp32}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    text = "\n".join(phrase.source for phrase in phrases("train", 120, seed=4))
    (folder / "texts.txt").write_text(text, encoding="utf-8")
    (folder / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    return train(read(folder / "tiny.yaml", [f"run.dir={folder / 'run'}"]), Console(quiet=True))


@pytest.fixture(scope="module")
def loaded(run) -> LoadedModel:
    return load(run)


def _log_probabilities(model: LanguageModel, pieces: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model.logits(torch.tensor([[BOS, *pieces]]))[0].log_softmax(-1)


def test_language_model_score_is_negative_log_probability_per_document(run, loaded):
    # no sentence is longer than what is read at once
    found, other = (
        evaluate(run, split, overrides=["scoring.context=128"], keep=False) for split in ("test", "validation")
    )
    assert (found.documents, other.documents) == (8, 8)
    sums = {}
    for text in (run.parent / "texts.txt").read_text(encoding="utf-8").split("\n"):
        pieces = loaded.tokenizers[0].encode(text)
        said = _log_probabilities(loaded.model, pieces)
        sums[text] = -sum(float(said[i, piece]) for i, piece in enumerate([*pieces, EOS]))
    for part in (found, other):
        held = [min(sums, key=lambda text: abs(sums[text] - nats)) for nats in part.nats]
        assert [sums[text] for text in held] == pytest.approx(part.nats, abs=1e-3)
        assert part.bytes == sum(len(text.encode()) + 1 for text in held) == part.pieces
    scores = found.headline_metrics()
    assert scores["bits_per_byte"] == pytest.approx(found.total / math.log(2) / found.bytes)
    assert scores["perplexity"] == pytest.approx(math.exp(found.total / found.pieces))
    assert sum(span.loss * span.pieces for span in found.spans) == pytest.approx(found.total, rel=1e-5)
    assert sum(span.pieces for span in found.spans) == found.pieces
    assert "bits per byte" in str(found)


def test_language_model_scores_another_file_by_data_test(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("other.txt").write_text("The dog sleeps.\nA cat reads.\n")
    call = CliRunner()
    for options, what in (
        (["--source", "other.txt"], "--source does"),
        (["--source", "other.txt", "--reference", "none.txt"], "--source, --reference do"),
    ):
        refused = str(call.invoke(evaluate_command, [str(run), *options]).exception)
        assert refused.startswith(f"{what} not apply to runs of language-model\n")
        assert "data.test=FILE" in refused
    scored = call.invoke(evaluate_command, [str(run), "data.test=other.txt"])
    assert (scored.exception, "2 documents" in scored.output) == (None, True)
    missing = str(call.invoke(evaluate_command, [str(run), "data.test=othr.txt"]).exception)
    assert re.fullmatch(r"data\.test: \S*othr\.txt: no such file\n  → did you mean other\.txt\?", missing)


def test_language_model_runs_are_compared_on_equal_documents(run):
    found = evaluate(run, keep=False)
    same, again = LanguageScores.compare([found, replace(found, run="again")])
    assert (same.p_value, again.p_value) == (None, 1.0)
    worse = LanguageScores.compare([found, replace(found, run="worse", nats=[1.01 * nats for nats in found.nats])])[1]
    # of the 2⁸ ways in which eight documents may change places, none but all and none is as far apart
    assert worse.p_value == pytest.approx(2 / 2**8, abs=0.003)
    assert same.bits_per_byte.low < same.bits_per_byte.value < same.bits_per_byte.high
    assert same.bits_per_byte.value == pytest.approx(found.headline_metrics()["bits_per_byte"])
    with pytest.raises(UserError, match="different test sets"):
        LanguageScores.compare([found, replace(found, digest="x")])
    # one file in other documents has the same digest
    with pytest.raises(UserError, match="different"):
        LanguageScores.compare([found, replace(found, documents=found.documents + 1)])


def test_language_model_one_document_has_no_interval():
    assert interval_of([8 * math.log(2)], [4]) == Estimate(2.0, None, None)
    low, high = (getattr(interval_of([8.0, 9.0], [4, 5]), end) for end in ("low", "high"))
    assert low < high


def test_language_model_counts_lossy_documents():
    texts = ["a b", "a  b", "b a", "a ü"]
    words = PieceSettings(kind="word", size=20, normalization="identity")
    cut = train_pieces(["a b", "b a"] * 20, words, "text")
    pieces = [np.array(row) for row in cut.encode_batch(texts)]
    back = [cut.decode(row.tolist()) for row in pieces]
    assert [one == text for one, text in zip(back, texts, strict=True)] == [True, False, True, False]
    assert size_of(texts, pieces, cut).lossy == 2


def test_language_model_scores_long_documents_by_sliding_windows(loaded):
    import datasets

    text = " ".join(phrase.source for phrase in phrases("train", 12, seed=9))
    pieces = encode_texts(datasets.Dataset.from_dict({"text": [text]}), loaded.tokenizers[0])
    row = [BOS, *pieces.rows(np.array([0]))[0].tolist(), EOS]
    found = measure(loaded.model, Windows(pieces, 24, 10, 256), select_device(loaded.recipe.device))
    total, done = 0.0, 1
    for first in range(0, len(row), 10):
        seen = torch.tensor([row[first : first + 24]])
        with torch.no_grad():
            said = loaded.model.logits(seen)[0].log_softmax(-1)
        for place in range(done, min(first + 25, len(row))):
            total -= float(said[place - 1 - first, row[place]])
        done = max(done, min(first + 25, len(row)))
    assert float(found.documents[0]) == pytest.approx(total, rel=1e-5)
    assert found.counts.tolist() == [1] * (len(row) - 1)
    assert [(span.first, span.last) for span in spans(found)][:4] == [(0, 0), (1, 1), (2, 3), (4, 7)]
    with pytest.raises(UserError, match=r"scoring\.stride"):
        read(loaded.path / "recipe.yaml", ["scoring.stride=64"])


def test_language_model_resume_is_bit_identical(run, tmp_path):
    overrides = [f"run.dir={tmp_path / 'again'}", "training.updates=2"]
    train(read(run / "recipe.yaml", overrides), Console(quiet=True))
    resume(tmp_path / "again", Console(quiet=True), ["training.updates=4"])
    last = "checkpoints/0000004/model.safetensors"
    assert (tmp_path / "again" / last).read_bytes() == (run / last).read_bytes()


def test_language_model_across_documents_changes_training(run, tmp_path):
    ends = []
    for across in ("true", "false"):
        overrides = [
            f"run.dir={tmp_path / across}",
            "model={kind: mingru, width: 16, decoder_layers: 1}",
            f"batches.across_documents={across}",
            "training.updates=2",
            "validation.samples=0",
        ]
        again = train(read(run / "recipe.yaml", overrides), Console(quiet=True))
        ends.append((again / "checkpoints/0000002/model.safetensors").read_bytes())
    assert ends[0] != ends[1]


def test_generate_greedily_takes_the_best_token_of_a_full_forward_pass(loaded):
    prompt = loaded.tokenizers[0].encode("The man")
    written = list(prompt)
    for _ in range(6):
        scores = _log_probabilities(loaded.model, written)[-1].clone()
        scores[[PAD, BOS, UNK]] = float("-inf")
        if int(scores.argmax()) == EOS:
            break
        written.append(int(scores.argmax()))
    asked = Writing(Sampling(temperature=0), len(written) - len(prompt))
    assert generate_texts(loaded, "The man", asked) == [loaded.tokenizers[0].decode(written)]


def test_generate_gives_each_text_its_own_random_stream(loaded):
    asked = Writing(Sampling(), 12, count=3, seed=5)
    together = generate_texts(loaded, "The", asked)
    assert len(set(together)) == 3
    assert generate_texts(loaded, "The", replace(asked, count=2)) == together[:2]
    for number, text in enumerate(together):
        chance = asked.chances(0)[number]
        prompt = loaded.tokenizers[0].encode("The")
        alone = [p for (p,) in write(loaded.model, prompt, Sampling(), 12, [chance], loaded.device_context)]
        assert loaded.tokenizers[0].decode([*prompt, *alone]) == text
    assert "".join(grow_text(loaded, "The", asked)) == together[0]
    assert generate_texts(loaded, "The", replace(asked, seed=6)) != together
    assert generate_texts(loaded, "The", asked, number=1) != together


def test_sampling_frequencies_are_the_softmax(loaded):
    scores = 3 * torch.randn(1, 12, generator=torch.Generator().manual_seed(3))
    expected = (scores[0].double() / 0.8).index_fill(0, torch.tensor([PAD, BOS, UNK]), float("-inf")).softmax(0)
    shares = Sampling(temperature=0.8).probabilities(scores.clone())
    torch.testing.assert_close(shares[0], expected)
    chance = np.random.default_rng(1)
    found = [sample(shares.numpy(), [chance])[0] for _ in range(20_000)]
    counts = np.bincount(found, minlength=12)
    there = expected.numpy() > 0
    assert counts[~there].sum() == 0
    assert chisquare(counts[there], 20_000 * expected.numpy()[there]).pvalue > 0.001


def test_sampling_at_the_lowest_temperature_is_greedy():
    scores = 20 * torch.randn(4, 30, generator=torch.Generator().manual_seed(2))
    coldest = Sampling(1e-310).probabilities(scores.clone())
    torch.testing.assert_close(coldest, Sampling(0).probabilities(scores.clone()))


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (None, 0.7), (5, 0.5), (1, 1.0), (None, 1e-6), (50, 0.999)])
def test_sampling_top_k_and_top_p_keep_the_most_probable_tokens(top_k, top_p):
    scores = 2 * torch.randn(4, 30, generator=torch.Generator().manual_seed(2))
    found = Sampling(1.3, top_k, top_p).probabilities(scores.clone())
    for row, shares in zip(scores.double().tolist(), found.tolist(), strict=True):
        allowed = [i for i in range(30) if i not in (PAD, BOS, UNK)]
        best = sorted(allowed, key=lambda i: -row[i])[: top_k or 30]
        weights = {i: math.exp(row[i] / 1.3) for i in best}
        kept, together = [], 0.0
        for i in best:
            if together >= top_p:
                break
            kept.append(i)
            together += weights[i] / sum(weights.values())
        assert {i for i, share in enumerate(shares) if share > 0} == set(kept)
        for i in kept:
            assert shares[i] == pytest.approx(weights[i] / sum(weights[j] for j in kept))


def test_sampling_top_k_breaks_ties_by_token_id():
    found = Sampling(top_k=2).probabilities(torch.zeros(1, 9))
    assert found[0].nonzero().flatten().tolist() == [2, 4]


class _Repeating(torch.nn.Module):
    """Says nothing of what it has not seen, and after a piece that came before, what followed it then."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.projection = torch.nn.Linear(size, size, bias=False)
        torch.nn.init.eye_(self.projection.weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores = torch.zeros(*tokens.shape, self.projection.in_features)
        for row, pieces in enumerate(tokens.tolist()):
            for at, piece in enumerate(pieces):
                for before in range(at):
                    if pieces[before] == piece:
                        scores[row, at, pieces[before + 1]] = 50.0
        return scores


def test_induction_probe_measures_a_repeating_model():
    device_context = select_device(DeviceSettings(kind="cpu", precision="fp32"))
    found = recall(_Repeating(40), 40, 12, 5, 1, device_context)
    assert found.first == pytest.approx([math.log(40)] * 12)
    assert found.second[1:] == pytest.approx([0.0] * 11, abs=1e-6)
    # the first repeated piece cannot be told: it follows the last one of the first half, which has come only once
    assert found.second[0] == pytest.approx(math.log(40))
    assert found.difference == pytest.approx(-math.log(40))


def test_generate_and_induction_commands_print_and_save(run, tmp_path):
    call = CliRunner()
    (tmp_path / "prompts").write_text("The man\n\n", encoding="utf-8")
    one = call.invoke(generate, [str(run), "The man", "--max-tokens", "5", "--seed", "3"])
    some = ["--input", str(tmp_path / "prompts"), "--max-tokens", "5", "--seed", "3", "--count", "2"]
    many = call.invoke(generate, [str(run), *some])
    assert one.exception is None
    assert many.exception is None
    assert one.output.startswith("The man")
    assert many.output.startswith(one.output)
    assert many.output != one.output
    asked = call.invoke(evaluate_command, [str(run), "--induction", "6"])
    assert asked.exception is None
    assert "each twice" in asked.output
    assert "not kept" not in asked.output
    assert (run / "probe-induction.json").exists()
    assert (run / "probe-induction.png").exists()
    too_long = call.invoke(evaluate_command, [str(run), "--induction", "5000"])
    assert "set --induction 256" in str(too_long.exception)


def test_induction_probe_is_shown_if_it_cannot_be_saved(run, tmp_path, monkeypatch):
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    asked = ["--induction", "6"]
    shutil.copytree(run, tmp_path / "fetched", ignore=shutil.ignore_patterns("probe-*"))
    with monkeypatch.context() as patch:
        patch.setattr("s2s.tasks.base.write_atomically", refuse)
        locked = CliRunner().invoke(evaluate_command, [str(run), *asked]).output
    monkeypatch.setattr("s2s.run.folder.resolve_run_path", lambda path: tmp_path / "fetched")
    fetched = CliRunner().invoke(evaluate_command, ["hf:somebody/lm", *asked]).output
    whys = f"{run}/probe-induction.json: Permission denied", f"{tmp_path}/fetched is in the cache"
    for shown, why in zip((locked, fetched), whys, strict=True):
        assert "each twice" in shown
        assert f"shown, but not kept: {why}" in shown
    assert not list((tmp_path / "fetched").glob("probe-*"))


def test_generate_in_python_gives_the_texts_of_the_command(run, tmp_path):
    python, path = s2s.load(run), tmp_path / "texts"
    words = ["--max-tokens", "6", "--temperature", "0.8", "--top-k", "9", "--top-p", "0.9", "--seed", "3"]
    few = {"max_tokens": 6, "temperature": 0.8, "top_k": 9, "top_p": 0.9, "seed": 3}
    assert CliRunner().invoke(generate, [str(run), "The", *words, "--count", "2", "--output", str(path)]).exit_code == 0
    found = python.generate("The", count=2, **few)
    assert "".join(f"{one_line(text)}\n" for text in found) == path.read_text(encoding="utf-8")
    assert python.generate("The", **few) == found[:1]
    assert CliRunner().invoke(generate, [str(run), "", "--max-tokens", "6", "--output", str(path)]).exit_code == 0
    assert "".join(f"{text}\n" for text in python.generate(max_tokens=6)) == path.read_text(encoding="utf-8")
    with pytest.warns(UserWarning, match="the longest training text has 32; shorten it") as warned:
        python.generate("The man" * 9, max_tokens=1)
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": ["a"]}, r"^prompt: \['a'\] is not a text"),
        ({"temperature": -1}, r"^temperature: is -1\n.*from 0 to 100$"),
        ({"temperature": "1"}, r"^temperature: is '1'\n"),
        ({"top_p": 0}, r"^top_p: is 0\n.*above 0, at most 1$"),
        ({"top_p": float("nan")}, r"^top_p: is nan\n"),
        ({"top_k": 0}, r"^top_k: is 0\n.*from 1 to"),
        ({"max_tokens": 2.5}, r"^max_tokens: 2.5 is not an integer"),
        ({"count": 0}, r"^count: is 0\n.*from 1 to 10,000$"),
        ({"seed": -1}, r"^seed: is -1\n.*from 0 to"),
    ],
)
def test_generate_in_python_refuses_what_the_command_refuses(run, changes, message):
    with pytest.raises(UserError, match=message):
        s2s.load(run).generate(**changes)


@pytest.fixture(scope="module")
def characters(run):
    """A run whose tokenizer knows the characters of its training text only."""
    changes = [f"run.dir={run.parent / 'char'}", "tokenizer.kind=char", "training.updates=2", "validation.every=2"]
    return train(read(run / "recipe.yaml", changes), Console(quiet=True))


def test_generate_warns_about_characters_that_the_tokenizer_does_not_know(characters, run, tmp_path):
    call, few = CliRunner(), ["--max-tokens", "3"]
    warning = "not in the vocabulary: '日', '☃'; the continuation may be nonsense\n"
    assert call.invoke(generate, [str(characters), "日 ☃ 日", *few]).stderr == warning
    assert call.invoke(generate, [str(characters), "日 ☃ 日", *few, "--count", "2"]).stderr == warning
    assert call.invoke(generate, [str(characters), "The man", *few]).stderr == ""
    assert call.invoke(generate, [str(run), "日 ☃", *few]).stderr == ""
    (tmp_path / "prompts").write_text("The man\n日 ☃\n" + "日\n" * 20, encoding="utf-8")
    many = call.invoke(generate, [str(characters), "--input", str(tmp_path / "prompts"), *few])
    lines = many.stderr.splitlines()
    assert lines[0] == f"line 2: {warning.strip()}"
    assert len(lines) == 21
    assert lines[-1] == "21 of 22 lines have words that are not in the vocabulary"


def test_generate_refuses_more_tokens_than_learned_positions(run, tmp_path):
    changes = ["model.decoder_positions=learned", "model.max_positions=40", "training.updates=2", "validation.every=2"]
    again = train(read(run / "recipe.yaml", [f"run.dir={tmp_path / 'learned'}", *changes]), Console(quiet=True))
    short = load(again)
    room = 40 - len(short.tokenizers[0].encode("The man"))
    with pytest.raises(UserError, match=f"lower --max-tokens to {room},"):
        generate_texts(short, "The man", Writing(Sampling(), room + 1))
    generate_texts(short, "The man", Writing(Sampling(), room))
    with pytest.raises(UserError, match=r"scoring\.context is 64"):
        evaluate(again, overrides=["scoring.context=64"])
    with pytest.raises(UserError, match=r"batches\.length is 64"):
        train(
            read(run / "recipe.yaml", [f"run.dir={tmp_path / 'no'}", *changes, "batches.length=64"]),
            Console(quiet=True),
        )


def test_language_model_data_check_reports_documents(run):
    found = inspected(read(run / "recipe.yaml"))
    assert "documents" in found
    assert "bytes" in found


INCREMENTAL = "incremental decoding = teacher forcing"


def _self_test(run: Path, overrides=(), names=None):
    found = open_run(run, overrides)
    return {result.name: result for result in self_test(found, load(found), "test", names=names).results}


@pytest.mark.parametrize("kind", ["transformer", "lstm", "mingru"])
def test_self_tests_pass_for_language_models(run, kind, tmp_path, monkeypatch):
    # texts of more than a window are read through several, the later ones from within the text
    changes = ["scoring.context=24", "scoring.stride=16"]
    if kind != "transformer":
        folder = tmp_path / kind
        sizes = [f"model={{kind: {kind}, width: 16, decoder_layers: 1}}"]
        train(read(run.parent / "tiny.yaml", [*sizes, f"run.dir={folder}"]), Console(quiet=True))
    else:
        folder = run
    found = _self_test(folder, changes)
    assert "log-probabilities" in found[INCREMENTAL].detail
    assert found.pop("beam search scores = teacher forcing").status == "not applicable"
    assert {result.status for result in found.values()} == {"pass"}


def _broken(monkeypatch, hook) -> None:
    build = LanguageModelTask.build

    def built(task, recipe, tokenizers):
        model = build(task, recipe, tokenizers)
        model.decoder.register_forward_hook(hook)
        return model

    monkeypatch.setattr(LanguageModelTask, "build", built)


def test_self_tests_find_a_language_model_that_looks_ahead(run, monkeypatch):
    _broken(monkeypatch, lambda module, given, out: (out[0] + 0.1 * out[0].flip(1), out[1]))
    assert _self_test(run, names=[INCREMENTAL])[INCREMENTAL].status == "fail"


def test_self_tests_find_a_language_model_state_that_ignores_select(run, monkeypatch):
    def stuck(module, given, out):
        there = type(out[1])
        kind = type("Stuck", (there,), {"select": lambda state, rows: state})
        return out[0], kind(**{field.name: getattr(out[1], field.name) for field in fields(there)})

    _broken(monkeypatch, stuck)
    assert _self_test(run, names=[INCREMENTAL])[INCREMENTAL].status == "fail"
