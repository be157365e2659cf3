"""Errors of one line for the programs of this package."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Ends the program with exit code 1. SCRIPT of the environment is what the user has called."""
    from ..atomic_files import no_room

    program = os.environ.get("SCRIPT", "fairseq_relpos")
    try:
        yield
    except (ValueError, OSError) as error:
        full = no_room(error)
        text = " ".join(str(error).split())
        if full is not None and full is error:
            text = f"{error.filename or 'the disk'}: {full.strerror}: make room and run this again"
        sys.exit(f"{program}: error: {text}")
