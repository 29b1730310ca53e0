"""Whole or absent: what a crash or a full disk leaves is the old file or the new one. And a lock, and a sweep."""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import TypeVar

from s2s.errors import UserError, check_regular

C = TypeVar("C")

UNFINISHED = ".unfinished-"
"""How the names begin of what is still being written or removed."""

# of the folders in which something waits, under its own name, until the new one is in its place
_ASIDE = f"{UNFINISHED}replaced-"

_A_DAY = 24 * 60 * 60

MAX_BYTES = 1 << 26
"""The default size limit of a file that is read whole."""
LARGE_BYTES = 1 << 30
"""The size limit of files that grow with a corpus or a test set."""
RESTORE = "restore the file from a copy of this folder"
"""The default remedy for a file of ours that is something else."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def write_folder_atomically(path: Path, follow: bool = False) -> Iterator[Path]:
    """A place to write a file or a folder that shall stand at `path`: there whole and on the disk, or not at all.

    What is at `path` is replaced, and a failure leaves nothing behind.

    Args:
        path: of a file or a folder, or of one that is not there yet; its own folder is there.
        follow: write to the target of a symbolic link at `path`, and write a device or a pipe in place. For paths that
            the user names. By default a link is replaced, because a run from elsewhere may contain any link.

    Yields:
        Where to write; nothing is there yet.

    Raises:
        OSError: it cannot be written; `filename` says what.
    """
    # what /dev/stdout leads to has no name where it is a pipe
    special = follow and path.exists() and not (path.is_file() or path.is_dir())
    path = path.resolve() if follow and not special else path
    place = path if special else _aside(path)
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
    """Writes or replaces a file of text (UTF-8, lines as they are) or of bytes; see `whole`."""
    with write_folder_atomically(path, follow) as place:
        place.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def open_regular(path: Path, remedy: str = RESTORE) -> BufferedReader:
    """Open a regular file for reading; a symbolic link to one is followed.

    Args:
        path: path of the file.
        remedy: what to do if `path` is something else.

    Returns:
        The open file, in binary mode.

    Raises:
        UserError: `path` is a folder, a device, a pipe or a socket. Opening a pipe does not wait for a writer.
        OSError: the file is missing or cannot be read.
    """
    check_regular(path, remedy)
    return os.fdopen(_regular(path, os.O_RDONLY, remedy), "rb")


def read_file(path: Path, remedy: str = RESTORE, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a regular file of limited size.

    Raises:
        UserError: `path` is not a regular file, or is larger than `max_bytes`.
        OSError: the file is missing or cannot be read.
    """
    with open_regular(path, remedy) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UserError(f"has more than {max_bytes:,} bytes", str(path), remedy)
    return content


def append_to(path: Path) -> BufferedWriter:
    """Open a file of ours for appending, or create it; never through a symbolic link.

    Raises:
        UserError: `path` is a symbolic link or not a regular file.
        OSError: the file cannot be written.
    """
    return os.fdopen(_ours(path, os.O_WRONLY | os.O_APPEND), "ab")


def make_folder(path: Path) -> None:
    """Create a folder inside a folder of ours, unless it exists; its own folder must exist.

    Raises:
        UserError: `path` is a symbolic link or not a folder.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        what = "is a symbolic link, and s2s would write into its target" if path.is_symlink() else "is not a folder"
        raise UserError(what, str(path), "remove it, or put a folder in its place")
    path.mkdir(exist_ok=True)


def check_unlinked(folder: Path) -> None:
    """Refuse symbolic links to folders in a folder of ours, before anything is written into the folders in it.

    Raises:
        UserError: for the first such link.
    """
    for path in sorted(path for path in folder.glob("*") if path.is_symlink() and path.is_dir()):
        make_folder(path)


def copy_files(source: Path, target: Path) -> None:
    """Copy the regular files of a folder into a new folder; subfolders are left out.

    Raises:
        UserError: something in `source` is a device or a pipe.
        OSError: a file cannot be read or written.
    """
    target.mkdir()
    for path in sorted(path for path in source.iterdir() if not path.is_dir()):
        with open_regular(path) as file, (target / path.name).open("xb") as copy:
            shutil.copyfileobj(file, copy)


def is_number(name: str) -> bool:
    """Return True for a name of ASCII digits; `str.isdigit` also takes `²`, which `int` refuses."""
    return name.isascii() and name.isdecimal()


def sha256_of(path: Path) -> str:
    """The SHA-256 digest of a regular file's content, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(folder: Path) -> None:
    """Removes a folder; a removal that is cut short leaves nothing under its name, and `sweep` finds the rest."""
    aside = _aside(folder)
    rubbish = aside.with_name(f"{aside.name}.old")
    _delete(rubbish)
    folder.rename(rubbish)
    shutil.rmtree(rubbish)


def remove_unfinished(folder: Path, alone: bool = False) -> None:
    """Removes what was left half-written or half-removed in a folder by processes that are no more.

    What they had set aside for something new that never came is put back.

    Args:
        folder: that is looked through, not the folders in it.
        alone: whether nobody else may be writing there, whatever processes there are.
    """
    for path in folder.glob(f"{UNFINISHED}*"):
        waits = path.name.startswith(_ASIDE)
        owner, dash, _ = path.name.removeprefix(_ASIDE if waits else UNFINISHED).partition("-")
        if alone or not dash or _is_gone(owner, path):
            (_settle if waits else _delete)(path)


@contextmanager
def file_lock(path: Path, wait: bool = False) -> Iterator[None]:
    """Within it, no other process holds this lock; its file stays when it is given back.

    Args:
        path: of the lock's file.
        wait: for another process, as long as it takes.

    Raises:
        BlockingIOError: another process holds it.
        UserError: the path is a symbolic link or not a regular file.
    """
    with os.fdopen(_ours(path, os.O_RDWR), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        # who held it may have removed it: then it is no longer what others find
        if not (path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())):
            raise BlockingIOError(errno.EWOULDBLOCK, "is being removed", str(path))
        yield


def _ours(path: Path, flags: int) -> int:
    """Opens or creates a file for writing, unless it is a link, which could lead to any file of the user's."""
    remedy = "remove it: s2s writes a regular file here"
    try:
        return _regular(path, flags | os.O_CREAT | os.O_NOFOLLOW, remedy)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UserError("is a symbolic link, and s2s would write to its target", str(path), remedy) from None


def _regular(path: Path, flags: int, remedy: str) -> int:
    """The descriptor of a regular file; a pipe is opened without waiting for its other end, and refused."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError("is not a regular file but a folder, a device or a pipe", str(path), remedy)
    return handle


def is_disk_full(error: OSError) -> bool:
    """Whether there was no room: on the disk, or within what the user or the process may use of it."""
    return error.errno in _NO_ROOM


def explain_os_error(error: OSError, where: str = "", remedy: str = "") -> UserError:
    """What the system said of a file, as a message: which, why, and what to do.

    Args:
        error: what the system said.
        where: what was being written, where the error does not name it.
        remedy: what to do once there is room again, where there was none.
    """
    what = error.strerror or str(error)
    place = str(error.filename or where or "a file or standard output")
    if is_disk_full(error):
        return UserError(f"cannot be written: {what}", place, f"make room, then {remedy or 'repeat the command'}")
    return UserError(what, place, "look at the path and at who may use it")


def _aside(path: Path) -> Path:
    # of one call: two processes, or threads, may write the same file, and each of them a whole one
    return path.with_name(f"{UNFINISHED}{_owner()}-{secrets.token_hex(4)}-{path.name[-50:]}")


def _owner() -> str:
    """This process, among those of all machines and containers that may see the same folder."""
    return f"{os.getpid()}.{_where()}"


@cache
def _where() -> str:
    """Where this process' number means something: the machine and, within it, the container."""
    try:
        inside = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        inside = ""
    return hashlib.blake2b(f"{socket.gethostname()} {inside}".encode(), digest_size=4).hexdigest()


def _is_gone(owner: str, path: Path) -> bool:
    """Whether a process writes no more: one that does not run here, or one of elsewhere that was silent for a day."""
    process, _, where = owner.partition(".")
    if where in ("", _where()):
        return process == str(os.getpid()) or not _runs(process)
    with suppress(OSError):
        newest = max(each.stat().st_mtime for each in (path, *path.rglob("*")))
        return time.time() - newest > _A_DAY
    return False


def _exchange(place: Path, path: Path) -> None:
    """Puts a folder in the place of what is there, so that a kill or an error at any moment leaves one whole."""
    aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{_owner()}-", dir=path.parent))
    try:
        path.rename(aside / path.name)
        place.rename(path)
        _sync(path.parent)
    finally:
        _settle(aside)


def _settle(aside: Path) -> None:
    """Puts back what waits in it where nothing has come in its place, and removes it otherwise."""
    with suppress(OSError):
        for old in aside.iterdir():
            if not (aside.parent / old.name).exists():
                old.rename(aside.parent / old.name)
        # half removed, it must not be put back when the new one is removed one day
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
    """Whatever it is, if it is; what cannot be removed stays."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def spreadsheet_cell(cell: C) -> C | str:
    """A cell of a CSV file that no spreadsheet takes for a formula, as OWASP says: such texts get an apostrophe."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
