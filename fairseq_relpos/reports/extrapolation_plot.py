"""The results of ``fairseq-relpos extrapolation``, as a table, and as a picture of several runs."""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .markdown import markdown_table

#: which losses a picture shows -> the key in a measurement
SHOWN = {"mean": "loss", "last": "last_loss"}
MASKED = "masked language model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="JSON", help="files that `extrapolation --json` wrote")


def run(args: argparse.Namespace) -> Path:
    """Plots the losses of several runs against the length, as `extrapolation --json` found them."""
    return plot([read(path) for path in args.runs], args.output)


def read(path: str | Path) -> dict[str, Any]:
    """Reads a result. Raises ValueError for a file that is none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        found["measurements"], found["digest"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is no result: give a file that `extrapolation --json` wrote") from None
    return found


def table(found: dict[str, Any]) -> str:
    """Returns a heading and a Markdown table with a row for each length and memory."""
    masked = found["kind"] == MASKED
    of_each = "masked token" if masked else "token"
    head = ["length", "context", f"loss (nats per {of_each})", f"perplexity per {of_each}"]
    head += [f"last {found['last']}: loss", f"last {found['last']}: perplexity"]
    head += [name for name, unit in UNITS.items() if found[unit]]
    rows = [row(found, measured) for measured in found["measurements"]]
    changed = f", {found['changed']}" if found["changed"] else ""
    return (
        f"{found['encoding']}{changed}, trained at {found['trained_length']:,} tokens with seed {found['seed']}: "
        f"{found['checkpoint']}\n"
        f"text: {found['tokens']:,} tokens of {found['split']} in {found['data']}, digest {found['digest']}\n"
        f"last {found['last']} tokens of a block: {'the same' if found['same_last'] else 'others'} at every length\n"
        f"perplexity: e to the loss, per {of_each} of this dictionary; compare it with no other dictionary's\n\n"
        f"{markdown_table(head, rows)}"
    )


UNITS = {"bits per byte": "bytes", "perplexity per word": "words"}


def row(found: dict[str, Any], measured: dict[str, Any]) -> list[str]:
    cells = [f"{measured['length']:,}", context(measured)]
    if measured["loss"] is None:
        units = [unit for unit in UNITS.values() if found[unit]]
        return [*cells, f"ends at {measured['ends_at']:,}", *["-"] * (3 + len(units))]
    for key in SHOWN.values():
        loss = measured[key]
        cells += ["-", "-"] if loss is None else [f"{loss:.4f}", f"{perplexity(loss):.2f}"]
    total = measured["loss"] * measured["scored"]
    if found["bytes"]:
        cells.append(f"{total / math.log(2) / found['bytes']:.4f}")
    if found["words"]:
        cells.append(f"{perplexity(total / found['words']):.2f}")
    return cells


def context(measured: dict[str, Any]) -> str:
    """The context of a token besides its own block, in words."""
    if measured["stride"]:
        return f"window by {measured['stride']}"
    return f"block, memory {measured['memory']:,}" if measured["memory"] else "block"


def perplexity(loss: float) -> float:
    """e to the loss, inf where that is beyond a float."""
    return math.exp(loss) if loss < 700 else math.inf


def plot(runs: Sequence[dict[str, Any]], path: str | Path, shown: Sequence[str] = tuple(SHOWN), **style: Any) -> Path:
    """Draws the losses against the length: a panel for each kind of loss and context, a line for each encoding with the
    range of its seeds. A line ends where the positions do. style: more of curves.plot."""
    from . import curves

    refuse_different_texts(runs)
    by_panel: dict[str, dict[str, list[dict[int, float]]]] = {}
    for found in runs:
        lines: dict[str, dict[int, float]] = {}
        for measured in found["measurements"]:
            for what in shown:
                if (loss := measured[SHOWN[what]]) is not None:
                    title = "all tokens" if what == "mean" else f"last {found['last']} tokens"
                    title = f"{title}, {context(measured)}".replace(", block", "")
                    lines.setdefault(title, {})[measured["length"]] = loss
        for title, line in lines.items():
            by_panel.setdefault(title, {}).setdefault(name_of(found, runs), []).append(line)
    if not by_panel:
        raise ValueError("nothing to draw: no run has positions at any of its lengths")
    of_each = "masked token" if runs[0]["kind"] == MASKED else "token"
    trained = {found["trained_length"] for found in runs}
    return curves.plot(
        by_panel,
        path,
        "tokens in a block",
        f"log perplexity (nats per {of_each})",
        doubling=True,
        mark=trained.pop() if len(trained) == 1 else None,
        **style,
    )


def refuse_different_texts(runs: Sequence[dict[str, Any]]) -> None:
    """Raises ValueError for results that cannot be compared."""
    for key, what in (("kind", "kinds of model"), ("digest", "texts"), ("last", "numbers of last tokens")):
        found = {one[key]: one["checkpoint"] for one in runs}
        if len(found) > 1:
            named = ", ".join(f"{value} of {checkpoint}" for value, checkpoint in found.items())
            raise ValueError(f"results of different {what} cannot be compared: {named}")


def name_of(found: dict[str, Any], runs: Sequence[dict[str, Any]]) -> str:
    """The encoding, what was changed at evaluation, and where its positions end, if they do within the lengths."""
    parts = [found["encoding"], *([found["changed"]] if found["changed"] else [])]
    ends = [
        measured["ends_at"]
        for one in runs
        if (one["encoding"], one["changed"]) == (found["encoding"], found["changed"])
        for measured in one["measurements"]
        if measured["ends_at"]
    ]
    return " ".join([*parts, *([f"(ends at {min(ends)})"] if ends else [])])
