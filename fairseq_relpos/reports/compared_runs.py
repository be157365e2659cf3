"""The runs of a recipe that its report compares, what a reader would miss among them, and what all reports say."""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from ..atomic_files import whole_file, write_text
from . import comparison, learning_rates
from .losses import markdown
from .table import pd
from .training_log import NO_SETTING, Run, flags_of, how_alike, other_flags, read_run, tell_variants_apart

ENOUGH_SEEDS = 3
NAME = re.compile(r"(.+)-seed(\d+)")


class ComparedRuns:
    """The runs that a report compares: of each encoding those with the learning rate that did best with the first seed.

    ``settings``: RUNS, SEEDS, LEARNING_RATES, COMPARED, BASELINE and CONDITIONS of the recipe. Runs lie in a folder of
    RUNS for each of LEARNING_RATES; where there is none, in RUNS itself. Exits with one line where runs do not compare.
    """

    def __init__(self, settings: dict[str, str], is_finished: Callable[[Path], bool]):
        self.settings = settings
        self.place = Path(settings["RUNS"])
        self.data = Path(settings["DATA"])
        self.rates = settings.get("LEARNING_RATES", "").split()
        self.seeds = settings.get("SEEDS", "").split()
        self.wanted = settings.get("COMPARED", "").split()
        if not any(self.place.glob("lr*/*/train.log")):
            self.rates = []  # no comparison has been begun: single runs of run.sh train
        self.notes: list[str] = []
        table = self.table_of_runs()
        try:
            self.tried, self.chosen = self.choose(list(dict.fromkeys(table.encoding)))
        except ValueError as error:
            fail(str(error))
        table["finished"] = [is_finished(self.place / name) for name in table.run]
        table["chosen"] = table.rate == table.encoding.map(self.chosen) if self.rates else True
        compared = list(table.run[table.finished & table.chosen]) if len(table) else []
        if not compared:
            fail(
                f"no finished run in {self.place} with these settings: run compare.sh, or what the head of run.sh names"
            )
        self.check_same_conditions(compared, settings.get("CONDITIONS", ""))
        runs = {name: read_run(self.place / name) for name in compared}
        diverged = [name for name, run in runs.items() if learning_rates.why_diverged(run)]
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
        self.note_what_is_missing(table, diverged)

    def table_of_runs(self) -> pd.DataFrame:
        """Returns a row for each run that was begun: run (its folder), rate, encoding, seed."""
        begun = sorted(self.place.glob("*/train.log" if not self.rates else "lr*/*/train.log"))
        rows = []
        for log in begun:
            if named := NAME.fullmatch(log.parent.name):
                rate = log.parent.parent.name.removeprefix("lr") if self.rates else ""
                rows.append([str(log.parent.relative_to(self.place)), rate, *named.groups()])
        table = pd.DataFrame(rows, columns=["run", "rate", "encoding", "seed"])
        if self.rates:
            of_grid = table.rate.isin(self.rates)
            elsewhere = [*table.run[~of_grid], *sorted(log.parent.name for log in self.place.glob("*/train.log"))]
            if elsewhere:
                self.notes.append(f"left out, because they are not of LEARNING_RATES: {', '.join(elsewhere)}")
            table = table[of_grid].reset_index(drop=True)
        return table

    def choose(self, encodings: Sequence[str]) -> tuple[dict[str, dict[str, float]], dict[str, str | None]]:
        """encoding -> rate -> figure, and encoding -> the best rate"""
        if not self.rates:
            return {}, {}
        tried = {name: learning_rates.tried(self.place, self.rates, name, self.seeds[0]) for name in encodings}
        scores = {name: {rate: [figure] for rate, figure in of_one.items()} for name, of_one in tried.items()}
        return tried, {name: learning_rates.choose(of_one, lower=True) for name, of_one in scores.items()}

    def find_baseline(self, name: str) -> str | None:
        found = comparison.find_baseline([run.encoding for run in self.runs], name)
        if found is None:
            self.notes.append(f"no run of {name}, the baseline, so no differences")
        return found

    def of(self, encoding: str) -> list[Run]:
        return [run for run in self.runs if run.encoding == encoding]

    def kept(self, run: Run, file: str) -> str:
        path = self.place / run.name / file
        return path.read_text(encoding="utf-8").strip() if path.exists() else "not kept"

    def values(self, figure: Callable[[Run], Any]) -> dict[str, dict[int, Any]]:
        """encoding -> seed -> figure(run)"""
        return {encoding: {run.seed: figure(run) for run in self.of(encoding)} for encoding in self.encodings}

    def check_same_conditions(self, names: Sequence[str], today: str) -> None:
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

    def check_alike(self, encoding: str) -> None:
        """A mean over seeds is of one training, and a choice of a rate between trainings that differ in it alone."""
        runs = self.of(encoding)
        commands = [self.kept(run, "trained") for run in runs]
        for rate in self.rates:
            folder = Path(runs[0].name).name.rpartition("-seed")[0]
            trained = self.place.glob(f"lr{rate}/{folder}-seed*/trained")
            commands += [path.read_text(encoding="utf-8") for path in trained]
        if others := other_flags(commands, self.free(commands)):
            names = ", ".join(run.name for run in runs)
            told = f"The runs differ in more than seed and learning rate: {', '.join(others)}."
            fail(f"{told} ({names}) Move those that do not belong here to another RUNS")

    def free(self, commands: Sequence[str]) -> list[str]:
        """The flags that may differ: of the place, the speed and the output, and the learning rate. Not the end."""
        flags = set().union(*map(flags_of, commands)) - {"max-update"}
        return ["lr", "data", *(flag for flag in flags if re.fullmatch(NO_SETTING, flag))]

    def alike(self) -> str:
        commands = self.commands()
        differ_in = "encoding (with the flags that it needs), seed and learning rate"
        return how_alike(commands, differ_in, self.free(commands))

    def warning(self) -> str:
        """What has to stand above the tables, where runs differ in more than they should."""
        return f"{self.alike()}\n\n" if other_flags(self.commands(), self.free(self.commands())) else ""

    def commands(self) -> list[str]:
        return [self.kept(run, "trained") for run in self.runs]

    def rates_table(self) -> str:
        if not self.rates:
            used = sorted({run.learning_rate for run in self.runs}, key=float)
            return f"No choice: {'all runs have' if len(used) == 1 else 'the runs have'} {', '.join(used)}."
        rows = []
        for encoding, figures in sorted(self.tried.items()):
            cells = dict.fromkeys(self.rates, "-")
            cells |= {rate: f"{x:.3f}" if math.isfinite(x) else "diverged" for rate, x in figures.items()}
            if best := self.chosen[encoding]:
                cells[best] = f"**{cells[best]}**"
            rows.append([encoding, *cells.values()])
        return markdown(["encoding", *self.rates], rows)

    def note_what_is_missing(self, table: pd.DataFrame, diverged: Sequence[str]) -> None:
        present = self.values(lambda run: 0.0)
        with_runs = {name.split(" ")[0] for name in present} | {
            Path(run.name).name.rpartition("-seed")[0] for run in self.runs
        }
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
        others = table.run[table.finished & ~table.chosen & ~table.seed.isin(self.seeds[:1])]
        if self.rates and len(others):
            self.notes.append(f"left out, because another rate is the best: {', '.join(others)}")
        if diverged:
            limit = learning_rates.DIVERGED
            self.notes.append(
                f"diverged (exit code 76, or the last validation more than {limit} nats above the best): "
                f"{', '.join(diverged)}"
            )
        if not table.finished.all():
            self.notes.append(f"not finished with these settings: {', '.join(table.run[~table.finished])}")

    def missing(self) -> str:
        return "".join(f"- {note}\n" for note in self.notes) or "Nothing.\n"

    def sources(self) -> str:
        """What the data are made of, as prepare.sh says in sources.txt. It is kept with the runs: with them alone, as
        they are packed beside a report, the report can be made again."""
        there, kept = self.data / "sources.txt", self.place / "sources.txt"
        if there.exists():
            with whole_file(kept) as part:
                Path(part).write_bytes(there.read_bytes())
        elif not kept.exists():
            fail(f"no {there}: set DATA to the data that the runs were trained with")
        return kept.read_text(encoding="utf-8").strip()

    def machines(self) -> str:
        found = {line for run in self.runs for line in self.kept(run, "machine.txt").splitlines()}
        return "\n".join(f"- {line}" for line in sorted(found))

    def runs_table(self, *columns: str) -> str:
        """``columns``: of COLUMNS, between the name of the run and its commit."""
        rows = [[run.name, *(COLUMNS[c](run) for c in columns), self.kept(run, "commit.txt")] for run in self.runs]
        return markdown(["run", *columns, "commit"], rows)

    def tables(self, figures: Mapping[str, comparison.Values], digits: Callable[[str], int]) -> str:
        """A table with differences from the baseline for each of the figures. digits(figure): behind the point."""
        found = [comparison.table(values, self.baseline, name, digits(name)) for name, values in figures.items()]
        return "\n\n".join(found)

    def write(self, folder: str | Path, template: str, figures: Mapping[str, Any], /, **words: Any) -> None:
        """Writes RESULTS.md, by a template that may name the settings, ``words`` and what follows, and results.json."""
        first = self.runs[0]
        known = {
            **self.settings,
            "BASELINE": self.baseline,
            "today": date.today().isoformat(),
            "updates": " or ".join(sorted({f"{run.updates:,}" for run in self.runs})),
            "warning": self.warning(),
            "legend": comparison.LEGEND.format(baseline=self.baseline),
            "rates": self.rates_table(),
            "alike": self.alike(),
            "first": first.name,
            "command": self.kept(first, "trained"),
            "commits": ", ".join(sorted({self.kept(run, "commit.txt") for run in self.runs})),
            "machines": self.machines(),
            "sources": self.sources() if "{sources}" in template else "",
            "missing": self.missing(),
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_text(Path(folder, "RESULTS.md"), template.format(**{**known, **words}))
        comparison.write(Path(folder, "results.json"), self.baseline, figures)


#: column of a table of runs -> its cell
COLUMNS: dict[str, Callable[[Run], str]] = {
    "learning rate": lambda run: run.learning_rate,
    "parameters": lambda run: f"{run.parameters:,}",
    "minutes": lambda run: f"{run.seconds / 60:,.0f}",
    "tokens/s": lambda run: f"{run.speed:,.0f}" if run.speed else "-",
}


def is_evaluated(run: Path, checkpoint: str, *steps: str) -> bool:
    """Whether the run has come to its end, and each of the files was made after the one before. Where the checkpoint is
    not kept, as beside a report, the others count."""
    if not all((run / name).exists() for name in ("trained", *steps)):
        return False
    times = [path.stat().st_mtime for path in (run / name for name in (checkpoint, *steps)) if path.exists()]
    return times == sorted(times)


def fail(message: str) -> NoReturn:
    sys.exit(f"report: error: {message}")


def check_same(by_run: Mapping[str, Any], what: str, remedy: str = "give each group its own RUNS") -> None:
    groups: dict[Any, list[str]] = {}
    for name, value in by_run.items():
        groups.setdefault(value, []).append(name)
    if len(groups) > 1:
        fail(f"the runs were {what}: {'; '.join(', '.join(group) for group in groups.values())}: {remedy}")


def settings_of(arguments: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE... -> dict"""
    return dict(argument.split("=", 1) for argument in arguments)
