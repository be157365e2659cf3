"""The table on which the reports of scored runs stand.

A row is a figure of a run: run, task, encoding, checkpoint, seed, fold, rate, state, split, figure, value. The split
that was scored first is called valid, and of its figures the ``metric`` counts: each run has one row with it, NaN where
the run has no score.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from .learning_rates import choose, figure_of, why_diverged
from .run_folder import splits_of
from .training_log import LOG_NAME, read_run

LOSS = "loss"
#: column -> its name in a manifest, and in results.json
NAMES = {
    **{"task": ("task", "task"), "encoding": ("encoding", "encoding"), "checkpoint": ("checkpoint", "checkpoint")},
    **{"rate": ("LEARNING_RATE", "lr"), "seed": ("SEED", "seed"), "fold": ("FOLD", "fold")},
}


def read(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns the table. A record is a run: its name, place, and cells (settings as a manifest has them), and how it
    has ended: state, with a message unless it is done."""
    table = pd.DataFrame([row for record in records for row in rows_of(record)])
    # a run that has ended before it was scored is scored by what the others of its task are
    of_task = table[table.metric != ""].groupby("task").metric.first().to_dict()
    metric = table.task.map(lambda task: of_task.get(task, "-"))
    unknown = table.metric == ""
    table["figure"] = table.figure.mask(unknown, metric)
    table["metric"] = table.metric.mask(unknown, metric)
    return table


def rows_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    run = {"run": record["name"], "cells": record["cells"], "metric": "", "facts": {}}
    run |= {"state": record.get("state", "not done"), "message": record.get("message", "")}
    splits = {"valid": {"": math.nan}}
    if run["state"] == "done":
        try:
            splits, run["metric"], run["facts"] = scores_of(Path(record["place"]))
            run["message"] = why_diverged_at(Path(record["place"]), splits["valid"][run["metric"]])
            run["state"] = "diverged" if run["message"] else "done"
        except (KeyError, TypeError, StopIteration, ValueError) as error:
            run["state"], splits = "failed", {"valid": {run["metric"]: math.nan}}
            run["message"] = f"its results cannot be read ({error}): remove its folder, and run the sweep again"
    for column, (cell, fact) in NAMES.items():
        known = record["cells"].get(cell) or run["facts"].get(fact)
        run[column] = "" if known is None else str(known)
    return [
        {**run, "split": split, "figure": figure, "value": value}
        for split, of_split in splits.items()
        for figure, value in of_split.items()
        if isinstance(value, (int, float))
    ]


def scores_of(place: Path) -> tuple[dict[str, dict[str, float]], str, dict[str, Any]]:
    """Returns split -> figure -> value, the figure that counts, and all that results.json says. Without that file the
    loss of the last validation counts."""
    files, logs = sorted(place.rglob("results.json")), sorted(place.rglob(LOG_NAME))
    if files:
        facts = json.loads(files[0].read_text(encoding="utf-8"))
        metric = facts.get("metric") or next(iter(facts["metrics"]))
        (_, first), *others = splits_of(facts).items()
        return {"valid": first, **dict(others)}, metric, facts
    if len(logs) != 1:
        raise ValueError(f"no results.json and {len(logs)} {LOG_NAME} in {place}")
    return {"valid": {LOSS: figure_of(read_run(logs[0]))}}, LOSS, {}


def why_diverged_at(place: Path, score: float) -> str:
    scored = any(place.rglob("results.json"))
    if scored and not math.isfinite(score):
        return "the score is no number"
    logs = sorted(place.rglob(LOG_NAME))
    return next(filter(None, (why_diverged(read_run(log), scored) for log in logs)), "")


def scores(table: pd.DataFrame, split: str = "valid") -> pd.DataFrame:
    """Returns the rows with the figure that counts; of ``valid`` there is one for each run."""
    return table[(table.split == split) & (table.figure == table.metric)]


def by_seed(table: pd.DataFrame) -> "pd.Series[float]":
    """Returns the score by rate and seed; where data are in folds, the mean over them. A run that has diverged counts
    as the worst, and a seed without one of its runs has no score. Smaller rates come first."""
    runs = scores(table).sort_values("rate", key=lambda rates: pd.to_numeric(rates, "coerce"), kind="stable")
    worst = math.inf if is_loss(table) else -math.inf
    keys = [runs.rate, runs.seed]
    ended = runs.state.isin(["done", "diverged"]).groupby(keys).transform("all")
    counted = runs.value.where(runs.state == "done", worst)[ended]
    return counted.groupby(keys, sort=False).mean()


def is_loss(table: pd.DataFrame) -> bool:
    """Whether a lower score is better."""
    return bool((table.metric == LOSS).any())


def choose_rate(table: pd.DataFrame, rule: str = "median") -> str | None:
    """Returns the best learning rate; None where no run has a score. ``rule``: that of ``choose``."""
    by_rate = by_seed(table).groupby(level=0, sort=False).agg(list)
    return choose(by_rate.to_dict(), is_loss(table), rule)


def chosen(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of the runs with the best learning rate that have a score."""
    return table[(table.rate == choose_rate(table)) & (table.state == "done")]
