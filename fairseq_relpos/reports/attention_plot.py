"""``fairseq-relpos plot attention``: where each head of a trained model looks in a text."""

import argparse
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..encodings import StackPart
from ..vocabulary_files import sentencepiece_of
from .checkpoint import STACKS, choose_stack, encoded_stack, load_model

#: names of a sentencepiece model beside dict.txt: in fairseq's hub, in the project's recipes
SENTENCEPIECE_MODELS = ("sentencepiece.bpe.model", "spm.model")
MASK = "<mask>"
INCHES_A_TOKEN = 0.15
LARGEST_INCHES = 120


def add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a .pt file that fairseq-train saved")
    parser.add_argument("--text", required=True, help="what the model reads; <mask> stands for a hidden word")
    parser.add_argument(
        "--target", metavar="TEXT", help="for --stack decoder of a translation model: its output so far"
    )
    parser.add_argument("--data", metavar="DIR", help="folder with the dictionary (default: the one it was trained on)")
    parser.add_argument(
        "--sentencepiece-model",
        metavar="FILE",
        help=f"default: {' or '.join(SENTENCEPIECE_MODELS)} in the data folder; without "
        "one the text is split at spaces",
    )
    parser.add_argument("--stack", choices=STACKS, help="whose self-attention (default: the encoder's if there is one)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    parser.add_argument("--layers", default="all", metavar="1,2,..", help="default: all")
    add_chosen_heads(parser)


def add_chosen_heads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--heads", default="all", metavar="1,2,..", help="default: all")


def run(args: argparse.Namespace) -> Path:
    """Plots the attention probabilities on a text, a heat map for each head."""
    from .figures import SHARE, heat_maps

    name, which, stack, shown, others = read_text(args)
    weights_NHTT = attention_weights(stack, shown.ids_1T, **others)
    layers = numbers("--layers", args.layers, weights_NHTT.size(0))
    heads = numbers("--heads", args.heads, weights_NHTT.size(1))
    size = f"{len(layers)} layers x {len(heads)} heads x {len(shown.labels)} tokens"
    side = max(2.4, 0.6 + INCHES_A_TOKEN * len(shown.labels))
    if side * max(len(layers), len(heads)) > LARGEST_INCHES:
        raise ValueError(f"{size} make too large a picture: choose some with --layers and --heads, or give less text")
    maps = [(f"layer {n + 1}, head {head + 1}", weights_NHTT[n, head]) for n in layers for head in heads]
    title, axes = f"Attention of {name}, {which}", ("key j", "query i")
    print_unknown(shown)
    print(f"{which}: {size}")
    return heat_maps(maps, len(heads), side, "attention probability", title, args.output, axes, shown.labels, SHARE)


@dataclass
class Tokens:
    """A text as a stack reads it: ids [1, T], their labels in the plot, and the pieces that the dictionary lacks."""

    ids_1T: torch.Tensor
    labels: list[str]
    unknown: list[str]


def print_unknown(shown: Tokens) -> None:
    if shown.unknown:
        print(f"not in the dictionary, read as <unk>: {' '.join(shown.unknown)}")


def read_text(args: argparse.Namespace) -> tuple[str, str, Any, Tokens, dict[str, Any]]:
    """Loads the model and returns its encoding, the name of the stack, the stack, the tokens that it reads, and the
    other keyword arguments of its forward."""
    model, settings, task = load_model(args.checkpoint, args.data)
    name, which, stack = encoded_stack(model, settings, args.checkpoint, args.stack)
    pieces_of = splitter(args.sentencepiece_model, args.data or settings.task.data)
    return name, which, stack, *read(model, task, which, args.text, args.target, pieces_of)


def read(
    model: Any, task: Any, which: str, text: str, target: str | None, pieces_of: Callable[[str], list[str]]
) -> tuple[Tokens, dict[str, Any]]:
    """Returns the tokens that the stack reads, and the other keyword arguments of its forward."""
    begin, end = task.source_dictionary.bos_word, task.source_dictionary.eos_word
    if hasattr(model, "encoder"):
        _, encoder = choose_stack(model, "encoder")
        # a stack with stock fairseq's positions (--position-stacks) has no [CLS]
        has_cls = isinstance(encoder.embed_positions, StackPart) and encoder.embed_positions.dims.has_cls
        if getattr(model, "project_values", None) is not None:
            raise ValueError("this model reads vectors of numbers, no symbols, so there is no text to show")
        source = tokens(
            "--text",
            text,
            task.source_dictionary,
            pieces_of,
            [begin] if has_cls else [],
            [end] if getattr(model, "reads_end", True) else [],
        )
        if which == "encoder":
            return source, {}
        if target is None:
            raise ValueError("--stack decoder: give its output so far with --target TEXT")
        with torch.no_grad():
            encoder_out = encoder(source.ids_1T, torch.tensor([len(source.labels)]))
        shown = tokens("--target", target, task.target_dictionary, pieces_of, [end], [])
        return shown, {"encoder_out": encoder_out}
    return tokens("--text", text, task.source_dictionary, pieces_of, [end], []), {}


def tokens(
    flag: str, text: str, dictionary: Any, pieces_of: Callable[[str], list[str]], before: list[str], after: list[str]
) -> Tokens:
    """Returns the pieces of the text, between those that the model expects before and after them."""
    pieces = []
    for part in text.split(MASK):
        pieces += [*pieces_of(part), MASK]
    pieces = [*before, *pieces[:-1], *after]
    if len(pieces) == len(before) + len(after):
        raise ValueError(f"{flag} is empty: give a sentence")
    ids = [dictionary.index(piece) for piece in pieces]
    unknown = [piece for piece, index in zip(pieces, ids) if index == dictionary.unk()]
    if len(unknown) == len(pieces) - len(before) - len(after):
        raise ValueError(
            f"{flag}: nothing of it is in the dictionary, it begins with {unknown[0]!r}; if the "
            "model reads sentencepiece's pieces, name its model with --sentencepiece-model FILE"
        )
    # sentencepiece's mark for the beginning of a word goes below the line
    labels = [dictionary[index].replace("\u2581", "_") for index in ids]
    return Tokens(torch.tensor([ids]), labels, unknown)


def splitter(model_path: str | None, data: str | Path) -> Callable[[str], list[str]]:
    """Returns the function that splits a text into pieces: sentencepiece's model, or else at spaces."""
    if model_path is None:
        folder = str(data).split(os.pathsep)[0]
        beside = (os.path.join(folder, name) for name in SENTENCEPIECE_MODELS)
        model_path = next(filter(os.path.isfile, beside), None)
        if model_path is None:
            return str.split
    model = sentencepiece_of(model_path)
    return lambda text: model.encode(text, out_type=str)


@torch.no_grad()
def attention_weights(stack: Any, ids_1T: torch.Tensor, **others: Any) -> torch.Tensor:
    """Returns the attention probabilities [N, H, T, T] of one forward pass: row i is what query i looks at. Layers do
    not ask their attention for weights, which is faster; forward hooks ask instead."""
    per_layer = []

    def ask(attention, args, kwargs):
        return args, {**kwargs, "need_head_weights": True}

    def keep(attention, args, result):
        per_layer.append(result[1][:, 0])

    with ExitStack() as hooks:
        for layer in stack.layers:
            attention = layer.self_attn
            for hook in (
                attention.register_forward_pre_hook(ask, with_kwargs=True),
                attention.register_forward_hook(keep),
            ):
                hooks.callback(hook.remove)
        stack(ids_1T, **others)
    return torch.stack(per_layer)


def numbers(flag: str, text: str, count: int) -> list[int]:
    """Returns the indices, from 0, of "all" or "1,2"."""
    if text == "all":
        return list(range(count))
    chosen = [int(part) - 1 for part in text.split(",") if part.isdigit()]
    if len(chosen) != len(text.split(",")) or not set(chosen) <= set(range(count)):
        raise ValueError(f"{flag} {text}: numbers from 1 to {count} with commas between, or all")
    return chosen
