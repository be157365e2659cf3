"""The list of mends: for each a name, a kind, what stock fairseq does, what happens here, and a switch."""

import difflib
import os
from collections.abc import Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

VARIABLE, FLAG = "FAIRSEQ_RELPOS_MENDS", "--mends"

#: kind -> what it means
KINDS = {
    "needed": "without it something that fairseq offers fails on today's Python, numpy or torch",
    "correct": "stock fairseq does not do what its flags say while it trains; these mends change numbers",
    "operation": "how a run starts, joins, saves, stops, resumes and ends, and how an evaluation reads its text",
    "message": "one line says what is wrong, where stock prints a traceback, says it late, or says nothing",
}


@dataclass(frozen=True)
class Mend:
    """One change that can be switched off: a section of catalogue.ini."""

    name: str
    kind: str
    stock: str
    here: str
    versions: str = "all"
    #: tasks whose training it cannot change
    unaffected: str = ""


def _read():
    parser = ConfigParser(interpolation=None)
    parser.read_string(Path(__file__).with_suffix(".ini").read_text(encoding="utf-8"))
    return [
        Mend(name, **{key: text.replace("\n", " ") for key, text in parser[name].items()}) for name in parser.sections()
    ]


#: all mends, in the order in which docs/troubleshooting.md shows them
MENDS = _read()
BY_NAME = {mend.name: mend for mend in MENDS}

_active: frozenset[str] | None = None


def names(kind: str) -> set[str]:
    return {mend.name for mend in MENDS if mend.kind == kind}


def chosen_by(value: str) -> frozenset[str]:
    """Returns the names that ``all``, ``needed`` or ``-name,-name`` (all but these) switch on. Raises ValueError, one
    line, for anything else."""
    if value in ("", "all"):
        return frozenset(BY_NAME)
    if value == "needed":
        return frozenset(names("needed"))
    off = [name.strip() for name in value.split(",") if name.strip()]
    for name in off:
        if not name.startswith("-") or name[1:] not in BY_NAME:
            near = difflib.get_close_matches(name.lstrip("-"), BY_NAME, 3)
            nearest = f"; the nearest: {', '.join('-' + other for other in near)}" if near else ""
            raise ValueError(
                f"{FLAG} (or {VARIABLE}) {value}: {name} is not known; give all, needed, or -NAME,-NAME to switch some "
                f"off{nearest}; `fairseq-relpos mends` lists them"
            )
    return frozenset(BY_NAME) - {name[1:] for name in off}


def active() -> frozenset[str]:
    """Returns the names of the mends that are on in this process. The first call reads the variable."""
    global _active
    if _active is None:
        _active = chosen_by(os.environ.get(VARIABLE, ""))
    return _active


def on(name: str) -> bool:
    BY_NAME[name]  # a KeyError for a name that is not in the catalogue
    return name in active()


def numbers() -> list[str]:
    """Returns the mends that are on and change numbers, sorted. A checkpoint records them."""
    return sorted(active() & names("correct"))


def in_words() -> str:
    """Says which mends are on, for the log."""
    off = sorted(set(BY_NAME) - active())
    if not off:
        return f"all {len(BY_NAME)} mends of fairseq are on (`fairseq-relpos mends` lists them)"
    if active() == names("needed"):
        return "only the mends that today's stack needs are on: everything else is stock fairseq"
    return f"mends of fairseq that are off: {', '.join(off)}"


def warnings() -> list[str]:
    """Returns a line for each needed mend that is off."""
    return [
        f"the mend {mend.name} is off: {mend.stock} ({mend.versions})"
        for mend in MENDS
        if mend.kind == "needed" and mend.name not in active()
    ]


def take_flag(arguments: Sequence[str]) -> list[str]:
    """Takes --mends and its value out of a command's arguments, and switches the mends for this process and those
    that it starts."""
    global _active
    left, value = [], None
    waiting = iter(arguments)
    for argument in waiting:
        if argument == FLAG:
            value = next(waiting, None)
            if value is None:
                raise ValueError(f"{FLAG} has no value: give all, needed, or -NAME,-NAME")
        elif argument.startswith(f"{FLAG}="):
            value = argument.split("=", 1)[1]
        else:
            left.append(argument)
    if value is not None:
        _active = chosen_by(value)
        os.environ[VARIABLE] = value
    return left
