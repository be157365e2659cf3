"""Messages of the recipes' programs. It needs the standard library alone, as stopping.py does."""

import contextlib
import errno
import os
import sys


def script():
    return os.environ.get("SCRIPT") or os.path.basename(sys.argv[0])


def fail(message):
    sys.exit(f"{script()}: error: {message}")


def say(message, stream=None):
    print(f"{script()}: {message}", file=stream, flush=True)


@contextlib.contextmanager
def in_one_line(folder="."):
    """Ends the program with one line for an error that a user can correct, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        fail(f"no room to write in {folder} ({error.strerror or error}): make room and run this again")
    except ValueError as error:
        fail(" ".join(str(error).split()))
