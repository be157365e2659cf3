"""The command line of every program of the package."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong with the arguments, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")


def positive(text: str) -> int:
    """The type of an argument that is a whole number, 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number, 1 or more")
    return value
