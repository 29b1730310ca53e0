"""Checks of parallel corpora by `s2s data check`."""

import datasets
import pytest

from s2s.data.pair_check import inspect, render
from s2s.data.pairs import filter_training, load
from s2s.data.sources import Corpus
from s2s.recipe.pairs import FilterSettings
from s2s.tasks.translation.recipe import DataSettings

ROWS = [
    ("a dog runs", "ein Hund rennt"),
    ("", "leer, und so lang, dass es auffiele, wenn es mitgezählt würde"),
    ("  ", "leer"),
    ("voll", ""),
    ("a dog runs", "ein Hund rennt"),
    ("word " * 30, "wort " * 30),
    ("tiny", "ein sehr langer Satz, der nicht dazu passt und nie enden will, sondern immer weiter geht"),
    ("same", "same"),
    ("line\u2028end", "Zeile\x1b[31m"),
    ("", ""),
]
TEST = [("a dog runs", "ein Hund rennt"), ("a dog runs", "es rennt"), ("ein Hund rennt", "a dog runs"), ("new", "neu")]


def _dataset(rows) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": [s for s, _ in rows], "target": [t for _, t in rows]})


def _inspect(train, **settings):
    return inspect(Corpus(_dataset(train), _dataset([("x", "y")]), _dataset(TEST)), DataSettings(**settings))


def test_inspection_reports_normalization_of_targets_per_split():
    phones = _dataset([("k", "kʰ a"), ("cafe", "cafe\u0301 "), ("plain", " plain ")])
    corpus = Corpus(phones, _dataset([("x", "y")]), _dataset([("a  b", "a  b")]))
    advice = [words for words in inspect(corpus, DataSettings(), "nfkc").advice if "normalization" in words]
    assert len(advice) == 2
    assert "nfkc changes 2 targets, e.g. 'kʰ' to 'kh' in train" in advice[0]
    assert "changes 1 target, e.g. the white space of 'a  b' in test" in advice[1]
    assert not any("normalization" in words for words in inspect(corpus, DataSettings(), "identity").advice)


@pytest.fixture
def found():
    return _inspect(ROWS)


def test_inspection_counts_are_those_of_the_rows(found):
    train = found.splits["train"]
    assert train.pairs == len(ROWS)
    for side, texts in ((train.source, [s for s, _ in ROWS]), (train.target, [t for _, t in ROWS])):
        words = [text.split() for text in texts]
        assert side.words == sum(map(len, words))
        assert side.types == len({word for text in words for word in text})
        assert side.characters == len("".join(texts))
    # bins from 0, 1, 5, 10, 15, 20, 30, 50 and 100 words
    assert train.source.histogram == [3, 6, 0, 0, 0, 0, 1, 0, 0]
    assert train.target.histogram == [2, 5, 0, 1, 1, 0, 1, 0, 0]


def test_inspection_faulty_rows_are_named_by_their_numbers(found):
    train = found.splits["train"]
    assert train.empty == [2, 3, 4, 10]
    assert train.duplicates == [5]
    assert train.copies == [8]
    assert train.suspicious == {"line separator U+2028": [9]}
    assert any("4 pairs of train with an empty side (rows 2, 3, 4, 10)" in words for words in found.advice)
    assert any("1 row of train with a line separator U+2028 (row 9)" in words for words in found.advice)


def test_inspection_most_unequal_pair_heads_the_outliers(found):
    outliers = found.splits["train"].outliers
    assert outliers[0] == (7, *ROWS[6])
    assert not {row for row, _, _ in outliers} & {2, 4, 10}


def test_inspection_lengths_are_unequal_only_against_the_corpus_own_ratio():
    usual = [
        ("一二三四五六七八" * (1 + i % 5), "one two three four five six seven eight " * (1 + i % 5)) for i in range(50)
    ]
    odd = [("一二三四五六七八一二三四五六七八一二三四", "one two three four")]
    assert _inspect([*usual, *odd]).splits["train"].outliers[0] == (51, *odd[0])


def test_inspection_overlap_of_train_and_test_is_found_and_named(found):
    assert found.overlap == {"validation": (0, 0), "test": (1, 2)}
    assert any("2 test sources also occur in train, 1 with the same target" in words for words in found.advice)
    assert "scores will be too optimistic" in render(found)


def test_inspection_ledger_is_the_one_that_training_prints(found):
    assert found.filter_report == filter_training(_dataset(ROWS), FilterSettings())[1]
    assert all(line in render(found) for line in str(found.filter_report).split("\n"))
    strict = _inspect(ROWS, filters=FilterSettings(max_words=1))
    assert any("the filters drop 90% of train" in words for words in strict.advice)


def test_inspection_pairs_drawn_at_random_are_shown_with_their_rows():
    rows = [(f"source {i}", f"target {i}") for i in range(100)]
    found = _inspect(rows)
    assert len(found.spots) == len(set(found.spots)) == 10
    assert all(rows[row - 1] == (source, target) for row, source, target in found.spots)
    assert found.spots == _inspect(rows).spots
    assert found.spots != _inspect(rows, seed=2).spots


@pytest.mark.parametrize("shift", [0, 1])
def test_inspection_corpus_out_of_step_is_noticed_by_its_lengths(shift):
    corpus = load(DataSettings(train=600, validation=5, test=5))
    sources, targets = list(corpus.train["source"]), list(corpus.train["target"])
    train = _dataset(list(zip(sources, targets[shift:] + targets[:shift], strict=True)))
    shifted = inspect(Corpus(train, corpus.validation, None), DataSettings())
    assert (shifted.splits["train"].correlation < 0.5) == bool(shift)
    assert any("of train are hardly correlated" in words for words in shifted.advice) == bool(shift)
    assert list(shifted.splits) == ["train", "validation"]


def test_inspection_windows_line_ends_are_one_advice_and_not_a_suspicion_of_every_row():
    windows = _inspect([(f"a {i}\r", f"b {i}\r") for i in range(9)]).advice
    assert sum("carriage return" in words for words in windows) == 1
    assert any("most lines of train" in words and "dos2unix" in words for words in windows)
    one = _inspect([("a\r", "b"), *[(f"a {i}", f"b {i}") for i in range(9)]]).advice
    assert any("1 row of train with a carriage return (row 1)" in words for words in one)


def test_inspection_copies_and_duplicates_are_advice_only_when_there_are_many():
    many = _inspect([("a", "a"), ("b", "c"), ("b", "c")]).advice
    assert any("1 target of train equal the source" in words for words in many)
    assert any("1 repeated pair in train: data.filters.duplicates=drop" in words for words in many)
    few = _inspect([("a", "a"), ("b", "c"), ("b", "c"), *[(f"a {i}", f"b {i}") for i in range(60)]]).advice
    assert not any("source again" in words or "repeated" in words for words in few)


def test_inspection_sound_corpus_gets_no_advice():
    found = _inspect([(f"source {i}", f"target {i}") for i in range(100)])
    assert found.advice == []
    assert render(found).endswith("nothing suspicious found")


def test_inspection_shows_no_control_characters(found):
    shown = render(found)
    assert "line\\u2028end" in shown
    assert "Zeile\\x1b[31m" in shown
    assert all(character.isprintable() or character == "\n" for character in shown)
