"""`fairseq-relpos warm-start IN OUT --arch A`: a new encoding in a trained RoBERTa, BART or transformer."""

import argparse
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

from ..command_line import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from .. import flags
    from ..checkpoints.extending import WAYS

    parser.add_argument("input", metavar="IN", help="checkpoint of fairseq or this package")
    parser.add_argument("output", metavar="OUT", help="checkpoint to write, a .pt file")
    parser.add_argument(
        "--arch",
        required=True,
        help="roberta_NAME, roberta_NAME_large or electra_NAME of a RoBERTa or an ELECTRA, bart_NAME or "
        "transformer_NAME of a BART or a transformer; the size stays IN's",
    )
    parser.add_argument("--seed", type=int, default=1, help="for the weights that IN has not got (default: 1)")
    parser.add_argument(
        "--max-positions", type=positive, metavar="N", help="for inputs of N tokens; the encoding's tables are extended"
    )
    parser.add_argument(
        "--extend",
        choices=WAYS,
        help="with --max-positions: how a table of absolute positions gets its new rows (default: copy)",
    )
    parser.add_argument(
        "--keep-mask",
        action="store_true",
        help="for a transformer_NAME of a pretrained BART: its data's dict.txt has <mask>, too",
    )
    parser.add_argument(
        "--generator", metavar="FILE", help="of electra_NAME: a RoBERTa checkpoint from which the generator starts"
    )
    parser.add_argument(
        "--generator-size", metavar="SHARE", help="of electra_NAME, where IN is no ELECTRA: as in fairseq-train"
    )
    flags.add_flags(parser, flags.STACKS)


def run(args: argparse.Namespace) -> None:
    from ..checkpoints.encoder_decoder import is_encoder_decoder
    from ..checkpoints.warm_start import position_settings, warm_start

    if not args.arch.startswith("electra_"):
        for name in ("generator", "generator_size"):
            if getattr(args, name) is not None:
                raise ValueError(
                    f"--{name.replace('_', '-')} is for --arch electra_NAME, not {args.arch}: leave it out"
                )
    if is_encoder_decoder(args.arch):
        run_encoder_decoder(args)
        return
    for name in ("keep_mask", "position_stacks"):
        if getattr(args, name):
            raise ValueError(f"--{name.replace('_', '-')} is for bart_NAME and transformer_NAME: leave it out")
    if args.extend and args.max_positions is None:
        raise ValueError(f"--extend {args.extend} changes nothing without --max-positions N: give both, or none")
    way = args.extend or "copy"
    given = given_positions(args, position_settings())
    size = {} if args.generator_size is None else {"generator_size": args.generator_size}
    positions = {**given, **size}
    done = warm_start(args.input, args.output, args.arch, positions, args.seed, args.max_positions, way, args.generator)
    show(f"kept from {args.input}{f' and {args.generator}' if args.generator else ''}", done.kept)
    if done.extended:
        show(f"extended to {done.args.max_positions} positions, {way}", done.extended)
    names = ("position_layers", "attention_window")  # which a training does not adopt
    adopted = {name: value for name in names if (value := getattr(done.args, name, None)) not in (None, "", "all")}
    show_the_rest(args, done, train_flags(args.output, done.args, {**adopted, **given}))


def run_encoder_decoder(args: argparse.Namespace) -> None:
    from ..checkpoints.encoder_decoder import start_encoder_decoder, train_flags
    from ..checkpoints.warm_start import position_settings

    if args.max_positions is not None or args.extend:
        raise ValueError("--max-positions and --extend are for roberta_NAME: leave them out")
    given = given_positions(args, [*position_settings(), "position_stacks"])
    done = start_encoder_decoder(args.input, args.output, args.arch, given, args.seed, args.keep_mask)
    show(f"kept from {args.input}", done.kept)
    show_the_rest(args, done, train_flags(args.output, done.args, given))


def given_positions(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def show_the_rest(args: argparse.Namespace, done: Any, flags: Iterable[str]) -> None:
    show(f"initialised, seed {args.seed}", done.fresh)
    show(f"left out, no place for it in {args.arch}", done.left_out)
    if done.changed:
        print(f"changed, so what is kept was trained with another value: {', '.join(done.changed)}")
    how = [text for given, text in ((args.torch_compile, "--torch-compile"), (args.unpad, "--unpad")) if given]
    print(f"train with: {' '.join([*flags, *how])}")


def show(what: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Prints one line for the tensors of one name in all layers."""
    print(f"{what}: {sum(map(prod, shapes.values())):,} numbers; tensors: {len(shapes)}")
    lines = Counter((re.sub(r"\.layers\.\d+\.", ".layers.*.", k), v) for k, v in shapes.items())
    for (name, shape), count in lines.items():
        print(f"  {name} [{', '.join(map(str, shape))}]{f', {count} times' if count > 1 else ''}")


def flags_of_positions(path: str, settings: argparse.Namespace) -> Iterator[str]:
    """``train_flags`` with the positions that the settings have."""
    names = ("position_hparams", "position_layers", "attention_window")
    positions = {name: getattr(settings, name, "") for name in names}
    return train_flags(path, settings, {name: value for name, value in positions.items() if value not in ("", "all")})


def train_flags(path: str, settings: argparse.Namespace, given: dict[str, Any]) -> Iterator[str]:
    """Yields the flags of fairseq-train that continue from the new checkpoint."""
    from ..checkpoints.warm_start import flag, model_flags

    yield from model_flags(settings)
    yield flag("max_positions", settings.max_positions)
    for name, value in given.items():
        yield flag(name, f'"{value}"')
    yield flag("finetune_from_model", shlex.quote(path))
