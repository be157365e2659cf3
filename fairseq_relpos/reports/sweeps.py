"""The tables of a sweep: the papers' rules for a learning rate, every score, and what failed or diverged.

Runs that differ in seed, learning rate and fold alone are compared; ``table`` says how a run is scored.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from ..atomic_files import write_json, write_text
from . import table as tables
from .markdown import markdown_table, with_deviation

#: columns of a manifest in which the runs of one setting differ
OF_A_RUN = ("SEED", "LEARNING_RATE", "FOLD")
RULES = {
    "median": "The learning rate of a row is the one with the best median over its seeds.",
    "best": "Of each row the best run counts, over all learning rates and seeds.",
}
#: how a run can end without a score
BAD = ("diverged", "failed", "not done")


def settings_of(runs: pd.DataFrame) -> "pd.Series[str]":
    """What a row is about: the encoding, the checkpoint, and the other cells in which the runs of a table differ."""
    cells = list(runs.cells)
    columns = {name for of_run in cells for name in of_run} - {*OF_A_RUN}
    differ = {name for name in columns if len({of_run.get(name) for of_run in cells}) > 1} | {"encoding", "checkpoint"}

    def setting(of_run):
        shown = {name: value for name, value in of_run.items() if name in differ}
        return ", ".join(value if name.islower() else f"{name}={value}" for name, value in shown.items()) or "-"

    return runs.cells.map(setting)


def row_of(setting: str, runs: pd.DataFrame, rule: str, with_test: bool) -> list[str]:
    scores = tables.by_seed(runs)
    rate = tables.choose_rate(runs, rule)
    counts = [str((tables.scores(runs).state == state).sum()) for state in BAD]
    if rate is None:
        return [setting, "none", "0", "-", "-", "-", *(["-"] if with_test else []), *counts]
    values = list(scores[rate])
    finite = [value for value in values if math.isfinite(value)]
    middle = f"{median(values):.4f}" if math.isfinite(median(values)) else "diverged"
    best = min(finite) if tables.is_loss(runs) else max(finite)
    row = [setting, rate, str(len(values)), middle, with_deviation(finite, 4), f"{best:.4f}"]
    if with_test:
        tested = [*tables.scores(runs[runs.rate == rate], "test").value]
        row.append(with_deviation(tested, 4) if tested else "-")
    return [*row, *counts]


def text(runs: pd.DataFrame, rule: str) -> str:
    """Returns the report."""
    parts = ["# Results of a sweep\n", summary(runs) + "\n"]
    parts.append(
        f"{RULES[rule]} Mean ± standard deviation over the seeds of this rate; a run that has diverged is the worst "
        "of its seeds in a median, and no part of a mean. Folds of one seed are averaged first.\n"
    )
    names = runs.cells.map(lambda c: " ".join(c[name] for name in ("recipe", "action", "task") if name in c))
    for name, found in runs.groupby(names, sort=False):
        with_test = len(tables.scores(found, "test")) > 0
        head = ["setting", "rate", "seeds", "median", f"{found.metric.iloc[0]}, mean", "best"]
        head += [*(["test, mean"] if with_test else []), *BAD]
        groups = found.groupby(settings_of(found), sort=False)
        rows = [row_of(str(setting), of_row, rule, with_test) for setting, of_row in groups]
        parts += [f"## {name}\n", markdown_table(head, rows) + "\n"]
    if without := without_score(runs):
        parts.append("## Runs without a score\n")
        parts.append("".join(f"- {name}: {said}\n" for name, said in without.items()))
    parts.append(each_score(runs))
    return "\n".join(parts)


def without_score(runs: pd.DataFrame) -> dict[str, str]:
    """Returns how each other run has ended, by its name."""
    bad = tables.scores(runs[runs.state != "done"])
    return {run.run: f"{run.state}{f': {run.message}' if run.message else ''}" for run in bad.itertuples()}


def each_score(runs: pd.DataFrame, factor: float = 1, digits: int = 4) -> str:
    """Returns a section with a row for each run, and what it scored on each split, times a factor."""
    by_split = {split: tables.scores(runs, split).set_index("run").value for split in dict.fromkeys(runs.split)}
    rows = []
    for run in tables.scores(runs).itertuples():
        known = {split: values[run.run] for split, values in by_split.items() if run.run in values}
        values = [known.get(split, math.nan) * factor for split in by_split]
        cells = [f"{value:.{digits}f}" if math.isfinite(value) else "-" for value in values]
        rows.append([run.run, run.metric, *cells, run.state])
    return f"## Every score\n\n{markdown_table(['run', 'metric', *by_split, 'state'], rows)}\n"


def summary(runs: pd.DataFrame) -> str:
    states = tables.scores(runs).state
    counts = {state: (states == state).sum() for state in ("done", *BAD)}
    return f"{len(states)} runs: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count) + "."


def write(folder: str | Path, records: Iterable[Mapping[str, Any]], rule: str) -> str:
    """Writes RESULTS.md and results.json (every score) into the folder. Returns the summary, a line."""
    runs = tables.read(records)
    folder = Path(folder)
    write_text(folder / "RESULTS.md", text(runs, rule))
    tests = tables.scores(runs, "test").set_index("run").value
    scores = [
        {"name": run.run, **run.cells, "state": run.state, "metric": run.metric}
        | {"score": run.value if math.isfinite(run.value) else None}
        | ({"test": tests[run.run]} if run.run in tests else {})
        for run in tables.scores(runs).itertuples()
    ]
    write_json(folder / "results.json", {"rule": rule, "runs": scores})
    return f"{summary(runs)} {folder / 'RESULTS.md'}"


def records_of(runs: str | Path) -> list[dict[str, Any]]:
    """Finished runs without a manifest: what each results.json says of itself."""
    found = []
    for path in sorted(Path(runs).glob("*/**/results.json")):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} cannot be read ({error}): remove it, and evaluate this run again") from None
        if "metrics" not in facts:  # of a report
            continue
        cells = {cell: str(facts[fact]) for cell, fact in tables.NAMES.values() if facts.get(fact) is not None}
        name = str(path.parent.relative_to(runs))
        found.append({"name": name, "cells": cells, "place": path.parent, "state": "done"})
    if not found:
        raise ValueError(f"no finished run in {runs}: a run that has been evaluated has a results.json")
    return found
