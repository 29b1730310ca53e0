"""Whole or absent: what a crash or a full disk leaves is the old file or the new one. And a lock, and a sweep."""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from s2s.errors import UserError

C = TypeVar("C")

UNFINISHED = ".unfinished-"
"""How the names begin of what is still being written or removed."""

# of the folders in which something waits, under its own name, until the new one is in its place
_ASIDE = f"{UNFINISHED}replaced-"

_A_DAY = 24 * 60 * 60

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A place to write a file or a folder that shall stand at `path`: there whole and on the disk, or not at all.

    A link is followed, what is at `path` is replaced, and a failure leaves nothing behind. A device or a pipe is
    written as it is.

    Args:
        path: of a file or a folder, or of one that is not there yet; its own folder is there.

    Yields:
        Where to write; nothing is there yet.

    Raises:
        OSError: it cannot be written; `filename` says what.
    """
    # what /dev/stdout leads to has no name where it is a pipe
    special = path.exists() and not (path.is_file() or path.is_dir())
    path = path if special else path.resolve()
    place = path if special else _aside(path)
    try:
        yield place
        if not special:
            for file in (*place.rglob("*"), place):
                _sync(file)
            if place.is_dir() and path.exists():
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


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes or replaces a file of text (UTF-8, lines as they are) or of bytes; see `whole`."""
    with whole(path) as place:
        place.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def remove(folder: Path) -> None:
    """Removes a folder; a removal that is cut short leaves nothing under its name, and `sweep` finds the rest."""
    aside = _aside(folder)
    rubbish = aside.with_name(f"{aside.name}.old")
    _delete(rubbish)
    folder.rename(rubbish)
    shutil.rmtree(rubbish)


def sweep(folder: Path, alone: bool = False) -> None:
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
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """Within it, no other process holds this lock; its file stays when it is given back.

    Args:
        path: of the lock's file.
        wait: for another process, as long as it takes.

    Raises:
        BlockingIOError: another process holds it.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        # who held it may have removed it: then it is no longer what others find
        if not (path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())):
            raise BlockingIOError(errno.EWOULDBLOCK, "is being removed", str(path))
        yield


def full(error: OSError) -> bool:
    """Whether there was no room: on the disk, or within what the user or the process may use of it."""
    return error.errno in _NO_ROOM


def explained(error: OSError, where: str = "", remedy: str = "") -> UserError:
    """What the system said of a file, as a message: which, why, and what to do.

    Args:
        error: what the system said.
        where: what was being written, where the error does not name it.
        remedy: what to do once there is room again, where there was none.
    """
    what = error.strerror or str(error)
    place = str(error.filename or where or "a file or standard output")
    if full(error):
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
