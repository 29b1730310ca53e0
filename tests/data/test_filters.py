"""Filters of pairs by length, ratio and copies."""

import datasets

from s2s.data.pairs import FilterReport, filter_training, later_copies
from s2s.recipe.pairs import FilterSettings

ROWS = [
    ("a dog runs", "ein Hund rennt"),
    ("", "leer"),
    (" \u2003 ", "leer"),
    ("voll", "\t"),
    ("", ""),
    ("a dog runs", "ein Hund rennt"),
    ("a dog runs", "der Hund rennt"),
    ("word " * 21, "wort"),
    ("wort", "word " * 21),
    ("tiny", "ein sehr langer Satz, der nicht dazu passt und doch nicht ganz"),
    ("same", "same"),
    ("a dog runs", "ein Hund rennt"),
    ("", "leer"),
]


def _dataset(rows) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": [s for s, _ in rows], "target": [t for _, t in rows]})


def _pairs(dataset) -> list[tuple[str, str]]:
    return list(zip(dataset["source"], dataset["target"], strict=True))


def test_filters_ledger_counts_each_pair_once_under_the_first_rule_it_breaks():
    kept, filter_report = filter_training(_dataset(ROWS), FilterSettings(max_words=20, max_ratio=9, duplicates="drop"))
    dropped = {"empty source": 4, "empty target": 1, "over max_words": 2, "over max_ratio": 1, "duplicate": 2}
    assert filter_report == FilterReport(dropped, kept=3)
    assert list(filter_report.dropped) == list(dropped)
    assert sum(filter_report.dropped.values()) + filter_report.kept == len(ROWS)
    assert _pairs(kept) == [ROWS[0], ROWS[6], ROWS[10]]


def test_filters_without_rules_only_empty_sides_are_dropped():
    kept, filter_report = filter_training(_dataset(ROWS), FilterSettings(max_words=None, max_ratio=None))
    assert filter_report == FilterReport({"empty source": 4, "empty target": 1}, kept=8)
    assert _pairs(kept) == [(s, t) for s, t in ROWS if s.strip() and t.strip()]


def test_filters_limits_themselves_are_kept():
    words = ("word " * 20, "wort " * 20)
    unequal = ("x" * 10, "y" * 90)
    short = ("x", "y" * 19)
    settings = FilterSettings(max_words=20, max_ratio=9.0)
    assert len(filter_training(_dataset([words, unequal, short]), settings)[0]) == 3
    over = [(f"{words[0]} word", words[1]), ("x" * 10, "y" * 91), ("y" * 20, "x")]
    assert filter_training(_dataset(over), settings)[1].dropped["over max_ratio"] == 2
    assert len(filter_training(_dataset(over), settings)[0]) == 0


def test_filters_corpus_without_faults_is_left_as_it_is():
    dataset = _dataset([("a", "b"), ("c", "d")])
    kept, filter_report = filter_training(dataset, FilterSettings())
    assert kept is dataset
    assert str(filter_report) == "2 training pairs, none dropped by the filters"


def test_copies_are_rows_whose_pair_occurs_earlier():
    rows = [(str(i % 7), str(i % 3)) for i in range(25_000)]
    earlier: set[tuple[str, str]] = set()
    expected = [i for i, pair in enumerate(rows) if pair in earlier or earlier.add(pair)]
    assert later_copies(_dataset(rows)).tolist() == expected
