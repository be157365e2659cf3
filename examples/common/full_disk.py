"""A full disk in one line, for the programs that prepare text."""

import contextlib
import errno
import sys

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def in_one_line(program, folder):
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        sys.exit(f"{program}: error: no room to write in {folder} ({error.strerror}): make room and run this again")
