"""The runs of a recipe that its report compares, what a reader would miss among them, and what all reports say."""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from ..atomic_files import whole_file, write_text
from . import differences, learning_rates
from .markdown import markdown_table
from .run_settings import OF_A_SEED, batch_of, flags_of, free_in_a_recipe, how_alike, other_flags
from .training_log import Run, read_run, tell_variants_apart

NAME = re.compile(r"(.+)-seed(\d+)")
DIFFER_IN = "encoding (with the flags that it needs), seed and learning rate"


@dataclass
class Begun:
    """A folder of RUNS in which a training was begun. ``rate``: empty where no learning rate is chosen."""

    name: str
    encoding: str
    seed: str
    rate: str


class RecipeRuns:
    """The runs that a report compares: of each encoding those with the learning rate that did best with the first seed.

    ``settings``: RUNS, DATA, SEEDS, LEARNING_RATES, COMPARED, BASELINE and CONDITIONS of the recipe. Runs lie in a
    folder of RUNS for each of LEARNING_RATES; where there is none, in RUNS itself. Exits with one line where runs do
    not compare.
    """

    def __init__(self, settings: dict[str, str], is_finished: Callable[[Path], bool]):
        self.settings = settings
        self.place = Path(settings["RUNS"])
        self.seeds = settings.get("SEEDS", "").split()
        self.rates = settings.get("LEARNING_RATES", "").split()
        if not any(self.place.glob("lr*/*/train.log")):
            self.rates = []  # no comparison has been begun: single runs of run.sh train
        #: what a reader would miss
        self.notes: list[str] = []
        begun = self.begun_runs()
        #: encoding -> rate -> figure with the first seed
        self.tried: dict[str, dict[str, float]] = {}
        #: encoding -> the best rate
        self.chosen: dict[str, str | None] = {}
        if self.rates:
            self.choose_rates(list(dict.fromkeys(run.encoding for run in begun)))
        finished = [run for run in begun if is_finished(self.place / run.name)]
        compared = [run for run in finished if not self.rates or run.rate == self.chosen[run.encoding]]
        if not compared:
            fail(
                f"no finished run in {self.place} with these settings: run compare.sh, or what the head of run.sh names"
            )
        self.check_same_conditions([run.name for run in compared])
        self.runs, diverged = self.read([run.name for run in compared])
        self.baseline = differences.find_baseline([run.encoding for run in self.runs], settings["BASELINE"])
        if self.baseline is None:
            self.notes.append(f"no run of {settings['BASELINE']}, the baseline, so no differences")
        self.runs.sort(key=lambda run: (run.encoding != self.baseline, run.encoding, run.seed))
        self.encodings = list(dict.fromkeys(run.encoding for run in self.runs))
        for encoding in self.encodings:
            self.check_alike(encoding)
        self.note_missing_seeds()
        self.note_missing_rates()
        limit = learning_rates.DIVERGED
        stopped = [run for run in begun if (self.place / run.name / "diverged").exists()]
        # encodings that have diverged with every rate
        lost = {name for name, figures in self.tried.items() if figures and self.chosen[name] is None}
        of_the_best = [
            run for run in begun if not self.rates or run.rate == self.chosen[run.encoding] or run.encoding in lost
        ]
        without = [run for run in of_the_best if run not in compared]
        diverged += [run.name for run in without if run in stopped or run in finished and self.has_diverged(run)]
        others = [run for run in finished if run not in of_the_best and run.seed not in self.seeds[:1]]
        self.note("left out, because another rate is the best", [run.name for run in others])
        self.note(f"diverged (exit code 76, or the last validation more than {limit} nats above the best)", diverged)
        self.note("not finished with these settings", [run.name for run in begun if run not in [*finished, *stopped]])

    def has_diverged(self, run: Begun) -> bool:
        return bool(learning_rates.why_diverged(read_run(self.place / run.name)))

    def note(self, what: str, names: Sequence[str]) -> None:
        if names:
            self.notes.append(f"{what}: {', '.join(names)}")

    def begun_runs(self) -> list[Begun]:
        begun, elsewhere = [], []
        for log in sorted(self.place.glob("lr*/*/train.log" if self.rates else "*/train.log")):
            folder = log.parent
            rate = folder.parent.name.removeprefix("lr") if self.rates else ""
            if named := NAME.fullmatch(folder.name):
                name = str(folder.relative_to(self.place))
                if self.rates and rate not in self.rates:
                    elsewhere.append(name)
                else:
                    begun.append(Begun(name, named[1], named[2], rate))
        if self.rates:
            elsewhere += sorted(log.parent.name for log in self.place.glob("*/train.log"))
        self.note("left out, because they are not of LEARNING_RATES", elsewhere)
        return begun

    def choose_rates(self, encodings: Sequence[str]) -> None:
        for encoding in encodings:
            try:
                figures = learning_rates.tried(self.place, self.rates, encoding, self.seeds[0])
            except ValueError as error:
                fail(str(error))
            self.tried[encoding] = figures
            scores = {rate: [figure] for rate, figure in figures.items()}
            self.chosen[encoding] = learning_rates.choose(scores, lower=True)

    def read(self, names: Sequence[str]) -> tuple[list[Run], list[str]]:
        """Returns the runs, variants of an encoding under names of their own, and the names of those that diverged.

        A run that VARIANTS names has its variant in its name, also where no other run has the same encoding.
        """
        runs, diverged = [], []
        for name in names:
            run = read_run(self.place / name)
            run.name = name
            if learning_rates.why_diverged(run):
                diverged.append(name)
            else:
                runs.append(run)
        if not runs:
            fail(f"every run in {self.place} has diverged: {', '.join(diverged)}")
        try:
            tell_variants_apart(runs)
        except ValueError as error:
            fail(str(error))
        for run in runs:
            if run.variant and called(run) != run.encoding and "(" not in run.encoding:
                run.encoding += f" ({run.variant})"
        return runs, diverged

    # --- what does not compare, and what a reader would miss ---

    def check_same_conditions(self, names: Sequence[str]) -> None:
        """Figures of other data, or of another batch, do not compare."""
        kept = {name: self.place / name / "conditions" for name in names}
        by_run = {name: path.read_text().strip() for name, path in kept.items() if path.exists()}
        start = self.settings.get("START_FROM", "")
        if start not in ("", "none") and not start.endswith(".pt"):  # a folder: each run has a checkpoint of its own
            by_run = {name: re.sub("(?m)^start .*", "start", conditions) for name, conditions in by_run.items()}
        check_same(by_run, "trained with other data or another batch")
        today = self.settings.get("CONDITIONS", "").splitlines()
        text = [line for line in today if line.startswith("text ")]
        for name, conditions in by_run.items():
            if text and "text " in conditions and text[0] not in conditions.splitlines():
                fail(f"{name} was trained with other data than those in DATA: set DATA to its data")
        self.note("runs that have kept no digest of their data", [name for name in names if name not in by_run])

    def check_alike(self, encoding: str) -> None:
        """A mean over seeds is of one training, and a choice of a rate between trainings that differ in it alone."""
        runs = self.of(encoding)
        commands = [self.kept(run, "trained") for run in runs]
        for rate in self.rates:
            trained = self.place.glob(f"lr{rate}/{called(runs[0])}-seed*/trained")
            commands += [path.read_text(encoding="utf-8") for path in trained]
        others = other_flags(commands, free_in_a_recipe(commands), OF_A_SEED)
        others += ["the batch"] if len({batch_of(flags_of(command)) for command in commands}) > 1 else []
        if others:
            names = ", ".join(run.name for run in runs)
            told = f"The runs differ in more than seed and learning rate: {', '.join(others)}."
            fail(f"{told} ({names}) Move those that do not belong here to another RUNS")

    def note_missing_seeds(self) -> None:
        present = self.values(lambda run: 0.0)
        # a variant counts by the name of its encoding, and by that of its run
        with_runs = {name.split(" ")[0] for name in present}
        with_runs |= {called(run) for run in self.runs}
        wanted = self.settings.get("COMPARED", "").split()
        self.notes += [f"{name}: no finished run" for name in wanted if name not in with_runs]
        self.notes += differences.missing_seeds(present, map(int, self.seeds))
        few = [name for name, of_seed in present.items() if len(of_seed) < differences.ENOUGH_SEEDS]
        self.note(f"fewer than {differences.ENOUGH_SEEDS} seeds", few)

    def note_missing_rates(self) -> None:
        ordered = sorted(self.rates, key=float)
        edges = []
        for encoding, figures in self.tried.items():
            lacks = [rate for rate in ordered if rate not in figures]
            if lacks:
                self.notes.append(f"{encoding}: not tried with the learning rates {', '.join(lacks)}")
            elif len(ordered) > 1 and self.chosen[encoding] in (ordered[0], ordered[-1]):
                edges.append(f"{encoding} ({self.chosen[encoding]})")
        self.note("the best learning rate is at an edge of the grid, beyond which it may be", edges)

    # --- for the reports ---

    def of(self, encoding: str) -> list[Run]:
        return [run for run in self.runs if run.encoding == encoding]

    def kept(self, run: Run, file: str) -> str:
        path = self.place / run.name / file
        return path.read_text(encoding="utf-8").strip() if path.exists() else "not kept"

    def all_kept(self, file: str) -> list[str]:
        """The lines of such a file of all runs, each once."""
        return sorted({line for run in self.runs for line in self.kept(run, file).splitlines()})

    def values(self, figure: Callable[[Run], Any]) -> dict[str, dict[int, Any]]:
        """encoding -> seed -> figure(run)"""
        return {encoding: {run.seed: figure(run) for run in self.of(encoding)} for encoding in self.encodings}

    def sources(self) -> str:
        """The sources of the data, from the sources.txt of prepare.sh. A copy lies with the runs, so that the packed
        runs beside a report suffice to make the report again."""
        there, kept = Path(self.settings["DATA"], "sources.txt"), self.place / "sources.txt"
        if there.exists():
            with whole_file(kept) as part:
                Path(part).write_bytes(there.read_bytes())
        elif not kept.exists():
            fail(f"no {there}: set DATA to the data that the runs were trained with")
        return kept.read_text(encoding="utf-8").strip()

    def learning_rate(self, run: Run) -> str:
        """--lr as the command of the run has it."""
        return flags_of(self.kept(run, "trained")).get("lr", "")

    def rates_table(self, figure: str = "") -> str:
        """figure: the text and the unit of the validation loss, such as "on valid (nats)"."""
        if len(self.rates) < 2:
            used = sorted({self.learning_rate(run) for run in self.runs}, key=float)
            return f"No choice: {'all runs have' if len(used) == 1 else 'the runs have'} {', '.join(used)}."
        rows, names = [], {called(run): run.encoding for run in self.runs}
        for encoding, figures in sorted(self.tried.items()):
            cells = dict.fromkeys(self.rates, "-")
            cells |= {rate: f"{x:.3f}" if math.isfinite(x) else "diverged" for rate, x in figures.items()}
            if best := self.chosen[encoding]:
                cells[best] = f"**{cells[best]}**"
            rows.append([names.get(encoding, encoding), *cells.values()])
        loss = f"The last validation loss {figure}".rstrip()
        head = f"{loss} of one seed with each rate. The best one, in bold, serves the other seeds."
        return f"{head}\n\n{markdown_table(['encoding', *self.rates], rows)}"

    def runs_table(self, *columns: str) -> str:
        """``columns``: "learning rate" or of COLUMNS, between the name of the run and its commit."""
        cells = {"learning rate": self.learning_rate, **COLUMNS}
        rows = [[run.name, *(cells[c](run) for c in columns), self.kept(run, "commit.txt")] for run in self.runs]
        return markdown_table(["run", *columns, "commit"], rows)

    def tables(self, figures: Mapping[str, differences.Values], digits: Callable[[str], int]) -> str:
        """A table with differences from the baseline for each of the figures. digits(figure): behind the point."""
        found = [differences.table(values, self.baseline, name, digits(name)) for name, values in figures.items()]
        return "\n\n".join(found)

    def write(self, folder: str | Path, template: str, figures: Mapping[str, Any], /, **words: Any) -> None:
        """Writes RESULTS.md, by a template that may name the settings, ``words`` and what follows, and results.json."""
        first = self.runs[0]
        commands = [self.kept(run, "trained") for run in self.runs]
        alike = how_alike(commands, DIFFER_IN, free_in_a_recipe(commands))
        known = {
            **self.settings,
            "BASELINE": self.baseline,
            "today": date.today().isoformat(),
            "updates": " or ".join(sorted({f"{run.updates:,}" for run in self.runs})),
            # above the tables, where runs differ in more than they should
            "warning": f"{alike}\n\n" if other_flags(commands, free_in_a_recipe(commands)) else "",
            "legend": differences.legend(self.baseline),
            "rates": self.rates_table(),
            "alike": alike,
            "first": first.name,
            "command": self.kept(first, "trained"),
            "commits": ", ".join(self.all_kept("commit.txt")),
            "machines": "\n".join(f"- {line}" for line in self.all_kept("machine.txt")),
            "sources": self.sources() if "{sources}" in template else "",
            "missing": "".join(f"- {note}\n" for note in self.notes) or "Nothing.\n",
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_text(Path(folder, "RESULTS.md"), template.format(**{**known, **words}))
        differences.write(Path(folder, "results.json"), self.baseline, figures)


#: column of a table of runs -> its cell
COLUMNS: dict[str, Callable[[Run], str]] = {
    "parameters": lambda run: f"{run.parameters:,}",
    "minutes": lambda run: f"{run.seconds / 60:,.0f}",
    "tokens/s": lambda run: f"{run.speed:,.0f}" if run.speed else "-",
}


def called(run: Run) -> str:
    """The name that COMPARED has for the run: its encoding, or a variant's own name."""
    return Path(run.name).name.rpartition("-seed")[0]


def is_evaluated(run: Path, checkpoint: str, *steps: str) -> bool:
    """Whether the run has come to its end, and each of the files was made after the one before. Where the checkpoint is
    not kept, as beside a report, the others count."""
    if not (learning_rates.is_trained(run) and all((run / name).exists() for name in steps)):
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
