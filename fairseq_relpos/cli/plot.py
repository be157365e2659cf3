"""``fairseq-relpos plot KIND ...``."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ..reports import attention_plot, bias_plot, figures, losses, reach
from ..reports import encoding_plots as encoding
from ..reports import model_plots as model

#: kind -> (what adds its arguments, what draws it and returns the file, summary)
KINDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Path], str]] = {
    "attention": (
        attention_plot.add_arguments,
        attention_plot.run,
        "attention probabilities on a text, a heat map for each head",
    ),
    "bias": (bias_plot.add_arguments, bias_plot.run, "the position bias of a checkpoint, a heat map for each head"),
    "curve": (encoding.add_curve, encoding.plot_curve, "bias or gain of each head against the relative position"),
    "buckets": (encoding.add_buckets, encoding.plot_buckets, "the bucket functions of T5 and AT5"),
    "prior-matrix": (
        encoding.add_prior_matrix,
        encoding.plot_prior_matrix,
        "the fixed matrices of Transformer-XL and GCDF",
    ),
    "distance": (encoding.add_prior_matrix, encoding.plot_distance, "how far apart a prior keeps two distances"),
    "correlations": (
        model.add_correlations,
        model.plot_correlations,
        "the four products of words and positions in the first layer",
    ),
    "scores": (
        model.add_scores,
        model.plot_scores,
        "position scores, context scores and their sum for one word of a text",
    ),
    "vectors": (model.add_vectors, model.plot_vectors, "the relative vectors of a head"),
    "heads": (model.add_heads, model.plot_heads, "a score while heads are added one by one, by their largest prior"),
    "lengths": (model.add_lengths, model.plot_lengths, "the lengths of the inputs of data sets"),
    "extrapolation": (
        reach.add_arguments,
        reach.run,
        "losses of several runs against the length, as `extrapolation --json` found them",
    ),
    "loss": (losses.add_arguments, losses.run, "validation losses of several runs against updates"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    endings = " or ".join(figures.FORMATS)
    for name, (add, draw, summary) in KINDS.items():
        kind = kinds.add_parser(name, help=summary, description=summary)
        add(kind)
        kind.add_argument(
            "--output",
            default=f"{name}.png",
            metavar="FILE",
            help=f"picture to write, {endings} (default: %(default)s)",
        )
        kind.set_defaults(draw=draw)


def run(args: argparse.Namespace) -> None:
    figures.picture_path(args.output)  # before a model is loaded
    print(f"plot: {args.draw(args)}")
