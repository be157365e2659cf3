"""The tables of a sweep: the papers' rules for a learning rate, every score, and what failed or diverged.

Runs that differ in seed, learning rate and fold alone are compared; ``score_table`` says how a run is scored.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from ..atomic_files import write_json, write_text
from . import score_table
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
    """Says what the row of each run is about: the encoding, the checkpoint, and the other cells in which the runs
    differ."""
    names = {name for cells in runs.cells for name in cells}.difference(OF_A_RUN)
    differing = {name for name in names if len({cells.get(name) for cells in runs.cells}) > 1}
    shown = differing | {"encoding", "checkpoint"}

    def setting(cells: Mapping[str, str]) -> str:
        told = [value if name.islower() else f"{name}={value}" for name, value in cells.items() if name in shown]
        return ", ".join(told) or "-"

    return runs.cells.map(setting)


def row_of(setting: str, runs: pd.DataFrame, rule: str, with_test: bool) -> list[str]:
    states = score_table.scores(runs).state.value_counts()
    counts = [str(states.get(state, 0)) for state in BAD]
    rate = score_table.choose_rate(runs, rule)
    if rate is None:
        return [setting, "none", "0", "-", "-", "-", *(["-"] if with_test else []), *counts]
    of_seeds = score_table.by_seed(runs)[rate]
    finite = of_seeds[of_seeds.map(math.isfinite)]
    middle = median(of_seeds)
    best = min(finite) if score_table.is_loss(runs) else max(finite)
    row = [setting, rate, str(len(of_seeds)), f"{middle:.4f}" if math.isfinite(middle) else "diverged"]
    row += [with_deviation(list(finite), 4), f"{best:.4f}"]
    if with_test:
        of_mean = runs[(runs.rate == rate) & runs.seed.isin(finite.index)]
        tests = list(score_table.scores(of_mean, "test").groupby("seed").value.mean())
        row.append(with_deviation(tests, 4) if tests else "-")
    return [*row, *counts]


def section(title: str, runs: pd.DataFrame, rule: str) -> str:
    """Returns a table with a row for each setting."""
    with_test = len(score_table.scores(runs, "test")) > 0
    head = ["setting", "rate", "seeds", "median", f"{runs.metric.iloc[0]}, mean", "best"]
    head += [*(["test, mean"] if with_test else []), *BAD]
    of_settings = runs.groupby(settings_of(runs), sort=False)
    rows = [row_of(str(setting), of_row, rule, with_test) for setting, of_row in of_settings]
    return f"## {title}\n\n{markdown_table(head, rows)}\n"


def title_of(cells: Mapping[str, str]) -> str:
    return " ".join(cells[name] for name in ("recipe", "action", "task") if name in cells)


def text(runs: pd.DataFrame, rule: str) -> str:
    """Returns the report."""
    parts = ["# Results of a sweep\n", summary(runs) + "\n"]
    parts.append(
        f"{RULES[rule]} Mean ± standard deviation over the seeds of this rate; a run that has diverged is the worst "
        "of its seeds in a median, and no part of a mean. Folds of one seed are averaged first.\n"
    )
    for title, found in runs.groupby(runs.cells.map(title_of), sort=False):
        parts.append(section(str(title), found, rule))
    if without := without_score(runs):
        lines = "".join(f"- {name}: {said}\n" for name, said in without.items())
        parts.append(f"## Runs without a score\n\n{lines}")
    if told := not_alike(runs):
        lines = "".join(f"- {line}\n" for line in told)
        parts.append(f"## Rows whose runs differ in more than seed and learning rate\n\n{lines}")
    parts.append(each_score(runs))
    return "\n".join(parts)


def not_alike(runs: pd.DataFrame) -> list[str]:
    """Returns what the runs of a row differ in, as after a change of SETTINGS, a line for each row."""
    found = []
    for _, of_row in runs.groupby([runs.cells.map(title_of), settings_of(runs)], sort=False):
        try:
            score_table.check_alike(of_row)
        except ValueError as error:
            found.append(str(error))
    return found


def without_score(runs: pd.DataFrame) -> dict[str, str]:
    """Returns how each other run has ended, by its name."""
    bad = score_table.scores(runs[runs.state != "done"])
    return {run.run: f"{run.state}: {run.message}" if run.message else run.state for run in bad.itertuples()}


def each_score(runs: pd.DataFrame, factor: float = 1, digits: int = 4) -> str:
    """Returns a section with a row for each run, and what it scored on each split, times a factor."""
    splits = list(dict.fromkeys(runs.split))
    by_split = {split: score_table.scores(runs, split).set_index("run").value.to_dict() for split in splits}
    rows = []
    for run in score_table.scores(runs).itertuples():
        scores = [by_split[split].get(run.run, math.nan) for split in splits]
        cells = [f"{score * factor:.{digits}f}" if math.isfinite(score) else "-" for score in scores]
        rows.append([run.run, run.metric, *cells, run.state])
    return f"## Every score\n\n{markdown_table(['run', 'metric', *splits, 'state'], rows)}\n"


def summary(runs: pd.DataFrame) -> str:
    states = score_table.scores(runs).state.value_counts()
    counts = [f"{states[state]} {state}" for state in ("done", *BAD) if state in states]
    return f"{states.sum()} runs: {', '.join(counts)}."


def write(folder: str | Path, records: Iterable[Mapping[str, Any]], rule: str) -> str:
    """Writes RESULTS.md and results.json (every score) into the folder. Returns the summary, a line."""
    runs = score_table.read(records)
    folder = Path(folder)
    write_text(folder / "RESULTS.md", text(runs, rule))
    tests = score_table.scores(runs, "test").set_index("run").value.to_dict()
    scores = []
    for run in score_table.scores(runs).itertuples():
        score = run.value if math.isfinite(run.value) else None
        found = {"name": run.run, **run.cells, "state": run.state, "metric": run.metric, "score": score}
        if run.run in tests:
            found["test"] = tests[run.run]
        scores.append(found)
    write_json(folder / "results.json", {"rule": rule, "runs": scores})
    return f"{summary(runs)} {folder / 'RESULTS.md'}"
