"""``fairseq-relpos list``."""

import argparse

from ..encodings import ENCODINGS
from .docstrings import equation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    width = max(map(len, ENCODINGS))
    for name in sorted(ENCODINGS):
        print(f"{name:{width}}  {equation(ENCODINGS[name])}")
    return 0
