"""The command line of every program of the package."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong with the arguments, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")
