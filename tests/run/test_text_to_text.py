"""Text to text through the real commands: train, resume, answer, evaluate; answers against the beam's own numbers."""

import json
import re
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from s2s.api import load as s2s_load
from s2s.cli.main import commands
from s2s.data.tokenizers import Tokenizer, train
from s2s.decoding.beam_search import Hypothesis
from s2s.decoding.generate import Candidate, TextTranslator, Translation
from s2s.errors import UserError
from s2s.evaluation.classification import classification_scores
from s2s.recipe.schema import MADE, PieceSettings
from s2s.run.inference import load
from s2s.tasks.base import EvaluationOptions
from s2s.tasks.coverage import VocabularyCoverage
from s2s.tasks.text_to_text import evaluation
from s2s.tasks.text_to_text.answers import best_first, check_apart, log_probabilities
from s2s.tasks.text_to_text.data import Mixture, MixtureSource, TaskSource, prepare
from s2s.tasks.text_to_text.recipe import CorpusSettings, MixtureSettings
from s2s.tasks.text_to_text.task import TextToTextTask
from s2s.training.checkpoint import read_progress
from s2s.training.progress import no_progress_bar
from s2s.training.validation import Validation

RECIPE = Path(__file__).parents[2] / "recipes" / "text_to_text.yaml"
TASKS = ("en-de", "de-en", "plural", "cases", "acceptable")
SMALL = [
    *("training.updates=4", "training.warmup=1", "validation.every=2", "tokenizer.size=400"),
    *("decoding.max_ratio=0.2", "decoding.max_extra=2", "batches.tokens=5000"),
    *("device.precision=fp32", "device.threads=1", "model.width=16", "model.heads=2", "model.feedforward=16"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "data.mixing=2", "training.schedule=constant"),
    *(f"data.corpora.{name}.{split}={size}" for name in TASKS for split, size in
      (("train", 40), ("validation", 4), ("test", 4))),
    *("data.corpora.words={objective: span-corruption, metric: loss, source: de, train: 60, validation: 6, test: 6}",),
]  # fmt: skip


def s2s(*words):
    # an override may be given only once: a test's own replaces that of SMALL
    last = {str(w).partition("=")[0]: str(w) for w in words if "=" in str(w)}
    words = [str(w) for w in words if "=" not in str(w) or last[str(w).partition("=")[0]] == str(w)]
    done = CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text_to_text") / "run"
    s2s("train", RECIPE, *SMALL, f"run.dir={folder}")
    return folder


def metrics(folder):
    entries = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in entry.items() if "seconds" not in key} for entry in entries]


def test_text_to_text_run_logs_every_task_and_their_mean(run):
    last = metrics(run)[-1]["validation"]
    own = [
        last["en-de/bleu"],
        last["de-en/bleu"],
        last["plural/exact"],
        last["cases/exact"],
        last["acceptable/macro_f1"],
    ]
    assert last["mean"] == pytest.approx(np.mean(own))
    assert {f"{name}/loss" for name in (*TASKS, "words")} <= set(last)
    kept = json.loads((run / "evaluation-test.json").read_text())
    assert [task["task"] for task in kept["tasks"]] == [*TASKS, "words"]
    assert set(kept["tasks"][4]["written"]) <= {"acceptable", "unacceptable"}


@pytest.mark.parametrize(("task", "metric"), [("plural", "wer"), ("words", "loss")])
def test_text_to_text_checkpoints_are_ranked_by_the_metric_of_a_task(tmp_path, task, metric):
    alone = ["training.updates=1", "validation.every=1", f"validation.metric={task}", "data.corpora.plural.metric=wer"]
    s2s("train", RECIPE, *SMALL, *alone, f"run.dir={tmp_path / 'run'}")
    (found,) = read_progress(tmp_path / "run/checkpoints/0000001").validations
    last = metrics(tmp_path / "run")[-1]["validation"]
    assert found == Validation(1, last[f"{task}/{metric}"], last["loss"], lower_is_better=True)


@pytest.mark.slow
def test_text_to_text_resume_beyond_an_epoch_is_bit_identical(run, tmp_path):
    s2s("train", RECIPE, *SMALL, "training.updates=2", f"run.dir={tmp_path / 'b'}")
    s2s("train", tmp_path / "b", "--resume", "training.updates=4")
    assert metrics(tmp_path / "b") == metrics(run)
    place = json.loads((run / "checkpoints" / "0000004" / "state.json").read_text())
    assert place["epoch"] > 0
    files = [folder / "checkpoints" / "0000004" / "model.safetensors" for folder in (run, tmp_path / "b")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_answer_log_probabilities_equal_those_of_beam_search(run):
    loaded = load(run)
    sources = ["acceptable: Der Mann schläft.", "plural: Der alte Hund sieht die Frau heute."]
    wide = loaded.recipe.decoding.model_copy(update={"beam": 4})
    (tokenizer,) = loaded.tokenizers
    beams = list(TextTranslator(loaded.model, tokenizer, tokenizer, wide, 4).translate(sources))
    for source, beam in zip(sources, beams, strict=True):
        for candidate in beam.candidates:
            hypothesis = candidate.hypothesis
            if hypothesis.cut or tokenizer.encode(candidate.text) != list(hypothesis.tokens):
                continue
            (found,) = log_probabilities(loaded.model, tokenizer, [source], [candidate.text], 8)[0].tolist()
            assert found == pytest.approx(hypothesis.log_probability, abs=1e-4)


def test_answer_log_probabilities_equal_teacher_forcing_for_any_batch(run):
    loaded = load(run)
    (tokenizer,) = loaded.tokenizers
    sources = ["acceptable: Der Mann schläft.", "acceptable: Heute kauft die Frau den alten Hund.", "acceptable: Ja."]
    answers = ("acceptable", "unacceptable", "perhaps it is so")
    found = log_probabilities(loaded.model, tokenizer, sources, answers, 8)
    for row, source in enumerate(sources):
        for column, answer in enumerate(answers):
            target = torch.tensor([[1, *tokenizer.encode(answer), 2]])
            read = torch.tensor([[*tokenizer.encode(source), 2]])
            scores = loaded.model.logits(read, torch.ones_like(read, dtype=torch.bool), target[:, :-1]).log_softmax(2)
            wanted = scores[0].gather(1, target[0, 1:, None]).sum().item()
            assert found[row, column] == pytest.approx(wanted, abs=1e-4)
    np.testing.assert_allclose(log_probabilities(loaded.model, tokenizer, sources, answers, 1), found, atol=1e-4)


def test_translate_command_chooses_answers_of_a_task(run, tmp_path):
    (tmp_path / "in.txt").write_text("Der Mann schläft.\n\nDem Mann schläft.\n", encoding="utf-8")
    lines = s2s("translate", run, "--task", "acceptable", "--input", tmp_path / "in.txt").split("\n")
    assert lines[1] == ""
    assert {lines[0], lines[2]} <= {"acceptable", "unacceptable"}
    best = s2s("translate", run, "--task", "acceptable", "--nbest", 2, "--input", tmp_path / "in.txt")
    rows = [line.split("\t") for line in best.strip().split("\n")]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert rows[0][2] == lines[0]
    assert float(rows[0][1]) > float(rows[1][1])
    asked, silent_to = ("--task", "acceptable"), "has no effect on a task with given answers"
    for words, said in (
        ((), "no task is named"),
        (("--task", "words"), "no task of this run"),
        (("--task", ""), "'' is no task of this run"),
        ((*asked, "--beam", 2), f"--beam 2: {silent_to}"),
        ((*asked, "--length-penalty", 1), f"--length-penalty 1.0: {silent_to}"),
        ((*asked, "--precision", "fp32"), f"--precision fp32: {silent_to}"),
        ((*asked, "--forced-prefix", tmp_path / "in.txt"), f"--forced-prefix .*in.txt: {silent_to}"),
        ((*asked, "--nbest", 3), "3 best answers requested, but there are 2"),
    ):
        with pytest.raises(UserError, match=said):
            s2s("translate", run, *words)


def test_translate_command_warns_about_unknown_words_before_it_chooses_answers(run):
    words = ["translate", str(run), "--task", "acceptable", "Zylophone quaken xenophil.", "Der Mann schläft."]
    found = CliRunner().invoke(commands, words)
    assert re.fullmatch(r"line 1: not in the training text: '.*; the answer may be nonsense\n", found.stderr)


def test_text_to_text_outputs_begin_with_forced_prefixes(run, tmp_path):
    (tmp_path / "in.txt").write_text("Der Mann\n\nDer Hund\n", encoding="utf-8")
    (tmp_path / "begins.txt").write_text("Die Hunde\n\n\n", encoding="utf-8")
    words = ("translate", run, "--task", "plural", "--input", tmp_path / "in.txt")
    free = s2s(*words).split("\n")
    forced = s2s(*words, "--forced-prefix", tmp_path / "begins.txt").split("\n")
    assert forced[0].startswith("Die Hunde")
    assert forced[1:3] == free[1:3]


def test_candidates_of_a_task_with_answers_are_limited(run):
    model = s2s_load(run)
    (found,) = model.candidates(["Der Mann schläft."], nbest=2, task="acceptable")
    assert sorted(candidate.text for candidate in found) == ["acceptable", "unacceptable"]
    for asked, said in (
        *(({"nbest": number}, f"{number} best answers requested, but there are 2") for number in (-1, 0, 3)),
        ({"beam": 4}, "beam 4: has no effect on a task with given answers"),
    ):
        with pytest.raises(UserError, match=said):
            model.candidates(["Der Mann schläft."], task="acceptable", **asked)


@pytest.mark.slow
def test_text_to_text_validation_and_evaluation_agree_with_the_command(run, tmp_path, monkeypatch):
    computed, cut, beginning = [], [], []
    begin, encode, scores = TextToTextTask.on_train_start, Tokenizer.encode_batch, evaluation.scores
    monkeypatch.setattr(evaluation, "scores", lambda *given, **named: computed.append(given) or scores(*given, **named))
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda own, t: cut.extend(t * len(beginning)) or encode(own, t))
    monkeypatch.setattr(
        TextToTextTask, "on_train_start", lambda *g: beginning.append(1) or begin(*g) or beginning.clear()
    )
    s2s("train", RECIPE, *SMALL, f"run.dir={tmp_path / 'again'}")
    # validations compute no interval, only the test does, of the four tasks that write text
    assert len(computed) == 4
    kept = json.loads((tmp_path / "again" / "evaluation-test.json").read_text())
    for task in kept["tasks"]:
        assert (task["texts"] is None) == (task["task"] in ("acceptable", "words"))
        if task["texts"]:
            assert task["value"] == task["texts"][task["metric"]]["value"]
    # what training learned from is not cut again to note what it held
    loaded = load(run)
    (tokenizer,) = loaded.tokenizers
    corpora = loaded.recipe.data.corpora
    assert 0 < len(cut) <= sum(6 if name == "words" else 4 for name in corpora) + len(corpora)
    learned = prepare(loaded.recipe, tokenizer, lambda told: None)
    texts = {name: list(part["source"]) for name, part in learned.corpus.train.parts.items()}
    pieces = {n for name, some in texts.items() for text in some for n in tokenizer.encode(corpora[name].prefix + text)}
    assert VocabularyCoverage.load(run / "tokenizer").pieces == pieces
    # a source without text has no prefix, either
    lines = ["Der Mann schläft.", "", "Der Hund"]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    part = datasets.Dataset.from_dict({"source": lines, "target": ["a", "b", "c"]})
    found = evaluation.score_task(loaded, "plural", corpora["plural"], part, no_progress_bar, 0.0)
    words = ["translate", str(run), "--task", "plural", "--input", str(tmp_path / "in.txt")]
    done = CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
    assert done.stdout.split("\n")[:-1] == found.written
    assert done.stderr == f"{found.length_limited}\n"
    assert found.written[1] == ""


@pytest.mark.slow
def test_text_to_text_init_from_all_parts_loads_the_decoder(run, tmp_path):
    alone = [word for word in SMALL if ".words=" not in word]
    s2s("train", RECIPE, *alone, f"init_from={run}", "init.parts=all", f"run.dir={tmp_path / 'fine'}")
    taken = json.loads((tmp_path / "fine" / "init_from.json").read_text())
    assert any(name.startswith("decoder.") for name in taken["loaded"])
    assert taken["new"] == []
    assert all("400 of 500 rows" in rows for rows in taken["partly"].values())
    assert taken["partly"]


FILES = """
name: files
task: text-to-text
data:
  corpora:
    one: {corpus: files, train: one.tsv, validation: 5, test: 5, source: a, target: b}
    two: {corpus: files, train: two.tsv, validation: few.tsv, test: few.tsv, source: a, target: b}
tokenizer: {kind: word, size: 60}
model: {kind: transformer, width: 16, heads: 2, feedforward: 16, encoder_layers: 1, decoder_layers: 1}
training: {updates: 2, warmup: 1}
validation: {every: 2}
decoding: {max_ratio: 0.1, max_extra: 1}
"""


def test_text_to_text_held_out_sets_are_checked_per_corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, count in (("one", 40), ("two", 30), ("few", 3), ("other", 4)):
        rows = [f"{name} {n}\tw{n % 7}" for n in range(count)]
        (tmp_path / f"{name}.tsv").write_text("a\tb\n" + "\n".join(rows) + "\n")
    (tmp_path / "files.yaml").write_text(FILES)
    s2s("train", "files.yaml")
    manifest = json.loads(Path("runs/files/manifest.json").read_text())
    held = [name for name in manifest[0]["hashes"] if name.startswith("held_out")]
    assert held == ["held_out_validation.one", "held_out_test.one"]
    s2s("evaluate", "runs/files")
    # another test set of the one corpus changes nothing of what the other one holds out
    assert "two: exact" in s2s("evaluate", "runs/files", "data.corpora.two.test=other.tsv")
    for override in ("data.corpora.one.seed=2", "data.corpora.one.test=6", "data.corpora.two.test=3"):
        with pytest.raises(UserError, match="drawn from the training data"):
            s2s("evaluate", "runs/files", override)


def test_answers_are_learned_without_the_spaces_around_them(tmp_path):
    rows = "".join(f"text {n},{('pos', 'neg ', ' neg')[n % 3]}\n" for n in range(30))
    (tmp_path / "c.csv").write_text("text,label\n" + rows)
    settings = CorpusSettings(
        corpus="files",
        train=str(tmp_path / "c.csv"),
        validation=5,
        test=5,
        source="text",
        target="label",
        answers=("pos", "neg"),
        metric="accuracy",
    )
    corpus = TaskSource(settings).load()
    assert {target for part in corpus.splits().values() for target in part["target"]} == {"pos", "neg"}
    unchanged = settings.model_copy(update={"answers": ()})
    assert "neg " in TaskSource(unchanged).load().train["target"]


def test_changed_validation_set_is_refused_on_resume(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, count in (("one", 40), ("two", 30), ("few", 3)):
        rows = [f"{name} {n}\tw{n % 7}" for n in range(count)]
        (tmp_path / f"{name}.tsv").write_text("a\tb\n" + "\n".join(rows) + "\n")
    (tmp_path / "files.yaml").write_text(FILES)
    s2s("train", "files.yaml")
    (tmp_path / "few.tsv").write_text("a\tb\nother\tw1\n")
    with pytest.raises(UserError, match="validation changed since the run was started"):
        s2s("train", "runs/files", "--resume", "training.updates=4")


@pytest.mark.parametrize("corpus", MADE)
def test_generated_corpus_removes_nothing_from_others(corpus):
    made = CorpusSettings(corpus=corpus, train=30, validation=4, test=5)
    settings = MixtureSettings(corpora={"made": made})
    assert (settings.validation, settings.test) == ("validation", "test")
    part = MixtureSource(settings).load_split("test")
    assert part is not None
    assert len(part) == 5
    assert MixtureSource(settings).held_out("test", part) == {}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.corpora.plural.metric=accuracy", "accuracy and macro_f1 are of tasks with answers"),
        ("data.corpora.plural.prefx=x", "data.corpora.plural.prefx: unknown key; did you mean prefix"),
        ("data.corpora.plural.train=-1", "data.corpora.plural.train: is -1"),
        ("validation.metric=plurl", "expected one of mean, loss"),
        ("data.mixing=0.5", "data.mixing: is 0.5"),
        ("data.corpora.plural.target=cases", "which has other sentences than singular"),
        ("data.corpora.acceptable.answers=[yes, no]", "none of the answers"),
    ],
)
def test_text_to_text_recipe_mistakes_are_reported(override, said, tmp_path):
    with pytest.raises(UserError, match=said):
        s2s("train", RECIPE, *SMALL, override, f"run.dir={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("part", "longest"), [("encoder", 86), ("decoder", 81)])
def test_text_to_text_test_set_beyond_the_learned_positions_is_refused(part, longest, tmp_path):
    # 76 are enough for each validation sentence
    changes = [f"model.{part}_positions=learned", "model.max_positions=76", "batches.max_length=76"]
    changes += ["data.corpora.en-de.test=60", "data.corpora.de-en.test=60"]
    with pytest.raises(UserError, match=f"has 76 positions, but the longest test sentence has {longest} tokens"):
        s2s("train", RECIPE, *SMALL, *changes, f"run.dir={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


def test_text_to_text_answers_with_equal_tokens_are_refused(tmp_path):
    answers = "data.corpora.acceptable.answers=[acceptable, unacceptable, Acceptable]"
    with pytest.raises(UserError, match=r"acceptable\.answers: 'acceptable' and 'Acceptable' have the same tokens"):
        s2s("train", RECIPE, *SMALL, answers, "tokenizer.lowercase=true", f"run.dir={tmp_path / 'run'}")
    words = train(["a yes and a no"] * 9, PieceSettings(kind="word", size=9), "text")
    with pytest.raises(UserError, match="answers: 'nope' has a token that the tokenizer does not know"):
        check_apart(("yes", "nope"), words, "answers")


def test_answer_ties_give_the_first():
    assert best_first([-2.0, -1.0, -1.0], ("a", "b", "c")) == [(-1.0, "b"), (-1.0, "c"), (-2.0, "a")]


@pytest.mark.slow
def test_lowercase_model_is_scored_case_insensitively(tmp_path):
    corpora = "data.corpora={copy: {source: en, target: en, train: 40, validation: 4, test: 4, metric: exact}}"
    overrides = [each for each in SMALL if not each.startswith("data.corpora")]
    small, both = (tmp_path / name for name in ("small", "both"))
    for folder, lowercase in ((small, "true"), (both, "false")):
        s2s("train", RECIPE, *overrides, corpora, f"tokenizer.lowercase={lowercase}", f"run.dir={folder}")
    (score,) = evaluated(small, ["the dog sleeps", "x"], ["The dog sleeps", "X"])
    assert score.value == 100
    assert score.texts["exact"].value == 100
    (score,) = evaluated(both, ["the dog sleeps", "x"], ["The dog sleeps", "X"])
    assert score.value == 0
    assert "lower-cased" in s2s("evaluate", small, both).splitlines()[0]


def evaluated(folder, written, wanted):
    """The scores of a run that writes this."""
    run = load(folder)
    part = Mixture({"copy": datasets.Dataset.from_dict({"source": wanted, "target": wanted})})
    with pytest.MonkeyPatch.context() as patch:
        nothing = Hypothesis((), 0.0, 0.0, False)
        found = [Translation((Candidate(text, 0.0, nothing),)) for text in written]
        patch.setattr(TextTranslator, "translate", lambda self, lines, advance=None: iter(found))
        return TextToTextTask().evaluate(run, part, EvaluationOptions("test"), no_progress_bar).tasks


def test_diagnose_tests_the_beam_search_of_text_to_text(run):
    done = s2s("diagnose", run, "--only", "self-tests")
    assert "hypotheses: of the search, and by teacher forcing" in done
    assert "self-tests: 7 pass" in done


@pytest.mark.parametrize(
    "change",
    [
        *("data.mixing=size", "data.corpora.plural.weight=3", "data.corpora.plural.metric=chrf"),
        *("data.corpora.words.share=0.6", "data.corpora.words.span=20", "data.corpora.words.prefix='sort: '"),
    ],
)
def test_text_to_text_resume_refuses_another_mixture(run, change):
    key = change.partition("=")[0]
    with pytest.raises(UserError, match=f"{key} was .* in training"):
        s2s("train", run, "--resume", change)


@pytest.mark.parametrize("answers", [None, ("Yes", "No", "Maybe")])
def test_runs_with_other_answers_are_compared_by_accuracy(answers):
    truth, written = ["Yes", "No", "No", "Yes"], ["Yes", "No", "No", "Maybe" if answers else "yes yes"]
    numbers = np.array([0, 1, 1, 1])
    classes = classification_scores(numbers, np.eye(2)[numbers], ("Yes", "No"))
    first = evaluation_of("first", ["No"] * 4, truth, classes)
    second = evaluation_of("second", written, truth, classes if answers else None)
    one, two = evaluation.TextToTextEvaluation.compare([first, second])
    assert (one.found.accuracy.value, two.found.accuracy.value) == (50, 75)
    lower = evaluation_of("lower", list(map(str.lower, written)), truth, None, lowercase=True)
    assert evaluation.TextToTextEvaluation.compare([first, lower])[1].found.accuracy.value == 75


def evaluation_of(run, written, wanted, classes, lowercase=False):
    task = evaluation.TaskScore("q", "accuracy", 0.0, ["a", "b", "c", "d"], wanted, written, classes=classes)
    return evaluation.TextToTextEvaluation(run, "1", "test", 1, lowercase, None, [task])
