"""The end of a run whose numbers are not finite: exit code 76, by which sweeps and reports know it."""

import sys
from typing import NoReturn

#: beside 75, with which a run ends that was stopped and can be resumed
EXIT_CODE = 76


class Diverged(ValueError):
    """Gradients, outputs or predictions are NaN or infinite. The same command would fail again.

    ``is_located``: the message names the module in which it began, which only one of several ranks may know.
    """

    def __init__(self, message: str, is_located: bool = False):
        super().__init__(message)
        self.is_located = is_located


def end(error: Exception, line: str) -> NoReturn:
    """Prints the line of an error and ends the program: with exit code 76 if a run has diverged, or else with 1."""
    if isinstance(error, Diverged):
        print(line, file=sys.stderr)
        raise SystemExit(EXIT_CODE) from None
    raise SystemExit(line) from None
