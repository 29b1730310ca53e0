"""Letters in, phones out: a vocabulary for each side, error rates, other test sets, and words of no known letter."""

import contextlib
import json
import random
import re
import sys
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from s2s.cli.main import main
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import UserError
from s2s.evaluation.metrics import scores
from s2s.run.inference import load
from s2s.run.init_from import open_pretrained
from s2s.run.tasks import read
from s2s.tasks.coverage import FILE, VocabularyCoverage
from s2s.tasks.translation.task import TASK
from s2s.training.checkpoint import Checkpoints, read_progress

PHONES = dict(zip("abdeginoprst", ["ɑ", "b", "d", "e", "ɡ", "iː", "n", "o", "p", "r", "ʃ", "t"], strict=True))
RECIPE = """
name: phones
data: {corpus: files, train: train.tsv, validation: valid.tsv, test: valid.tsv, source: "0", target: "1"}
tokenizer: {normalization: identity, source: {kind: char}, target: {kind: word}}
batches: {tokens: 300}
model: {kind: gru-attention, width: 16}
training: {updates: 30, warmup: 5, learning_rate: 0.01}
validation: {every: 6, metric: wer, keep_best: 9}
decoding: {beam: 1, max_ratio: 1.2}
device: {threads: 1}
"""

_SCORE = ("evaluate", "--hypotheses")


def _s2s(folder: Path, *words: str) -> tuple[int, str, str]:
    status = 0
    with contextlib.chdir(folder), mock.patch.object(sys, "argv", ["s2s", *words]):
        with CliRunner().isolation() as (out, err, _):
            try:
                main()
            except SystemExit as end:
                status = end.code
        return status, out.getvalue().decode(), err.getvalue().decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder, generator = tmp_path_factory.mktemp("phones"), random.Random(1)
    words = sorted({"".join(generator.choices(list(PHONES), k=generator.randint(2, 6))) for _ in range(300)})
    generator.shuffle(words)
    rows = [f"{word}\tˈ {' '.join(PHONES[letter] for letter in word)}\n" for word in words]
    (folder / "train.tsv").write_text("".join(rows[20:]))
    (folder / "valid.tsv").write_text("".join(rows[:20]))
    (folder / "phones.yaml").write_text(RECIPE)
    status, out, err = _s2s(folder, "train", "phones.yaml")
    assert status == 0, err
    assert "17 source tokens (char), 17 target tokens (word)" in out
    return folder


def test_tokenizer_of_each_side_is_in_recipe_checkpoint_and_manifest(folder):
    run = folder / "runs/phones"
    for place in (run, *Checkpoints(run).all()):
        recipe = read(place / "recipe.yaml")
        assert (recipe.tokenizer.source.kind, recipe.tokenizer.target.kind) == ("char", "word")
        # what a side leaves out is as above it
        assert {s.normalization for s in (recipe.tokenizer.source, recipe.tokenizer.target)} == {"identity"}
        assert (recipe.tokenizer.shared, recipe.model.tie) == (False, "target")
        source, target = (Tokenizer.load(place / "tokenizer", side) for side in ("source", "target"))
        assert (source.kind, target.kind) == ("char", "word")
    hashes = json.loads((run / "manifest.json").read_text())[0]["hashes"]
    assert (hashes["source_tokenizer"], hashes["target_tokenizer"]) == (source.digest, target.digest)
    assert source.digest != target.digest
    model = load(run).model
    assert source.size == target.size
    # as many pieces on both sides, and still no common table
    assert len({p.data_ptr() for p in model.parameters() if p.shape == (source.size, 16)}) == 2


def test_resume_refuses_a_changed_tokenizer_of_one_side(folder, tmp_path):
    place = folder / "runs/phones/tokenizer/source.json"
    kept = place.read_text()
    try:
        place.write_text(kept.replace("identity", "nfkc"))
        status, _, err = _s2s(folder, "train", "runs/phones", "--resume")
        assert (status, "source.json has changed" in err) == (2, True)
    finally:
        place.write_text(kept)
    assert _s2s(folder, "train", "runs/phones", "--resume")[0] == 0


def test_tie_all_is_refused_for_two_vocabularies(folder):
    with contextlib.chdir(folder):
        asked = read(Path("phones.yaml"), ["model.tie=all"])
    with pytest.raises(UserError, match=r"model\.tie: is all, but source and target(.|\n)*model\.tie: target"):
        TASK.check(asked)
    status, _, err = _s2s(folder, "train", "phones.yaml", "model.tie=all", "run.dir=none")
    assert (status, err.count("\n"), (folder / "none").exists()) == (2, 2, False)
    assert "model.tie" in err
    status, _, err = _s2s(folder, "train", "phones.yaml", "tokenizer.source.knd=word", "tokenizer.target.size=0")
    assert "tokenizer.source.knd: unknown key; did you mean kind?" in err
    assert "tokenizer.target.size: is 0" in err
    assert "shared is true" in _s2s(folder, "train", "phones.yaml", "tokenizer.shared=true")[2]
    status, _, err = _s2s(folder, "train", "phones.yaml", "tokenizer.target.size=4", "run.dir=none")
    assert "set tokenizer.target.size=5 or higher" in err


def test_best_checkpoint_has_the_lowest_error_rate(folder):
    checkpoints = Checkpoints(folder / "runs/phones")
    lines = [json.loads(line) for line in (folder / "runs/phones/metrics.jsonl").read_text().splitlines()]
    rates = {line["update"]: line["validation"]["wer"] for line in lines if "validation" in line}
    assert {"bleu", "chrf", "exact", "cer", "loss"} <= lines[-1]["validation"].keys()
    assert len(set(rates.values())) > 2
    assert rates[read_progress(checkpoints.best()).update] == min(rates.values())
    assert read_progress(checkpoints.last()).validation.value == rates[30]


def test_init_from_keeps_the_tokenizer_of_each_side(folder):
    done = _s2s(folder, "train", "phones.yaml", "init_from=runs/phones", "run.dir=again", "training.updates=6")
    assert done[0] == 0, done[2]
    recipe = read(folder / "again/recipe.yaml")
    assert (recipe.tokenizer.source.kind, recipe.tokenizer.target.kind) == ("char", "word")
    one, two = (Tokenizer.load(folder / run / "tokenizer", "source") for run in ("runs/phones", "again"))
    assert one.digest == two.digest


def test_evaluate_source_and_reference_files_equals_scoring_hypotheses(folder):
    rows = [line.split("\t") for line in (folder / "valid.tsv").read_text().splitlines()]
    (folder / "words.txt").write_text("".join(f"{word}\n" for word, _ in rows))
    (folder / "phones.txt").write_text("".join(f"{phones} \n" for _, phones in rows))
    before = {p.name for p in (folder / "runs/phones").glob("evaluation*")}
    pair = ("--source", "words.txt", "--reference", "phones.txt")
    status, out, err = _s2s(folder, "evaluate", "runs/phones", *pair)
    assert status == 0, err
    assert re.search(r"file-words\.txt-[0-9a-f]{8}: 20 sentences", out)
    new = {p.name for p in (folder / "runs/phones").glob("evaluation*")} - before
    (name,) = new
    assert re.fullmatch(r"evaluation-file-words\.txt-[0-9a-f]{8}\.json", name)
    found = json.loads((folder / "runs/phones" / name).read_text())
    usual = json.loads((folder / "runs/phones/evaluation-test.json").read_text())
    assert found["translations"] == usual["translations"]
    assert found["references"] == [f"{phones} " for _, phones in rows]
    # the same once more, by the files alone
    assert _s2s(folder, "translate", "runs/phones", "--input", "words.txt", "--output", "out.txt")[0] == 0
    status, out, err = _s2s(folder, *_SCORE, "out.txt", "--reference", "phones.txt", "--json", "scores.json")
    kept = json.loads((folder / "scores.json").read_text())["scores"][0]
    assert kept["scores"] == found["scores"]
    lines = (folder / "out.txt").read_text().splitlines()
    assert f"  {'WER':8} {scores(lines, found['references'])['wer'].value:6.2f}" in out
    assert kept["lines"] == 20


def test_evaluate_saves_scores_of_files_by_path(folder):
    run, found = folder / "runs/phones", []
    for place, count in (("a", 2), ("b", 3), ("a", 4)):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / "same.txt").write_text("ab\n" * count)
        (folder / place / "ref.txt").write_text("A B\n" * count)
        pair = ("--source", f"{place}/same.txt", "--reference", str(folder / place / "ref.txt"))
        status, _, err = _s2s(folder, "evaluate", "runs/phones", *pair)
        assert status == 0, err
        kept = (json.loads(path.read_text()) for path in run.glob("evaluation-file-same.txt-*.json"))
        found.append(sorted(len(each["sources"]) for each in kept))
    assert found == [[2], [2, 3], [3, 4]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*_SCORE, "ref"], "--reference FILE"),
        ([*_SCORE, "nothere", "--reference", "ref"], "no such file"),
        ([*_SCORE, "ref", "--reference", "empty"], "ref has 2 lines, empty has 0"),
        ([*_SCORE, "empty", "--reference", "empty2"], "has no lines"),
        ([*_SCORE, "ref", "--reference", "ref"], "given twice"),
        ([*_SCORE, "ref", "--reference", "ref", "--json", "no/where.json"], "there is no folder no"),
        (["evaluate", "runs/phones", "--source", "ref"], "--reference FILE"),
        (["evaluate", "runs/phones", "--source", "ref", "--reference", "nothere"], "no such file"),
        (["evaluate", "runs/phones", "--source", "ref", "--reference", "empty"], "empty has 0"),
        (
            ["evaluate", "runs/phones", "--split", "test", "--source", "ref", "--reference", "ref"],
            "--split: test is not scored, because --source replaces it",
        ),
    ],
)
def test_evaluate_reports_unscorable_input(folder, words, message):
    (folder / "ref").write_text("a\nb\n")
    for name in ("empty", "empty2"):
        (folder / name).write_text("")
    status, _, err = _s2s(folder, *words)
    assert (status, message in err, "Traceback" in err) == (2, True, False), err


def test_translate_reports_unseen_characters_once_per_file(folder):
    lines = ["abend", "", "straße", "ñññ", "gros"]
    (folder / "mixed.txt").write_text("".join(f"{line}\n" for line in lines))
    status, out, err = _s2s(folder, "translate", "runs/phones", "--input", "mixed.txt")
    assert (status, out.count("\n")) == (0, 5)
    # every test word is new, so words say nothing; ß and ñ were in no training word
    lines = [line for line in err.splitlines() if "not in the training text" in line]
    assert [line.partition(":")[0] for line in lines] == ["line 3", "line 4"]
    assert all(line.endswith("; the translation may be nonsense") for line in lines)
    (folder / "runs/phones/tokenizer" / FILE).rename(folder / "away")
    kept = [place.rename(f"{place}.away") for place in (folder / "runs/phones/checkpoints").glob(f"*/tokenizer/{FILE}")]
    assert kept
    try:
        # as with published weights
        status, again, err = _s2s(folder, "translate", "runs/phones", "--input", "mixed.txt")
        assert (status, again, err) == (0, out, "")
    finally:
        for place in kept:
            place.rename(str(place).removesuffix(".away"))


def test_translate_reports_a_line_longer_than_any_training_text(folder):
    longest = VocabularyCoverage.load(load(folder / "runs/phones").checkpoint / "tokenizer").longest
    (folder / "long.txt").write_text(f"abend\n\n{'abend' * longest}\n")
    status, out, err = _s2s(folder, "translate", "runs/phones", "--input", "long.txt")
    assert (status, out.count("\n")) == (0, 3)
    assert "\nline 3: " in f"\n{err}"
    assert f" tokens, the longest training text has {longest}; split it into sentences\n" in err, err


def test_coverage_names_out_of_vocabulary_words(folder):
    cut = load(folder / "runs/phones").tokenizers[0]
    words = frozenset({"the", "dog", "runs"})
    closed = VocabularyCoverage(frozenset(range(cut.size)), words, 99)
    assert closed.unknown("The dog RUNS.", cut) == ()
    assert closed.unknown("The (helicopter) runs!", cut) == ("helicopter",)
    # where a third of a validation sentence is new, a third is usual
    usual = VocabularyCoverage(frozenset(range(cut.size)), words, 99, 0.0, 1 / 3)
    assert usual.unknown("The helicopter runs!", cut) == ()
    assert closed.unknown("The dog RUNS on Helicopters.", cut) == ("on", "Helicopters")
    # of the words that have tokens without training, or of their characters where no spaces divide words
    seen = frozenset(i for i, shown in enumerate(cut.tokens(range(cut.size))) if not {"e", "n"} & {*shown[:2]})
    letters = VocabularyCoverage(seen - {UNK}, words, 99, new_words=1.0)
    assert letters.unknown("abend abba", cut) == ("abend",)
    assert letters.unknown("ab" * 19 + "enneb", cut) == ("enne",)
    assert letters.unknown("ab" * 19 + "文ennen", cut) == ("文", "ennen")


def test_coverage_file_is_not_taken_for_a_tokenizer(folder):
    one = ("tokenizer.source=null", "tokenizer.target=null", "tokenizer.shared=true", "tokenizer.kind=char")
    done = _s2s(folder, "train", "phones.yaml", *one, "run.dir=one", "training.updates=2", "training.warmup=1")
    assert done[0] == 0, done[2]
    assert (folder / "one/tokenizer" / FILE).exists()
    with contextlib.chdir(folder):
        source = open_pretrained(read(Path("phones.yaml"), ["init_from=one"]))
    assert source.tokenizers[0].digest == Tokenizer.load(folder / "one/tokenizer", "shared").digest
    assert read(folder / "one/recipe.yaml").model.tie == "all"


@pytest.mark.parametrize("text", ["[]", "5", '{"pieces": 5}', "[" * 100_000])
def test_coverage_file_that_is_damaged_is_reported(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UserError, match=r"seen.json(:1)?: (.|\n)*only warnings need it"):
        VocabularyCoverage.load(tmp_path)
