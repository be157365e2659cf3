"""Patterns of layer numbers, which count from 1: the layers of a stack that a setting is for."""

import re
from collections.abc import Sequence

#: the patterns, for messages and help
PATTERNS = "all, first, numbers and ranges such as 1,3-5, every.N (layers N, 2N, ..), or not. before one of these"


def parse_layers(text: str, count: int, option: str = "--position-layers") -> list[int]:
    """The layers that a pattern names, of 1 .. count, in rising order: "all", "first", "1,3-5", "every.4" (4, 8, ..)
    or "not.every.4" (the others). option: what the user gave it by. ValueError for one that names no layer, or a layer
    that the stack does not have.

    Examples:
        >>> parse_layers("1,3-4", count=4), parse_layers("not.every.4", count=4)
        ([1, 3, 4], [1, 2, 3])
    """
    numbers = _named(text, count)
    if not numbers:
        raise ValueError(f"{option} {text!r} names no layer of 1 to {count}: give {PATTERNS}")
    return sorted(numbers)


def _named(text, count):
    every = range(1, count + 1)
    if text.startswith("not."):
        others = _named(text.removeprefix("not."), count)
        return set(every) - others if others else set()
    if text == "all":
        return set(every)
    if text == "first":
        return {1}
    if found := re.fullmatch(r"every\.([0-9]+)", text):
        step = int(found[1])
        return set(every[step - 1 :: step]) if step else set()
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last <= count:
            return set()
        numbers.update(range(first, last + 1))
    return numbers


def layers_text(text: str, count: int) -> str:
    """The canonical form of a pattern: all, first, or the numbers of the layers.

    Examples:
        >>> layers_text("every.2", count=4), layers_text("1-4", count=4)
        ('2,4', 'all')
    """
    numbers = parse_layers(text, count)
    if len(numbers) == count:
        return "all"
    return "first" if numbers == [1] else ",".join(map(str, numbers))


def parse_windows(text: str | int | None, count: int, option: str = "--attention-window") -> list[int | None]:
    """How many tokens away a key may be in each of ``count`` layers; None: any number. text: N for all layers, and
    PATTERN=N or PATTERN=none for some, as in "128 every.3=none"; the later of two wins. A semicolon may take the place
    of the space. option: as in ``parse_layers``.

    Examples:
        >>> parse_windows("128 every.3=none", count=3)
        [128, 128, None]
    """
    windows: list[int | None] = [None] * count
    for item in re.split(r"[\s;]+", "" if text is None else str(text)):
        if not item:
            continue
        pattern, sign, value = item.rpartition("=")
        numbers = parse_layers(pattern.removeprefix("layer."), count, option) if sign else range(1, count + 1)
        if value != "none" and not (value.isdecimal() and value.isascii() and int(value)):
            raise ValueError(f"{option} {item}: give a number of tokens, 1 or more, or none")
        for number in numbers:
            windows[number - 1] = None if value == "none" else int(value)
    return windows


def windows_text(windows: Sequence[int | None]) -> str:
    """The canonical form of these windows: "" for none at all, one number where all layers have it.

    Examples:
        >>> windows_text([128, 128, None]), windows_text([128, 128])
        ('128,128,none', '128')
    """
    each = ["none" if window is None else str(window) for window in windows]
    if set(each) == {"none"}:
        return ""
    return each[0] if len(set(each)) == 1 else ",".join(each)
