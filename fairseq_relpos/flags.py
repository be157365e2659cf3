"""The plugin's command-line flags, in one place for every model family.

Plain model flags without argparse defaults: a default would defeat fairseq's
architecture functions, and fairseq's registry and dataclass configs lose such flags on
their way to the layers.
"""

import argparse
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from .backends import names as backend_names
from .encodings import ENCODINGS, Dims, check_serves, find, names_for, parse_hparams
from .layer_numbers import PATTERNS

#: updates between two pictures of the position bias
BIAS_INTERVAL = 1000

#: the stacks of a model that has two, in the order in which flags and files name them, and whether each is causal
STACKS = {"encoder": False, "decoder": True}


@contextlib.contextmanager
def prefix_errors(flag: str) -> Iterator[None]:
    """Puts this flag in front of a ValueError's message. Encodings and backends name their own arguments, but
    users of fairseq gave them by a flag."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None


def hparams(text: str) -> dict[str, str]:
    """Parses --position-hparams of a model that has one stack."""
    with prefix_errors("--position-hparams"):
        return parse_hparams(text)


def need_layers(args: argparse.Namespace, *stacks: str) -> None:
    """Raises ValueError for a stack without layers."""
    for stack in stacks:
        layers = getattr(args, f"{stack}_layers")
        if layers < 1:
            raise ValueError(f"--{stack}-layers {layers}: give 1 or more")


def refuse_other_numbers(
    args: argparse.Namespace, stack: str, name: str, hparams: Mapping[str, str], window: str
) -> None:
    """Raises ValueError where fairseq keeps some of the trained layers, which gives them other numbers, and what a
    layer computes depends on its number. name, hparams, window: those of the stack."""
    depends = {
        f"the position encoding {name} depends": find(name).counts_layers,
        "--position-layers depends": args.position_layers != "all",
        "--position-hparams of single layers depend": any("." in key for key in hparams),
        "--attention-window of single layers depends": "=" in window,
    }
    kept = getattr(args, f"{stack}_layers_to_keep", None)
    numbers = sorted(map(int, kept.split(","))) if kept else []
    if numbers != list(range(len(numbers))) and any(depends.values()):  # the first ones have their own numbers
        what = next(what for what, does in depends.items() if does)
        raise ValueError(
            f"--{stack}-layers-to-keep gives layers other numbers than in the training, and {what} on these numbers: "
            "leave it out"
        )


def check_sizes(embed_dim: int, num_heads: int, stack: str = "encoder") -> None:
    """Raises ValueError where heads of these sizes are impossible, before fairseq builds them."""
    with prefix_errors(f"--{stack}-embed-dim, --{stack}-attention-heads"):
        Dims(embed_dim, num_heads, max_len=1)


def add_flags(parser: argparse.ArgumentParser, stacks: Iterable[str] = ()) -> None:
    """Adds the plugin's flags. stacks: the names of the model's stacks, where it has more than one."""
    of_each = ", or one for each stack: encoder=NAME,decoder=NAME" if stacks else ""
    parser.add_argument(
        "--position-encoding",
        metavar="NAME",
        help=f"position encoding, instead of the architecture's{of_each}: " + " ".join(sorted(ENCODINGS)),
    )
    parser.add_argument(
        "--position-hparams",
        metavar='"A=1 B=2"',
        help="hyperparameters of the encoding; `fairseq-relpos show NAME` lists them; layer.3.B=2, layer.1-5.B=2 and "
        "every.3.B=2 are for some layers alone" + (", decoder.B=2 for one stack" if stacks else ""),
    )
    parser.add_argument("--position-layers", metavar="L", help=f"layers that see positions: {PATTERNS}")
    parser.add_argument(
        "--attention-window",
        metavar="N",
        help='in self-attention, keys that are more than N tokens away are hidden; "128 every.3=none": but in layers '
        "3, 6, .." + ("; decoder=N is for one stack alone" if stacks else ""),
    )
    parser.add_argument(
        "--randomized-positions",
        type=int,
        metavar="L",
        help="in training, the tokens of a sample have random positions of 0 .. L - 1 in rising order, so that longer "
        "inputs hold no new ones; evaluation as usual",
    )
    parser.add_argument(
        "--attention-backend", metavar="NAME", help=f"how attention is computed: {' '.join(backend_names())}"
    )
    parser.add_argument(
        "--torch-compile",
        action="store_true",
        help="in training, compile what is around the attention of each layer by torch.compile",
    )
    parser.add_argument(
        "--unpad",
        action="store_true",
        help="layers of an encoder compute nothing for pads; pays where batches are not sorted by length",
    )
    parser.add_argument(
        "--log-position-bias-interval",
        type=int,
        metavar="N",
        help="with --tensorboard-logdir or --wandb-project: every N updates the position bias as a "
        f"picture; 0 is never (default: {BIAS_INTERVAL})",
    )
    if stacks:
        parser.add_argument(
            "--position-stacks",
            metavar="S",
            help=f"stacks that get the encoding: {','.join(stacks)} (default) or one of them; "
            "the other stays stock fairseq with its own absolute positions",
        )


def complete(args: argparse.Namespace, stacks: Mapping[str, bool] | None = None, causal: bool = False) -> None:
    """``set_defaults`` for a model whose architecture function has not called it, because it is your own. Raises
    ValueError if no encoding is named."""
    if all(
        hasattr(args, name) for name in ("position_hparams", "position_layers", "attention_backend", "attention_window")
    ):
        return
    if not getattr(args, "position_encoding", None):
        arch = getattr(args, "arch", "")
        raise ValueError(f"--arch {arch} names no position encoding: give --position-encoding NAME")
    set_defaults(args, args.position_encoding, stacks, causal)


def set_defaults(
    args: argparse.Namespace, encoding: str, stacks: Mapping[str, bool] | None = None, causal: bool = False
) -> None:
    """Sets the defaults of an architecture; safe to call more than once. This is the first function of the
    plugin that sees the arguments, so it also refuses impossible ones. stacks: as STACKS, of a model that has two.
    causal: what the stack of a model is that has only one."""
    refuse_unsupported(args)
    for name in ("position_encoding", "position_layers", "attention_backend", "position_stacks"):
        if getattr(args, name, None) == "":
            raise ValueError(f"--{name.replace('_', '-')} is empty: give a value, or leave the flag out")
    given = getattr(args, "position_encoding", None)
    args.position_encoding = given or encoding
    args.position_hparams = getattr(args, "position_hparams", None) or ""
    args.position_layers = getattr(args, "position_layers", None) or "all"
    args.attention_backend = getattr(args, "attention_backend", None) or "auto"
    args.attention_window = window(args)
    args.randomized_positions = getattr(args, "randomized_positions", None)
    set_bias_interval(args)
    source = f"--position-encoding {given}" if given else f"--arch {getattr(args, 'arch', None) or encoding}"
    if not stacks:
        find(args.position_encoding)
        _check_serves(args.position_encoding, causal, source)
        return
    asked = getattr(args, "position_stacks", None)
    names = encodings_of(args.position_encoding, chosen_stacks(asked or ",".join(stacks), stacks), encoding)
    if not asked:
        # what serves decoders alone leaves the encoder as stock fairseq has it
        served = {
            stack: name
            for stack, name in names.items()
            if name in names_for(stacks[stack]) or f"{stack}=" in args.position_encoding
        }
        names = served or names
    for stack, name in names.items():
        _check_serves(name, stacks[stack], f"--position-stacks {asked}, {source}" if asked else source)
    args.position_stacks = ",".join(names)
    args.position_encoding = _encodings_text(names)


def window(args: argparse.Namespace) -> str:
    """--attention-window, "" where there is none."""
    given = getattr(args, "attention_window", None)
    return "" if given is None else str(given)


def windows_of(args: argparse.Namespace, chosen: Sequence[str]) -> dict[str, str]:
    """--attention-window, "128 decoder.every.3=none", as that of each chosen stack. An item that names a stack wins."""
    common: list[str] = []
    own: dict[str, list[str]] = {stack: [] for stack in chosen}
    for item in re.split(r"[\s;]+", window(args).strip()):
        stack = item.replace("=", ".").partition(".")[0]
        if stack in STACKS:
            _refuse_other_stacks(f"--attention-window {item}", stack, chosen)
            if not item[len(stack) + 1 :]:
                raise ValueError(f"--attention-window {item}: give a number of tokens, such as {stack}=128")
            own[stack].append(item[len(stack) + 1 :])
        else:
            common.append(item)
    return {stack: " ".join(common + mine) for stack, mine in own.items()}


def randomized_positions(args: argparse.Namespace) -> int | None:
    """--randomized-positions. Raises ValueError for less than one position."""
    span = getattr(args, "randomized_positions", None)
    if span is not None and span < 1:
        raise ValueError(f"--randomized-positions {span}: give 1 or more, at least the length of the longest sample")
    return span


def _check_serves(name, causal, source):
    """``check_serves``, whose message begins with ``source``: the flags that ask for the encoding."""
    try:
        check_serves(name, causal)
    except ValueError as error:
        raise ValueError(
            f"{source}: {error}; choose another encoding here, or --arch transformer_{name}, whose decoder "
            "has it and whose encoder stays stock fairseq"
        ) from None


def set_bias_interval(args: argparse.Namespace) -> None:
    """Sets the default of --log-position-bias-interval, and refuses a negative number."""
    given = getattr(args, "log_position_bias_interval", None)
    args.log_position_bias_interval = BIAS_INTERVAL if given is None else given
    if args.log_position_bias_interval < 0:
        raise ValueError(f"--log-position-bias-interval {given}: a number of updates, 0 for never")


def chosen_stacks(text: str, stacks: Iterable[str] = STACKS) -> tuple[str, ...]:
    """Parses --position-stacks into names, in the order of ``stacks``."""
    chosen = text.split(",")
    if not set(chosen) <= set(stacks) or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"--position-stacks {text!r} is not {','.join(stacks)} or one of them: the stacks "
            "that get the position encoding"
        )
    return tuple(stack for stack in stacks if stack in chosen)


def encodings_of(text: str, chosen: Sequence[str], default: str = "") -> dict[str, str]:
    """Parses --position-encoding, "t5" or "encoder=t5,decoder=alibi", into the encoding of each chosen stack. A
    stack that is not mentioned gets ``default``."""
    if "=" not in text:
        find(text)
        return dict.fromkeys(chosen, text)
    names = {}
    for item in text.split(","):
        stack, sign, name = item.partition("=")
        if not (sign and name) or stack in names:
            raise ValueError(f"--position-encoding {text!r} is neither NAME nor encoder=NAME,decoder=NAME")
        _refuse_other_stacks(f"--position-encoding {item}", stack, chosen)
        find(name)
        names[stack] = name
    return {stack: names.get(stack, default) for stack in chosen}


def hparams_of(text: str, chosen: Sequence[str]) -> dict[str, dict[str, str]]:
    """Parses --position-hparams, "a=1 encoder.b=2 encoder.layer.3.b=4", into those of each chosen stack. A plain a is
    for all stacks; encoder.a wins over it in the encoder."""
    common: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {stack: {} for stack in chosen}
    for key, value in hparams(text).items():
        stack, dot, name = key.partition(".")
        if dot and stack not in ("layer", "every", "not"):
            _refuse_other_stacks(f"--position-hparams {key}", stack, chosen)
            own[stack][name] = value
        else:
            common[key] = value
    return {stack: {**common, **mine} for stack, mine in own.items()}


def hparams_text(hparams: dict[str, str]) -> str:
    """Joins the resolved hyperparameters of the stacks into one --position-hparams."""
    return " ".join(f"{stack}.{item}" for stack, text in hparams.items() for item in text.split())


def _encodings_text(names):
    if len(set(names.values())) == 1:
        return next(iter(names.values()))
    return ",".join(f"{stack}={name}" for stack, name in names.items())


def _refuse_other_stacks(flag, stack, chosen):
    if stack in STACKS and stack not in chosen:
        raise ValueError(
            f"{flag}: the {stack} is not among --position-stacks {','.join(chosen)}, so it stays "
            "stock fairseq; leave one of the two out"
        )
    if stack not in chosen:
        raise ValueError(f"{flag}: {stack!r} is no stack of this model: {' or '.join(chosen)}")


#: flag -> why positions cannot go with it
UNSUPPORTED = {
    "cross_self_attention": "mixes two sequences of positions",
    "encoder_xformers_att_config": "replaces the attention itself",
    "decoder_xformers_att_config": "replaces the attention itself",
    "base_layers": "adds layers without attention",
    "no_share_discriminator": "adds a second set of layers, which positions do not reach",
    "no_share_maskpredictor": "adds a second set of layers, which positions do not reach",
    "export": "is for TorchScript and ONNX, which are not supported with position encodings",
    "pipeline_model_parallel": "is for fairseq's pipeline_parallel_transformer",
}


def device_of(args: argparse.Namespace) -> torch.device:
    """The device on which fairseq's commands put the model."""
    on_cpu = getattr(args, "cpu", False) or not torch.cuda.is_available()
    return torch.device("cpu" if on_cpu else "cuda")


def refuse_unsupported(args: argparse.Namespace) -> None:
    """Raises ValueError for flags under which positions would be lost or wrong."""
    if getattr(args, "ddp_backend", None) == "fully_sharded":
        raise ValueError(
            "--ddp-backend fully_sharded shards layers while fairseq builds them, before "
            "positions can be put in; use --ddp-backend pytorch_ddp"
        )
    if (getattr(args, "model_parallel_size", None) or 1) > 1:
        raise ValueError(
            f"--model-parallel-size {args.model_parallel_size} is for fairseq's model_parallel_... models, which need "
            "Megatron; leave it out"
        )
    for name, why in UNSUPPORTED.items():
        if getattr(args, name, None):
            raise ValueError(f"--{name.replace('_', '-')} {why}; leave it out")
