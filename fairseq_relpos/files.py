"""Writing files."""

import contextlib
import fcntl
import os
import uuid


def temporary(path):
    """A name beside ``path`` that no other process, on whatever machine, writes to."""
    return f"{path}.part{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def whole_file(path):
    """A name to write to, which becomes ``path`` if all goes well and vanishes if not."""
    part = temporary(path)
    try:
        yield part
        os.replace(part, path)
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
