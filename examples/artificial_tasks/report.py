"""The tables and the plot of every run: report.py FOLDER NAME=VALUE...

Writes RESULTS.md and accuracy.png into FOLDER; runs that are not finished are left out. The values are settings of the
recipe.
"""

import json
import re
import statistics
import sys
from datetime import date
from pathlib import Path

import pandas as pd
from result import read

from fairseq_relpos.atomic_files import write_text
from fairseq_relpos.reports import differences, figures, seeds_plot
from fairseq_relpos.reports.markdown import markdown_table, with_deviation
from fairseq_relpos.reports.recipe_runs import settings_of
from fairseq_relpos.reports.run_settings import flags_of, how_alike, other_flags

PLOT = "accuracy.png"
#: flags in which the runs of a task may differ
FREE = ["data", "lr", "max-source-positions"]
TASKS = {"reber": "Embedded Reber", "process50": "Process-50", "adding100": "Adding-100"}
#: Wu et al. 2021, Table 1
PAPER = {
    "none": (0.496, 0.549, 1.0),
    "t5_nob": (1.0, 0.772, 0.943),
    "t5": (1.0, 0.808, 1.0),
    "at5_nob": (1.0, 0.843, 0.961),
    "at5": (1.0, 0.843, 1.0),
}


NAME = re.compile(r"(?P<encoding>.+)-seed(?P<seed>\d+)-lr(?P<rate>.+)")


def main(folder, *arguments):
    settings = settings_of(arguments)
    place, baseline, folder = Path(settings["RUNS"]), settings["BASELINE"], Path(folder)
    runs = collect(place)
    if not len(runs) or not runs.chosen.any():
        sys.exit(f"report: error: no finished run in {place}: run.sh train first")
    results = runs[runs.chosen]
    check_alike(results)
    folder.mkdir(parents=True, exist_ok=True)
    plot(results, folder / PLOT)
    accuracies = {task: values for task in TASKS if (values := values_of(results, task))}
    cells = cells_of(results, lambda runs: f"{with_deviation(list(runs.test))} ({len(runs)})")
    others = sorted(set(results.encoding) - set(PAPER))
    shown = [task for task in TASKS if set(others) & set(cells[task])]
    columns = []
    for number, task in enumerate(TASKS):
        columns += [(TASKS[task], cells[task])]
        columns += [("paper", {name: f"{PAPER[name][number]:.3f}" for name in PAPER if name in cells[task]})]
    paper = table(PAPER, columns)
    text = RESULTS.format(
        today=date.today().isoformat(),
        paper=paper,
        baseline=baseline,
        differences="\n\n".join(difference_tables(accuracies, baseline)),
        legend=differences.legend(baseline),
        missing=missing(place, accuracies, results, [int(seed) for seed in settings["PAPER_SEEDS"].split()]),
        others=table(others, [(TASKS[task], cells[task]) for task in shown]) if others else "None here.",
        best_possible=best_possible(place),
        plot=PLOT,
        runs=table([*PAPER, *others], [(TASKS[task], found) for task, found in cells_of(results, how_trained).items()]),
        commits=", ".join(sorted(set(results.commit))),
        machines="\n".join(sorted({f"- {machine}" for machine in results.machine})),
        commands=commands_of(settings["ENVIRONMENT"], results, runs),
        trained=runs.command.iloc[0],
        rates=", ".join(f"{' and '.join(rates)} ({task})" for task, rates in rates_tried(runs).items()),
        alike=how_all_alike(runs),
    )
    write_text(folder / "RESULTS.md", text)
    differences.write(folder / "results.json", baseline, {f"accuracy on {task}": v for task, v in accuracies.items()})
    print(f"{paper}\n\n{folder / 'RESULTS.md'}, {PLOT}: {len(results)} runs")


def collect(place):
    """Returns a row for each finished run. chosen: its learning rate is the best one of its encoding and task."""
    rows = []
    for path in sorted(place.glob("*/*/result.json")):
        run = path.parent
        row = {"task": run.parent.name, "name": run.name, **NAME.fullmatch(run.name).groupdict(), **read(run)}
        row["seed"] = int(row["seed"])
        row["chosen"] = kept(run.parent / f"{row['encoding']}.learning_rate") == row["rate"]
        row |= {"commit": kept(run / "commit.txt"), "machine": kept(run / "machine.txt")}
        row["command"] = kept(run / "trained")
        row["most_epochs"] = int(flags_of(row["command"])["max-epoch"])
        rows.append(row)
    return pd.DataFrame(rows)


def kept(path):
    return path.read_text(encoding="utf-8").strip() if path.exists() else "not kept"


def values_of(results, task):
    """Returns encoding of the paper -> seed -> accuracy."""
    of_task = dict(iter(results[results.task == task].groupby("encoding")))
    return {name: dict(zip(of_task[name].seed, of_task[name].test)) for name in PAPER if name in of_task}


def difference_tables(accuracies, baseline):
    for task, values in accuracies.items():
        title = f"accuracy on {TASKS[task]}"
        if baseline in values:
            yield differences.table(values, baseline, title)
        else:
            yield f"{title}: no run of {baseline} yet."


def check_alike(results):
    """A mean over seeds is of one training. Each seed has its own data, whose longest sequence the encoding knows."""
    for (encoding, task), runs in results.groupby(["encoding", "task"]):
        if others := other_flags(list(runs.command), FREE):
            told = f"The runs differ in more than seed: {', '.join(others)}. ({', '.join(runs.name)})"
            sys.exit(f"report: error: {encoding} on {task}: {told} Give each its own RUNS")


def missing(place, accuracies, results, seeds):
    """seeds: those that the runs of the paper's encodings should have."""
    found = [
        f"{'diverged' if (log.parent / 'diverged').exists() else 'not finished'}: {log.parent.relative_to(place)}"
        for log in sorted(place.glob("*/*/train.log"))
        if not (log.parent / "result.json").exists()
    ]
    for task, title in TASKS.items():
        values = {name: accuracies.get(task, {}).get(name, {}) for name in PAPER}
        found += [f"{title}, {line}" for line in differences.missing_seeds(values, seeds)]
    ended = results[results.epochs == results.most_epochs].sort_values(["encoding", "task"], kind="stable")
    capped = [f"{run.encoding} on {TASKS[run.task]}, seed {run.seed}" for run in ended.itertuples()]
    if capped:
        found.append(f"ended by the cap on epochs: {', '.join(capped)}")
    return "".join(f"- {line}\n" for line in found) or "Nothing.\n"


def how_trained(runs):
    epochs = ", ".join(f"{run.best_epoch}/{run.epochs}" for run in runs.itertuples())
    return f"{runs.rate.iloc[0]}: {epochs}"


def cells_of(results, cell):
    """Returns task -> encoding -> cell(its runs)."""
    found = {task: {} for task in TASKS}
    for (task, encoding), runs in results.groupby(["task", "encoding"]):
        found[task][encoding] = cell(runs)
    return found


def table(encodings, columns):
    """columns: pairs of a head and the cells by encoding."""
    rows = [[name, *(cells.get(name, "-") for _, cells in columns)] for name in encodings]
    return markdown_table(["encoding", *(head for head, _ in columns)], rows)


def best_possible(place):
    """Returns the mean over the seeds."""
    facts = {NAME.fullmatch(path.parent.name)["seed"]: path for path in place.glob("process50/*/facts.json")}
    values = [json.loads(path.read_text(encoding="utf-8"))["best_possible"] for path in facts.values()]
    return f"{statistics.mean(values):.3f}" if values else "not known"


def rates_tried(runs):
    tried = {task: sorted(set(runs.rate[runs.task == task]), key=float) for task in TASKS}
    return {task: rates for task, rates in tried.items() if rates}


def commands_of(environment, results, runs):
    """compare.sh, or a line for each task, where each had rates of its own."""
    names = {task: " ".join(sorted(set(of.encoding), key=in_order)) for task, of in results.groupby("task")}
    rates = {task: " ".join(tried) for task, tried in rates_tried(runs).items()}
    if len(set(rates.values())) == 1:
        everyone = " ".join(sorted(set(results.encoding), key=in_order))
        return f"{environment}bash examples/artificial_tasks/compare.sh {everyone}"
    return "\n".join(
        f"for encoding in {names[task]}; do {environment}LEARNING_RATES='{rates[task]}' "
        f"bash examples/artificial_tasks/run.sh train {task} $encoding; done"
        for task in rates
    )


def in_order(name):
    """The encodings of the paper, in its order, before the others."""
    return list(PAPER).index(name) if name in PAPER else len(PAPER), name


def how_all_alike(runs):
    """Whether the commands of a task differ in what belongs to a run, or in more."""
    found = {}
    for task, of_task in runs.groupby("task"):
        alike = how_alike(list(of_task.command), "encoding, seed and learning rate", FREE)
        found.setdefault(alike, []).append(TASKS[task])
    return " ".join(found) if len(found) == 1 else " ".join(f"{', '.join(tasks)}: {a}" for a, tasks in found.items())


def plot(results, path):
    tasks = [task for task in TASKS if task in set(results.task)]
    names = sorted(set(results.encoding), key=in_order)
    figure, panels = figures.new_figure(len(tasks), 1, width=3.4, height=1.2 + 0.22 * len(names))
    for panel, task in zip(panels, tasks):
        tests = results[results.task == task].groupby("encoding").test.agg(list)
        seeds_plot.rows(panel, {name: tests.get(name, []) for name in names}, names=panel is panels[0])
        for row, name in enumerate(names[::-1]):
            if name in PAPER:
                paper = PAPER[name][list(TASKS).index(task)]
                panel.plot(paper, row, "|", ms=11, mew=2, color="black", label="paper" if name == "at5" else None)
        panel.set(title=TASKS[task], xlabel="test accuracy")
    panels[-1].legend(loc="lower left", fontsize="small")
    figures.save(figure, path)


RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    main(*sys.argv[1:])
