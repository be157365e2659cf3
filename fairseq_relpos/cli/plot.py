"""``fairseq-relpos plot KIND ...``."""

import argparse

from ..reports import attention_plot, bias_plot, extrapolation_plot, figures, loss_plot
from ..reports import encoding_plots as encoding
from ..reports import model_plots as model

#: kind -> what adds its arguments, and what draws it and returns the file; the docstring of the second is the help
KINDS = {
    "attention": (attention_plot.add_arguments, attention_plot.run),
    "bias": (bias_plot.add_arguments, bias_plot.run),
    "curve": (encoding.add_curve, encoding.plot_curve),
    "buckets": (encoding.add_buckets, encoding.plot_buckets),
    "prior-matrix": (encoding.add_prior_matrix, encoding.plot_prior_matrix),
    "distance": (encoding.add_prior_matrix, encoding.plot_distance),
    "correlations": (model.add_correlations, model.plot_correlations),
    "scores": (model.add_scores, model.plot_scores),
    "vectors": (model.add_vectors, model.plot_vectors),
    "heads": (model.add_heads, model.plot_heads),
    "lengths": (model.add_lengths, model.plot_lengths),
    "extrapolation": (extrapolation_plot.add_arguments, extrapolation_plot.run),
    "loss": (loss_plot.add_arguments, loss_plot.run),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    endings = " or ".join(figures.FORMATS)
    for name, (add, draw) in KINDS.items():
        summary = " ".join((draw.__doc__ or "").split())
        kind = kinds.add_parser(name, help=summary, description=summary)
        add(kind)
        picture = f"picture to write, {endings} (default: %(default)s)"
        kind.add_argument("--output", default=f"{name}.png", metavar="FILE", help=picture)
        kind.set_defaults(draw=draw)


def run(args: argparse.Namespace) -> None:
    figures.picture_path(args.output)  # before a model is loaded
    print(f"plot: {args.draw(args)}")
