"""Whole or absent, alone, and swept."""

import os
from pathlib import Path

import pytest

from s2s.files import UNFINISHED, explained, locked, remove, sweep, whole, write_atomically


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_the_old_one_until_it_is_the_new_one(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    with pytest.raises(IsADirectoryError), whole(path) as place:
        (place.write_text("ne"), tmp_path.read_text())
    assert path.read_text() == "old"
    with whole(path) as place:
        place.write_text("new\r\n")
        assert path.read_text() == "old"
    assert path.read_bytes() == b"new\r\n"
    assert _names(tmp_path) == ["a.txt"]


def test_a_link_is_followed_and_a_device_is_written_as_it_is(tmp_path):
    (tmp_path / "link").symlink_to("a.txt")
    write_atomically(tmp_path / "link", "through")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "through"
    write_atomically(Path("/dev/null"), "gone")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(OSError, match="No space left") as refused:
        write_atomically(Path("/dev/full"), "x")
    assert str(refused.value.filename) == "/dev/full"


def test_a_folder_is_replaced_whole(tmp_path):
    for text in ("one", "two"):
        with whole(tmp_path / "folder") as place:
            place.mkdir()
            (place / text).touch()
    assert _names(tmp_path / "folder") == ["two"]
    remove(tmp_path / "folder")
    assert _names(tmp_path) == []


def test_what_dead_processes_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path):
    living = f"{UNFINISHED}{os.getppid()}-a"
    for name in (living, f"{UNFINISHED}999999999-a", f"{UNFINISHED}0000006", f"{UNFINISHED}{os.getpid()}-b", "c"):
        (tmp_path / name).mkdir()
    sweep(tmp_path)
    assert _names(tmp_path) == [living, "c"]
    sweep(tmp_path, alone=True)
    assert _names(tmp_path) == ["c"]


def test_a_lock_is_held_by_one_and_counts_only_while_its_file_is_there(tmp_path):
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError):
        locked(tmp_path / "lock").__enter__()
    with locked(tmp_path / "lock"):
        pass


def test_a_full_disk_says_what_to_do():
    error = explained(OSError(28, "No space left on device"), "runs/a", "go on: s2s train runs/a --resume")
    assert str(error) == (
        "runs/a: cannot be written: No space left on device\n  → make room, then go on: s2s train runs/a --resume"
    )
