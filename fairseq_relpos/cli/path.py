"""``fairseq-relpos path``."""

from pathlib import Path


def add_arguments(parser):
    pass


def run(args):
    print(Path(__file__).resolve().parents[1])
    return 0
