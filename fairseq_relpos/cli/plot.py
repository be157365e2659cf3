"""``fairseq-relpos plot KIND ...``."""

import argparse
from typing import Any

from ..reports import attention_plot, bias_plot, encoding_plots, figures, losses, model_plots, reach

#: kind -> (module or class with ``add_arguments`` and ``run``, summary)
KINDS: dict[str, tuple[Any, str]] = {
    "attention": (attention_plot, "attention probabilities on a text, a heat map for each head"),
    "bias": (bias_plot, "the position bias of a checkpoint, a heat map for each head"),
    "curve": (encoding_plots.Curve, "bias or gain of each head against the relative position"),
    "buckets": (encoding_plots.Buckets, "the bucket functions of T5 and AT5"),
    "prior-matrix": (encoding_plots.PriorMatrix, "the fixed matrices of Transformer-XL and GCDF"),
    "distance": (encoding_plots.Distance, "how far apart a prior keeps two distances"),
    "correlations": (model_plots.Correlations, "the four products of words and positions in the first layer"),
    "scores": (model_plots.Scores, "position scores, context scores and their sum for one word of a text"),
    "vectors": (model_plots.Vectors, "the relative vectors of a head"),
    "heads": (model_plots.Heads, "a score while heads are added one by one, by their largest prior"),
    "lengths": (model_plots.Lengths, "the lengths of the inputs of data sets"),
    "extrapolation": (reach, "losses of several runs against the length, as `extrapolation --json` found them"),
    "loss": (losses, "validation losses of several runs against updates"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    endings = " or ".join(figures.FORMATS)
    for name, (module, summary) in KINDS.items():
        kind = kinds.add_parser(name, help=summary, description=summary)
        module.add_arguments(kind)
        kind.add_argument(
            "--output",
            default=f"{name}.png",
            metavar="FILE",
            help=f"picture to write, {endings} (default: %(default)s)",
        )
        kind.set_defaults(run_kind=module.run)


def run(args: argparse.Namespace) -> int | None:
    figures.picture_path(args.output)  # before a model is loaded
    return args.run_kind(args)
