"""python -m fairseq_relpos.finetuning.report RUNS FOLDER CONVENTION BASELINE: results.json of all runs below RUNS ->
FOLDER/RESULTS.md.

The learning rate of an encoding is the one with the best median over the seeds on the validation data (TUPE's rule).
Test data have no part in it. A run without results.json is named as one that has not ended.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from ..atomic_files import whole_file
from ..reports import comparison, sweeps
from ..reports.losses import markdown, with_deviation
from .glue import CONVENTIONS, PAPERS, TASKS

RULE = "median"
NAMES = {"valid": "validation", "valid1": "validation, mismatched", "test": "test"}


def finished(runs: Path) -> tuple[list[sweeps.Scored], list[str]]:
    """The runs that have results, and the names of those that have none."""
    found = [sweeps.score(record) for record in sweeps.records_of(runs)]
    begun = {path.parent for path in runs.glob("**/command")}
    return found, sorted(str(path.relative_to(runs)) for path in begun if not (path / "results.json").exists())


def rows_of(runs: Sequence[sweeps.Scored]) -> dict[str, sweeps.Row]:
    """encoding -> its runs. One that was fine-tuned from several checkpoints has a row for each of them."""
    starts = defaultdict(set)
    for run in runs:
        starts[run.facts["encoding"]].add(run.facts["checkpoint"])
    rows = defaultdict(list)
    for run in runs:
        encoding, start = run.facts["encoding"], run.facts["checkpoint"]
        rows[encoding if len(starts[encoding]) == 1 else f"{encoding}, {start}"].append(run)
    return {name: sweeps.Row(name, found) for name, found in sorted(rows.items())}


def scores_of(facts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By split. Those of the test part stand apart, as they come later."""
    return {**facts["splits"], **({"test": facts["test"]} if "test" in facts else {})}


def figures(row: sweeps.Row, split: str) -> dict[int, float]:
    """seed -> percent, with the chosen learning rate, without runs that have diverged."""
    rate = row.chosen(RULE)
    of_rate = [run for run in row.runs if run.rate == rate and run.state == "done" and split in scores_of(run.facts)]
    return {int(run.seed): 100 * scores_of(run.facts)[split][run.metric] for run in of_rate}


def table(task: str, rows: dict[str, sweeps.Row], convention: str, baseline: str) -> str:
    facts = [run.facts for row in rows.values() for run in row.runs if run.facts]
    least = {split: score for fact in facts for split, score in fact["majority"].items()}
    splits = [split for split in NAMES if any(split in scores_of(fact) for fact in facts)]
    metric, compared = facts[0]["metric"], "test" if "test" in splits else "valid"
    values = {name: figures(row, compared) for name, row in rows.items()}
    values = {name: of_seed for name, of_seed in values.items() if of_seed}
    differences = comparison.differences(values, baseline) if baseline in values else {}
    papers = PAPERS.get(convention, {})
    with_papers = any(task in of_encoding for of_encoding in papers.values())
    head = ["encoding", "rate", "seeds", "median", *(NAMES[split] for split in splits)]
    head += [f"- {baseline}, {NAMES[compared]}", "p", "one answer", *(["the paper"] if with_papers else [])]
    majority = [f"{100 * least[split]:.2f}" for split in splits]
    lines = [["always the most frequent label", "", "", "", *majority, *[""] * (len(head) - 4 - len(splits))]]
    for name in sorted(rows, key=lambda name: (name != baseline, name)):
        row, difference = rows[name], differences.get(name)
        cells = [name, row.chosen(RULE) or "none", str(len(figures(row, "valid")))]
        counted = list(row.of_seeds(cells[1]).values())
        cells.append(f"{100 * median(counted):.2f}" if counted and math.isfinite(max(map(abs, counted))) else "-")
        for split in splits:
            of_seed = figures(row, split)
            cells.append(with_deviation(list(of_seed.values()), 2) if of_seed else "-")
        cells += [difference.text(2), difference.judged()[0] or difference.reason] if difference else ["", ""]
        cells.append(str(sum(run.facts.get("one_answer", False) for run in row.runs)))
        if with_papers:
            cells.append(papers.get(name.split(",")[0], {}).get(task, ""))
        lines.append(cells)
    note = comparison.note_of(values, baseline if baseline in values else None)
    return "\n\n".join([f"## {task}: {metric}, in percent", markdown(head, lines), *([note] if note else [])]) + "\n"


def means(tables: dict[str, dict[str, sweeps.Row]]) -> str:
    """A row for each encoding that has all tasks: the mean over them. Both parts of MNLI count, as in the papers."""
    encodings = sorted({name for rows in tables.values() for name in rows})
    lines = []
    for name in encodings:
        scores = [
            mean(of_seed.values())
            for rows in tables.values()
            for split in ("valid", "valid1")
            if name in rows and (of_seed := figures(rows[name], split))
        ]
        if all(name in rows for rows in tables.values()):
            lines.append([name, str(len(scores)), f"{mean(scores):.2f}" if scores else "-"])
    return f"## All tasks, validation\n\n{markdown(['encoding', 'scores', 'mean'], lines)}\n"


def every_score(runs: Sequence[sweeps.Scored]) -> str:
    def cell(run: sweeps.Scored, split: str) -> str:
        scores = scores_of(run.facts)
        return f"{100 * scores[split][run.metric]:.2f}" if split in scores else ""

    known = [run for run in runs if run.facts]
    splits = [split for split in NAMES if any(split in scores_of(run.facts) for run in known)]
    lines = [
        [run.facts["task"], run.facts["encoding"], run.rate, run.seed, *(cell(run, s) for s in splits), run.state]
        for run in known
    ]
    head = ["task", "encoding", "rate", "seed", *(NAMES[split] for split in splits), "state"]
    return f"## Every score\n\n{markdown(head, sorted(lines))}\n"


def text(runs: Sequence[sweeps.Scored], missing: Sequence[str], convention: str, baseline: str) -> str:
    of_task: dict[str, list[sweeps.Scored]] = defaultdict(list)
    for run in runs:
        if run.facts:
            of_task[run.facts["task"]].append(run)
    tables = {task: rows_of(of_task[task]) for task in TASKS if task in of_task}
    parts = ["# Fine-tuning\n", sweeps.RULES[RULE] + " " + LEGEND.format(baseline=baseline)]
    parts += [table(task, rows, convention, baseline) for task, rows in tables.items()]
    if len(tables) > 1:
        parts.append(means(tables))
    parts.append(every_score(runs))
    bad = [f"{run.name} ({run.state}: {run.message})" for run in runs if run.state != "done"]
    if bad or missing:
        parts.append(f"Without a score: {', '.join([*bad, *(f'{name} (not ended)' for name in missing)])}.\n")
    return "\n".join(parts)


LEGEND = """\
It is chosen on the validation data. Mean ± standard deviation over the seeds of this rate.
"- {baseline}": difference from {baseline} ± half the width of its 95 % interval. One linear model serves a table
(encoding + seed, with one error); intervals and p are Dunnett's for several encodings against one, and hold where all
runs spread alike. "one answer": so many runs, of all rates, give every example of the validation data the same answer.
"the paper": what it reports for its own models.
"""


def main(arguments: Sequence[str]) -> None:
    place, out, convention, baseline = arguments
    runs, folder = Path(place), Path(out)
    if convention not in CONVENTIONS:
        raise ValueError(f"CONVENTION={convention}: give {', '.join(CONVENTIONS)}")
    try:
        found, missing = finished(runs)
    except ValueError:
        raise ValueError(f"no results.json below {runs}: run.sh finetune first, or set RUNS") from None
    report = text(found, missing, convention, baseline)
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / "RESULTS.md") as part:
        Path(part).write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    from .errors import in_one_line

    with in_one_line():
        main(sys.argv[1:])
