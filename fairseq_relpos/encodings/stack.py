"""One encoding in several layers: its stack part, and a layer part for each."""

from typing import Any

from .base import Dims, PositionEncoding, StackPart, build_layer_part


def build_stack(
    encoding: PositionEncoding, hparams: dict[str, Any], count: int, chosen: list[int]
) -> tuple[StackPart, list[PositionEncoding]]:
    """The stack part of the encoding, and ``count`` layer parts with these hyperparameters. ``chosen``: the numbers of
    the layers that see positions; the others see content only.

    Examples:
        >>> first = build_layer_part("tupe_r", Dims(64, 4, max_len=128))
        >>> stack_part, layer_parts = build_stack(first, {}, count=3, chosen=[1, 2])
        >>> [part.name for part in layer_parts]
        ['tupe_r', 'tupe_r', 'none']
    """
    stack_part = build_layer_part("none", encoding.dims).make_stack() if encoding.per_layer else encoding.make_stack()
    return stack_part, [_layer_part(encoding, hparams, n, n in chosen) for n in range(1, count + 1)]


def _layer_part(encoding, hparams, number, is_chosen):
    here = Dims(**{**vars(encoding.dims), "layer": number})
    if not is_chosen:
        return build_layer_part("none", here)
    part = build_layer_part(encoding.name, here, **hparams)
    if part.per_layer:
        part.stack = part.make_stack()
    return part


def parse_layers(text: str, count: int, option: str = "--position-layers") -> list[int]:
    """Parses "all", "first" or "1,2,5" into layer numbers, which count from 1. option: what the user gave it by.

    Examples:
        >>> parse_layers("1,3", count=4), parse_layers("all", count=2)
        ([1, 3], [1, 2])
    """
    if text == "all":
        return list(range(1, count + 1))
    if text == "first":
        return [1]
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1 or numbers[-1] > count:
        raise ValueError(f"{option} {text!r} is not all, first, or numbers from 1 to {count} with commas between")
    return numbers
