"""Errors in one line, for the programs that prepare text."""

import contextlib
import errno
import sys
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def fail(message):
    sys.exit(f"{Path(sys.argv[0]).name}: error: {message}")


@contextlib.contextmanager
def in_one_line(program, folder):
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        sys.exit(f"{program}: error: no room to write in {folder} ({error.strerror}): make room and run this again")
