"""Checks of mixtures by `s2s data check`, in each corpus and between corpora."""

import re
from pathlib import Path
from typing import Any, cast

import datasets
import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.data.data_check import report_tokens
from s2s.data.mixing import MixedDataset, describe_mixture, rates
from s2s.data.pair_check import blocks, inspect
from s2s.data.pairs import load, pairs
from s2s.data.sources import Corpus
from s2s.data.tokenizers import train
from s2s.errors import UserError
from s2s.recipe.schema import PieceSettings
from s2s.run.tasks import inspected, read, task_of
from s2s.tasks.text_to_text.data import Mixture, TaskSource, build_training_mixture, own_keys
from s2s.tasks.text_to_text.recipe import CorpusSettings

RECIPE = """
name: mix
task: text-to-text
data:
  mixing: 2.0
  corpora:
    up: {prefix: "up: ", corpus: files, source: low, target: high, train: up.tsv, validation: few.tsv, test: held.tsv}
    sign: {prefix: "sign: ", metric: accuracy, answers: [plus, minus], corpus: files, source: text, target: sign,
           train: sign.tsv, validation: sign.tsv, test: null}
    gaps: {objective: span-corruption, metric: loss, corpus: files, source: low, train: up.tsv, validation: few.tsv,
           test: null}
tokenizer: {kind: word, size: 1000}
model: {kind: transformer}
"""


@pytest.fixture
def recipe(tmp_path) -> Path:
    def table(name: str, head: str, rows: list[tuple[str, str]]) -> None:
        (tmp_path / name).write_text(f"{head}\n" + "".join(f"{a}\t{b}\n" for a, b in rows))

    rows = [(f"low {n % 30}", f"HIGH {n % 30}") for n in range(60)]
    table("up.tsv", "low\thigh", [*rows, ("", "NOTHING"), ("word " * 300, "WORD " * 300)])
    table("few.tsv", "low\thigh", [("brand new", "BRAND NEW")])
    table("held.tsv", "low\thigh", [("low 3", "HIGH 3"), ("text 1", "TEXT 1")])
    table("sign.tsv", "text\tsign", [(f"text {n}", "minus" if n == 5 else "plus") for n in range(20)])
    (tmp_path / "mix.yaml").write_text(RECIPE)
    return tmp_path / "mix.yaml"


def _said(recipe: Path, *overrides: str) -> str:
    done = CliRunner().invoke(commands, ["data", "check", str(recipe), *overrides], standalone_mode=False)
    assert done.exception is None, done.exception
    return done.output


def test_mixture_inspection_reports_each_corpus_as_alone(recipe):
    settings = cast(Any, read(recipe)).data.corpora["up"]
    alone, whole = inspect(load(settings), settings, "nfkc"), _said(recipe)
    for block in blocks(alone):
        assert "\n".join(block) in whole
    for words in alone.advice:
        assert f"up: {own_keys(words, 'up')}" in whole
    assert "up: 1 pair of train with an empty side (row 61)" in whole


def test_mixture_inspection_reports_overlap_between_corpora(recipe):
    whole = _said(recipe)
    # each learns from a text that `up` is tested on
    assert "sign: 1 of its examples are held out by another corpus: left out" in whole
    assert "gaps: 2 of its examples are held out by another corpus: left out" in whole
    assert "up: 1 test source also occurs in train" in whole
    assert "have the same prefix" not in whole
    assert "up, sign have the same prefix 'up: '" in _said(recipe, 'data.corpora.sign.prefix="up: "')


def test_mixture_removes_held_out_examples_from_all_corpora():
    def rows(*found: tuple[str, str]) -> datasets.Dataset:
        return datasets.Dataset.from_list([{"source": source, "target": target} for source, target in found])

    train = {
        "there": rows(("one", "eins"), ("two", "zwei")),
        "back": rows(("eins", "one"), ("drei", "three"), ("vier", "four")),
        "again": rows(("drei", "THREE"), ("five", "FIVE"), ("six", "eins")),
        "gaps": rows(("eins", "eins"), ("three", "three"), ("seven", "seven")),
        "kind": rows(("one", "drei"), ("eight", "drei")),
    }
    validation = {"there": rows(("two", "zwei"), ("one", "eins")), "back": rows(("drei", "three"))}
    test = {"gaps": rows(("four", "four"))}
    settings = {name: CorpusSettings(corpus="files", source="a", target="b") for name in train}
    settings["kind"] = settings["kind"].model_copy(update={"answers": ("drei",)})
    found = build_training_mixture(settings, Corpus(Mixture(train), Mixture(validation), Mixture(test)))
    # what a corpus tests on itself is told by `data check`, as of any other; answers are no texts
    assert {name: list(pairs(each.kept)) for name, each in found.items()} == {
        "there": [("one", "eins"), ("two", "zwei")],
        "back": [("drei", "three")],
        "again": [("five", "FIVE"), ("six", "eins")],
        "gaps": [("seven", "seven")],
        "kind": [("eight", "drei")],
    }
    assert [each.elsewhere for each in found.values()] == [0, 2, 1, 2, 1]
    assert "2 of its examples are held out by another corpus: left out" in str(found["back"])


def test_mixture_inspection_examples_that_another_corpus_holds_out_are_not_prepared(recipe):
    asked, said = read(recipe), []
    data = task_of(asked).prepare(asked, (), said.append)
    assert len(data.train["sign"].source_lengths) == 19
    assert ("text 1", "plus") not in pairs(data.corpus.train.parts["sign"])
    assert any("sign" in line and "1 of its examples are held out by another corpus" in line for line in said)


def test_mixture_inspection_lengths_of_answers_and_copies_of_span_corruption_are_no_faults(recipe):
    rows = [f"{'word ' * (n % 7)}text {n}\t{'minus' if n % 2 else 'plus'}\n" for n in range(200)]
    (recipe.parent / "sign.tsv").write_text("text\tsign\n" + "".join(rows))
    asked = cast(Any, read(recipe)).data.corpora["sign"]
    advice = [words for words in inspect(load(asked), asked).advice if "hardly correlated" in words]
    whole = _said(recipe)
    assert "hardly correlated" not in whole
    assert not re.search(r"gaps: .* equal the source", whole)
    assert "of train are hardly correlated" in advice[0]


def test_mixture_inspection_counts_answers_and_reports_rare_ones(recipe):
    whole = _said(recipe)
    rows = {line[:28].strip(): line[28:].split() for line in whole.split("\n")}
    assert (rows["plus"], rows["minus"]) == (["19", "19"], ["1", "1"])
    assert "sign: minus is the answer 1 time, another one 19 times" in whole


def test_mixture_inspection_shares_are_those_of_the_formula_after_the_filters(recipe):
    whole, sizes = _said(recipe), [60, 19, 58]
    for name, size, share in zip(("up", "sign", "gaps"), sizes, rates(sizes, 2.0), strict=True):
        assert f"  {name}: {size} examples, drawn {share:.1%} of the time" in whole


def test_mixture_inspection_sizes_are_those_of_training_where_texts_are_cut_into_windows(recipe):
    words = [
        "batches.max_length=50",
        "data.corpora.up.filters.max_words=null",
        "data.corpora.gaps.filters.max_words=null",
    ]
    asked, whole = cast(Any, read(recipe, words)), _said(recipe, *words)
    data = task_of(asked).prepare(asked, (), print)
    mixed = MixedDataset(data.train, asked.batches, asked.data.mixing)
    # the long text of `up` is too long a pair, and seven windows for `gaps`
    assert mixed.sizes == [60, 19, 58 + 7]
    for line in describe_mixture(data.train, mixed.sizes, asked.data.mixing, None):
        assert line in whole
    assert re.search(r"examples above 50 +1 +0 +0\n", whole)
    assert "  - 1 example of train is longer than batches.max_length (50): left out" in whole


def test_mixture_inspection_reports_broken_rows_by_line(recipe):
    (recipe.parent / "up.tsv").write_text("low\thigh\na\tb\nonly one\n")
    with pytest.raises(UserError, match=r"up\.tsv:3"):
        inspected(read(recipe))


def test_mixture_inspection_target_that_is_no_answer_is_refused_with_its_line_when_it_is_read(recipe):
    asked = cast(Any, read(recipe))
    (recipe.parent / "sign.tsv").write_text("text\tsign\none\tplus\nnothing\t\ntwo\tmaybe\nthree\tno\n")
    with pytest.raises(UserError, match=r"sign\.tsv:4: (.|\n)*'maybe'.*plus, minus, and 1 more .*data.corpora.sign"):
        task_of(asked).source(asked).load()
    # an empty one is dropped from what is learned, and cannot be scored
    (recipe.parent / "sign.tsv").write_text("text\tsign\none\tplus\nnothing\t\n")
    with pytest.raises(UserError, match=r"sign\.tsv:3: (.|\n)*target is ''"):
        task_of(asked).source(asked).load_split("validation")
    for name in ("low", "high"):
        (recipe.parent / name).write_text("plus\nplus\nneither\n")
    aligned = {"root": str(recipe.parent), "train": ("low", "high")}
    sign = asked.data.corpora["sign"].model_copy(update=aligned)
    with pytest.raises(UserError, match="high:3: "):
        TaskSource(sign).load_split("train")


def test_mixture_inspection_prefix_that_a_taken_over_tokenizer_does_not_know_is_refused(recipe):
    asked = read(recipe)
    known = train(["up: low"], PieceSettings(kind="word", size=100), "text")
    with pytest.raises(UserError, match=r"data.corpora.sign.prefix: (.|\n)*does not know: 'sign: '"):
        task_of(asked).prepare(asked, (known,), print)


def test_mixture_inspection_pieces_are_counted_as_the_tokenizer_cuts():
    splits = {"train": ["a b c", "a b", "a"], "test": ["a x", "b y y", "a b c d e f"]}
    settings = PieceSettings(kind="word", size=100)
    found = report_tokens(splits, lambda: train(splits["train"], settings, "text"), 3)
    assert [found.splits["train"].tokens, found.splits["train"].longest] == [6, 3]
    assert found.splits["train"].too_long == 1  # its end makes four
    test = found.splits["test"]
    assert (test.tokens, test.unknown, test.new) == (11, 6, 0)
    assert any("54.5% of the tokens of test are unknown (6)" in words for words in found.advice())
    assert any("1 text of train has more than batches.max_length (3) tokens" in words for words in found.advice())
    spelt = report_tokens(splits, lambda: train(splits["train"], PieceSettings(kind="bytes"), "text"), None)
    # a byte for each character and the spaces between them: x, y, d, e, f never stood in train
    assert (spelt.splits["test"].unknown, spelt.splits["test"].new) == (0, 6)


def test_mixture_inspection_tokenizer_that_cannot_be_made_is_advice_and_no_end():
    few = ["a b", "b a"]
    found = report_tokens({"train": few}, lambda: train(few, PieceSettings(size=5), "text"), 10)
    (words,) = found.advice()
    assert words.startswith("tokenizer.size: ")
    assert found.rows() == {}
