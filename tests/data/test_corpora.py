"""Reading of parallel corpora from files, tables, the hub and the built-in grammar."""

import csv
import gzip
import io
import json
import lzma
from pathlib import Path

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from s2s.data import text_files
from s2s.data.pairs import load, load_split, pairs, prefixed, without_prefix, without_spaces_around_targets
from s2s.data.phrasebook import phrases
from s2s.data.sources import Corpus
from s2s.data.text_files import line_pairs, lines
from s2s.errors import UserError
from s2s.tasks.translation.recipe import DataSettings

# what other programs take for the end of a line is data here
PAIRS = [("A dog.", "Ein Hund."), ("one\u2028two", "eins\u0085zwei"), ("a\rb", "c\rd"), ("", "leer"), ("ß", "ẞ „q“")]
KINDS = (".tsv", ".csv", ".jsonl", ".parquet")


def _packed(data: bytes, ending: str) -> bytes:
    return {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[ending](data)


def _table(kind: str, rows: list[tuple[str, str]]) -> bytes:
    if kind == ".tsv":
        return "".join(f"{a}\t{b}\n" for a, b in [("en", "de"), *rows]).encode()
    if kind == ".jsonl":
        return "".join(json.dumps({"id": 1, "en": a, "de": b}) + "\n" for a, b in rows).encode()
    if kind == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text).writerows([("en", "de"), *rows])
        return text.getvalue().encode()
    buffer = io.BytesIO()
    datasets.Dataset.from_dict({"en": [a for a, _ in rows], "de": [b for _, b in rows]}).to_parquet(buffer)
    return buffer.getvalue()


def _no_text() -> bytes:
    """A parquet file whose texts are bytes that are none."""
    broken = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\xff")]
    )
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({"en": broken, "de": ["x"]}), buffer)
    return buffer.getvalue()


def _files(train, **settings) -> Corpus:
    return load(DataSettings(corpus="files", train=train, validation=train, test=train, **settings))


def _pairs(dataset) -> list[tuple[str, str]]:
    return list(zip(dataset["source"], dataset["target"], strict=True))


def _write(folder: Path, *names: str, text: str = "x\n") -> None:
    for name in names:
        (folder / name).write_bytes(
            _packed(text.encode(), Path(name).suffix if Path(name).suffix in (".gz", ".xz") else "")
        )


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("kind", KINDS)
def test_corpora_every_table_gives_back_the_pairs_written(tmp_path, kind, ending):
    # a tab or a newline inside a cell only where the format can hold it
    rows = PAIRS if kind == ".tsv" else [*PAIRS, ('"quoted",\tcell', "two\nlines\r\n")]
    path = tmp_path / f"train{kind}{ending}"
    path.write_bytes(_packed(_table(kind, rows), ending))
    assert _pairs(_files(str(path)).train) == rows


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("last", ["\n", ""])
def test_corpora_line_files_give_back_the_pairs_written(tmp_path, ending, last):
    paths = tuple(str(tmp_path / f"a.{side}{ending}") for side in ("en", "de"))
    for side, path in enumerate(paths):
        Path(path).write_bytes(_packed(("\n".join(p[side] for p in PAIRS) + last).encode(), ending))
    assert _pairs(_files(paths).test) == PAIRS


def test_corpora_table_without_a_header_is_read_by_position(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("hello\thallo\tx\nbye\ttschüss\ty\n")
    assert _pairs(_files(str(path), source="0", target="1").train) == [("hello", "hallo"), ("bye", "tschüss")]
    assert _pairs(_files(str(path), source="1", target="0").train)[0] == ("hallo", "hello")


@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl"])
def test_corpora_byte_order_mark_is_no_data(tmp_path, kind):
    path = tmp_path / f"a{kind}"
    path.write_bytes(b"\xef\xbb\xbf" + _table(kind, PAIRS))
    assert _pairs(_files(str(path)).train) == PAIRS
    if kind == ".csv":
        quoted = "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in [("en", "de"), *PAIRS])
        path.write_bytes(b"\xef\xbb\xbf" + quoted.encode())
        assert _pairs(_files(str(path)).train) == PAIRS


def test_corpora_csv_cell_is_as_long_as_a_text_is(tmp_path):
    long = "word " * 40_000
    (tmp_path / "a.csv").write_text(f'en,de\n"{long}",kurz\n')
    assert _pairs(_files(str(tmp_path / "a.csv")).train) == [(long, "kurz")]


@pytest.mark.parametrize("kind", [".jsonl", ".parquet"])
def test_corpora_translation_column_is_looked_into(tmp_path, kind):
    rows = [{"translation": {"en": a, "de": b}} for a, b in PAIRS]
    path = tmp_path / f"a{kind}"
    if kind == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        datasets.Dataset.from_list(rows).to_parquet(path)
    assert _pairs(_files(str(path)).train) == PAIRS


def test_corpora_relative_files_start_from_root(tmp_path):
    (tmp_path / "a.tsv").write_bytes(_table(".tsv", PAIRS))
    assert _pairs(_files("a.tsv", root=str(tmp_path)).train) == PAIRS


def test_corpora_usual_names_are_found_in_a_folder(tmp_path):
    for stem, rows in (("train", 3), ("val", 2), ("test_2016_flickr", 1)):
        _write(tmp_path, f"{stem}.en.gz", f"{stem}.de.gz", text=f"{stem}\n" * rows)
    # neither half a test set nor notes are a second one
    _write(tmp_path, "test_2017.en", "testing.md")
    settings = DataSettings(corpus="bentrevett/multi30k", root=str(tmp_path))
    corpus = load(settings)
    assert [len(x) for x in (corpus.train, corpus.validation, corpus.test)] == [3, 2, 1]
    _write(tmp_path, "test_2017.de")
    with pytest.raises(UserError, match=r"several test sets: test_2016_flickr, test_2017\n.*data.test=test_2016"):
        load(settings)
    assert _pairs(load_split(settings.model_copy(update={"test": "test_2017"}), "test")) == [("x", "x")]
    _write(tmp_path, "test.en.xz", "test.de", text="plain\n")
    assert _pairs(load(settings).test) == [("plain", "plain")]


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
@pytest.mark.parametrize("kind", KINDS)
def test_corpora_table_in_a_folder_may_have_any_of_the_usual_names(tmp_path, name, kind):
    (tmp_path / f"{name}{kind}.gz").write_bytes(_packed(_table(kind, PAIRS), ".gz"))
    settings = DataSettings(corpus="x/y", root=str(tmp_path))
    assert _pairs(load_split(settings, "validation")) == PAIRS


def test_missing_split_error_lists_expected_and_existing_files(tmp_path):
    _write(tmp_path, "train.en", "train.de", "val.en")
    message = (
        r"data.root: .*: no files for the split 'validation': looked for validation.en and validation.de, or "
        r"validation with .tsv.*also as valid, val, dev; files: train.de, train.en, val.en\n.*data.validation=BEGINNING"
    )
    with pytest.raises(UserError, match=message):
        load(DataSettings(corpus="x/y", root=str(tmp_path)))


@pytest.mark.parametrize("nested", [False, True])
def test_corpora_hub_data_set_is_read_by_its_columns(tmp_path, nested):
    for split in ("train", "validation", "test"):
        rows = [{"en": f"{split} {i}", "de": f"{split} {-i}"} for i in range(4)]
        text = "".join(json.dumps({"id": 1, "translation": row} if nested else row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(text)
    corpus = load(DataSettings(corpus=str(tmp_path)))
    assert _pairs(corpus.validation) == [(f"validation {i}", f"validation {-i}") for i in range(4)]
    assert corpus.train.column_names == ["source", "target"]
    held_out = load(DataSettings(corpus=str(tmp_path), validation=1))
    assert sorted(_pairs(held_out.train) + _pairs(held_out.validation)) == sorted(_pairs(corpus.train))
    with pytest.raises(UserError, match=r"train row 1: no column 'fr'; columns: 'en', 'de'"):
        load(DataSettings(corpus=str(tmp_path), target="fr"))
    with pytest.raises(UserError, match=r"split 'dev'(.|\n)*validation"):
        load(DataSettings(corpus=str(tmp_path), validation="dev"))


def test_corpora_held_out_pairs_are_never_trained_on(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("en\tde\n" + "".join(f"source {i // 2}\ttarget {i}\n" for i in range(200)))
    settings = DataSettings(corpus="files", train=str(path), validation=10, test=15)
    corpus = load(settings)
    assert [len(corpus.validation), len(corpus.test)] == [10, 15]
    held = set(corpus.validation["source"]) | set(corpus.test["source"])
    # twenty-five different sources are held out; both pairs of each are gone from train, all others are left, in order
    assert len(held) == 25
    every = [(f"source {i // 2}", f"target {i}") for i in range(200)]
    assert _pairs(corpus.train) == [pair for pair in every if pair[0] not in held]
    assert set(_pairs(corpus.validation) + _pairs(corpus.test)) <= set(every)
    # of each held-out source, the other pair is neither held out nor learned from, and is counted
    assert corpus.note == "25 more pairs repeat held-out sources: left out of training"
    path.write_text("en\tde\n" + "".join(f"source {i}\ttarget {i}\n" for i in range(200)))
    assert load(settings).note == ""


def test_corpora_held_out_pairs_follow_from_the_seed(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("en\tde\n" + "".join(f"source {i}\ttarget {i}\n" for i in range(200)))
    settings = DataSettings(corpus="files", train=str(path), validation=10, test=15)
    validation = _pairs(load(settings).validation)
    assert _pairs(load(settings).validation) == validation
    assert _pairs(load(settings.model_copy(update={"test": 20})).validation) == validation
    assert _pairs(load(settings.model_copy(update={"seed": 2})).validation) != validation


@pytest.mark.parametrize("size", [100, 150, 1000])
def test_corpora_holding_everything_out_is_refused(tmp_path, size):
    path = tmp_path / "a.tsv"
    path.write_text("en\tde\n" + "".join(f"source {i // 2}\ttarget {i}\n" for i in range(200)))
    with pytest.raises(UserError, match=rf"data.validation: {size}: .* out of 200 leave no training data"):
        load(DataSettings(corpus="files", train=str(path), validation=size, test=None))


def test_corpora_of_equal_rows_have_nothing_to_hold_out(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("en\tde\n" + "the same\tdas gleiche\n" * 50)
    with pytest.raises(UserError, match="no training data: they have only 1 different source") as refused:
        load(DataSettings(corpus="files", train=str(path), validation=1, test=1))
    assert refused.value.remedy == "add pairs with other sources"


def test_corpora_built_in_corpus_is_the_phrasebook():
    corpus = load(DataSettings(train=50, validation=5, test=7, seed=3))
    assert [len(x) for x in (corpus.train, corpus.validation, corpus.test)] == [50, 5, 7]
    for row, phrase in zip(corpus.test, phrases("test", 7, 3), strict=True):
        assert row == {name: getattr(phrase, name) for name in ("source", "target", "construction", "distance")}
    assert len(load_split(DataSettings(), "validation")) == 500


def test_corpora_files_are_read_once_until_they_change(tmp_path, monkeypatch):
    path, read = tmp_path / "a.tsv", []
    path.write_text("en\tde\na\tb\n")
    real = text_files.table_cells
    monkeypatch.setattr(text_files, "table_cells", lambda *words: (read.append(words), real(*words))[1])
    settings = DataSettings(corpus="files", train=str(path))
    assert len(load_split(settings, "train")) == len(load_split(settings, "train")) == 1
    assert len(read) == 1
    path.write_text("en\tde\na\tb\nc\td\n")
    assert len(load_split(settings, "train")) == 2
    assert _pairs(load_split(settings.model_copy(update={"source": "de"}), "train"))[0] == ("b", "b")
    assert len(read) == 3


def test_corpora_rows_lie_on_disk(tmp_path):
    _write(tmp_path, "a.en", "a.de", text="line\n" * 25_000)
    dataset = _files((str(tmp_path / "a.en"), str(tmp_path / "a.de"))).train
    assert dataset.cache_files
    assert sum(1 for pair in pairs(dataset) if pair == ("line", "line")) == 25_000


def test_corpora_cached_changes_of_texts_are_told_apart_whatever_the_prefix(tmp_path):
    _write(tmp_path, "a.en", text="X one\nX two\n")
    _write(tmp_path, "a.de", text=" eins\nzwei \n")
    read = _files((str(tmp_path / "a.en"), str(tmp_path / "a.de"))).train
    assert prefixed(read, "without X ")["source"][:] == ["without X X one", "without X X two"]
    assert without_prefix(read, "X ")["source"][:] == ["one", "two"]
    assert prefixed(read, "without spaces around targets")["target"][:] == [" eins", "zwei "]
    assert without_spaces_around_targets(read)["target"][:] == ["eins", "zwei"]


def test_corpora_reading_is_lazy_and_ends_at_newlines_only(tmp_path):
    path = tmp_path / "a"
    path.write_bytes("one\u2028\rtwo\nthree\r\n\n".encode() + b"\xff")
    assert next(line_pairs(path, path))["source"] == "one\u2028\rtwo"
    found = lines(path)
    assert [next(found) for _ in range(3)] == ["one\u2028\rtwo", "three\r", ""]
    with pytest.raises(UserError, match=":4: byte 0xff at position 0"):
        next(found)


_LONG = "".join(f"{i * i}\t{i**3}\n" for i in range(5_000)).encode()
_XZ = lzma.compress(_LONG)
BAD = {
    "counts the other way": ({"a.en": b"x", "a.de": b"x\ny"}, ("a.en", "a.de"), r"a.en has 1 lines, .*a.de has 2"),
    "missing file": ({"a.en": b"x\n"}, ("a.en", "a.de"), r"data.train: \S*a.de: no such file(.|\n)*did you mean a.en"),
    "bytes": (
        {"a.en": b"x\nb\xffd\n", "a.de": b"x\ny\n"},
        ("a.en", "a.de"),
        r"a.en:2: byte 0xff at position 1(.|\n)*iconv",
    ),
    "bytes in csv": ({"a.csv": b"en,de\n" + b"x,y\n" * 8000 + b"\xfc,y\n"}, "a.csv", r"a.csv:8002: byte 0xfc"),
    "column": (
        {"a.tsv": b"en\tded\nx\ty\n"},
        "a.tsv",
        r"a.tsv:1: no column 'de'; columns: 'en', 'ded'(.|\n)*did you mean ded(.|\n)*data.target(.|\n)*position",
    ),
    "windows header": ({"a.tsv": b"en\tde\r\nx\ty\r\n"}, "a.tsv", r"a.tsv:1: .*carriage return(.|\n)*dos2unix"),
    "row after two lines in a cell": ({"a.csv": b'en,de\n"x\nx",y\nz\n'}, "a.csv", r"a.csv:4: has 1 cell, expected 2"),
    "row of two lines": ({"a.csv": b'en,de\n"x\nx",y,z\n'}, "a.csv", r"a.csv:2: has 3 cells, expected 2"),
    "json": ({"a.jsonl": b'{"en": "x", "de": "y"}\n{"en": \n'}, "a.jsonl", r"a.jsonl:2: not JSON"),
    "null": ({"a.jsonl": b'{"en": "x", "de": null}\n'}, "a.jsonl", r"a.jsonl:1: de is None, expected text"),
    "empty lines": ({"a.en": b"", "a.de": b""}, ("a.en", "a.de"), r"a.en, .*a.de: has no rows"),
    "gzip inside": ({"a.tsv.gz": gzip.compress(_LONG)[:10] + bytes([255]) * 50}, "a.tsv.gz", r"a.tsv.gz: is damaged"),
    "xz inside": ({"a.tsv.xz": _XZ[:5_000] + bytes(50) + _XZ[5_050:]}, "a.tsv.xz", r"a.tsv.xz: is damaged"),
    "csv gzip": ({"a.csv.gz": b"not gzip"}, "a.csv.gz", r"a.csv.gz: is damaged"),
    "parquet gzip": ({"a.parquet.gz": b"not gzip"}, "a.parquet.gz", r"a.parquet.gz: is damaged"),
    "kind": ({"a.doc": b"x\n"}, "a.doc", r"data.train: a.doc: is no table(.|\n)*pair of line-aligned files"),
    "parquet column": ({"a.parquet": _table(".parquet", PAIRS)}, "a.parquet", r"a.parquet: no column '0'; columns:"),
    "parquet text": ({"a.parquet": _no_text()}, "a.parquet", r"a.parquet: not parquet: 'utf-8' codec"),
    "csv": ({"a.csv": b'en,de\nx,y\n"x,y\nx,y\n'}, "a.csv", r"a.csv:3: the row that begins here is not CSV"),
}


@pytest.mark.parametrize("case", BAD)
def test_corpora_bad_file_gives_one_clear_message(tmp_path, case, monkeypatch):
    files, split, message = BAD[case]
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    columns = {"gzip inside": ("0", "1"), "xz inside": ("0", "1"), "parquet column": ("de", "0")}
    source, target = columns.get(case, ("en", "de"))
    with pytest.raises(UserError, match=message):
        _files(split, source=source, target=target)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"root": "nowhere", "corpus": "x/y"}, r"data.root: nowhere: there is no such folder"),
        ({"train": "mine"}, r"data.train is 'mine', but the built-in corpus"),
        ({"corpus": "nobody/nothing"}, r"data.corpus: Hugging Face data set 'nobody/nothing'(.|\n)*data.root=DIR"),
        ({"corpus": "file"}, r"data.corpus: Hugging Face data set 'file'(.|\n)*did you mean files"),
        (
            {"corpus": "files", "train": 7},
            r"data.train is 7; only the built-in corpora .built-in, homonyms. can be generated in any size",
        ),
        ({"corpus": "x/y", "train": ("a", "b")}, r"data.train is a pair of files(.|\n)*set data.corpus: files"),
    ],
)
def test_corpora_corpus_that_is_not_there_gives_one_clear_message(settings, message):
    with pytest.raises(UserError, match=message):
        load(DataSettings(**settings))


def test_corpora_pairs_with_an_empty_side_are_neither_held_out_nor_hidden(tmp_path):
    sides = [[f"a{i}" for i in range(40)], [f"b{i}" for i in range(40)]]
    sides[0][:30] = [""] * 30
    for side, texts in zip(("en", "de"), sides, strict=True):
        (tmp_path / f"t.{side}").write_text("\n".join(texts) + "\n")
    files = (str(tmp_path / "t.en"), str(tmp_path / "t.de"))
    corpus = load(DataSettings(corpus="files", train=files, validation=4, test=3))
    assert all(corpus.validation["source"])
    assert all(corpus.test["source"])
    assert list(corpus.train["source"]).count("") == 30


def test_corpora_built_in_corpus_has_three_sides_that_belong_together():
    def sides(source: str, target: str) -> list[tuple[str, str]]:
        corpus = load(DataSettings(source=source, target=target, train=50, validation=5, test=5))
        return list(pairs(corpus.train))

    german, cases = sides("en", "de"), sides("de", "cases")
    assert sides("de", "en") == [(target, source) for source, target in german]
    assert [source for source, _ in cases] == [target for _, target in german]
    assert all(len(source.split()) == len(target.split()) for source, target in cases)
    with pytest.raises(UserError, match=r"data.target is 'case'(.|\n)*en, de, cases(.|\n)*did you mean cases"):
        sides("de", "case")


def test_corpora_tatoeba_is_read_by_position(tatoeba):
    names = {"train": "deu-eng.test", "validation": "deu-eng.dev", "test": "deu-eng.test"}
    corpus = load(DataSettings(corpus="x/y", root=str(tatoeba), source="0", target="1", **names))
    assert len(corpus.train) == len(corpus.validation) == 2_000
    with gzip.open(tatoeba / "deu-eng.dev.tsv.gz") as file:
        assert "".join(f"{s}\t{t}\n" for s, t in pairs(corpus.validation)).encode() == file.read()
