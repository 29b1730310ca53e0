import csv
import gzip
import io
import json
import lzma
from pathlib import Path

import datasets
import pytest

from s2s.data.corpora import Corpus, load
from s2s.data.text_files import line_pairs, lines
from s2s.errors import UserError
from s2s.recipe.schema import DataSettings

# what other programs take for the end of a line is data here
PAIRS = [("A dog.", "Ein Hund."), ("one\u2028two", "eins\u0085zwei"), ("a\rb", "c\rd"), ("", "leer"), ("ß", "ẞ „q“")]


def _packed(data: bytes, ending: str) -> bytes:
    return {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[ending](data)


def _table(kind: str) -> bytes:
    if kind == ".tsv":
        return "".join(f"{a}\t{b}\n" for a, b in [("en", "de"), *PAIRS]).encode()
    if kind == ".jsonl":
        return "".join(json.dumps({"id": 1, "en": a, "de": b}) + "\n" for a, b in PAIRS).encode()
    if kind == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text).writerows([("en", "de"), *PAIRS])
        return text.getvalue().encode()
    buffer = io.BytesIO()
    datasets.Dataset.from_dict({"en": [a for a, _ in PAIRS], "de": [b for _, b in PAIRS]}).to_parquet(buffer)
    return buffer.getvalue()


def _files(train, **settings) -> Corpus:
    return load(DataSettings(corpus="files", train=train, validation=train, test=train, **settings))


def _pairs(dataset) -> list[tuple[str, str]]:
    return list(zip(dataset["source"], dataset["target"], strict=True))


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl", ".parquet"])
def test_every_table_gives_back_the_pairs_written(tmp_path, kind, ending):
    path = tmp_path / f"train{kind}{ending}"
    path.write_bytes(_packed(_table(kind), ending))
    assert _pairs(_files(str(path)).train) == PAIRS


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("last", ["\n", ""])
def test_line_files_give_back_the_pairs_written(tmp_path, ending, last):
    paths = tuple(str(tmp_path / f"a.{side}{ending}") for side in ("en", "de"))
    for side, path in enumerate(paths):
        Path(path).write_bytes(_packed(("\n".join(p[side] for p in PAIRS) + last).encode(), ending))
    assert _pairs(_files(paths).test) == PAIRS


def test_a_table_without_a_header_is_read_by_position(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("hello\thallo\tx\nbye\ttschüss\ty\n")
    assert _pairs(_files(str(path), source="0", target="1").train) == [("hello", "hallo"), ("bye", "tschüss")]
    assert _pairs(_files(str(path), source="1", target="0").train)[0] == ("hallo", "hello")


def test_usual_names_are_found_in_a_folder(tmp_path):
    for stem, rows in (("train", 3), ("val", 2), ("test_2016_flickr", 1)):
        for side in ("en", "de"):
            (tmp_path / f"{stem}.{side}.gz").write_bytes(gzip.compress(f"{stem}\n".encode() * rows))
    corpus = load(DataSettings(corpus="bentrevett/multi30k", root=str(tmp_path)))
    assert [len(x) for x in (corpus.train, corpus.validation, corpus.test)] == [3, 2, 1]
    (tmp_path / "test_2017.en").write_text("x\n")
    with pytest.raises(UserError, match=r"several test sets: test_2016_flickr, test_2017(.|\n)*data.test="):
        load(DataSettings(corpus="bentrevett/multi30k", root=str(tmp_path)))
    named = DataSettings(corpus="bentrevett/multi30k", root=str(tmp_path), test="test_2016_flickr")
    assert len(load(named).test) == 1


@pytest.mark.parametrize("nested", [False, True])
def test_a_hub_data_set_is_read_by_its_columns(tmp_path, nested):
    for split in ("train", "validation", "test"):
        rows = [{"en": f"{split} {i}", "de": f"{split} {-i}"} for i in range(4)]
        text = "".join(json.dumps({"translation": row} if nested else row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(text)
    corpus = load(DataSettings(corpus=str(tmp_path)))
    assert _pairs(corpus.validation) == [(f"validation {i}", f"validation {-i}") for i in range(4)]
    assert corpus.train.column_names == ["source", "target"]
    with pytest.raises(UserError, match=r"no column 'fr'"):
        load(DataSettings(corpus=str(tmp_path), target="fr"))


def test_held_out_pairs_are_never_trained_on(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("en\tde\n" + "".join(f"source {i // 2}\ttarget {i}\n" for i in range(200)))
    settings = DataSettings(corpus="files", train=str(path), validation=10, test=15)
    corpus = load(settings)
    held = set(corpus.validation["source"]) | set(corpus.test["source"])
    assert len(corpus.validation) == 10
    assert len(corpus.test) == 15
    assert not held & set(corpus.train["source"])
    assert not set(corpus.validation["target"]) & set(corpus.test["target"])
    assert {s for s, _ in _pairs(corpus.train)} | held == {f"source {i}" for i in range(100)}
    assert _pairs(load(settings).validation) == _pairs(corpus.validation)
    other = load(settings.model_copy(update={"seed": 2}))
    assert _pairs(other.validation) != _pairs(corpus.validation)


def test_the_built_in_corpus_has_the_sizes_asked_for_and_knows_its_distances():
    corpus = load(DataSettings(train=50, validation=5, test=7))
    assert [len(x) for x in (corpus.train, corpus.validation, corpus.test)] == [50, 5, 7]
    assert {"construction", "distance"} <= set(corpus.train.column_names)


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("en\tde\na\tb\n")
    assert len(_files(str(path)).train) == 1
    path.write_text("en\tde\na\tb\nc\td\n")
    assert len(_files(str(path)).train) == 2


def test_reading_is_lazy_and_ends_at_newlines_only(tmp_path):
    path = tmp_path / "a"
    path.write_bytes("one\u2028\rtwo\nthree".encode())
    assert list(lines(path)) == ["one\u2028\rtwo", "three"]
    assert next(line_pairs(path, path))["source"] == "one\u2028\rtwo"


BAD = {
    "counts": ({"a.en": b"x\ny\nz\n", "a.de": b"x\n"}, ("a.en", "a.de"), r"a.en has 3 lines, .*a.de has 1"),
    "missing file": ({"a.en": b"x\n"}, ("a.en", "a.de"), r"a.de: no such file(.|\n)*a.en"),
    "bytes": (
        {"a.en": b"x\nb\xffd\n", "a.de": b"x\ny\n"},
        ("a.en", "a.de"),
        r"a.en:2: byte 0xff at position 1(.|\n)*iconv",
    ),
    "column": (
        {"a.tsv": b"en\tger\nx\ty\n"},
        "a.tsv",
        r"a.tsv:1: no column 'de'; there are 'en', 'ger'(.|\n)*data.target",
    ),
    "row": ({"a.tsv": b"en\tde\nx\ty\nz\n"}, "a.tsv", r"a.tsv:3: has 1 columns, expected 2"),
    "json": ({"a.jsonl": b'{"en": "x", "de": "y"}\n{"en": \n'}, "a.jsonl", r"a.jsonl:2: not JSON"),
    "cell": ({"a.jsonl": b'{"en": "x", "de": null}\n'}, "a.jsonl", r"a.jsonl:1: de is None, expected text"),
    "empty": ({"a.tsv": b"en\tde\n"}, "a.tsv", r"data.train has no sentence pairs"),
    "gzip": ({"a.tsv.gz": b"not gzip"}, "a.tsv.gz", r"a.tsv.gz: is damaged"),
    "kind": ({"a.txt": b"x\n"}, "a.txt", r"a.txt: is no table(.|\n)*pair of files"),
    "parquet": ({"a.parquet": b"nonsense"}, "a.parquet", r"a.parquet: not parquet"),
    "csv": ({"a.csv": b'en,de\n"x,y\n'}, "a.csv", r"a.csv:\d+: not CSV"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_gives_one_clear_message(tmp_path, case, monkeypatch):
    files, split, message = BAD[case]
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        _files(split)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"root": "nowhere", "corpus": "x/y"}, r"data.root: nowhere: there is no such folder"),
        ({"train": "mine"}, r"data.train is 'mine', but the built-in corpus"),
        ({"corpus": "nobody/nothing"}, r"data.corpus: Hugging Face data set 'nobody/nothing'(.|\n)*data.root=DIR"),
    ],
)
def test_a_corpus_that_is_not_there_gives_one_clear_message(settings, message):
    with pytest.raises(UserError, match=message):
        load(DataSettings(**settings))


def test_multi30k_is_read_whole(multi30k):
    corpus = load(DataSettings(corpus="bentrevett/multi30k", root=str(multi30k)))
    assert [len(x) for x in (corpus.train, corpus.validation, corpus.test)] == [29_000, 1_014, 1_000]
    assert corpus.train[0]["target"] == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."


def test_tatoeba_is_read_by_position(multi30k):
    folder = multi30k.parent / "tatoeba"
    train = [str(folder / f"deu-eng.{split}.tsv.gz") for split in ("dev", "dev", "test")]
    settings = DataSettings(corpus="files", train=train[0], validation=train[1], test=train[2], source="0", target="1")
    corpus = load(settings)
    assert len(corpus.train) == len(corpus.test) == 2_000
