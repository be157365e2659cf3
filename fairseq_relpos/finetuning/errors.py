"""Errors of one line for the programs of this package."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Ends the program with exit code 1. The scripts of the recipes put their name in front of the line."""
    from ..atomic_files import no_room

    try:
        yield
    except (ValueError, OSError) as error:
        full = no_room(error)
        text = " ".join(str(error).split())
        if full is not None and full is error:
            text = f"{error.filename or 'the disk'}: {full.strerror}: make room and run this again"
        sys.exit(text)
