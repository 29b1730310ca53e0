"""A damaged cache is rebuilt and reported; leftovers of killed processes are removed."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from datasets import config

from s2s.data import caching
from s2s.data.pairs import load_split, prefixed
from s2s.data.tokenized import encode_corpus
from s2s.data.tokenizers import SPECIAL_TOKENS, train
from s2s.recipe.schema import PieceSettings
from s2s.tasks.translation.recipe import DataSettings

ROWS = [("a dog", "ein Hund"), ("a cat", "eine Katze")]


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of data sets."""
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(params=["table", "folder"])
def settings(request, tmp_path) -> DataSettings:
    """A corpus in a table, or in a folder of the kind that `datasets` reads."""
    (tmp_path / "data").mkdir()
    table = tmp_path / "data" / ("train.csv" if request.param == "folder" else "train.tsv")
    sign = "," if request.param == "folder" else "\t"
    table.write_text("".join(f"{source}{sign}{target}\n" for source, target in [("en", "de"), *ROWS]))
    if request.param == "folder":
        return DataSettings(corpus=str(tmp_path / "data"), train="train")
    return DataSettings(corpus="files", train=str(table))


def _rows(settings: DataSettings) -> list[tuple[str, str]]:
    found = load_split(settings, "train")
    return list(zip(found["source"], found["target"], strict=True))


def _flipped(path: Path) -> None:
    content = path.read_bytes()
    assert b"dog" in content or path.suffix == ".json"
    path.write_bytes(content.replace(b"dog", b"fox") if b"dog" in content else content[:-1])


@pytest.mark.parametrize(
    "damage",
    [
        _flipped,
        lambda path: path.write_bytes(path.read_bytes()[:40]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"[" * 10_000),
        Path.unlink,
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_cache_each_file_of_a_cached_corpus_that_was_damaged_is_made_again(cache, settings, damage, capfd):
    assert _rows(settings) == ROWS
    capfd.readouterr()
    files = sorted(p for p in cache.rglob("*") if p.suffix in (".arrow", ".json") and p.name != "digests.json")
    assert len(files) >= 2
    for path in files:
        damage(path)
        assert _rows(settings) == ROWS
        said = capfd.readouterr().err
        # the rows as ours are made again without a word where the file is missing
        assert f"{path}: this cached file is damaged" in said or (damage is Path.unlink and "cache-" in path.name)
        assert _rows(settings) == ROWS
        assert "damaged" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_bytes(path.read_bytes()[:40]), lambda path: _other_tokens(path)]
)
def test_cache_damaged_tokens_and_changed_texts_are_made_again(cache, settings, damage, capfd):
    tokenizer = train([], PieceSettings(kind="bytes"), "text")

    def tokens() -> list[tuple[list[int], list[int]]]:
        data = encode_corpus(prefixed(load_split(settings, "train"), "to German: "), tokenizer, tokenizer)
        return [data.pair(row) for row in range(len(data))]

    expected = [(tokenizer.encode(f"to German: {source}"), tokenizer.encode(target)) for source, target in ROWS]
    before = set(cache.rglob("*.arrow")) if _rows(settings) else set()
    assert tokens() == expected
    made = sorted(set(cache.rglob("*.arrow")) - before)
    assert len(made) == 2
    for path in made:
        capfd.readouterr()
        damage(path)
        assert tokens() == expected
        assert f"{path}: this cached file is damaged" in capfd.readouterr().err
    assert tokens() == expected
    assert capfd.readouterr().err == ""


def _other_tokens(path: Path) -> None:
    content = path.read_bytes()
    text, ids = b"dog", np.frombuffer(b"dog", np.uint8).astype("<i4") + len(SPECIAL_TOKENS)
    changed = content.replace(text, b"fox").replace(ids.tobytes(), ids[::-1].tobytes())
    assert changed != content
    path.write_bytes(changed)


def test_cache_removes_files_of_killed_processes_only(cache, settings):
    left, written = cache / "s2s" / "0" / "generator.incomplete", cache / "s2s" / "1" / "generator.incomplete"
    (left.mkdir(parents=True), written.mkdir(parents=True))
    with caching.file_lock(written.parent.with_name("1.lock")):
        assert _rows(settings) == ROWS
    assert (left.parent.exists(), written.exists()) == (False, True)
    shutil.rmtree(written.parent)
