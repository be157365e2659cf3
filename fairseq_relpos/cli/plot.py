"""``fairseq-relpos plot KIND ...``."""

from ..reports import bias_plot, losses

KINDS = {
    "bias": (bias_plot, "the position bias of a checkpoint, a heat map for each head"),
    "loss": (losses, "validation losses of several runs against updates, and a table"),
}


def add_arguments(parser):
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, (module, summary) in KINDS.items():
        kind = kinds.add_parser(name, help=summary, description=summary)
        module.add_arguments(kind)
        kind.set_defaults(run_kind=module.run)


def run(args):
    return args.run_kind(args)
