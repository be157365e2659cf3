"""``fairseq-relpos path``."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    print(Path(__file__).resolve().parents[1])
    return 0
