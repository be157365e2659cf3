"""Atomic writes of files and folders, and reading of files that may be packed."""

import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

#: errors of a full disk
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: the ending of a file -> what opens it
OPENERS: dict[str, Any] = {"": open, ".xz": lzma.open, ".gz": gzip.open}
#: what reading a packed file may raise if it is cut short or damaged
UNPACKING_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error)


def opened(path: str | Path) -> IO[bytes]:
    """Opens a file to read its bytes: plain, .xz or .gz."""
    return OPENERS.get(os.path.splitext(path)[1], open)(path, "rb")


def forms_of(path: str | Path) -> list[str]:
    """Returns those of the file's forms that are there: plain, .xz, .gz."""
    return [name for ending in OPENERS if os.path.isfile(name := f"{path}{ending}")]


def digest_of(kind: str, *paths: str | Path) -> str:
    """Returns one digest of all files. kind: the name of the algorithm, such as "sha256"."""
    found = hashlib.new(kind)
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    return found.hexdigest()


class NoRoom(OSError):
    """The error for a full disk; its text is one line that names the file."""

    def __init__(self, message: str, number: int | None) -> None:
        super().__init__(message)
        self.errno = number


def temporary(path: str | Path) -> str:
    """Returns a name beside ``path`` that no other process, on any machine, writes to."""
    return f"{path}.part{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[str]:
    """Context for an atomic write: gives a temporary name, which becomes ``path`` if no error is raised. After an error
    the temporary file is removed. Raises NoRoom if the disk is full, and another OSError, which names ``path``, if it
    cannot be written."""
    if os.path.exists(path) and not os.path.isfile(path):  # root may replace a device
        raise OSError(errno.EINVAL, "it is a folder or a device: give the name of a file", str(path))
    part = temporary(path)
    try:
        yield part
        os.replace(part, path)
    except NoRoom:
        raise  # it belongs to another file that was written inside this context
    except Exception as error:
        full = no_room(error)
        if full is not None:
            raise NoRoom(why_not_written(path, part, full), full.errno) from error
        if isinstance(error, OSError) and os.path.normpath(str(error.filename)) == os.path.normpath(part):
            raise type(error)(error.errno, error.strerror, str(path)) from error  # without the temporary name
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def write_text(path: str | Path, text: str) -> None:
    """Writes a file of UTF-8, atomically."""
    with whole_file(path) as part:
        Path(part).write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


@contextlib.contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Context for a folder that is written as a whole: gives a temporary folder, which becomes ``path`` if no error is
    raised, and is removed otherwise. First it removes what killed processes have left of the same folder."""
    path = Path(path)
    for left in path.parent.iterdir():
        if re.fullmatch(rf"{re.escape(path.name)}\.part[0-9a-f]{{12}}", left.name):
            with left_over(left) as ended:
                if ended:
                    shutil.rmtree(left, ignore_errors=True)
    part = Path(temporary(path))
    unlocked = Path(f"{part}.unlocked")  # no other run removes that
    unlocked.mkdir()
    handle = os.open(unlocked, os.O_RDONLY)
    try:
        own(handle)
        unlocked.rename(part)
        yield part
        part.rename(path)
    finally:
        os.close(handle)
        for folder in (unlocked, part):
            shutil.rmtree(folder, ignore_errors=True)


def own(file: IO[Any] | int) -> None:
    """Locks an open file or folder, which tells ``left_over`` that its process still runs."""
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX)


@contextlib.contextmanager
def left_over(path: str | Path) -> Iterator[bool]:
    """Context that gives whether the process that owned the file or folder has ended, on any machine; it is locked
    inside, if so. Also False if the file system has no locks."""
    try:
        file = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ended = True
        except OSError:
            ended = False
        yield ended
    finally:
        os.close(file)


def no_room(error: BaseException | None) -> OSError | None:
    """Returns the OSError of a full disk in the chain of this error, if any: torch.save to an open file hides it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return error
        error = error.__cause__ or error.__context__
    return None


def why_not_written(path: str | Path, part: str, full: OSError) -> str:
    written = os.path.getsize(part) if os.path.exists(part) else 0
    free = shutil.disk_usage(os.path.dirname(path) or ".").free
    return (
        f"{path} cannot be written: {full.strerror} ({written / 1e6:,.1f} MB were written, {free / 1e6:,.1f} MB are "
        "free now); nothing half-written is left: make room, or give a name on another disk"
    )
