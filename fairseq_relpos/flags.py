"""The plugin's command-line flags, in one place for every model family.

Plain model flags without argparse defaults: a default would defeat fairseq's
architecture functions, and fairseq's registry and dataclass configs lose such flags on
their way to the layers.
"""

from .backends import names as backend_names
from .encodings import ENCODINGS


def add_flags(parser):
    parser.add_argument(
        "--position-encoding",
        metavar="NAME",
        help=f"position encoding, instead of the architecture's: {' '.join(sorted(ENCODINGS))}",
    )
    parser.add_argument(
        "--position-hparams",
        metavar='"A=1 B=2"',
        help="hyperparameters of the encoding; `fairseq-relpos show NAME` lists them",
    )
    parser.add_argument(
        "--position-layers",
        metavar="L",
        help="layers that see positions: all, first, or numbers from 1 such as 1,2,5",
    )
    parser.add_argument(
        "--attention-backend",
        metavar="NAME",
        help=f"how attention is computed: {' '.join(backend_names())}",
    )


def set_defaults(args, encoding: str):
    """What an architecture function says; safe to call again and again. It is the first of
    the plugin to see the arguments, so this is where impossible ones are refused."""
    refuse_unsupported(args)
    args.position_encoding = getattr(args, "position_encoding", None) or encoding
    args.position_hparams = getattr(args, "position_hparams", None) or ""
    args.position_layers = getattr(args, "position_layers", None) or "all"
    args.attention_backend = getattr(args, "attention_backend", None) or "auto"


def refuse_unsupported(args):
    """Flags under which positions would be lost or wrong."""
    if getattr(args, "ddp_backend", None) == "fully_sharded":
        raise ValueError(
            "--ddp-backend fully_sharded shards layers while fairseq builds them, before "
            "positions can be put in; use --ddp-backend pytorch_ddp"
        )
    if getattr(args, "export", False):
        raise ValueError("TorchScript and ONNX export are not supported with position encodings")
