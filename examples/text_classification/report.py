"""Accuracy of all runs beside a baseline: report.py RUNS FOLDER BASELINE    -> FOLDER/RESULTS.md, FOLDER/results.json

RUNS has a results.json for each run, at any depth. Seeds or folds are compared one by one. Where every model of a table
has been tested, the accuracy is that of the runs with a test, on the test part; else it is that of the validation part.
"""

import sys
from collections import defaultdict
from math import isfinite
from pathlib import Path
from statistics import mean

from fairseq_relpos.atomic_files import whole_file
from fairseq_relpos.finetuning.errors import in_one_line
from fairseq_relpos.reports import comparison, sweeps
from fairseq_relpos.reports.losses import markdown
from fairseq_relpos.reports.machine import describe

#: what the papers report of models that were trained from scratch; in percent, of the test part
PAPERS = {
    "AT5": {
        "none": {"MR": 80.5, "SUBJ": 94.1, "CR": 84.4, "MPQA": 90.2, "SST-2": 84.7, "TREC": 91.6},
        "t5": {"MR": 80.6, "SUBJ": 93.9, "CR": 84.5, "MPQA": 90.3, "SST-2": 84.9, "TREC": 92.5},
        "at5": {"MR": 81.2, "SUBJ": 94.3, "CR": 85.1, "MPQA": 90.1, "SST-2": 86.3, "TREC": 94.0},
    },
    "GCDF": {
        "t5": {"IMDB": 88.37, "SST-2": 82.91, "SNLI": 86.09, "QNLI": 80.09, "QQP": 72.28, "MNLI": 73.54},
        "shaw": {"IMDB": 88.39, "SST-2": 83.03, "SNLI": 86.13, "QNLI": 80.07, "QQP": 71.68, "MNLI": 73.79},
        "lfhc": {"IMDB": 88.78, "SST-2": 83.26, "SNLI": 86.48, "QNLI": 80.62, "QQP": 72.00, "MNLI": 74.18},
        "transformer_xl": {"IMDB": 88.45, "SST-2": 84.25, "SNLI": 86.27, "QNLI": 80.16, "QQP": 71.13, "MNLI": 75.24},
        "gcdf": {"IMDB": 88.98, "SST-2": 84.63, "SNLI": 86.52, "QNLI": 81.04, "QQP": 71.64, "MNLI": 75.83},
    },
}


def name_of(run):
    """A fine-tuned model is called like the folder of its pretraining."""
    checkpoint = run.cells.get("checkpoint")
    return Path(checkpoint).parent.name if checkpoint else run.cells["encoding"]


def groups_of(runs):
    """(task, whether fine-tuned) -> model -> its row of runs."""
    found = defaultdict(lambda: defaultdict(list))
    for run in runs:
        found[run.cells["task"], "checkpoint" in run.cells][name_of(run)].append(run)
    return {
        group: {name: sweeps.Row(name, of_model) for name, of_model in sorted(models.items())}
        for group, models in sorted(found.items())
    }


def is_tested(run):
    return isfinite(run.test)


def chosen(row):
    """The runs with the learning rate that is best in validation."""
    rate = row.chosen("median")
    return [run for run in row.runs if run.rate == rate and run.state == "done"]


def values_of(row, tested):
    """fold or, without folds, seed -> percent."""
    found = defaultdict(list)
    for run in chosen(row):
        if not tested or is_tested(run):
            found[int(run.cells.get("FOLD", run.seed))].append(100 * (run.test if tested else run.score))
    return {number: mean(scores) for number, scores in sorted(found.items())}


def papers_of(task, encoding):
    said = [f"{paper} {scores[encoding][task]}" for paper, scores in PAPERS.items() if task in scores.get(encoding, {})]
    return ", ".join(said)


def section(group, rows, baseline):
    task, fine_tuned = group
    runs = [run for row in rows.values() for run in row.runs]
    scored = {name: row for name, row in rows.items() if chosen(row)}
    tested = all(any(map(is_tested, chosen(row))) for row in scored.values())
    values = {name: values_of(row, tested) for name, row in scored.items()}
    if not values:
        return f"## {task}\nNo run has a score.\n", {}
    first = next((name for name in values if rows[name].runs[0].facts["encoding"] == baseline), None)
    part = "test" if tested else "validation"
    lines = markdown(*comparison.cells(values, first, f"{part} accuracy, %", 2)).splitlines()
    in_folds = "FOLD" in runs[0].cells
    if in_folds:
        lines[0] = lines[0].replace("| seeds |", "| folds |")
    guesses = [run.facts.get("majority", {}).get("test" if tested else "valid") for run in runs]
    # one number, or every score
    majority = [guess["accuracy"] if isinstance(guess, dict) else guess for guess in guesses if guess is not None]
    if majority:
        columns = lines[0].count("|") - 1
        least = f"| always the most frequent class | | {100 * mean(majority):.2f} |" + " |" * (columns - 3)
        lines.insert(2, least)
    if not fine_tuned:
        lines = with_papers(lines, task)
    title = f"## {task}, {'fine-tuned' if fine_tuned else 'from scratch'}"
    legend = "" if first is None else comparison.LEGEND.format(baseline=first).replace("\n", " ") + "\n"
    if note := comparison.note_of(values, first):
        legend = f"{note}\n\n{legend}"
    if in_folds:
        legend = legend.replace("seed", "fold").rstrip() + " Folds share training data: the intervals are too narrow.\n"
    bad = [f"{run.name} ({run.message})" for run in runs if run.state != "done"]
    return "\n".join([title, *lines, "", legend, *(["No score: " + ", ".join(bad)] if bad else [])]), values


def with_papers(lines, task):
    """With a column of what the papers report."""
    cells = [papers_of(task, line.split("|")[1].strip()) for line in lines]
    if not any(cells):
        return lines
    cells[:2] = ["*in the papers, with larger models*", "---:"]
    return [f"{line} {cell} |" for line, cell in zip(lines, cells, strict=True)]


def main(runs, folder, baseline):
    scored = [sweeps.score(record) for record in sweeps.records_of(runs)]
    parts, figures = [f"# Results of examples/text_classification\n\n{describe()}\n"], {}
    for group, rows in groups_of(scored).items():
        text, values = section(group, rows, baseline)
        parts.append(text)
        figures[", ".join([group[0], "fine-tuned" if group[1] else "from scratch"])] = values
    text = "\n".join(parts)
    with whole_file(Path(folder, "RESULTS.md")) as part:
        Path(part).write_text(text, encoding="utf-8")
    comparison.write(Path(folder, "results.json"), baseline, figures)
    print(text)


if __name__ == "__main__":
    with in_one_line():
        main(*sys.argv[1:])
