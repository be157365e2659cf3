"""Errors of one line for the programs of this package."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Ends the program with exit code 1, or with 76 if the run has diverged. The scripts of the recipes put their name
    in front of the line."""
    from ..atomic_files import NO_ROOM, NoRoom
    from ..diverged import end

    try:
        yield
    except (ValueError, OSError) as error:
        text = " ".join(str(error).split())
        # the text of NoRoom says it all
        if isinstance(error, OSError) and error.errno in NO_ROOM and not isinstance(error, NoRoom):
            text = f"{error.filename or 'the disk'}: {error.strerror}: make room and run this again"
        end(error, text)


def run_program(main: Callable[[list[str]], Any]) -> None:
    """Runs a program with the arguments of the command line."""
    with in_one_line():
        main(sys.argv[1:])
