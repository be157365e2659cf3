"""``fairseq-relpos vectors OUT``: the test vectors of every encoding."""

import argparse

from .. import vectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", help="a new folder: a .npz for each encoding, and vectors.json")


def run(args: argparse.Namespace) -> None:
    size = vectors.write(args.out)
    print(f"{args.out}: version {vectors.VERSION}, {size / 1e6:.1f} MB; vectors.json says what each array is")
