"""`fairseq-relpos import-tupe IN OUT`: a checkpoint of the official TUPE code for fairseq 0.12."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="checkpoint that the official TUPE code saved")
    parser.add_argument("output", metavar="OUT", help="checkpoint to write, a .pt file")
    parser.add_argument(
        "--dict",
        metavar="FILE",
        help="its dict.txt (default: the one beside IN, if there); one with the same ids for "
        "stock fairseq is written beside OUT",
    )


def run(args: argparse.Namespace) -> None:
    from ..checkpoints.tupe import import_tupe

    done = import_tupe(args.input, args.output, args.dict)
    print(f"{args.output}: {done.parameters:,} parameters, --arch {done.arch}")
    if done.fresh:
        print(f"not in {args.input}, initialised afresh: {' '.join(done.fresh)}")
    if done.dict_path:
        print(f"{done.dict_path}: use it in place of the official dict.txt, with the same data")
    else:
        print("no dict.txt: with --dict you get one from which stock fairseq makes the official ids")
