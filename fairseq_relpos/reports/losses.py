"""``fairseq-relpos plot loss``: losses of several runs as a table and a picture."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from .training_log import NATS, Run, read_run, tell_variants_apart


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folder with a train.log, or a log file of fairseq-train"
    )
    parser.add_argument("--baseline", metavar="ENCODING", help="print differences from this encoding, seed by seed")


def run(args: argparse.Namespace) -> None:
    runs = [read_run(path) for path in args.runs]
    tell_variants_apart(runs)
    print(table(runs, args.baseline))
    print(f"\nplot: {plot(runs, args.output)}")


def in_nats(runs: list[Run]) -> bool:
    """Whether all losses are in nats; a criterion of the plugin can have squared errors."""
    return all(run.unit == NATS for run in runs)


def splits_of(runs: list[Run]) -> list[str]:
    return sorted({split for run in runs for split in run.valid})


def table(runs: list[Run], baseline: str | None = None) -> str:
    """Returns a Markdown table with one row per encoding: means over the seeds, at the last validation that all seeds
    of the encoding have reached."""
    encodings = list(dict.fromkeys(run.encoding for run in runs))
    if baseline is not None and baseline not in encodings:
        raise ValueError(f"--baseline {baseline}: no such run; there are {' '.join(encodings)}")
    splits = splits_of(runs)
    head = ["encoding", "seeds", "updates"]
    for split in splits:
        head.append(f"{split} (nats)" if in_nats(runs) else split)
        if baseline is not None:
            head.append(f"{split} - {baseline}")
    rows = []
    for encoding in encodings:
        of_encoding = [run for run in runs if run.encoding == encoding]
        updates = last_common_update(of_encoding, splits)
        row = [encoding, str(len(of_encoding)), f"{updates:,}" if updates else "-"]
        for split in splits:
            row.append(with_deviation([run.valid[split][updates] for run in of_encoding]) if updates else "-")
            if baseline is not None:
                row.append(paired_difference(of_encoding, runs, baseline, split, updates))
        rows.append(row)
    return markdown(head, rows)


def last_common_update(runs: Sequence[Run], splits: Sequence[str]) -> int | None:
    common = set.intersection(*(set(run.valid.get(split, {})) for run in runs for split in splits)) if splits else set()
    return max(common, default=None)


def paired_difference(
    of_encoding: Sequence[Run], runs: Sequence[Run], baseline: str, split: str, updates: int | None
) -> str:
    """Returns the mean difference over the seeds that both have, each at the same number of updates."""
    if of_encoding[0].encoding == baseline:
        return "0"
    reference = {run.seed: run for run in runs if run.encoding == baseline}
    differences = [
        run.valid[split][updates] - reference[run.seed].valid[split][updates]
        for run in of_encoding
        if run.seed in reference and updates in reference[run.seed].valid.get(split, {})
    ]
    return with_deviation(differences, sign="+") if differences else "-"


def with_deviation(values: Sequence[float], digits: int = 3, sign: str = "") -> str:
    """Returns the mean, and the standard deviation if there are several values."""
    text = f"{mean(values):{sign}.{digits}f}"
    return f"{text} ± {stdev(values):.{digits}f}" if len(values) > 1 else text


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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
