"""Accuracy of all runs beside a baseline: report.py RUNS FOLDER BASELINE    -> FOLDER/RESULTS.md, FOLDER/results.json

RUNS has a results.json for each run, at any depth. Seeds or folds are compared one by one. Where every model of a table
has been tested, the accuracy is that of the runs with a test, on the test part; else it is that of the validation part.
"""

import sys
from pathlib import Path
from statistics import mean

import pandas as pd

from fairseq_relpos.atomic_files import write_text
from fairseq_relpos.finetuning.errors import in_one_line
from fairseq_relpos.reports import differences, score_table, sweeps
from fairseq_relpos.reports.machine import describe
from fairseq_relpos.reports.markdown import markdown_table

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


def groups_of(runs):
    """(task, whether fine-tuned) -> model -> its runs. A fine-tuned model is called like the folder of its
    pretraining."""
    models = runs.encoding.where(runs.checkpoint == "", runs.checkpoint.map(lambda path: Path(path).parent.name))
    groups = runs.groupby([runs.task, runs.checkpoint != ""])
    return {group: dict(iter(found.groupby(models))) for group, found in groups}


def values_of(runs, split):
    """fold or, without folds, seed -> percent, with the learning rate that is best in validation."""
    found = score_table.scores(score_table.chosen(runs), split)
    numbers = found.fold.where(found.fold != "", found.seed).astype(int)
    return {number: 100 * value for number, value in found.groupby(numbers).value.mean().items()}


def papers_of(task, encoding):
    said = [f"{paper} {scores[encoding][task]}" for paper, scores in PAPERS.items() if task in scores.get(encoding, {})]
    return ", ".join(said)


def section(group, rows, baseline):
    task, fine_tuned = group
    runs = pd.concat(rows.values())
    scored = {name: found for name, found in rows.items() if len(score_table.chosen(found))}
    if not scored:
        return f"## {task}\nNo run has a score.\n", {}
    tested = all(values_of(found, "test") for found in scored.values())
    split, part = ("test", "test") if tested else ("valid", "validation")
    values = {name: values_of(found, split) for name, found in scored.items()}
    first = next((name for name in values if rows[name].encoding.iloc[0] == baseline), None)
    head, lines = differences.cells(values, first, f"{part} accuracy, %", 2)
    in_folds = bool(runs.fold.iloc[0])
    if in_folds:
        head[1] = "folds"
    guesses = [facts.get("majority", {}).get(split) for facts in score_table.scores(runs).facts]
    if majority := [guess for guess in guesses if guess is not None]:
        guess = f"{100 * mean(majority):.2f}"
        lines.insert(0, ["always the most frequent class", "", guess, *[""] * (len(head) - 3)])
    papers = [papers_of(task, line[0]) for line in lines]
    if any(papers) and not fine_tuned:
        head.append("*in the papers, with larger models*")
        lines = [[*line, cell] for line, cell in zip(lines, papers, strict=True)]
    title = f"## {task}, {'fine-tuned' if fine_tuned else 'from scratch'}"
    parts = [title, markdown_table(head, lines), "", legend_of(values, first, in_folds)]
    if bad := sweeps.without_score(runs):
        parts.append("No score: " + ", ".join(f"{name} ({said})" for name, said in bad.items()))
    return "\n".join(parts), values


def legend_of(values, baseline, in_folds):
    legend = "" if baseline is None else differences.legend(baseline).replace("\n", " ") + "\n"
    if note := differences.note_of(values, baseline):
        legend = f"{note}\n\n{legend}"
    if in_folds:
        legend = legend.replace("seed", "fold").rstrip() + " Folds share training data: the intervals are too narrow.\n"
    return legend


def main(runs, folder, baseline):
    scored = score_table.read(score_table.records_of(runs))
    score_table.check_alike(scored)
    parts, figures = [f"# Results of examples/text_classification\n\n{describe()}\n"], {}
    for group, rows in groups_of(scored).items():
        text, values = section(group, rows, baseline)
        parts.append(text)
        figures[", ".join([group[0], "fine-tuned" if group[1] else "from scratch"])] = values
    text = "\n".join(parts)
    write_text(Path(folder, "RESULTS.md"), text)
    differences.write(Path(folder, "results.json"), baseline, figures)
    print(text)


if __name__ == "__main__":
    with in_one_line():
        main(*sys.argv[1:])
