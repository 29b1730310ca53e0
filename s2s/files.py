"""Atomic file writes, size-limited reads, file locks and clean-up.

After a crash or on a full disk, a file or folder is either the old one or the new one, never half-written.
"""

import errno
import hashlib
import os
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import TypeVar

from s2s.errors import UserError, check_regular, quote_path

C = TypeVar("C")

# Windows has no fcntl, no descriptors of folders, and no signal that only asks whether a process runs.
_POSIX = find_spec("fcntl") is not None

UNFINISHED = ".unfinished-"
"""Name prefix of files and folders that are being written or removed."""

# Prefix of folders that hold the old version, under its own name, until the new one is in its place.
_ASIDE = f"{UNFINISHED}replaced-"

_A_DAY = 24 * 60 * 60

MAX_BYTES = 1 << 26
"""Default size limit for a file that is read into memory."""
LARGE_BYTES = 1 << 30
"""Size limit for files that grow with a corpus or a test set."""
RESTORE = "restore the file from a copy of this folder"
"""Default remedy if a file of a run is missing or damaged."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def write_folder_atomically(path: Path, follow: bool = False) -> Iterator[Path]:
    """Write a file or folder atomically; a context manager.

    The body writes to a temporary path, which then replaces `path` after a sync to disk. A failure leaves nothing
    behind.

    Args:
        path: Path of the file or folder, which may exist. Its parent folder must exist.
        follow: Write to the target of a symbolic link at `path`, and write to a device or a pipe in place. For paths
            that the user names. By default a link is replaced, because a run from elsewhere may contain any link.

    Yields:
        The path to write to; nothing exists there yet.

    Raises:
        OSError: Writing failed; `filename` names the path.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with write_folder_atomically(Path(folder) / "new") as place:
        ...         place.mkdir()
        ...         _ = (place / "a.txt").write_text("content")
        ...     sorted(path.name for path in (Path(folder) / "new").iterdir())
        ['a.txt']
    """
    # The target of /dev/stdout has no path if it is a pipe.
    special = follow and path.exists() and not (path.is_file() or path.is_dir())
    path = path.resolve() if follow and not special else path
    place = path if special else _temporary_path(path)
    try:
        yield place
        if not special:
            for file in (*place.rglob("*"), place):
                _sync(file)
            if place.is_dir() and os.path.lexists(path):
                _exchange(place, path)
            else:
                place.replace(path)
                _sync(path.parent)
    except OSError as error:
        if error.filename is None or Path(error.filename).is_relative_to(place):
            error.filename = path
        raise
    finally:
        if not special:
            _delete(place)


def write_atomically(path: Path, content: str | bytes, follow: bool = False) -> None:
    """Write or replace a file atomically; see `write_folder_atomically`.

    Text is written as UTF-8. Bytes of a file name that are not UTF-8 are escaped, as in JSON.
    """
    with write_folder_atomically(path, follow) as place:
        place.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


def open_regular(path: Path, remedy: str = RESTORE) -> BufferedReader:
    """Open a regular file (or a symbolic link to one) for reading."""
    check_regular(path, remedy)
    return os.fdopen(_regular(path, os.O_RDONLY, remedy), "rb")


def read_file(path: Path, remedy: str = RESTORE, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a regular file of limited size."""
    with open_regular(path, remedy) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UserError(f"has more than {max_bytes:,} bytes", str(path), remedy)
    return content


def append_to(path: Path) -> BufferedWriter:
    """Open a file of a run for appending, or create it; never through a symbolic link."""
    return os.fdopen(_open_regular(path, os.O_WRONLY | os.O_APPEND), "ab")


def make_folder(path: Path) -> None:
    """Create a folder inside a folder of a run, unless it exists."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        what = "is a symbolic link, and s2s would write into its target" if path.is_symlink() else "is not a folder"
        raise UserError(what, str(path), "remove it, or put a folder in its place")
    path.mkdir(exist_ok=True)


def check_unlinked(folder: Path) -> None:
    """Refuse symbolic links to folders inside a folder of a run."""
    for path in sorted(path for path in folder.glob("*") if path.is_symlink() and path.is_dir()):
        make_folder(path)


def copy_files(source: Path, target: Path) -> None:
    """Copy the regular files of a folder, but not its subfolders, into a new folder."""
    target.mkdir()
    for path in sorted(path for path in source.iterdir() if not path.is_dir()):
        with open_regular(path) as file, (target / path.name).open("xb") as copy:
            shutil.copyfileobj(file, copy)


def is_number(name: str) -> bool:
    """Return True for a name of ASCII digits.

    `str.isdigit` also accepts `²`, which `int` refuses.

    Example:
        >>> is_number("0100"), is_number("²")
        (True, False)
    """
    return name.isascii() and name.isdecimal()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of a regular file's content, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(folder: Path) -> None:
    """Remove a folder.

    The folder is renamed first: an interrupted removal leaves nothing under its name, and `remove_unfinished` removes
    the rest.
    """
    aside = _temporary_path(folder)
    rubbish = aside.with_name(f"{aside.name}.old")
    _delete(rubbish)
    folder.rename(rubbish)
    shutil.rmtree(rubbish)


def remove_unfinished(folder: Path, alone: bool = False) -> None:
    """Remove half-written or half-removed files that ended processes left in a folder.

    An old version whose replacement was never finished is restored.

    Args:
        folder: Folder to clean; its subfolders are not searched.
        alone: The caller knows that no other process writes to the folder, so unfinished files of running processes
            are removed, too.
    """
    for path in folder.glob(f"{UNFINISHED}*"):
        waits = path.name.startswith(_ASIDE)
        owner, dash, _ = path.name.removeprefix(_ASIDE if waits else UNFINISHED).partition("-")
        if alone or not dash or _is_gone(owner, path):
            (_settle if waits else _delete)(path)


@contextmanager
def file_lock(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on a file; a context manager.

    The file remains after the release.

    Raises:
        BlockingIOError: Another process holds the lock.
        UserError: The path is a symbolic link or not a regular file.
    """
    with os.fdopen(_open_regular(path, os.O_RDWR), "r+b") as file:
        _lock(file.fileno(), wait)
        # The previous holder may have removed the file: then other processes no longer see this lock.
        if not (path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())):
            raise BlockingIOError(errno.EWOULDBLOCK, "is being removed", str(path))
        yield


def _lock(handle: int, wait: bool) -> None:
    if _POSIX:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    msvcrt = import_module("msvcrt")
    while True:
        try:
            return msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            if not wait:
                raise BlockingIOError(errno.EWOULDBLOCK, "is locked") from None
        time.sleep(0.1)


def _open_regular(path: Path, flags: int) -> int:
    """Open or create a file for writing, but refuse a symbolic link.

    A link could point to any file of the user.
    """
    remedy = "remove it: s2s writes a regular file here"
    link = UserError("is a symbolic link, and s2s would write to its target", str(path), remedy)
    if path.is_symlink():
        raise link
    try:
        # It may have become a link since.
        return _regular(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), remedy)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise link from None


def _regular(path: Path, flags: int, remedy: str) -> int:
    """Return the descriptor of a regular file, without waiting for a pipe's other end."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError("is not a regular file but a folder, a device or a pipe", str(path), remedy)
    return handle


def is_disk_full(error: OSError) -> bool:
    """Return True if the disk is full or a quota or file-size limit is reached."""
    return error.errno in _DISK_FULL


def explain_os_error(error: OSError, where: str = "", remedy: str = "") -> UserError:
    """Turn an operating-system error into a message with path, reason and remedy.

    Example:
        >>> print(explain_os_error(OSError(errno.ENOSPC, "No space left on device", "runs/a")))
        runs/a: cannot be written: No space left on device
          → free disk space, then repeat the command
    """
    what = error.strerror or str(error)
    place = str(error.filename or where or "a file or standard output")
    if is_disk_full(error):
        return UserError(f"cannot be written: {what}", place, f"free disk space, then {remedy or 'repeat the command'}")
    return UserError(what, place, "check the path and its permissions")


def _temporary_path(path: Path) -> Path:
    # Unique for each call: several processes or threads may write the same file at once.
    return path.with_name(f"{UNFINISHED}{_owner()}-{secrets.token_hex(4)}-{path.name[-50:]}")


def _owner() -> str:
    return f"{os.getpid()}.{_machine_id()}"


@cache
def _machine_id() -> str:
    """Return an identifier of machine and container, in which a process id is unique."""
    try:
        inside = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        inside = ""
    return hashlib.blake2b(f"{socket.gethostname()} {inside}".encode(), digest_size=4).hexdigest()


def _is_gone(owner: str, path: Path) -> bool:
    """Return True if the writer has ended.

    On this machine its process id decides; elsewhere, and on Windows, a day without a change.
    """
    process, _, where = owner.partition(".")
    if where in ("", _machine_id()) and _POSIX:
        return process == str(os.getpid()) or not _runs(process)
    with suppress(OSError):
        newest = max(each.stat().st_mtime for each in (path, *path.rglob("*")))
        return time.time() - newest > _A_DAY
    return False


def _exchange(place: Path, path: Path) -> None:
    """Replace a folder; an error or a kill at any time leaves the old or the new one."""
    aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{_owner()}-", dir=path.parent))
    try:
        path.rename(aside / path.name)
        place.rename(path)
        _sync(path.parent)
    finally:
        _settle(aside)


def _settle(aside: Path) -> None:
    """Restore the old version if there is no new one, and remove its temporary folder."""
    with suppress(OSError):
        for old in aside.iterdir():
            if not (aside.parent / old.name).exists():
                old.rename(aside.parent / old.name)
        # A half-removed old version must not be restored if the new one is removed later.
        rubbish = aside.with_name(UNFINISHED + aside.name.removeprefix(_ASIDE))
        aside.rename(rubbish)
        _delete(rubbish)


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    return True


def _delete(path: Path) -> None:
    """Remove a file or folder if it exists, and ignore errors."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _sync(path: Path) -> None:
    if not _POSIX and path.is_dir():
        return
    # Windows syncs what is open for writing.
    handle = os.open(path, os.O_RDONLY if _POSIX else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def spreadsheet_cell(cell: C) -> C | str:
    """Escape a CSV cell that a spreadsheet would execute as a formula (OWASP).

    Example:
        >>> spreadsheet_cell("=1+1"), spreadsheet_cell("-1.5")
        ("'=1+1", '-1.5')
    """
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


COMPARISON = "comparison.json"
"""File name of a comparison's plan, in its folder."""
ASKED = "asked.json"
"""File name of a reproduction's settings, in its folder."""
EXPORTED = "export.json"
"""File name of the description of an export, in its folder."""


def check_outermost(folder: Path) -> None:
    """Refuse the folder of a comparison's measurements, which has copies of its plan and recipe."""
    parent = folder.resolve().parent
    if folder.resolve().name == "cells" and (parent / COMPARISON).is_file():
        raise UserError("holds the measurements of a comparison", str(folder), f"name {quote_path(parent)}")


def identify_folder(folder: Path) -> tuple[str, str] | None:
    """Name the folder of a comparison or a reproduction, with a remedy; None for other folders."""
    if (folder / ASKED).is_file():
        remedy = f"its page is report.html; `s2s reproduce NAME --out {quote_path(folder)}` resumes it"
        return "a reproduction", remedy
    # The plan may be lost: a copy is stored with the results of the trials.
    if (folder / COMPARISON).is_file() or (folder / "cells" / COMPARISON).is_file():
        resume, runs = quote_path(folder), quote_path(folder / "runs")
        return "a comparison", f"`s2s compare --resume {resume}` resumes it; its runs are in {runs}"
    return None


def foreign_files(folder: Path, ours: Sequence[str]) -> str:
    """List the files of a folder that match none of the patterns in words, such as `a and 3 others`."""
    names = sorted(path.name for path in folder.iterdir() if not any(fnmatch(path.name, our) for our in ours))
    return " and ".join(names[:2]) if len(names) < 3 else f"{names[0]} and {len(names) - 1:,} others"
