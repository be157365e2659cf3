"""``fairseq-relpos plot loss``: the validation losses of several runs as a picture."""

import argparse
from pathlib import Path

from .training_log import Run, read_run, tell_variants_apart


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folder with a train.log, or a log file of fairseq-train"
    )


def run(args: argparse.Namespace) -> Path:
    """Plots the validation losses of several runs against updates."""
    runs = [read_run(path) for path in args.runs]
    tell_variants_apart(runs)
    ends: dict[str, set[int]] = {}
    for each in runs:
        if each.losses:
            ends.setdefault(each.encoding, set()).add(max(max(losses) for losses in each.losses.values()))
    for encoding, updates in ends.items():
        if len(updates) > 1:
            told = ", ".join(f"{number:,}" for number in sorted(updates))
            print(f"{encoding}: its runs end at {told} updates, its line at the last validation that all have")
    return plot(runs, args.output)


def unit_of(run: Run) -> str | None:
    if not run.in_nats:
        return None
    return "nats per sentence" if run.of_sentences else "nats per predicted token"


def plot(runs: list[Run], path: str | Path, names: dict[str, str] | None = None) -> Path:
    """Plots validation losses, without label smoothing where the criterion has it: a panel per split, or per split and
    encoding where there are many.

    names: split -> title.
    """
    from . import curves

    names = names or {}
    validated = [run for run in runs if run.losses]
    if not validated:
        raise ValueError("none of the runs has been validated yet: let them train until the first validation")
    by_title: dict[str, dict[str, list[dict[int, float]]]] = {}
    for split in sorted({split for run in validated for split in run.losses}):
        by_encoding = by_title.setdefault(names.get(split, split), {})
        for run in validated:
            if split in run.losses:
                by_encoding.setdefault(run.encoding, []).append(run.losses[split])
    units = {unit_of(run) for run in validated}
    unit = units.pop() if len(units) == 1 else None
    label = f"validation loss ({unit})" if unit else "validation loss of the criterion"
    return curves.plot(by_title, path, "updates", label, skip_first=True)
