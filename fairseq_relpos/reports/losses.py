"""``fairseq-relpos plot loss``: the validation losses of several runs as a picture."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from .training_log import NATS, Run, read_run, tell_variants_apart


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folder with a train.log, or a log file of fairseq-train"
    )


def run(args: argparse.Namespace) -> Path:
    """Plots the validation losses of several runs against updates."""
    runs = [read_run(path) for path in args.runs]
    tell_variants_apart(runs)
    return plot(runs, args.output)


def in_nats(runs: list[Run]) -> bool:
    """Whether all losses are in nats; a criterion of the plugin can have squared errors."""
    return all(run.unit == NATS for run in runs)


def splits_of(runs: list[Run]) -> list[str]:
    return sorted({split for run in runs for split in run.valid})


def with_deviation(values: Sequence[float], digits: int = 3, sign: str = "") -> str:
    """Returns the mean, and the standard deviation if there are several values."""
    text = f"{mean(values):{sign}.{digits}f}"
    return f"{text} ± {stdev(values):.{digits}f}" if len(values) > 1 else text


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_encoding(runs: Iterable[Run], columns: Mapping[str, Callable[[list[Run]], str]]) -> str:
    """Returns a Markdown table with a row for each encoding, in the order of the runs. ``columns``: what makes a cell
    from the runs of an encoding."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.encoding, []).append(run)
    rows = [[name, *(cell(of_one) for cell in columns.values())] for name, of_one in groups.items()]
    return markdown(["encoding", *columns], rows)


def plot(runs: list[Run], path: str | Path, names: dict[str, str] | None = None) -> Path:
    """Plots validation losses: a panel per split, or per split and encoding where there are many.

    names: split -> title.
    """
    from . import curves

    splits = splits_of(runs)
    if not splits:
        raise ValueError("none of the runs has been validated yet: let them go on for a while")
    validated = [run for run in runs if run.valid]
    by_split = {
        (names or {}).get(split, split): {
            encoding: [run.valid[split] for run in validated if run.encoding == encoding and split in run.valid]
            for encoding in dict.fromkeys(run.encoding for run in validated if split in run.valid)
        }
        for split in splits
    }
    label = "validation loss (nats per predicted token)" if in_nats(runs) else "validation loss of the criterion"
    return curves.plot(by_split, path, "updates", label, skip_first=True)
