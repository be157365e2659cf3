"""`fairseq-relpos export-discriminator CHECKPOINT OUT`: the discriminator of an ELECTRA, to be fine-tuned."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint of an electra_NAME")
    parser.add_argument("output", metavar="OUT", help="checkpoint of a roberta_NAME to write, a .pt file")
    parser.add_argument(
        "--seed", type=int, default=1, help="for the head for masks, which a discriminator has not got (default: 1)"
    )


def run(args: argparse.Namespace) -> None:
    from ..checkpoints.exporting import export_discriminator
    from .warm_start import flags_of_positions

    settings = export_discriminator(args.checkpoint, args.output, args.seed)
    print(f"{args.output}: the discriminator of {args.checkpoint} as {settings.arch}, to be fine-tuned")
    print("its head for masks is new: it fills no masks before it is trained")
    print(f"train with: {' '.join(flags_of_positions(args.output, settings))}")
