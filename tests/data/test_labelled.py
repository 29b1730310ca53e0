"""Labelled texts are the same from every kind of table and from the hub."""

import csv
import gzip
import io
import json
from pathlib import Path

import datasets
import numpy as np
import pytest

from s2s.data.labels import count_classes
from s2s.data.sources import Corpus
from s2s.errors import UserError
from s2s.tasks.classification.data import LabelledSource
from s2s.tasks.classification.recipe import LabelledSettings, LocalColumns

CLASSES = ("World", "Sports", "Business")
ROWS = [
    ("Peace", "talks\u2028resume", 0),
    ("", "A striker scores", 1),
    ("Stocks", "fall \x85 again", 2),
    ("Votes", "", 0),
]
WANTED = ["Peace talks\u2028resume", "A striker scores", "Stocks fall \x85 again", "Votes"]


def _table(kind: str, rows, label=lambda number: CLASSES[number]) -> bytes:
    names = ("label", "title", "text")
    cells = [(label(number), title, text) for title, text, number in rows]
    if kind == ".tsv":
        return "".join("\t".join(map(str, row)) + "\n" for row in [names, *cells]).encode()
    if kind == ".jsonl":
        return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in cells).encode()
    if kind == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text).writerows([names, *cells])
        return text.getvalue().encode()
    buffer = io.BytesIO()
    columns = dict(zip(names, map(list, zip(*cells, strict=True)), strict=True))
    datasets.Dataset.from_dict(columns).to_parquet(buffer)
    return buffer.getvalue()


def _settings(path: Path, **changes) -> LabelledSettings:
    given = {"train": str(path), "validation": str(path), "test": None, "text": ("title", "text")}
    return LabelledSettings.model_validate(given | changes)


def _is(found: Corpus, texts: list[str] = WANTED) -> bool:
    return list(found.train.texts["text"]) == texts and found.train.labels.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl", ".parquet"])
def test_labelled_every_table_gives_the_same_texts_and_classes(tmp_path, kind, packed):
    for name, label in (
        ("names", lambda number: CLASSES[number]),
        ("from0", lambda number: number),
        ("from1", lambda number: number + 1),
    ):
        data = _table(kind, ROWS, label)
        path = tmp_path / f"{name}{kind}{'.gz' * packed}"
        path.write_bytes(gzip.compress(data) if packed else data)
        first = 1 if name == "from1" else 0
        found = LabelledSource(_settings(path, classes=CLASSES, first_label=first)).load()
        assert _is(found)
        assert found.train.names == CLASSES
    assert found.train.counts() == {"World": 2, "Sports": 1, "Business": 1}


def test_labelled_table_without_a_header_is_read_by_position(tmp_path):
    (tmp_path / "a.tsv").write_bytes(_table(".tsv", ROWS).split(b"\n", 1)[1])
    assert _is(LabelledSource(_settings(tmp_path / "a.tsv", classes=CLASSES, text=("1", "2"), label="0")).load())


def test_labelled_classes_that_are_not_declared_are_the_sorted_labels_of_the_training_data(tmp_path):
    (tmp_path / "names.tsv").write_bytes(_table(".tsv", ROWS))
    found = LabelledSource(_settings(tmp_path / "names.tsv")).load()
    assert found.train.names == ("Business", "Sports", "World")
    assert found.train.labels.tolist() == [2, 1, 0, 2]
    # numbers in their own order, not that of words
    (tmp_path / "numbers.tsv").write_bytes(_table(".tsv", ROWS, lambda number: (10, 9, 100)[number]))
    found = LabelledSource(_settings(tmp_path / "numbers.tsv")).load()
    assert (found.train.names, found.train.labels.tolist()) == (("9", "10", "100"), [1, 0, 2, 1])
    # the names of classes that are numbers are no numbers of classes
    assert _settings(tmp_path / "numbers.tsv", classes=("9", "10", "100")).first_label == 0
    again = LabelledSource(_settings(tmp_path / "numbers.tsv", classes=("9", "10", "100"))).load()
    assert again.train.labels.tolist() == found.train.labels.tolist()


WRONG = {
    ".tsv": "wrong.tsv:4: label",
    ".csv": "wrong.csv:5: label",
    ".jsonl": "wrong.jsonl:3: label",
    ".parquet": "wrong.parquet row 3: label",
}


@pytest.mark.parametrize("kind", WRONG)
def test_label_outside_the_classes_is_named_with_its_file_and_line(tmp_path, kind):
    rows = [*ROWS[:2], ("New", "one", 3), *ROWS[2:]]
    if kind == ".csv":
        rows[0] = ("Two", "lines\nof text", 0)
    good, wrong = tmp_path / f"good{kind}", tmp_path / f"wrong{kind}"
    good.write_bytes(_table(kind, ROWS))
    wrong.write_bytes(_table(kind, rows, lambda number: (*CLASSES, "Sport")[number]))
    for settings in (
        _settings(wrong, classes=CLASSES),
        _settings(good, classes=CLASSES, test=str(wrong)),
        _settings(good, validation=str(wrong)),
    ):
        with pytest.raises(UserError) as caught:
            LabelledSource(settings).load()
        message = str(caught.value)
        assert f"{WRONG[kind]} 'Sport' is none of the classes" in message
        assert "did you mean Sports?" in message


@pytest.mark.parametrize("kind", [".tsv", ".parquet"])
@pytest.mark.parametrize(
    ("label", "words"),
    [("", "has no label"), ("Sports ", "'Sports ' has surrounding"), ("Sports\r", r"'Sports\\r'(.|\n)*dos2unix")],
)
def test_label_that_cannot_be_seen_is_refused_with_its_line(tmp_path, kind, label, words):
    path = tmp_path / f"a{kind}"
    path.write_bytes(_table(kind, ROWS, lambda number: label if number == 2 else CLASSES[number]))
    with pytest.raises(UserError, match=f"{'a.parquet row 3' if kind == '.parquet' else 'a.tsv:4'}: (.|\n)*{words}"):
        LabelledSource(_settings(path)).load()


@pytest.mark.parametrize(("first", "wrong"), [(0, 3), (1, 0), (1, 4)])
def test_labelled_number_outside_the_classes_is_named_with_the_numbers_there_are(tmp_path, first, wrong):
    rows = [*ROWS, ("New", "one", wrong - first)]
    (tmp_path / "a.jsonl").write_bytes(_table(".jsonl", rows, lambda number: number + first))
    with pytest.raises(UserError, match=rf"a.jsonl:5: label '{wrong}' .* as a number from {first} to {first + 2}"):
        LabelledSource(_settings(tmp_path / "a.jsonl", classes=CLASSES, first_label=first)).load()


def test_labelled_message_about_an_unknown_label_offers_no_numbers_where_names_are_numbers(tmp_path):
    for name, labels in (("train", "1 2 3"), ("test", "1 2 4")):
        rows = "".join(f"text {label}\t{label}\n" for label in labels.split())
        (tmp_path / f"{name}.tsv").write_text(f"title\tkind\n{rows}")
    settings = {"train": str(tmp_path / "train.tsv"), "validation": 1, "test": str(tmp_path / "test.tsv")}
    settings |= {"text": "title", "label": "kind"}
    with pytest.raises(UserError, match=r"label '4' is none of the classes 1, 2, 3\n"):
        LabelledSource(LabelledSettings.model_validate(settings)).load()


def test_labelled_labels_that_look_alike_are_two_classes_only_where_they_are_declared(tmp_path):
    labels = ("caf\u00e9", "cafe\u0301")
    rows = "".join(f"text {n}\t{labels[n % 2]}\n" for n in range(4))
    (tmp_path / "a.tsv").write_text(f"title\tkind\n{rows}", encoding="utf-8")
    settings = {"train": str(tmp_path / "a.tsv"), "validation": 1, "test": None, "text": "title", "label": "kind"}
    with pytest.raises(UserError, match=r"differ in their characters: 'caf\\xe9' and 'cafe\\u0301'"):
        LabelledSource(LabelledSettings.model_validate(settings)).load()
    known = LabelledSettings.model_validate(settings | {"classes": labels})
    assert LabelledSource(known).load().train.names == labels


MISTAKES = {
    "column": ({"text": "titel"}, r"a.tsv:1: no column 'titel'(.|\n)*did you mean 'title'|did you mean title"),
    "label column": ({"label": "class"}, r"no column 'class'(.|\n)*data.text and data.label"),
    "one class": ({"label": "same"}, r"data.label: the label column has only one class, 'x'"),
    "no table": ({"train": "a.doc"}, r"data.train: .*a.doc: is no table"),
    "no file": ({"train": "b.tsv"}, r"data.train: b.tsv: no such file"),
    "no validation": ({"validation": 9}, r"data.validation: 9: 9 texts to hold out of 4 leave no"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_labelled_every_mistake_is_named(tmp_path, case, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["label\ttitle\ttext\tsame", *(f"{n}\t{title}\t{text}\tx" for title, text, n in ROWS)]
    Path("a.tsv").write_text("\n".join(rows) + "\n")
    changes, words = MISTAKES[case]
    with pytest.raises(UserError, match=words):
        LabelledSource(_settings(Path("a.tsv"), **changes)).load()


def test_labelled_boolean_or_a_fraction_is_no_label(tmp_path):
    for value in ("true", "1.5", "null", "[1]"):
        (tmp_path / "a.jsonl").write_text(f'{{"title": "a", "text": "b", "label": {value}}}\n')
        with pytest.raises(UserError, match=r"a.jsonl:1: label is .*, expected text or a whole number"):
            LabelledSource(_settings(tmp_path / "a.jsonl", classes=CLASSES)).load()


def test_labelled_texts_held_out_are_different_and_none_is_left_in_training(tmp_path):
    rows = [("", f"text {number % 60}", number % 3) for number in range(200)]
    (tmp_path / "a.tsv").write_bytes(_table(".tsv", rows))
    settings = _settings(tmp_path / "a.tsv", validation=10, test=5, classes=CLASSES)
    found = LabelledSource(settings).load()
    parts = [list(part.texts["text"]) for part in (found.train, found.validation, found.test)]
    assert [len(set(part)) for part in parts] == [45, 10, 5]
    assert [len(part) for part in parts[1:]] == [10, 5]
    assert not set(parts[0]) & set(parts[1]) | set(parts[0]) & set(parts[2]) | set(parts[1]) & set(parts[2])
    assert all(
        int(text.split()[1]) % 3 == label
        for part in (found.train, found.validation, found.test)
        for text, label in zip(part.texts["text"], part.labels, strict=True)
    )
    again = LabelledSource(settings).load()
    other = LabelledSource(settings.model_copy(update={"seed": 2})).load()
    assert list(again.validation.texts["text"]) == parts[1] != list(other.validation.texts["text"])


def test_labelled_folder_holds_tables_of_the_usual_names_with_columns_of_their_own(tmp_path):
    lines = _table(".tsv", ROWS, lambda number: number + 1).split(b"\n", 1)[1]
    for name in ("train.tsv.gz", "dev.tsv.gz"):
        (tmp_path / name).write_bytes(gzip.compress(lines))
    local = LocalColumns(text=("1", "2"), label="0", first_label=1)
    settings = LabelledSettings(
        corpus="someone/news", root=str(tmp_path), classes=CLASSES, local=local, test=None, text="description"
    )
    assert _is(LabelledSource(settings).load())
    assert LabelledSource(settings).load_split("test") is None
    with pytest.raises(UserError, match=r"no table for the split 'test'(.|\n)*files: dev.tsv.gz, train.tsv.gz"):
        LabelledSource(settings.model_copy(update={"test": "test"})).load()


def test_labelled_hub_data_set_brings_its_own_classes(tmp_path):
    folder = tmp_path / "news"
    folder.mkdir()
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(CLASSES))})
    data = datasets.Dataset.from_dict({"text": WANTED, "label": [0, 1, 2, 0]}, features=features)
    data.to_parquet(folder / "train.parquet")
    settings = LabelledSettings(corpus=str(folder), validation="train", test=None)
    found = LabelledSource(settings).load()
    assert _is(found)
    assert found.train.names == CLASSES
    renamed = LabelledSource(settings.model_copy(update={"classes": ("a", "b", "c")})).load()
    assert (renamed.train.names, renamed.train.labels.tolist()) == (("a", "b", "c"), [0, 1, 2, 0])
    # of classes that no row has, a recipe may say nothing
    few = data.select([0, 1, 3])
    (tmp_path / "few").mkdir()
    few.to_parquet(tmp_path / "few" / "train.parquet")
    fewer = settings.model_copy(update={"corpus": str(tmp_path / "few"), "classes": (CLASSES[1], CLASSES[0])})
    found = LabelledSource(fewer).load().train
    assert [found.names[number] for number in found.labels] == [CLASSES[0], CLASSES[1], CLASSES[0]]
    # the data set's order is its own, whatever the recipe's is
    turned = LabelledSource(settings.model_copy(update={"classes": CLASSES[::-1]})).load().train
    assert [turned.names[number] for number in turned.labels] == [CLASSES[number] for number in (0, 1, 2, 0)]
    with pytest.raises(UserError, match=r"news train row 3: label '2' is none of the classes a, b"):
        LabelledSource(settings.model_copy(update={"classes": ("a", "b")})).load()


@pytest.mark.parametrize("names", [("1", "2", "3"), ("0", "10", "2"), ("2", "0", "1")])
def test_labelled_hub_data_set_may_call_its_classes_by_numbers(tmp_path, names):
    (tmp_path / "stars").mkdir()
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(names))})
    data = datasets.Dataset.from_dict({"text": WANTED, "label": [0, 1, 2, 0]}, features=features)
    data.to_parquet(tmp_path / "stars" / "train.parquet")
    settings = LabelledSettings(corpus=str(tmp_path / "stars"), validation="train", test=None)
    for classes in (None, names, names[::-1]):
        found = LabelledSource(settings.model_copy(update={"classes": classes})).load().train
        assert [found.names[number] for number in found.labels] == [names[number] for number in (0, 1, 2, 0)]


def test_labelled_counts_are_of_every_class_also_of_one_that_does_not_occur():
    assert count_classes(np.array([2, 0, 2]), CLASSES) == {"World": 1, "Sports": 0, "Business": 2}


def test_labelled_table_with_a_duplicate_column_is_refused(tmp_path):
    rows = "".join(f"{'ab'[i % 2]},text {i},{'ba'[i % 2]}\n" for i in range(10))
    (tmp_path / "t.csv").write_text(f"label,text,label\n{rows}")
    with pytest.raises(UserError, match=r"t\.csv:1: the header names 'label' 2 times"):
        LabelledSource(LabelledSettings(train=str(tmp_path / "t.csv"), validation=2, test=None)).load()
