"""``fairseq-relpos path``."""

import argparse
from pathlib import Path


def run(args: argparse.Namespace) -> None:
    print(Path(__file__).resolve().parents[1])
