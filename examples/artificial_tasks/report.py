"""The tables and the plot of every run: report.py FOLDER NAME=VALUE...

Writes RESULTS.md and accuracy.png into FOLDER; runs that are not finished are left out. The values are settings of the
recipe.
"""

import json
import statistics
import sys
from datetime import date
from pathlib import Path

from result import read

from fairseq_relpos.atomic_files import whole_file
from fairseq_relpos.reports import comparison, figures, losses
from fairseq_relpos.reports.compared_runs import settings_of
from fairseq_relpos.reports.table import pd
from fairseq_relpos.reports.training_log import flags_of, how_alike, other_flags

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


def main(folder, *arguments):
    settings = settings_of(arguments)
    runs_folder, data, baseline = settings["RUNS"], settings["DATA"], settings["BASELINE"]
    results = collect(Path(runs_folder))
    if not len(results):
        sys.exit(f"report: error: no finished run in {runs_folder}: run.sh train first")
    check_alike(Path(runs_folder), results)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plot(results, folder / PLOT)
    accuracies = {task: values for task in TASKS if (values := values_of(results, task))}
    paper = table(results, list(PAPER), TASKS, mean_and_deviation, with_paper=True)
    others = sorted(set(results.encoding) - set(PAPER))
    shown = {task: title for task, title in TASKS.items() if task in set(results.task[results.encoding.isin(others)])}
    text = RESULTS.format(
        today=date.today().isoformat(),
        paper=paper,
        baseline=baseline,
        differences="\n\n".join(difference_tables(accuracies, baseline)),
        legend=comparison.LEGEND.format(baseline=baseline),
        missing=missing(Path(runs_folder), accuracies, results),
        others=table(results, others, shown, mean_and_deviation) if others else "No runs yet.",
        best_possible=best_possible(Path(data)),
        plot=PLOT,
        runs=table(results, [*PAPER, *others], TASKS, how_trained),
        commits=", ".join(sorted(set(results.commit))),
        machines="\n".join(sorted({f"- {machine}" for machine in results.machine})),
        command=example_command(Path(runs_folder)),
        rates=rates_tried(Path(runs_folder)),
        alike=how_all_alike(Path(runs_folder)),
    )
    path = folder / "RESULTS.md"
    with whole_file(path) as part:
        Path(part).write_text(text, encoding="utf-8")
    comparison.write(folder / "results.json", baseline, {f"accuracy on {task}": v for task, v in accuracies.items()})
    print(f"{paper}\n\n{path}, {PLOT}: {len(results)} runs")


def collect(runs_folder):
    """A row for each run with the learning rate that was chosen."""
    rows = []
    for chosen in sorted(runs_folder.glob("*/*.learning_rate")):
        task, encoding, rate = chosen.parent.name, chosen.stem, chosen.read_text().strip()
        for run in sorted(chosen.parent.glob(f"{encoding}-seed*-lr{rate}")):
            if (run / "result.json").exists():
                machine = run / "machine.txt"
                rows.append(
                    {
                        "task": task,
                        "encoding": encoding,
                        "name": run.name,
                        "seed": int(run.name.removesuffix(f"-lr{rate}").rpartition("-seed")[2]),
                        "rate": rate,
                        "commit": (run / "commit.txt").read_text().strip(),
                        "most_epochs": int(flags_of((run / "trained").read_text())["max-epoch"]),
                        "machine": machine.read_text().strip() if machine.exists() else "not kept",
                        **read(run),
                    }
                )
    return pd.DataFrame(rows)


def runs_of(results, encoding, task):
    return results[(results.encoding == encoding) & (results.task == task)]


def values_of(results, task):
    """encoding of the paper -> seed -> accuracy"""
    found = {encoding: runs_of(results, encoding, task) for encoding in PAPER}
    return {encoding: dict(zip(runs.seed, runs.test)) for encoding, runs in found.items() if len(runs)}


def difference_tables(accuracies, baseline):
    for task, values in accuracies.items():
        title = f"accuracy on {TASKS[task]}"
        yield comparison.table(values, baseline, title) if baseline in values else f"{title}: no run of {baseline} yet."


def check_alike(runs_folder, results):
    """A mean over seeds is of one training."""
    for (encoding, task), runs in results.groupby(["encoding", "task"]):
        commands = [(runs_folder / task / name / "trained").read_text() for name in runs.name]
        if others := other_flags(commands, FREE):
            told = f"The runs differ in more than seed: {', '.join(others)}. ({', '.join(runs.name)})"
            sys.exit(f"report: error: {encoding} on {task}: {told} Give each its own RUNS")


def missing(runs_folder, accuracies, results):
    found = [
        f"not finished: {log.parent.relative_to(runs_folder)}"
        for log in sorted(runs_folder.glob("*/*/train.log"))
        if not (log.parent / "result.json").exists()
    ]
    for task, values in accuracies.items():
        found += [f"{TASKS[task]}, {name}: no run" for name in PAPER if name not in values]
        found += [f"{TASKS[task]}, {line}" for line in comparison.missing_seeds(values)]
    ended = results[results.epochs == results.most_epochs].sort_values(["encoding", "task"], kind="stable")
    capped = [f"{run.encoding} on {TASKS[run.task]}, seed {run.seed}" for run in ended.itertuples()]
    if capped:
        found.append(f"ended by the cap on epochs: {', '.join(capped)}")
    return "".join(f"- {line}\n" for line in found) or "Nothing.\n"


def mean_and_deviation(runs):
    return f"{losses.with_deviation(list(runs.test))} ({len(runs)})"


def how_trained(runs):
    epochs = ", ".join(f"{run.best_epoch}/{run.epochs}" for run in runs.itertuples())
    return f"{runs.rate.iloc[0]}: {epochs}"


def table(results, encodings, tasks, cell, with_paper=False):
    rows = []
    for encoding in encodings:
        rows.append([encoding])
        for task in tasks:
            runs = runs_of(results, encoding, task)
            rows[-1].append(cell(runs) if len(runs) else "-")
            if with_paper:
                rows[-1].append(f"{PAPER[encoding][list(TASKS).index(task)]:.3f}" if len(runs) else "-")
    head = [column for title in tasks.values() for column in [title, *(["paper"] if with_paper else [])]]
    return losses.markdown(["encoding", *head], rows)


def best_possible(data):
    facts = [json.loads(path.read_text()) for path in sorted(data.glob("process50-seed*/facts.json"))]
    return f"{statistics.mean(fact['best_possible'] for fact in facts):.3f}" if facts else "not known"


def rates_tried(runs_folder):
    """By task, of the seeds that there are."""
    tried = {
        task: sorted({run.name.split("-lr")[1] for run in runs_folder.glob(f"{task}/*-lr*")}, key=float)
        for task in TASKS
    }
    return ", ".join(f"{' and '.join(rates)} ({task})" for task, rates in tried.items() if rates)


def how_all_alike(runs_folder):
    """Whether the commands of a task differ in what belongs to a run, or in more."""
    found = {}
    for task in TASKS:
        commands = [run.read_text() for run in runs_folder.glob(f"{task}/*/trained")]
        if commands:
            alike = how_alike(commands, "encoding, seed and learning rate", FREE)
            found.setdefault(alike, []).append(TASKS[task])
    return " ".join(found) if len(found) == 1 else " ".join(f"{', '.join(tasks)}: {a}" for a, tasks in found.items())


def example_command(runs_folder):
    run = sorted(runs_folder.glob("*/*/trained"))[0]
    return run.read_text().strip()


def plot(results, path):
    tasks = [task for task in TASKS if task in set(results.task)]
    names = sorted(set(results.encoding), key=lambda n: (n not in PAPER, n))[::-1]
    figure, panels = figures.new_figure(len(tasks), 1, width=3.4, height=1.2 + 0.22 * len(names))
    for panel, task in zip(panels, tasks):
        for place, name in enumerate(names):
            tests = runs_of(results, name, task).test
            panel.plot(
                tests,
                [place] * len(tests),
                "o",
                ms=4,
                alpha=0.7,
                color="tab:blue",
                label="a seed" if place == 0 else None,
            )
            if name in PAPER:
                panel.plot(
                    PAPER[name][list(TASKS).index(task)],
                    place,
                    "|",
                    ms=11,
                    mew=2,
                    color="tab:red",
                    label="paper" if name == "at5" else None,
                )
        panel.set_yticks(range(len(names)), names if panel is panels[0] else [""] * len(names))
        panel.set(title=TASKS[task], xlabel="test accuracy", ylim=(-0.7, len(names) - 0.3))
        panel.grid(axis="both", alpha=0.3)
    panels[-1].legend(loc="lower left", fontsize="small")
    figures.save(figure, path)


RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    main(*sys.argv[1:])
