"""Writing files."""

import contextlib
import errno
import fcntl
import os
import shutil
import uuid

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NoRoom(OSError):
    """A file that the disk has no room for; its text is one line that says so."""

    def __init__(self, message, number):
        super().__init__(message)
        self.errno = number


def temporary(path):
    """A name beside ``path`` that no other process, on whatever machine, writes to."""
    return f"{path}.part{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def whole_file(path):
    """A name to write to, which becomes ``path`` if all goes well and vanishes if not.

    Raises NoRoom where the disk is full.
    """
    part = temporary(path)
    try:
        yield part
        os.replace(part, path)
    except NoRoom:
        raise  # of another file that was written meanwhile
    except Exception as error:
        full = no_room(error)
        if full is None:
            raise
        raise NoRoom(why_not_written(path, part, full), full.errno) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def own(file):
    """Mark an open file as one that a living process writes: ``is_left_over``."""
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX)


def is_left_over(path):
    """Whether the process that owned the file has ended, on whatever machine. False, too, where the
    file system does not say."""
    try:
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def no_room(error):
    """The OSError of a full disk that is behind this one, if any: torch.save to an open file hides it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return error
        error = error.__cause__ or error.__context__
    return None


def why_not_written(path, part, full):
    written = os.path.getsize(part) if os.path.exists(part) else 0
    free = shutil.disk_usage(os.path.dirname(path) or ".").free
    return (
        f"{path} cannot be written: {full.strerror} ({written / 1e6:,.1f} MB were written, {free / 1e6:,.1f} MB are "
        "free now); nothing half-written is left: make room, or give a name on another disk"
    )
