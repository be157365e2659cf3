"""The tables of a sweep: the papers' rules for a learning rate, every score, and what failed or diverged.

    python -m fairseq_relpos.reports.sweeps RUNS FOLDER [median|best]      # of every results.json in RUNS

A run is scored by its ``results.json`` (``metrics``, of which the first or the one that ``metric`` names counts), or
else by the last validation loss of its train.log. Runs that differ in seed, learning rate and fold alone are compared.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from ..atomic_files import whole_file
from .learning_rates import DIVERGED, figure_of, has_diverged
from .losses import markdown, with_deviation
from .training_log import LOG_NAME, read_run

LOSS = "loss"
#: nats: those of a guess among hundreds of millions of classes. A first epoch may end above it, and all later ones
WORST_GUESS = 20.0
#: columns of a manifest in which the runs of one setting differ
OF_A_RUN = ("SEED", "LEARNING_RATE", "FOLD")
#: column -> its name in results.json
NAMED = {
    **{"task": "task", "encoding": "encoding", "checkpoint": "checkpoint"},
    **{"LEARNING_RATE": "lr", "SEED": "seed", "FOLD": "fold"},
}
RULES = {
    "median": "The learning rate of a row is the one with the best median over its seeds.",
    "best": "Of each row the best run counts, over all learning rates and seeds.",
}


@dataclass
class Scored:
    """A line of the manifest, and how its run ended."""

    name: str
    cells: Mapping[str, str]
    #: done, diverged, failed, or "not done" where it has not ended
    state: str = "not done"
    message: str = ""
    metric: str = ""
    score: float = math.nan
    #: of test data, which has no part in any choice
    test: float = math.nan
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rate(self) -> str:
        return self.cells.get("LEARNING_RATE") or str(self.facts.get("lr", "-"))

    @property
    def seed(self) -> str:
        return self.cells.get("SEED") or str(self.facts.get("seed", "-"))

    @property
    def table(self) -> str:
        return " ".join(self.cells[name] for name in ("recipe", "action", "task") if name in self.cells)

    def setting(self, differ: Iterable[str]) -> str:
        """What a row is about: the encoding and the checkpoint, and the cells in which other rows ``differ``."""
        names = [name for name in self.cells if name in ("encoding", "checkpoint", *differ)]
        return ", ".join(self.cells[name] if name.islower() else f"{name}={self.cells[name]}" for name in names) or "-"

    @property
    def counted(self) -> float:
        """For a choice: a run that has diverged is worse than any other."""
        if self.state == "diverged":
            return math.inf if self.metric == LOSS else -math.inf
        return self.score


def score(record: Mapping[str, Any]) -> Scored:
    """Reads how a run ended. ``record``: name, cells and place of its line, and its end as the sweep keeps it."""
    known = {key: record[key] for key in ("state", "message") if key in record}
    run = Scored(record["name"], record["cells"], **known)
    if run.state == "done":
        try:
            read_scores(run, Path(record["place"]))
        except (ValueError, KeyError, TypeError, StopIteration) as error:
            run.state, run.score = "failed", math.nan
            run.message = f"its results cannot be read ({error}): remove its folder, and run the sweep again"
    return run


def read_scores(run: Scored, place: Path) -> None:
    files = sorted(place.rglob("results.json"))
    logs = sorted(place.rglob(LOG_NAME))
    if files:
        run.facts = json.loads(files[0].read_text(encoding="utf-8"))
        figures = run.facts["metrics"]
        run.metric = run.facts.get("metric") or next(iter(figures))
        run.score = float(figures[run.metric])
        run.test = float(run.facts.get("test", {}).get(run.metric, math.nan))
        if not math.isfinite(run.score):
            run.state, run.message = "diverged", "the score is no number"
    elif len(logs) == 1:
        training_run = read_run(logs[0])
        run.metric, run.score = LOSS, figure_of(training_run)
        if has_diverged(training_run):
            run.state, run.message = "diverged", "the validation loss rose"
    else:
        run.state, run.message = "failed", f"no results.json and {len(logs)} {LOG_NAME} in {place}, so no score"
    for log in logs:
        if run.state == "done" and has_lost_its_way(training_losses(log)):
            run.state, run.message = "diverged", f"the training loss ended at {training_losses(log)[-1]:.4g} nats"


def training_losses(log: Path) -> list[float]:
    """All that a log says of the loss in training, in nats, in this order."""
    found, unit = [], read_run(log).unit
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        said = re.search(r'"(?:train_)?loss": "([^"]+)"', line)
        if said:
            found.append(float(said[1]) * unit)
    return found


def has_lost_its_way(losses: Sequence[float]) -> bool:
    """Whether the last training loss is no number, is more than DIVERGED above the first one, or more than any guess
    costs. Of a fine-tuning the validation loss may rise without harm, while the accuracy grows."""
    return bool(losses) and not losses[-1] <= min(losses[0] + DIVERGED, WORST_GUESS)


@dataclass
class Row:
    """The runs of one setting."""

    setting: str
    runs: Sequence[Scored]

    @property
    def metric(self) -> str:
        return next((run.metric for run in self.runs if run.metric), "")

    @property
    def better(self) -> Callable[..., Any]:
        return min if self.metric == LOSS else max

    @property
    def rates(self) -> list[str]:
        return sorted({run.rate for run in self.runs}, key=_number)

    def of_seeds(self, rate: str) -> dict[str, float]:
        """seed -> score; where data are in folds, the mean over them. A seed without one of its runs has none."""
        by_seed: dict[str, list[float]] = {}
        for run in self.runs:
            if run.rate == rate and (run.state in ("done", "diverged")):
                by_seed.setdefault(run.seed, []).append(run.counted)
        lacks = {run.seed for run in self.runs if run.rate == rate and run.state in ("failed", "not done")}
        return {seed: mean(values) for seed, values in by_seed.items() if seed not in lacks}

    def tests_of(self, rate: str) -> list[float]:
        return [run.test for run in self.runs if run.rate == rate and math.isfinite(run.test)]

    def chosen(self, rule: str) -> str | None:
        """The learning rate; None where no run has a score."""
        figures = {}
        for rate in self.rates:
            values = list(self.of_seeds(rate).values())
            if values:
                figure = median(values) if rule == "median" else self.better(values)
                if math.isfinite(figure):
                    figures[rate] = figure
        return self.better(figures, key=lambda rate: figures[rate]) if figures else None

    def cells(self, rule: str, with_test: bool) -> list[str]:
        rate = self.chosen(rule)
        counts = [str(sum(run.state == state for run in self.runs)) for state in ("diverged", "failed", "not done")]
        if rate is None:
            return [self.setting, "none", "0", "-", "-", "-", *(["-"] if with_test else []), *counts]
        values = list(self.of_seeds(rate).values())
        finite = [value for value in values if math.isfinite(value)]
        middle = f"{median(values):.4f}" if math.isfinite(median(values)) else "diverged"
        row = [self.setting, rate, str(len(values)), middle, with_deviation(finite, 4), f"{self.better(finite):.4f}"]
        if with_test:
            row.append(with_deviation(self.tests_of(rate), 4) if self.tests_of(rate) else "-")
        return [*row, *counts]


def rows_of(runs: Iterable[Scored]) -> dict[str, list[Row]]:
    """Returns table -> its rows."""
    tables: dict[str, list[Scored]] = {}
    for run in runs:
        tables.setdefault(run.table, []).append(run)
    return {table: _rows_of_a_table(found) for table, found in tables.items()}


def _rows_of_a_table(runs: Sequence[Scored]) -> list[Row]:
    columns = {name for run in runs for name in run.cells} - {*OF_A_RUN}
    differ = [name for name in columns if len({run.cells.get(name) for run in runs}) > 1]
    rows: dict[str, list[Scored]] = {}
    for run in runs:
        rows.setdefault(run.setting(differ), []).append(run)
    return [Row(setting, found) for setting, found in rows.items()]


def text(runs: Sequence[Scored], rule: str) -> str:
    """Returns the report."""
    parts = ["# Results of a sweep\n", summary(runs) + "\n"]
    parts.append(
        f"{RULES[rule]} Mean ± standard deviation over the seeds of this rate; a run that has diverged is the worst "
        "of its seeds in a median, and no part of a mean. Folds of one seed are averaged first.\n"
    )
    for table, rows in rows_of(runs).items():
        with_test = any(math.isfinite(run.test) for row in rows for run in row.runs)
        metric = next((row.metric for row in rows if row.metric), "score")
        head = ["setting", "rate", "seeds", "median", f"{metric}, mean", "best"]
        head += [*(["test, mean"] if with_test else []), "diverged", "failed", "not done"]
        parts += [f"## {table}\n", markdown(head, [row.cells(rule, with_test) for row in rows]) + "\n"]
    bad = [run for run in runs if run.state != "done"]
    if bad:
        parts.append("## Runs without a score\n")
        parts.append("".join(f"- {run.name}: {run.state}{f': {run.message}' if run.message else ''}\n" for run in bad))
    parts.append("## Every score\n")
    parts.append(markdown(["run", "metric", "score", "test"], [each_score(run) for run in runs]) + "\n")
    return "\n".join(parts)


def each_score(run: Scored) -> list[str]:
    shown = f"{run.score:.4f}" if run.state == "done" else run.state
    return [run.name, run.metric or "-", shown, f"{run.test:.4f}" if math.isfinite(run.test) else "-"]


def summary(runs: Sequence[Scored]) -> str:
    counts = [(state, sum(run.state == state for run in runs)) for state in ("done", "diverged", "failed", "not done")]
    return f"{len(runs)} runs: " + ", ".join(f"{count} {state}" for state, count in counts if count) + "."


def write(folder: str | Path, records: Iterable[Mapping[str, Any]], rule: str) -> str:
    """Writes RESULTS.md and results.json (every score) into the folder. Returns the summary, a line."""
    runs = [score(record) for record in records]
    folder = Path(folder)
    with whole_file(folder / "RESULTS.md") as part:
        Path(part).write_text(text(runs, rule), encoding="utf-8")
    scores = [
        {"name": run.name, **run.cells, "state": run.state, "metric": run.metric, "score": _or_none(run.score)}
        | ({"test": run.test} if math.isfinite(run.test) else {})
        for run in runs
    ]
    with whole_file(folder / "results.json") as part:
        Path(part).write_text(json.dumps({"rule": rule, "runs": scores}, indent=1) + "\n", encoding="utf-8")
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
        cells = {column: str(facts[name]) for column, name in NAMED.items() if facts.get(name) is not None}
        name = str(path.parent.relative_to(runs))
        found.append({"name": name, "cells": cells, "place": path.parent, "state": "done"})
    if not found:
        raise ValueError(f"no finished run in {runs}: a run that has been evaluated has a results.json")
    return found


def main(runs: str, folder: str, rule: str = "median") -> None:
    print(write(folder, records_of(runs), rule))


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(rate: str) -> float:
    try:
        return float(rate)
    except ValueError:
        return math.inf


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"report: error: {' '.join(str(error).split())}")
