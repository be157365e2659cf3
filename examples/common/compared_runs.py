"""Which runs of a recipe are compared, and what a reader would miss among them: for its report."""

import math
import re
import sys
from pathlib import Path

from fairseq_relpos.atomic_files import whole_file
from fairseq_relpos.reports import comparison, learning_rates
from fairseq_relpos.reports.losses import markdown
from fairseq_relpos.reports.training_log import NO_SETTING, flags_of, how_alike, read_run, tell_variants_apart

ENOUGH_SEEDS = 3
NAME = re.compile(r"(.+)-seed(\d+)")


class ComparedRuns:
    """The runs that a report compares: of each encoding those with the learning rate that did best with the first seed.

    ``settings``: RUNS, SEEDS, LEARNING_RATES, COMPARED, BASELINE and CONDITIONS of the recipe. Runs lie in a folder of
    RUNS for each of LEARNING_RATES; where there is none, in RUNS itself. Exits with one line where runs do not compare.
    """

    def __init__(self, settings, is_finished):
        self.place = Path(settings["RUNS"])
        self.data = Path(settings["DATA"])
        self.rates = settings.get("LEARNING_RATES", "").split()
        self.seeds = settings.get("SEEDS", "").split()
        self.wanted = settings.get("COMPARED", "").split()
        if not any(self.place.glob("lr*/*/train.log")):
            self.rates = []  # no comparison has been begun: single runs of run.sh train
        self.notes = []
        names = self.names_of_runs()
        try:
            self.tried, self.chosen = self.choose(names)
        except ValueError as error:
            fail(str(error))
        finished = [name for name in names if is_finished(self.place / name)]
        unfinished = [name for name in names if name not in finished]
        chosen = [name for name in finished if self.is_chosen(name)]
        if not chosen:
            fail(
                f"no finished run in {self.place} with these settings: run compare.sh, or what the head of run.sh names"
            )
        self.check_same_conditions(chosen, settings.get("CONDITIONS", ""))
        runs = {name: read_run(self.place / name) for name in chosen}
        diverged = [name for name, run in runs.items() if learning_rates.has_diverged(run)]
        for name, run in runs.items():
            run.name = name
        self.runs = [run for name, run in runs.items() if name not in diverged]
        if not self.runs:
            fail(f"every run in {self.place} has diverged: {', '.join(diverged)}")
        try:
            tell_variants_apart(self.runs)
        except ValueError as error:
            fail(str(error))
        self.baseline = self.find_baseline(settings["BASELINE"])
        self.runs.sort(key=lambda run: (run.encoding != self.baseline, run.encoding, run.seed))
        self.encodings = list(dict.fromkeys(run.encoding for run in self.runs))
        for encoding in self.encodings:
            self.check_alike(encoding)
        self.note_what_is_missing(names, chosen, unfinished, diverged)

    def names_of_runs(self):
        logs = sorted(self.place.glob("*/train.log" if not self.rates else "lr*/*/train.log"))
        names = [str(log.parent.relative_to(self.place)) for log in logs]
        names = [name for name in names if NAME.fullmatch(Path(name).name)]
        if self.rates:
            elsewhere = [name for name in names if Path(name).parent.name.removeprefix("lr") not in self.rates]
            elsewhere += sorted(log.parent.name for log in self.place.glob("*/train.log"))
            if elsewhere:
                self.notes.append(f"left out, because they are not of LEARNING_RATES: {', '.join(elsewhere)}")
            names = [name for name in names if name not in elsewhere]
        return names

    def choose(self, names):
        """encoding -> rate -> figure, and encoding -> the best rate"""
        if not self.rates:
            return {}, {}
        encodings = dict.fromkeys(encoding_of(name) for name in names)
        tried = {name: learning_rates.tried(self.place, self.rates, name, self.seeds[0]) for name in encodings}
        return tried, {name: learning_rates.best(figures) for name, figures in tried.items()}

    def is_chosen(self, name):
        return not self.rates or Path(name).parent.name == f"lr{self.chosen[encoding_of(name)]}"

    def find_baseline(self, name):
        found = comparison.find_baseline([run.encoding for run in self.runs], name)
        if found is None:
            self.notes.append(f"no run of {name}, the baseline, so no differences")
        return found

    def of(self, encoding):
        return [run for run in self.runs if run.encoding == encoding]

    def kept(self, run, file):
        path = self.place / run.name / file
        return path.read_text(encoding="utf-8").strip() if path.exists() else "not kept"

    def values(self, figure):
        """encoding -> seed -> figure(run)"""
        return {encoding: {run.seed: figure(run) for run in self.of(encoding)} for encoding in self.encodings}

    def check_same_conditions(self, names, today):
        """Figures of other data, or of another batch, do not compare."""
        kept = {name: self.place / name / "conditions" for name in names}
        by_run = {name: path.read_text().strip() for name, path in kept.items() if path.exists()}
        check_same(by_run, "trained with other data or another batch")
        text = [line for line in today.splitlines() if line.startswith("text ")]
        for name, conditions in by_run.items():
            if text and "text " in conditions and text[0] not in conditions.splitlines():
                fail(f"{name} was trained with other data than those in DATA: set DATA to its data")
        without = [name for name in names if name not in by_run]
        if without:
            self.notes.append(f"runs that have kept no digest of their data: {', '.join(without)}")

    def check_alike(self, encoding):
        """A mean over seeds is of one training, and a choice of a rate between trainings that differ in it alone."""
        runs = self.of(encoding)
        commands = [self.kept(run, "trained") for run in runs]
        for rate in self.rates:
            others = self.place.glob(f"lr{rate}/{encoding_of(runs[0].name)}-seed*/trained")
            commands += [path.read_text(encoding="utf-8") for path in others]
        told = how_alike(commands, "seed and learning rate", self.free(commands))
        if told.startswith("**"):
            names = ", ".join(run.name for run in runs)
            fail(f"{told.replace('*', '')} ({names}) Move those that do not belong here to another RUNS")

    def free(self, commands):
        """The flags that may differ: of the place, the speed and the output, and the learning rate. Not the end."""
        flags = set().union(*map(flags_of, commands)) - {"max-update"}
        return ["lr", "data", *(flag for flag in flags if re.fullmatch(NO_SETTING, flag))]

    def alike(self):
        commands = [self.kept(run, "trained") for run in self.runs]
        differ_in = "encoding (with the flags that it needs), seed and learning rate"
        return how_alike(commands, differ_in, self.free(commands))

    def warning(self):
        """What has to stand above the tables, where runs differ in more than they should."""
        return f"{self.alike()}\n\n" if self.alike().startswith("**") else ""

    def rates_table(self):
        if not self.rates:
            used = sorted({run.learning_rate for run in self.runs}, key=float)
            return f"No choice: {'all runs have' if len(used) == 1 else 'the runs have'} {', '.join(used)}."
        rows = []
        for encoding, figures in sorted(self.tried.items()):
            cells = dict.fromkeys(self.rates, "-")
            cells |= {rate: f"{x:.3f}" if math.isfinite(x) else "diverged" for rate, x in figures.items()}
            if self.chosen[encoding]:
                cells[self.chosen[encoding]] = f"**{cells[self.chosen[encoding]]}**"
            rows.append([encoding, *cells.values()])
        return markdown(["encoding", *self.rates], rows)

    def note_what_is_missing(self, names, chosen, unfinished, diverged):
        present = self.values(lambda run: 0.0)
        with_runs = {name.split(" ")[0] for name in present}
        self.notes += [f"{name}: no finished run" for name in self.wanted if name not in with_runs]
        self.notes += comparison.missing_seeds(present, map(int, self.seeds))
        few = [name for name, of_seed in present.items() if len(of_seed) < ENOUGH_SEEDS]
        if few:
            self.notes.append(f"fewer than {ENOUGH_SEEDS} seeds: {', '.join(few)}")
        edges = []
        ordered = sorted(self.rates, key=float)
        for encoding, figures in self.tried.items():
            lacks = [rate for rate in ordered if rate not in figures]
            if lacks:
                self.notes.append(f"{encoding}: not tried with the learning rates {', '.join(lacks)}")
            elif len(ordered) > 1 and self.chosen[encoding] in (ordered[0], ordered[-1]):
                edges.append(f"{encoding} ({self.chosen[encoding]})")
        if edges:
            self.notes.append(
                f"the best learning rate is at an edge of the grid, beyond which it may be: {', '.join(edges)}"
            )
        others = [name for name in names if name not in chosen and seed_of(name) not in self.seeds[:1]]
        others = [name for name in others if name not in unfinished]
        if self.rates and others:
            self.notes.append(f"left out, because another rate is the best: {', '.join(others)}")
        if diverged:
            limit = learning_rates.DIVERGED
            self.notes.append(
                f"diverged (the last validation more than {limit} nats above the best): {', '.join(diverged)}"
            )
        if unfinished:
            self.notes.append(f"not finished with these settings: {', '.join(unfinished)}")

    def missing(self):
        return "".join(f"- {note}\n" for note in self.notes) or "Nothing.\n"

    def sources(self):
        """What the data are made of, as prepare.sh says in sources.txt. It is kept with the runs: with them alone, as
        they are packed beside a report, the report can be made again."""
        there, kept = self.data / "sources.txt", self.place / "sources.txt"
        if there.exists():
            with whole_file(kept) as part:
                Path(part).write_bytes(there.read_bytes())
        elif not kept.exists():
            fail(f"no {there}: set DATA to the data that the runs were trained with")
        return kept.read_text(encoding="utf-8").strip()

    def machines(self):
        found = {line for run in self.runs for line in self.kept(run, "machine.txt").splitlines()}
        return "\n".join(f"- {line}" for line in sorted(found))


def encoding_of(name):
    return NAME.fullmatch(Path(name).name)[1]


def seed_of(name):
    return NAME.fullmatch(Path(name).name)[2]


def fail(message):
    sys.exit(f"report: error: {message}")


def check_same(by_run, what, remedy="give each group its own RUNS"):
    groups = {}
    for name, value in by_run.items():
        groups.setdefault(value, []).append(name)
    if len(groups) > 1:
        fail(f"the runs were {what}: {'; '.join(', '.join(group) for group in groups.values())}: {remedy}")


def settings_of(arguments):
    """NAME=VALUE... -> dict"""
    return dict(argument.split("=", 1) for argument in arguments)
