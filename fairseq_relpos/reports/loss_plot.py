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
    return plot(runs, args.output)


def plot(runs: list[Run], path: str | Path, names: dict[str, str] | None = None) -> Path:
    """Plots validation losses, without label smoothing where the criterion has it: a panel per split, or per split and
    encoding where there are many.

    names: split -> title.
    """
    from . import curves

    names = names or {}
    validated = [run for run in runs if run.losses]
    if not validated:
        raise ValueError("none of the runs has been validated yet: let them go on for a while")
    by_title: dict[str, dict[str, list[dict[int, float]]]] = {}
    for split in sorted({split for run in validated for split in run.losses}):
        by_encoding = by_title.setdefault(names.get(split, split), {})
        for run in validated:
            if split in run.losses:
                by_encoding.setdefault(run.encoding, []).append(run.losses[split])
    in_nats = all(run.in_nats for run in runs)
    label = "validation loss (nats per predicted token)" if in_nats else "validation loss of the criterion"
    return curves.plot(by_title, path, "updates", label, skip_first=True)
