"""Every change that the plugin makes to fairseq, torch or numpy: a name, a kind, what stock does, and a switch."""

import difflib
import os
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

VARIABLE, FLAG = "FAIRSEQ_RELPOS_MENDS", "--mends"

#: kind -> what it means
KINDS = {
    "needed": "without it something that fairseq offers fails on today's Python, numpy or torch",
    "correct": "stock fairseq trains or stops otherwise than its flags say; this changes numbers",
    "operation": "how a run starts, joins, saves, stops, resumes and ends",
    "message": "one line says what is wrong, where stock prints a traceback, says it late, or says nothing",
}


@dataclass(frozen=True)
class Mend:
    """One change, which can be switched off, a section of catalogue.ini."""

    name: str
    kind: str
    stock: str
    here: str
    versions: str = "all"


def _read():
    parser = ConfigParser(interpolation=None)
    parser.read_string(Path(__file__).with_suffix(".ini").read_text(encoding="utf-8"))
    return [
        Mend(name, **{key: text.replace("\n", " ") for key, text in parser[name].items()}) for name in parser.sections()
    ]


#: in the order of docs/troubleshooting.md
MENDS = _read()
BY_NAME = {mend.name: mend for mend in MENDS}

_active = None


def names(kind):
    return {mend.name for mend in MENDS if mend.kind == kind}


def chosen_by(value):
    """The names that ``all``, ``needed`` or ``-name,-name`` (all but these) switch on.

    Raises ValueError, one line, for anything else.
    """
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


def active():
    """The names of the mends that are on in this process: as the variable says when it is first asked."""
    global _active
    if _active is None:
        _active = chosen_by(os.environ.get(VARIABLE, ""))
    return _active


def on(name):
    BY_NAME[name]  # a KeyError for a name that is not in the catalogue
    return name in active()


def numbers():
    """Those that are on and change numbers, sorted: what a checkpoint records."""
    return sorted(active() & names("correct"))


def in_words():
    """Which mends are on, for the log."""
    off = sorted(set(BY_NAME) - active())
    if not off:
        return f"all {len(BY_NAME)} mends of fairseq are on (`fairseq-relpos mends` lists them)"
    if active() == names("needed"):
        return "only the mends that today's stack needs are on: stock fairseq otherwise"
    return f"mends of fairseq that are off: {', '.join(off)}"


def warnings():
    """A line for each mend that is needed and off."""
    return [
        f"the mend {mend.name} is off: {mend.stock} ({mend.versions})"
        for mend in MENDS
        if mend.kind == "needed" and mend.name not in active()
    ]


def take_flag(arguments):
    """The arguments of a command without --mends and its value, which is obeyed, also in processes that it starts."""
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
