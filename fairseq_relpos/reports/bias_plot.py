"""``fairseq-relpos plot bias``: the position bias of a checkpoint, one heat map per head."""

import argparse
from pathlib import Path

import torch

from ..biases import HEADS_A_ROW, position_biases
from ..command_line import positive
from .checkpoint import STACKS, encoded_stack, load_positions
from .figures import heat_maps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a .pt file that fairseq-train saved")
    parser.add_argument(
        "--length", type=positive, metavar="T", help="draw T positions (default: as many as in training)"
    )
    parser.add_argument("--stack", choices=STACKS, help="whose bias (default: the encoder's if there is one)")


def run(args: argparse.Namespace) -> Path:
    """Plots the position bias of a checkpoint, a heat map for each head."""
    model, settings, updates = load_positions(args.checkpoint)
    name, _, stack = encoded_stack(model, settings, args.checkpoint, args.stack)
    length = stack.embed_positions.max_positions if args.length is None else args.length
    biases = position_biases(stack, length)
    if not biases:
        raise ValueError(
            f"{args.checkpoint}: {name} has no position bias of its own: its positions reach "
            "attention through the words. `fairseq-relpos list` shows which encodings add one"
        )
    state = f"after {updates:,} updates" if updates else "as it starts, before any update"
    for title, bias_HTS in biases.items():
        print(
            f"{title or name}: {bias_HTS.size(0)} heads x {length} x {length} tokens, "
            f"{bias_HTS.min():.2f} to {bias_HTS.max():.2f} (added to the logits)"
        )
    return plot(biases, f"{name} {state}", args.output)


def plot(biases: dict[str, torch.Tensor], model: str, path: str | Path) -> Path:
    """Plots a heat map for each head of each bias. model: the name in the title."""
    maps = [
        (f"{title}, head {head}" if title else f"head {head}", bias_TS)
        for title, bias_HTS in biases.items()
        for head, bias_TS in enumerate(bias_HTS, 1)
    ]
    columns = min(HEADS_A_ROW, len(maps) // len(biases))
    axes = ("key position j (tokens)", "query position i (tokens)")
    return heat_maps(maps, columns, 3.2, "bias added to the logit (nats)", f"Position bias of {model}", path, axes)
