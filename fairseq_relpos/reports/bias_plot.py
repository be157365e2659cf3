"""``fairseq-relpos plot bias``: the position bias of a checkpoint, one heat map per head."""

import argparse
from pathlib import Path
from typing import Any

import torch

from ..biases import HEADS_A_ROW, position_biases
from .checkpoint import STACKS, add_unread_data, choose_stack, encoding_name, load_positions, refuse_stock_stack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a .pt file that fairseq-train saved")
    add_unread_data(parser)
    parser.add_argument("--length", type=int, metavar="T", help="draw T positions (default: as many as in training)")
    parser.add_argument("--stack", choices=STACKS, help="whose bias (default: the encoder's if there is one)")


def run(args: argparse.Namespace) -> None:
    model, settings, updates = load_positions(args.checkpoint)
    name = encoding_name(settings, args.checkpoint)
    chosen, stack = choose_stack(model, args.stack)
    refuse_stock_stack(stack, chosen, args.checkpoint)
    length = stack.embed_positions.max_positions if args.length is None else args.length
    if length < 1:
        raise ValueError(f"--length {length}: a number of positions, 1 or more")
    biases = position_biases(stack, length)
    if not biases:
        raise ValueError(
            f"{args.checkpoint}: {name} has no position bias of its own: its positions reach "
            "attention through the words. `fairseq-relpos list` shows which encodings add one"
        )
    state = f"after {updates:,} updates" if updates else "as it starts, before any update"
    path = plot(biases, f"{name} {state}", args.output)
    for title, bias_HTS in biases.items():
        print(
            f"{title or name}: {bias_HTS.size(0)} heads x {length} x {length} tokens, "
            f"{bias_HTS.min():.2f} to {bias_HTS.max():.2f} (added to the logits)"
        )
    print(f"plot: {path}")


def plot(biases: dict[str, torch.Tensor], model: Any, path: str | Path) -> Path:
    """Plots a heat map for each head of each bias, all with the same colour scale, which is white at 0. model: the name
    in the title."""
    from .figures import HEAT, new_figure, save

    heads = next(iter(biases.values())).size(0)
    columns = min(heads, HEADS_A_ROW)
    strongest = max(bias.abs().max().item() for bias in biases.values())
    maps = [(title, head, bias_HTS[head]) for title, bias_HTS in biases.items() for head in range(heads)]
    figure, panels = new_figure(columns, rows=-(-len(maps) // columns), width=3.4, height=3.1)
    for panel, (title, head, bias_TS) in zip(panels, maps):
        picture = panel.imshow(bias_TS.numpy(), cmap=HEAT, vmin=-strongest, vmax=strongest, interpolation="nearest")
        panel.locator_params(integer=True)
        panel.set_title(f"{title}, head {head + 1}" if title else f"head {head + 1}")
        panel.set_xlabel("key position j (tokens)")
        panel.set_ylabel("query position i (tokens)")
    for panel in panels[len(maps) :]:
        panel.set_axis_off()
    figure.colorbar(picture, ax=panels, label="bias added to the logit (nats)")
    figure.suptitle(f"Position bias of {model}")
    return save(figure, path)
