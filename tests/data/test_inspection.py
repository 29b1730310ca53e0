import datasets
import pytest

from s2s.data.corpora import Corpus
from s2s.data.filters import filter_training
from s2s.data.inspection import inspect
from s2s.recipe.schema import FilterSettings

ROWS = [
    ("a dog runs", "ein Hund rennt"),
    ("", "leer"),
    ("  ", "leer"),
    ("voll", ""),
    ("a dog runs", "ein Hund rennt"),
    ("word " * 30, "wort " * 30),
    ("tiny", "ein sehr langer Satz, der nicht dazu passt und nie enden will, sondern immer weiter geht"),
    ("same", "same"),
    ("line\u2028end", "Zeile"),
]


def _dataset(rows) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": [s for s, _ in rows], "target": [t for _, t in rows]})


def test_the_ledger_counts_each_pair_once_under_the_first_rule_it_breaks():
    settings = FilterSettings(max_words=20, max_ratio=9, duplicates="drop")
    kept, ledger = filter_training(_dataset(ROWS), settings)
    assert ledger.dropped == {"empty": 3, "longer than max_words": 1, "over max_ratio": 1, "duplicates": 1}
    assert ledger.kept == len(kept) == 3
    assert sum(ledger.dropped.values()) + ledger.kept == len(ROWS)
    assert list(kept["source"]) == ["a dog runs", "same", "line\u2028end"]
    assert "3 empty" in str(ledger)


def test_without_rules_only_empty_sides_are_dropped():
    kept, ledger = filter_training(_dataset(ROWS), FilterSettings(max_words=None, max_ratio=None))
    assert len(kept) == len(ROWS) - 3
    assert ledger.dropped["duplicates"] == 0


@pytest.fixture
def found():
    test = _dataset([("a dog runs", "ein Hund rennt"), ("a dog runs", "es rennt"), ("new", "neu")])
    return inspect(Corpus(_dataset(ROWS), _dataset([("x", "y")]), test), FilterSettings())


def test_counts_are_those_of_the_rows(found):
    train = found.splits["train"]
    assert train.pairs == 9
    assert train.empty == [2, 3, 4]
    assert train.duplicates == 1
    assert train.copies == 1
    assert train.separators == {"U+2028": 1}
    assert train.words[0] == sum(len(source.split()) for source, _ in ROWS)
    assert sum(train.histogram[0]) == sum(train.histogram[1]) == 9


def test_the_most_unequal_pair_heads_the_outliers(found):
    assert found.splits["train"].outliers[0][1:3] == (7, "tiny")


def test_overlap_of_train_and_test_is_found_and_named(found):
    assert found.overlap == {"validation": (0, 0), "test": (1, 2)}
    assert any("2 sources of test also occur in train (1 with the same target)" in words for words in found.advice())
    assert "scores will flatter" in str(found)


def test_ten_pairs_are_shown_with_their_rows(found):
    assert len(found.spots) == 9
    assert all(ROWS[row - 1] == (source, target) for row, source, target in found.spots)
