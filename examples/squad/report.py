"""A table of all runs: report.py FOLDER NAME=VALUE...    -> FOLDER/RESULTS.md, FOLDER/results.json

RUNS has a folder for each run, or folders of runs (learning rates), each with results.json.
"""

import os
import re
import sys
from pathlib import Path

import pandas as pd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from messages import in_one_line  # noqa: E402

from fairseq_relpos.atomic_files import write_json, write_text  # noqa: E402
from fairseq_relpos.reports import differences, score_table, sweeps  # noqa: E402
from fairseq_relpos.reports.markdown import markdown_table, with_deviation  # noqa: E402
from fairseq_relpos.reports.recipe_runs import settings_of  # noqa: E402
from fairseq_relpos.reports.run_settings import flags_of  # noqa: E402

#: the scores of a table, where the data have them
OF_SQUAD = "exact_match exact f1 best_exact best_f1 tuned_exact tuned_f1 HasAns_f1 NoAns_f1"
SCORES = {"squad": OF_SQUAD.split(), "cmrc": ["exact_match", "f1", "average"]}
PAPERS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")


def records_of(runs):
    """Every run that was begun, and how it has ended."""
    for place in sorted({path.parent for path in Path(runs).rglob("command")}):
        encoding, _, seed = place.name.rpartition("-seed")
        command = (place / "command").read_text(encoding="utf-8")
        rate = flags_of(command).get("lr", "") if "--user-dir" in command else ""
        ended = (place / "trained").exists() and (place / "results.json").exists()
        state = "done" if ended else "diverged" if (place / "diverged").exists() else "not done"
        cells = {"encoding": encoding, "SEED": seed, "LEARNING_RATE": rate}
        yield {"name": str(place.relative_to(runs)), "cells": cells, "place": place, "state": state}


def table(runs, split, metric, baseline):
    """A row for each encoding, with the learning rate that has the best median of F1 on valid: mean and deviation of
    each score over the seeds, and how far F1 lies above the baseline."""
    names = [name for name in SCORES[metric] if name in set(runs.figure)]
    rows, f1 = {}, {}
    for name, found in runs.groupby("encoding"):
        chosen = score_table.chosen(found)
        chosen = chosen[chosen.split == split].sort_values("seed", key=pd.to_numeric)
        if len(chosen):
            rows[name] = chosen
            scored = score_table.scores(chosen, split)
            f1[name] = dict(zip(scored.seed.astype(int), scored.value))
    by_encoding = differences.from_baseline(f1, baseline) if baseline in f1 else {}
    lines = []
    for name in sorted(rows, key=lambda name: (name != baseline, name)):
        cells = [name, rows[name].rate.iloc[0], ", ".join(map(str, f1[name]))]
        for score in names:
            values = list(rows[name].value[rows[name].figure == score])
            cells.append(with_deviation(values, 2) if values else "-")
        one = by_encoding.get(name)
        lines.append([*cells, *([one.text(2), one.judged()[0] or one.reason] if one else ["-", ""])])
    return markdown_table(["encoding", "lr", "seeds", *names, f"f1 - {baseline}", "p"], lines)


def several_starts(runs):
    """Names the rows whose runs started from other models than seeds of one pretraining."""
    for encoding, found in runs.groupby("encoding"):
        commands = [(place / "trained").read_text(encoding="utf-8") for place in found.place.unique()]
        starts = {flags_of(command).get(score_table.START, "") for command in commands if "--user-dir" in command}
        if len(names := {re.sub(r"-seed\d+", "", start) for start in starts}) > 1:
            yield f"{encoding} ({', '.join(sorted(names))})"


def as_json(runs):
    """A list with the scores of each run and split."""
    keys = ["task", "encoding", "rate", "seed", "split"]
    return [
        {**dict(zip(["task", "encoding", "lr", "seed", "split"], key)), **dict(zip(found.figure, found.value))}
        for key, found in runs[runs.state == "done"].groupby(keys)
    ]


LEGEND = """\
Scores in percent: mean ± standard deviation over the seeds, with the learning rate that has the best median of F1 on
valid. "f1 - {baseline}": difference from {baseline} ± half the width of its 95 % interval. Intervals and p are
Dunnett's for several encodings against one.
"""
THRESHOLDS = """\
`exact` and `f1` are with the threshold of the settings for "no answer". `best_...` are with the threshold that is best
on the same data; `tuned_...` with the one that was best on valid.
"""


def main(folder, *arguments):
    settings = settings_of(arguments)
    runs = settings["RUNS"]
    records = list(records_of(runs))
    if not records:
        sys.exit(f"report.py: error: no results in {runs}: run.sh evaluate ENCODING CHECKPOINT first")
    found = score_table.read(records)
    score_table.check_alike(found)
    parts = ["# Reading comprehension: results", LEGEND.format(baseline=settings["BASELINE"])]
    done = found[found.state == "done"]
    for split in sorted(set(done.split), key=lambda name: (name != "valid", name)):
        parts.append(f"## {split}\n{table(found, split, settings['METRIC'], settings['BASELINE'])}")
    if "best_f1" in set(found.figure):
        parts.append(THRESHOLDS)
    if several := list(several_starts(done)):
        parts.append(f"Seeds of one row started from different models: {'; '.join(several)}.")
    if others := sweeps.without_score(found):
        parts.append(f"Not in the tables: {'; '.join(f'{name} ({said})' for name, said in others.items())}.")
    text = "\n\n".join([*parts, PAPERS])
    os.makedirs(folder, exist_ok=True)
    write_json(Path(folder) / "results.json", as_json(found))
    write_text(Path(folder) / "RESULTS.md", text)
    print(text)


if __name__ == "__main__":
    with in_one_line(sys.argv[1]):
        main(*sys.argv[1:])
