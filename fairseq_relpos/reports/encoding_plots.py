"""``fairseq-relpos plot curve|buckets|prior-matrix|distance``: the functions in an encoding, as in the papers."""

import argparse
from pathlib import Path
from typing import Any

import torch

from ..command_line import positive
from ..encodings import Dims, PositionEncoding, StackPart, build, find, names_for
from ..encodings.transformer_xl import gaussian_cdf_of_distance, sinusoids_of_distance
from ..flags import hparams, prefix_errors
from ..positions import Positions
from ..rows import LogBuckets
from ..terms import Terms, over_offsets
from .checkpoint import STACKS, encoded_stack, load_positions
from .figures import HEAT, line_colours, new_figure, save

PRIORS = {"gcdf": gaussian_cdf_of_distance, "transformer_xl": sinusoids_of_distance}


def add_reach(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--reach", type=positive, default=default, metavar="K", help="largest distance in tokens (default: %(default)s)"
    )


def add_curve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="NAME|CHECKPOINT", help="an encoding as it is initialised, or a trained model")
    parser.add_argument("--position-hparams", default="", metavar='"A=1 B=2"')
    parser.add_argument("--stack", choices=STACKS, help="of a CHECKPOINT (default: the encoder if there is one)")
    parser.add_argument(
        "--layer", type=int, metavar="N", help="of a CHECKPOINT, from 1 (default: the first that has positions)"
    )
    parser.add_argument("--heads", type=positive, default=8, help="of a NAME (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of a NAME (default: %(default)s)")
    add_reach(parser, 64)


def plot_curve(args: argparse.Namespace) -> Path:
    """Plots each head's bias or gain against the relative position (AT5 Figure 4)."""
    length = args.reach + 1
    if Path(args.what).suffix == ".pt":
        model, settings, _ = load_positions(args.what)
        name, _, stack = encoded_stack(model, settings, args.what, args.stack)
        encoding, number = layer_of(stack, args.layer)
        title = f"{name}, layer {number}" if any(True for _ in encoding.parameters()) else name
        part = encoding.stack or stack.embed_positions
    else:
        name = find(args.what).name
        title = f"{name}, as initialised"
        causal = name not in names_for(causal=False)
        dims = Dims(8 * args.heads, args.heads, max(length, 512), causal)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(args.seed)
            given = hparams(args.position_hparams)
            with prefix_errors("--position-hparams"):
                encoding = build(name, dims, **given)
        part = encoding.stack
    curves = row_values(encoding, part, length)
    if curves is None:
        raise ValueError(
            f"{name} has no bias or factor of the relative position alone, so it has no curve; `plot bias` shows a "
            "bias that depends on both positions, `plot scores` scores that depend on the words"
        )
    values_HL, label = curves
    figure, (panel,) = new_figure(width=6)
    # a causal stack sees no key to the right
    offsets = torch.arange(-args.reach, 1 if encoding.dims.causal else args.reach + 1)
    for head, (row, colour) in enumerate(zip(values_HL, line_colours(len(values_HL)))):
        panel.plot(offsets, row[: len(offsets)], color=colour, drawstyle="steps-mid", label=f"head {head + 1}")
    panel.set(xlabel="relative position j - i (tokens)", ylabel=label)
    panel.set_title(title)
    if len(values_HL) > 1:
        panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return save(figure, args.output)


def layer_of(stack: Any, number: int | None) -> tuple[PositionEncoding, int]:
    """Returns the encoding of layer ``number``, from 1, or of the first that has positions, and its number."""
    encodings = [layer.self_attn.position_encoding for layer in stack.layers]
    able = [n for n, encoding in enumerate(encodings, 1) if encoding.name != "none"]
    if number is None:
        number = able[0] if able else 1
    if not 1 <= number <= len(encodings):
        raise ValueError(f"--layer {number}: the layers are 1 to {len(encodings)}")
    if able and number not in able:
        raise ValueError(
            f"--layer {number}: this layer has no positions; layers that have: {', '.join(map(str, able))}"
        )
    return encodings[number - 1], number


@torch.no_grad()
def terms_without_words(encoding: PositionEncoding, part: StackPart, length: int) -> Terms:
    """Returns the terms of attention over this many tokens, with queries and keys of zeros."""
    pos = Positions.of(length, length)
    if part.hard_limit is not None and length > part.hard_limit:
        raise ValueError(
            f"{encoding.name} has {part.hard_limit} absolute positions here: give --reach {part.hard_limit - 1} or less"
        )
    pos.shared = part.evaluate(pos)
    q = torch.zeros(1, encoding.dims.num_heads, length, encoding.dims.head_dim)
    with pos.in_layer(lambda: torch.zeros(1, length, encoding.dims.embed_dim)):
        return encoding.terms(q, q, pos)


def row_values(encoding: PositionEncoding, part: StackPart, length: int) -> tuple[torch.Tensor, str] | None:
    """Returns the values [1|H, 2 length - 1] over j - i = 1 - length .. length - 1, and what they are. It returns None
    for an encoding that is no function of j - i."""
    terms = terms_without_words(encoding, part, length)
    if terms.gain is not None:
        return over_offsets(terms.gain, terms.rows, length, length).detach(), "factor of the logit"
    if terms.is_additive_bias and terms.bias_row is not None and terms.bias is None:
        row_HL = over_offsets(terms.bias_row, terms.rows, length, length)
        return row_HL.detach(), "bias added to the logit (nats)"
    return None


def add_buckets(parser: argparse.ArgumentParser) -> None:
    add_reach(parser, 160)


def plot_buckets(args: argparse.Namespace) -> Path:
    """Plots the bucket functions of T5 and AT5 (AT5 Figure 3)."""
    distances = torch.arange(args.reach + 1)
    figure, (t5, at5) = new_figure(columns=2)
    for num_buckets, max_distance in ((32, 128), (32, 64), (64, 128), (16, 128)):
        rows = LogBuckets(num_buckets, max_distance)(-distances)
        t5.step(distances, rows, where="post", label=f"{num_buckets} buckets, M = {max_distance}")
    t5.set_ylabel("bucket of one side")
    t5.set_title("t5")
    t5.set_ylim(top=48)  # room for the legend
    for gamma in (1, 5, 10, 15):
        at5.plot(distances, 1 - torch.exp(-gamma * distances / args.reach), label=f"gamma = {gamma}")
    at5.set_ylabel("1 - exp(-gamma l / n)")
    at5.set_title(f"at5, n = {args.reach}")
    for panel in (t5, at5):
        panel.set_xlabel("distance l (tokens)")
        panel.legend(fontsize="small")
    return save(figure, args.output)


def add_prior_matrix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dim", type=positive, default=256, metavar="E", help="of the model (default: %(default)s)")
    add_reach(parser, 128)


def plot_prior_matrix(args: argparse.Namespace) -> Path:
    """Plots the fixed matrix R of Transformer-XL and GCDF (LFHC/GCDF Figure 2)."""
    figure, panels = new_figure(columns=len(PRIORS))
    for panel, (name, prior) in zip(panels, PRIORS.items()):
        matrix = prior(args.reach, args.dim).flip(0)
        picture = panel.imshow(
            matrix, cmap=HEAT, vmin=-1, vmax=1, aspect="auto", extent=(1, args.dim, args.reach, -args.reach)
        )
        panel.set_title(name if name != "gcdf" else "gcdf, lambda = 1")
        panel.set(xlabel="dimension c", ylabel="i - j (tokens)")
    figure.colorbar(picture, ax=panels, label="R")
    return save(figure, args.output)


def plot_distance(args: argparse.Namespace) -> Path:
    """Plots phi(i + k, i) = |R_{i+k} - R_i| (LFHC/GCDF Figures 5 and 6). It should fall with i (Property 1), and
    grow with k, more and more slowly (Property 2)."""
    figure, panels = new_figure(columns=len(PRIORS))
    for panel, (name, prior) in zip(panels, PRIORS.items()):
        rows = prior(args.reach, args.dim)[: args.reach + 1].flip(0)
        for k in (1, 4, 16, 64):
            if k <= args.reach:
                panel.plot((rows[k:] - rows[: len(rows) - k]).norm(dim=1), label=f"k = {k}")
        panel.set_title(name)
        panel.set(xlabel="i (tokens)", ylabel="|R(i+k) - R(i)|")
        panel.set_ylim(bottom=0)
        panel.legend(fontsize="small")
    return save(figure, args.output)
