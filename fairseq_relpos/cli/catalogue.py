"""``fairseq-relpos list``."""

from ..encodings import ENCODINGS
from .docstrings import equation


def add_arguments(parser):
    pass


def run(args):
    width = max(map(len, ENCODINGS))
    for name in sorted(ENCODINGS):
        print(f"{name:{width}}  {equation(ENCODINGS[name])}")
    return 0
