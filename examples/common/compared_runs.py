"""Which runs of a recipe are compared, and what a reader would miss among them: for its report."""

import os
import sys
from pathlib import Path

from fairseq_relpos.reports import comparison, learning_rates
from fairseq_relpos.reports.losses import markdown
from fairseq_relpos.reports.training_log import how_alike, read_run, tell_variants_apart

ROOT = Path(__file__).resolve().parents[2]
DIVERGED = 0.5  # nats that the last validation may be above the best one


class ComparedRuns:
    """Of each encoding the runs with the learning rate that did best in the validation of one seed. Runs lie in the
    folder ``place``, or in a folder of it for each rate (compare.sh). Exits with one line where runs do not compare."""

    def __init__(self, place, is_finished, baseline):
        self.place = Path(place)
        finished, self.unfinished = [], []
        for log in sorted(self.place.glob("**/train.log")):
            (finished if is_finished(log.parent) else self.unfinished).append(self.name_of(log.parent))
        if not finished:
            fail(f"no finished run in {place} with these settings: compare.sh, or what the head of run.sh names, first")
        self.check_same_conditions(finished)
        self.all = [read_run(self.place / name) for name in finished]
        for run, name in zip(self.all, finished):
            run.name = name
        tell_variants_apart(self.all)
        self.diverged = [run.name for run in self.all if has_diverged(run)]
        self.first_seed = first_seed(self.all)
        self.tried = learning_rates.tried(self.all, self.first_seed)
        self.chosen = {encoding: learning_rates.best(figures) for encoding, figures in self.tried.items()}
        self.runs = [
            run
            for run in self.all
            if run.name not in self.diverged and run.learning_rate == self.chosen.get(run.encoding, run.learning_rate)
        ]
        if not self.runs:
            fail(f"every run in {place} has diverged: {', '.join(self.diverged)}")
        self.runs.sort(key=lambda run: (run.encoding != baseline, run.encoding, run.seed))
        self.baseline = self.runs[0].encoding
        self.encodings = list(dict.fromkeys(run.encoding for run in self.runs))
        for encoding in self.encodings:
            self.check_alike(self.of(encoding))

    def name_of(self, folder):
        return str(folder.relative_to(self.place))

    def of(self, encoding):
        return [run for run in self.runs if run.encoding == encoding]

    def kept(self, run, file):
        path = self.place / run.name / file
        return path.read_text(encoding="utf-8").strip() if path.exists() else "not kept"

    def values(self, figure):
        """encoding -> seed -> figure(run)"""
        return {encoding: {run.seed: figure(run) for run in self.of(encoding)} for encoding in self.encodings}

    def check_same_conditions(self, names):
        """Figures of other text, or of other words, do not compare."""
        for file in ("conditions", "dictionary"):
            kept = {name: self.place / name / file for name in names}
            check_same(
                {name: path.read_text() for name, path in kept.items() if path.exists()}, "trained on different data"
            )

    def check_alike(self, runs):
        """A mean over seeds is of one training."""
        told = how_alike([self.kept(run, "trained") for run in runs], f"seed ({', '.join(run.name for run in runs)})")
        if told.startswith("**"):
            fail(f"{told.replace('*', '')} Move those that do not belong here to another RUNS")

    def alike(self):
        return how_alike(
            [self.kept(run, "trained") for run in self.runs],
            "encoding (with the flags that it needs), seed and learning rate",
            ["lr"],
        )

    def rates_table(self):
        rates = sorted({rate for figures in self.tried.values() for rate in figures}, key=float)
        if len(rates) == 1:
            return f"All runs have the same learning rate, {rates[0]}."
        rows = []
        for encoding in sorted(self.tried):
            figures = self.tried[encoding]
            cells = {rate: f"{figures[rate]:.3f}" if rate in figures else "-" for rate in rates}
            cells[self.chosen[encoding]] = f"**{cells[self.chosen[encoding]]}**"
            rows.append([encoding, *cells.values()])
        return markdown(["encoding", *rates], rows)

    def missing(self):
        found = comparison.missing_seeds(self.values(lambda run: 0.0))
        rates = {rate for figures in self.tried.values() for rate in figures}
        edges = []
        for encoding, figures in self.tried.items():
            lacks = sorted(rates - figures.keys(), key=float)
            if lacks:
                found.append(f"{encoding}: not tried with the learning rates {', '.join(lacks)}")
            if len(figures) > 1 and self.chosen[encoding] in (list(figures)[0], list(figures)[-1]):
                edges.append(f"{encoding} ({self.chosen[encoding]})")
        if edges:
            found.append(
                f"the best learning rate is at an edge of the grid, beyond which it may be: {', '.join(edges)}"
            )
        if self.diverged:
            found.append(
                f"diverged (the last validation more than {DIVERGED} nats above the best): {', '.join(self.diverged)}"
            )
        if self.unfinished:
            found.append(f"not finished with these settings: {', '.join(self.unfinished)}")
        return "".join(f"- {line}\n" for line in found) or "Nothing.\n"

    def compare_command(self, recipe):
        """What makes these runs and their report."""
        seeds = sorted({run.seed for run in self.runs}, key=lambda seed: (seed != self.first_seed, seed))
        rates = sorted({rate for figures in self.tried.values() for rate in figures}, key=float)
        settings = os.environ.get("SETTINGS", "").replace(f"{ROOT}/", "")
        words = [f"SETTINGS={settings}"] if settings else []
        words += [f'SEEDS="{" ".join(map(str, seeds))}"', f'LEARNING_RATES="{" ".join(rates)}"']
        words += ["bash", f"examples/{recipe}/compare.sh"]
        return " ".join([*words, *dict.fromkeys(name.split(" ")[0] for name in self.encodings)])

    def machines(self):
        return "\n".join(sorted({f"- {self.kept(run, 'machine.txt')}" for run in self.runs}))


def fail(message):
    sys.exit(f"report: error: {message}")


def check_same(by_run, what, remedy="give each group its own RUNS"):
    groups = {}
    for name, value in by_run.items():
        groups.setdefault(value, []).append(name)
    if len(groups) > 1:
        fail(f"the runs were {what}: {'; '.join(', '.join(group) for group in groups.values())}: {remedy}")


def has_diverged(run):
    # not above: a loss that is no number has diverged, too
    return any(not values[max(values)] <= min(values.values()) + DIVERGED for values in run.valid.values())


def first_seed(runs):
    """The seed with which the learning rates were tried: that of most runs."""
    seeds = sorted(run.seed for run in runs)
    return max(seeds, key=seeds.count)
