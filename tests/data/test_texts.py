"""Plain texts equal labelled texts without labels."""

import gzip
from pathlib import Path

import pytest

from s2s.data.tables import TextSource
from s2s.errors import UserError
from s2s.recipe.schema import LocalText, PlainTextSettings
from s2s.tasks.classification.data import LabelledSource
from s2s.tasks.classification.recipe import LabelledSettings, LocalColumns


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, count in (("train", 40), ("test", 5)):
        rows = [f"{i % 2}\ttitle {i}\tA text of {name}, number {i % 30}." for i in range(count)]
        with gzip.open(tmp_path / f"{name}.tsv.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(rows) + "\n")
    return tmp_path


def test_texts_are_those_that_labelled_texts_have(folder):
    common = {"corpus": "someone/something", "root": str(folder), "validation": 7}
    columns = ("1", "2")
    plain = TextSource(PlainTextSettings(**common, local=LocalText(text=columns))).load()
    labelled = LabelledSource(LabelledSettings(**common, local=LocalColumns(text=columns, label="0"))).load()
    for part in ("train", "validation", "test"):
        assert getattr(plain, part)["text"][:] == getattr(labelled, part).texts["text"][:]
        assert getattr(plain, part).column_names == ["text"]
    assert plain.test["text"][2] == "title 2 A text of test, number 2."


def test_texts_held_out_are_different_and_none_is_left_to_train_on(folder):
    files = {"train": str(folder / "train.tsv.gz"), "test": 3}
    found = TextSource(PlainTextSettings(**files, text="2", validation=6)).load()
    held = [*found.validation["text"], *found.test["text"]]
    assert len(set(held)) == len(held) == 9
    assert not set(held) & set(found.train["text"])
    changes = {"text": "2", "validation": str(folder / "test.tsv.gz"), "test": None}
    whole = TextSource(PlainTextSettings(train=files["train"], **changes)).load()
    assert set(found.train["text"]) | set(held) == set(whole.train["text"])
    assert whole.test is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"root": "nowhere"}, "no such folder"),
        ({"train": "training"}, "no table for the split 'training'"),
        ({"validation": "validation"}, "or hold texts out"),
        ({"local": LocalText(text="7")}, r"train\.tsv\.gz:1"),
        ({"validation": 41}, "41 texts to hold out"),
    ],
)
def test_texts_name_a_missing_column(folder, changes, words):
    settings = {"corpus": "x/y", "root": str(folder), "validation": 4, "local": LocalText(text="2")} | changes
    with pytest.raises(UserError, match=words):
        TextSource(PlainTextSettings(**settings)).load()


def test_texts_without_a_table_are_refused_with_a_remedy_that_works(tmp_path):
    texts = ["one text", "another text", "a third one"]
    plain = tmp_path / "plain.txt"
    plain.write_text("".join(f"{text}\n" for text in texts))
    settings = PlainTextSettings(train=str(plain), validation=1, test=None)
    with pytest.raises(UserError, match=r"of one text a line, a \.tsv with data\.text: '0'"):
        TextSource(settings).load()
    plain.rename(table := plain.with_suffix(".tsv"))
    found = TextSource(settings.model_copy(update={"train": str(table), "text": "0"})).load()
    assert sorted([*found.train["text"], *found.validation["text"]]) == sorted(texts)
