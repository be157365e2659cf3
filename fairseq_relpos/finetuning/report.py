"""python -m fairseq_relpos.finetuning.report RUNS FOLDER CONVENTION BASELINE: results.json of all runs below RUNS ->
FOLDER/RESULTS.md.

The learning rate of an encoding is the one with the best median over the seeds on the validation data (TUPE's rule).
Test data have no part in it. A run without results.json is named as one that has diverged or is not done.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

import pandas as pd

from ..atomic_files import write_text
from ..reports import differences, score_table, sweeps
from ..reports.markdown import markdown_table, with_deviation
from .errors import run_program
from .glue import CONVENTIONS, PAPERS, TASKS

SPLITS = {"valid": "validation", "valid1": "validation, mismatched", "test": "test"}


def rows_of(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """encoding -> its runs. One that was fine-tuned from several checkpoints has a row for each of them."""
    starts = runs.groupby("encoding").checkpoint.transform("nunique")
    names = runs.encoding.where(starts == 1, runs.encoding + ", " + runs.checkpoint)
    return {str(name): found for name, found in runs.groupby(names)}


def percent(runs: pd.DataFrame, split: str) -> dict[int, float]:
    """seed -> percent, with the chosen learning rate."""
    found = score_table.scores(score_table.chosen(runs), split)
    return {int(seed): 100 * value for seed, value in zip(found.seed, found.value)}


def table(task: str, runs: pd.DataFrame, convention: str, baseline: str) -> str:
    rows = rows_of(runs)
    least = {split: score for facts in runs.facts if facts for split, score in facts["majority"].items()}
    splits = [split for split in SPLITS if split in set(runs.split)]
    scored = {split: {name: percent(found, split) for name, found in rows.items()} for split in splits}
    # the test part, if every run that counts has been scored on it
    tested = all(scored["valid"][name].keys() == scored.get("test", {}).get(name, {}).keys() for name in rows)
    compared = "test" if tested else "valid"
    values = {name: of_seed for name, of_seed in scored[compared].items() if of_seed}
    by_encoding = differences.from_baseline(values, baseline) if baseline in values else {}
    papers = PAPERS.get(convention, {})
    with_papers = any(task in of_encoding for of_encoding in papers.values())
    head = ["encoding", "rate", "seeds", "median", *(SPLITS[split] for split in splits)]
    head += [f"- {baseline}, {SPLITS[compared]}", "p", "one answer", *(["the paper"] if with_papers else [])]
    majority = [f"{100 * least[split]:.2f}" for split in splits]
    lines = [["always the most frequent label", "", "", "", *majority, *[""] * (len(head) - 4 - len(splits))]]
    for name in sorted(rows, key=lambda name: (name != baseline, name)):
        found, difference = rows[name], by_encoding.get(name)
        rate = score_table.choose_rate(found)
        middle = median(score_table.by_seed(found)[rate]) if rate else math.inf
        cells = [name, rate or "none", str(len(scored["valid"][name]))]
        cells.append(f"{100 * middle:.2f}" if math.isfinite(middle) else "-")
        for split in splits:
            of_seed = scored[split][name]
            part = f" (seeds {', '.join(map(str, of_seed))})" if of_seed.keys() != scored["valid"][name].keys() else ""
            cells.append(with_deviation(list(of_seed.values()), 2) + part if of_seed else "-")
        cells += [difference.text(2), difference.judged()[0] or difference.reason] if difference else ["", ""]
        cells.append(str(sum(facts.get("one_answer", False) for facts in score_table.scores(found).facts)))
        if with_papers:
            cells.append(papers.get(name.split(",")[0], {}).get(task, ""))
        lines.append(cells)
    notes = [differences.note_of(values, baseline if baseline in values else None), *differences.missing_seeds(values)]
    title = f"## {task}: {runs.metric.iloc[0]}, in percent"
    return "\n\n".join([title, markdown_table(head, lines), *filter(None, notes)]) + "\n"


def means(by_task: dict[str, pd.DataFrame]) -> str:
    """A row for each encoding that has all tasks: the mean over them. Both parts of MNLI count, as in the papers."""
    rows = [rows_of(runs) for runs in by_task.values()]
    lines = []
    for name in sorted(set.intersection(*map(set, rows))):
        scores = [percent(of_task[name], split) for of_task in rows for split in ("valid", "valid1")]
        known = [mean(of_seed.values()) for of_seed in scores if of_seed]
        lines.append([name, str(len(known)), f"{mean(known):.2f}" if known else "-"])
    return f"## All tasks, validation\n\n{markdown_table(['encoding', 'scores', 'mean'], lines)}\n"


def text(runs: pd.DataFrame, convention: str, baseline: str) -> str:
    scored = set(runs.task[runs.state == "done"])
    by_task = {task: runs[runs.task == task] for task in TASKS if task in scored}
    parts = ["# Fine-tuning\n", sweeps.RULES["median"] + " " + LEGEND.format(baseline=baseline)]
    parts += [table(task, found, convention, baseline) for task, found in by_task.items()]
    if len(by_task) > 1:
        parts.append(means(by_task))
    parts.append(sweeps.each_score(runs, factor=100, digits=2))
    if bad := [f"{name} ({said})" for name, said in sweeps.without_score(runs).items()]:
        parts.append(f"Without a score: {', '.join(bad)}.\n")
    return "\n".join(parts)


LEGEND = """\
It is chosen on the validation data. Mean ± standard deviation over the seeds of this rate.
"- {baseline}": difference from {baseline} ± half the width of its 95 % interval. One linear model serves a table
(encoding + seed, with one error); intervals and p are Dunnett's for several encodings against one, and hold where all
runs spread alike. "one answer": so many runs, of all rates, give every example of the validation data the same answer.
"the paper": what it reports for its own models of base size, pretrained from scratch.
"""


def main(arguments: Sequence[str]) -> None:
    place, out, convention, baseline = arguments
    runs, folder = Path(place), Path(out)
    if convention not in CONVENTIONS:
        raise ValueError(f"CONVENTION={convention}: give {', '.join(CONVENTIONS)}")
    if not any(runs.rglob("results.json")):
        raise ValueError(f"no results.json below {runs}: run.sh finetune first, or set RUNS")
    found = score_table.read(score_table.records_of(runs))
    score_table.check_alike(found)
    report = text(found, convention, baseline)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "RESULTS.md", report)
    print(report)


if __name__ == "__main__":
    run_program(main)
