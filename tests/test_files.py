"""Atomic writes, locks and cleanup."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from s2s.errors import UserError
from s2s.files import (
    UNFINISHED,
    _machine_id,
    append_to,
    check_unlinked,
    copy_files,
    explain_os_error,
    file_lock,
    make_folder,
    open_regular,
    read_file,
    remove,
    remove_unfinished,
    sha256_of,
    write_atomically,
    write_folder_atomically,
)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_is_the_old_one_until_it_is_the_new_one(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    with pytest.raises(IsADirectoryError), write_folder_atomically(path) as place:
        (place.write_text("ne"), tmp_path.read_text())
    assert path.read_text() == "old"
    with write_folder_atomically(path) as place:
        place.write_text("new\r\n")
        assert path.read_text() == "old"
    assert path.read_bytes() == b"new\r\n"
    assert _names(tmp_path) == ["a.txt"]


def test_files_link_is_followed_and_a_device_is_written_as_it_is(tmp_path):
    (tmp_path / "link").symlink_to("a.txt")
    write_atomically(tmp_path / "link", "through", follow=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "through"
    write_atomically(Path("/dev/null"), "gone", follow=True)
    assert Path("/dev/null").is_char_device()
    with pytest.raises(OSError, match="No space left") as refused:
        write_atomically(Path("/dev/full"), "x", follow=True)
    assert str(refused.value.filename) == "/dev/full"


def test_files_pipe_that_has_no_name_of_its_own_is_written_as_it_is():
    code = (
        "from pathlib import Path; from s2s.files import write_atomically; "
        "write_atomically(Path('/dev/stdout'), 'x', follow=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("x", "")


def test_files_folder_is_replaced_whole(tmp_path):
    for text in ("one", "two"):
        with write_folder_atomically(tmp_path / "folder") as place:
            place.mkdir()
            (place / text).touch()
    assert _names(tmp_path / "folder") == ["two"]
    remove(tmp_path / "folder")
    assert _names(tmp_path) == []


_REPLACED = """
import os, sys
from pathlib import Path
from s2s.files import remove_unfinished, write_folder_atomically

home, how = Path(sys.argv[1]), sys.argv[2]
FILES = {"a": "1", "b": "2"}

def written(text):
    with write_folder_atomically(home / "folder") as place:
        place.mkdir()
        for name, value in FILES.items():
            (place / name).write_text(text + value)

def strike(event, _arguments):
    global left
    if event.split(".")[0] in ("os", "shutil", "tempfile") or event == "open":
        left -= 1
        if left == 0:
            if how == "kill":
                os._exit(9)
            raise OSError(39, "Directory not empty")

left, moment, ended = 0, 0, []
sys.addaudithook(strike)
while True:
    written("old")
    moment += 1
    child = os.fork()
    if not child:
        left = moment
        try:
            written("new")
        except OSError:
            os._exit(1)
        os._exit(0 if left <= 0 else 7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if how == "error":
        # an error, unlike a kill, leaves something there at once
        assert (home / "folder").exists(), moment
    remove_unfinished(home, alone=True)
    found = {path.name: path.read_text() for path in (home / "folder").iterdir()}
    assert found in [{name: text + value for name, value in FILES.items()} for text in ("old", "new")], (moment, found)
    assert [path.name for path in home.iterdir()] == ["folder"], moment
    if status == 7:
        break
    ended.append(("" if status else "whole:") + found["a"])
print(*ended)
"""


@pytest.mark.parametrize("how", ["kill", "error"])
def test_files_whenever_a_replacement_is_struck_the_old_folder_or_the_new_one_is_left_whole(tmp_path, how):
    command = [sys.executable, "-c", _REPLACED, str(tmp_path), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert not done.returncode, done.stderr
    left = done.stdout.split()
    # first the old one at every moment, then the new one, and some of those are within the removal of the old one
    ended = [folder for folder in left if not folder.startswith("whole:")]
    assert ended == sorted(ended, reverse=True)
    assert ended.count("old1") > 5
    # an error may be taken no notice of, by Python itself or where the old one is removed
    assert set(left) - set(ended) <= {"whole:new1"}
    assert len(left) - left.count("old1") > 5


def test_remove_interrupted_is_never_undone(tmp_path, monkeypatch):
    for text in ("old", "new"):
        with monkeypatch.context() as once, write_folder_atomically(tmp_path / "folder") as place:
            once.setattr("s2s.files._delete", lambda _path: None)
            (place.mkdir(), (place / text).touch())
    remove(tmp_path / "folder")
    assert len(_names(tmp_path)) == 1
    remove_unfinished(tmp_path)
    assert _names(tmp_path) == []


def test_sweep_removes_files_of_dead_processes_only(tmp_path):
    living = f"{UNFINISHED}{os.getppid()}-a"
    for name in (living, f"{UNFINISHED}999999999-a", f"{UNFINISHED}0000006", f"{UNFINISHED}{os.getpid()}-b", "c"):
        (tmp_path / name).mkdir()
    remove_unfinished(tmp_path)
    assert _names(tmp_path) == [living, "c"]
    remove_unfinished(tmp_path, alone=True)
    assert _names(tmp_path) == ["c"]


def test_remove_renames_first(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("s2s.files.shutil.rmtree", seen.append)
    for name in ("0000010", "0000020"):
        (tmp_path / name).mkdir()
        remove(tmp_path / name)
    assert len({path.name for path in seen}) == 2
    assert all(path.name.startswith(f"{UNFINISHED}{os.getpid()}.{_machine_id()}-") for path in seen)


def test_files_two_that_write_the_same_lose_nothing_whatever_they_are_called(tmp_path, monkeypatch):
    # as the first processes of two containers, which have one number
    monkeypatch.setattr("s2s.files._owner", lambda: "1.0123abcd")
    with write_folder_atomically(tmp_path / "cache") as one:
        one.mkdir()
        with write_folder_atomically(tmp_path / "cache") as other:
            other.mkdir()
            (other / "second").touch()
        (one / "first").touch()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["first"]
    assert _names(tmp_path) == ["cache"]


def test_sweep_removes_files_of_other_machines_after_a_day(tmp_path):
    elsewhere = tmp_path / f"{UNFINISHED}{os.getpid()}.00000000-1a2b3c4d-cache"
    here = tmp_path / elsewhere.name.replace("00000000", _machine_id())
    for place in (elsewhere, here):
        place.mkdir()
        (place / "part").touch()
    os.utime(elsewhere, (0, 0))
    remove_unfinished(tmp_path)
    assert _names(tmp_path) == [elsewhere.name]
    os.utime(elsewhere / "part", (0, 0))
    os.utime(elsewhere, (0, 0))
    remove_unfinished(tmp_path)
    assert _names(tmp_path) == []


def test_lock_is_held_by_one_and_counts_only_while_its_file_is_there(tmp_path):
    with file_lock(tmp_path / "lock"), pytest.raises(BlockingIOError):
        file_lock(tmp_path / "lock").__enter__()
    with file_lock(tmp_path / "lock"):
        pass


def test_full_disk_error_has_a_remedy():
    error = explain_os_error(OSError(28, "No space left on device"), "runs/a", "resume with: s2s train runs/a --resume")
    assert str(error) == (
        "runs/a: cannot be written: No space left on device\n"
        "  → free disk space, then resume with: s2s train runs/a --resume"
    )


def test_files_link_in_a_folder_of_ours_is_never_written_through(tmp_path):
    (tmp_path / "victim").write_text("kept")
    for name in ("file", "lock", "log"):
        (tmp_path / name).symlink_to("victim")
    write_atomically(tmp_path / "file", "new")
    assert ((tmp_path / "file").read_text(), (tmp_path / "file").is_symlink()) == ("new", False)
    with pytest.raises(UserError, match="lock: is a symbolic link"), file_lock(tmp_path / "lock"):
        pass
    with pytest.raises(UserError, match="log: is a symbolic link"):
        append_to(tmp_path / "log")
    assert (tmp_path / "victim").read_text() == "kept"


def test_files_linked_folder_in_a_folder_of_ours_is_refused_or_replaced(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "run").mkdir()
    link = tmp_path / "run" / "figures"
    link.symlink_to(tmp_path / "victim")
    for refuse in (lambda: make_folder(link), lambda: check_unlinked(tmp_path / "run")):
        with pytest.raises(UserError, match="figures: is a symbolic link"):
            refuse()
    with write_folder_atomically(link) as place:
        place.mkdir()
        (place / "x").touch()
    assert (_names(link), link.is_symlink(), _names(tmp_path / "victim")) == (["x"], False, [])


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_special_files_are_neither_waited_for_nor_read_without_an_end(tmp_path, make):
    make(tmp_path / "file")
    for use in (open_regular, read_file, sha256_of):
        with pytest.raises(UserError, match=r"file: is (a folder|not a regular file)"):
            use(tmp_path / "file")


def test_file_is_not_read_beyond_its_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file", max_bytes=5) == b"12345"
    with pytest.raises(UserError, match="more than 4 bytes"):
        read_file(tmp_path / "file", max_bytes=4)


def test_files_full_disk_within_a_copied_folder_is_an_error_of_the_system(tmp_path, monkeypatch):
    def full(_source, _target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "a.model").write_text("x")
    copy_files(tmp_path / "tokenizer", tmp_path / "copy")
    assert (tmp_path / "copy" / "a.model").read_text() == "x"
    monkeypatch.setattr("shutil.copyfileobj", full)
    with (
        pytest.raises(OSError, match="No space left") as failed,
        write_folder_atomically(tmp_path / "checkpoint") as place,
    ):
        (place.mkdir(), copy_files(tmp_path / "tokenizer", place / "tokenizer"))
    assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, tmp_path / "checkpoint")
