"""The table on which the reports of scored runs stand.

A row is a figure of a run: run, task, encoding, checkpoint, seed, fold, rate, state, split, figure, value. The split
that was scored first is called valid, and of its figures the ``metric`` counts: each run has one row with it, NaN where
the run has no score.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from .learning_rates import choose, figure_of, why_diverged
from .run_folder import splits_of
from .run_settings import OF_A_FOLD, OF_A_SEED, batch_of, counted, flags_of, free_in_a_recipe, other_flags
from .training_log import LOG_NAME, read_run

LOSS = "loss"
START = "finetune-from-model"
#: column -> its name in a manifest, and in results.json
NAMES = {
    "task": ("task", "task"),
    "encoding": ("encoding", "encoding"),
    "checkpoint": ("checkpoint", "checkpoint"),
    "rate": ("LEARNING_RATE", "lr"),
    "seed": ("SEED", "seed"),
    "fold": ("FOLD", "fold"),
}


def read(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns the table. A record is a run: its name, place, and cells (settings as a manifest has them), and how it
    has ended: state, with a message unless it is done."""
    table = pd.DataFrame([row for record in records for row in rows_of(record)])
    # a run that has ended before it was scored is scored by what the others of its recipe, action and task are
    known = table.metric != ""
    alike = [table.cells.map(lambda cells: (cells.get("recipe"), cells.get("action"))), table.task]
    of_others = table.metric.where(known).groupby(alike, dropna=False).transform("first").fillna("-")
    table["figure"] = table.figure.where(known, of_others)
    table["metric"] = table.metric.where(known, of_others)
    return table


def records_of(runs: str | Path) -> list[dict[str, Any]]:
    """Returns a record of each run without a manifest: of a finished one what its results.json says, of another one
    what its training log says. A run that has diverged counts in the choice of a rate."""
    found: list[dict[str, Any]] = []
    for path in sorted(Path(runs).glob("*/**/results.json")):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} cannot be read ({error}): remove it, and evaluate this run again") from None
        if "metrics" not in facts:  # of a report
            continue
        cells = {cell: str(facts[fact]) for cell, fact in NAMES.values() if facts.get(fact) is not None}
        found.append({"cells": cells, "place": path.parent, "state": "done"})
    if not found:
        raise ValueError(f"no finished run in {runs}: a run that has been evaluated has a results.json")
    finished = {record["place"] for record in found}
    written = {float(rate): rate for record in found if (rate := record["cells"].get(NAMES["rate"][0]))}
    for log in sorted(Path(runs).glob(f"*/**/{LOG_NAME}")):
        if log.parent not in finished:
            state = "diverged" if (log.parent / "diverged").exists() else "not done"
            with contextlib.suppress(ValueError):  # it has no settings yet
                found.append({"cells": unscored(log, written), "place": log.parent, "state": state})
    return [{**record, "name": str(record["place"].relative_to(runs))} for record in found]


def unscored(log: Path, rates: Mapping[float, str]) -> dict[str, str]:
    """Returns the cells of a run without results.json. ``rates``: how the others write theirs."""
    run = read_run(log)
    task, _, fold = Path(run.settings["data"]).name.partition("-fold")
    rate, start = run.settings["lr"].strip("[]"), run.settings.get("finetune-from-model", "None")
    facts = {
        "task": task,
        "encoding": run.encoding,
        "checkpoint": "" if start == "None" else start,
        "rate": rates.get(float(rate), rate),
        "seed": str(run.seed),
        "fold": fold,
    }
    return {NAMES[name][0]: value for name, value in facts.items() if value}


def rows_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each figure of a run; one without a value where the run has no score."""
    cells, state, message = record["cells"], record.get("state", "not done"), record.get("message", "")
    splits: dict[str, dict[str, float]] = {}
    facts: dict[str, Any] = {}
    metric = ""
    if state == "done":
        place = Path(record["place"])
        try:
            splits, metric, facts = scores_of(place)
            message = why_diverged_at(place, splits["valid"][metric])
            state = "diverged" if message else "done"
        except (KeyError, TypeError, StopIteration, ValueError) as error:
            splits, state = {}, "failed"
            message = f"its results cannot be read ({error}): remove its folder, and run the sweep again"
    if not splits:
        splits = {"valid": {metric: math.nan}}
    run = {"run": record["name"], "cells": cells, "state": state, "message": message, "metric": metric, "facts": facts}
    for column, (cell, fact) in NAMES.items():
        known = cells.get(cell) or facts.get(fact)
        run[column] = "" if known is None else str(known)
    return [
        {**run, "place": record["place"], "split": split, "figure": figure, "value": value}
        for split, figures in splits.items()
        for figure, value in figures.items()
        if isinstance(value, (int, float))
    ]


def check_alike(table: pd.DataFrame) -> None:
    """A mean over seeds is of one training. Raises ValueError, one line, where runs with one encoding and checkpoint
    differ in other flags than those of seeds, rates and folds, or runs of one fold in their data."""
    first: dict[tuple[str, ...], tuple[Any, str, list[str]]] = {}
    for run in scores(table).itertuples():
        # in a sweep, the run is a folder below
        kept = [min(Path(run.place).rglob(name), default=None) for name in ("trained", "conditions")]
        command, conditions = ("" if path is None else path.read_text(encoding="utf-8") for path in kept)
        if "--user-dir" not in command:
            continue
        this = run, command, re.findall("(?m)^(?:dictionary|text|data) .*", conditions)
        group = run.task, run.encoding, run.checkpoint
        for key in dict.fromkeys([(*group, ""), (*group, run.fold)]):
            other, before, data = first.setdefault(key, this)
            flags = [flags_of(before), flags_of(command)]
            of_the_data = counted(flags) | (OF_A_FOLD if run.fold != other.fold else set())
            found = other_flags([before, command], [*free_in_a_recipe([before, command]), *of_the_data], OF_A_SEED)
            found += ["the batch"] if batch_of(flags[0]) != batch_of(flags[1]) else []
            found += [f"`--{START}` (given, not given)"] if (START in flags[0]) != (START in flags[1]) else []
            found += ["the data"] if run.fold == other.fold and data and this[2] and data != this[2] else []
            if found:
                told = f"{run.run} and {other.run} differ in more than seed and learning rate: {', '.join(found)}"
                raise ValueError(f"{told}. Move those that do not belong here to another RUNS")


def scores_of(place: Path) -> tuple[dict[str, dict[str, float]], str, dict[str, Any]]:
    """Returns split -> figure -> value, the figure that counts, and all that results.json says. Without that file the
    loss of the last validation counts."""
    files, logs = sorted(place.rglob("results.json")), sorted(place.rglob(LOG_NAME))
    if files:
        facts = json.loads(files[0].read_text(encoding="utf-8"))
        metric = facts.get("metric") or next(iter(facts["metrics"]))
        splits = splits_of(facts)
        if not splits:
            raise ValueError("it has no scores")
        first = next(iter(splits))
        others = {split: figures for split, figures in splits.items() if split != first}
        return {"valid": splits[first], **others}, metric, facts
    if len(logs) != 1:
        raise ValueError(f"no results.json and {len(logs)} {LOG_NAME} in {place}")
    return {"valid": {LOSS: figure_of(read_run(logs[0]))}}, LOSS, {}


def why_diverged_at(place: Path, score: float) -> str:
    scored = any(place.rglob("results.json"))
    if scored and not math.isfinite(score):
        return "the score is no number"
    for log in sorted(place.rglob(LOG_NAME)):
        if reason := why_diverged(read_run(log), scored):
            return reason
    return ""


def scores(table: pd.DataFrame, split: str = "valid") -> pd.DataFrame:
    """Returns the rows with the figure that counts; of ``valid`` there is one for each run."""
    return table[(table.split == split) & (table.figure == table.metric)]


def by_seed(table: pd.DataFrame) -> "pd.Series[float]":
    """Returns the score by rate and seed; where data are in folds, the mean over them. A run that has diverged counts
    as the worst, and a seed without one of its runs, or without a fold that others have, has no score. Smaller rates
    come first."""
    runs = scores(table).sort_values("rate", key=lambda rates: pd.to_numeric(rates, "coerce"), kind="stable")
    worst = math.inf if is_loss(table) else -math.inf
    runs["counted"] = runs.value.where(runs.state == "done", worst)
    runs["has_ended"] = runs.state.isin(["done", "diverged"])
    of_seed = runs.groupby(["rate", "seed"])
    is_whole = of_seed.has_ended.transform("all") & (of_seed.fold.transform("nunique") == runs.fold.nunique())
    return runs[is_whole].groupby(["rate", "seed"], sort=False).counted.mean()


def is_loss(table: pd.DataFrame) -> bool:
    """Whether a lower score is better."""
    return bool((table.metric[table.state == "done"] == LOSS).any())


def choose_rate(table: pd.DataFrame, rule: str = "median") -> str | None:
    """Returns the best learning rate; None where no run has a score. ``rule``: that of ``choose``."""
    of_seeds = by_seed(table).groupby("rate", sort=False).agg(list)
    return choose(of_seeds.to_dict(), is_loss(table), rule)


def chosen(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of the runs with the best learning rate, or the only one, that have a score. Raises ValueError,
    one line, for two runs of one seed and fold."""
    best = choose_rate(table) if table.rate.nunique() > 1 else table.rate.iloc[0]
    found = table[(table.rate == best) & (table.state == "done")]
    runs = scores(found)
    twice = runs[runs.duplicated(["seed", "fold"], keep=False)].run
    if len(twice):
        raise ValueError(f"{' and '.join(twice)} have one encoding, seed and learning rate: move one to another RUNS")
    return found
