"""A table of all runs: report.py RUNS FOLDER NAME=VALUE...    -> FOLDER/RESULTS.md, FOLDER/results.json

RUNS has a folder for each run, or folders of runs (learning rates), each with results.json.
"""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from full_disk import in_one_line  # noqa: E402

from fairseq_relpos.atomic_files import whole_file  # noqa: E402
from fairseq_relpos.reports.losses import markdown, with_deviation  # noqa: E402
from fairseq_relpos.reports.sweeps import has_lost_its_way, training_losses  # noqa: E402

#: the scores of a table, where the data have them
SCORES = {
    "squad": (
        "exact_match",
        "exact",
        "f1",
        "best_exact",
        "best_f1",
        "tuned_exact",
        "tuned_f1",
        "HasAns_f1",
        "NoAns_f1",
    ),
    "cmrc": ("exact_match", "f1", "average"),
}
#: what results.json has beside the splits that are not valid
KEPT = ("task", "encoding", "lr", "seed", "split", "metric", "metrics")
PAPERS = """\
## The papers' numbers
They are of models with 12 layers that were pretrained on 16 GB of text and more, so they are no goal for small ones.

| paper | encoding | SQuAD 1.1 EM | F1 |
|---|---|---|---|
| Huang et al. 2020 | absolute | 81.58 | 88.59 |
| | Shaw | 82.38 | 89.37 |
| | M1 | 80.82 | 87.96 |
| | M2 | 81.44 | 88.86 |
| | M3 | 83.71 | 90.50 |
| | M4 | 83.63 | 90.53 |
| M4M, continued from RoBERTa | RoBERTa | 85.95 | 92.12 |
| | ABS | 86.10 | 92.31 |
| | M4M | 86.44 | 92.52 |
| AT5, QANet without convolutions, from scratch | T5 | 71.29 | 80.36 |
| | AT5 | 72.12 | 80.93 |
"""


def fail(message):
    sys.exit(f"report.py: error: {message}")


def read(path):
    """The splits of a run, each with its scores."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        run = {name: found[name] for name in ("task", "encoding", "lr", "seed")}
        splits = {"valid": found["metrics"], **{name: v for name, v in found.items() if name not in KEPT}}
        return [{**run, "split": split, **scores} for split, scores in splits.items()]
    except (ValueError, KeyError, TypeError) as error:
        fail(f"{path} is no result of run.sh predict ({error!r}): run it again")


def table(results, metric, baseline):
    """A row for each encoding and learning rate: mean and deviation over the seeds, every single score, and how far F1
    lies above the baseline with the same learning rate and seed."""
    scores = [name for name in SCORES[metric] if any(name in result for result in results)]
    rows = defaultdict(list)
    for result in results:
        rows[result["encoding"], result["lr"]].append(result)
    reference = {(r["lr"], r["seed"]): r["f1"] for r in results if r["encoding"] == baseline}
    lines = []
    for (encoding, lr), found in sorted(rows.items(), key=lambda row: (row[0][0] != baseline, row[0])):
        found.sort(key=lambda result: int(result["seed"]))
        cells = [encoding, lr, ", ".join(str(result["seed"]) for result in found)]
        for name in scores:
            values = [result[name] for result in found if name in result]
            single = ", ".join(f"{value:.2f}" for value in values)
            cells.append(f"{with_deviation(values, 2)} ({single})" if values else "-")
        above = [r["f1"] - reference[lr, r["seed"]] for r in found if (lr, r["seed"]) in reference]
        cells.append(with_deviation(above, 2, "+") if above and encoding != baseline else "-")
        lines.append(cells)
    return markdown(["encoding", "lr", "seeds", *scores, f"f1 - {baseline}"], lines)


def has_diverged(place):
    """Whether the training stopped for it, or went on with a loss worse than any guess."""
    if (place / "diverged").exists():
        return True
    try:
        return has_lost_its_way(training_losses(place / "train.log"))
    except ValueError:  # nothing in the log yet
        return False


def of_runs(runs):
    """The scores of all runs that have ended, and a few words on each other one. The scores of a run that has diverged
    can be numbers, but they say nothing."""
    results, others = [], []
    for place in sorted({path.parent for path in Path(runs).rglob("command")}):
        if has_diverged(place):
            others.append(f"{place.relative_to(runs)} has diverged")
        elif (place / "trained").exists() and (place / "results.json").exists():
            results += read(place / "results.json")
        else:
            others.append(f"{place.relative_to(runs)} has not ended")
    return results, others


def main(runs, folder, *settings):
    settings = dict(setting.split("=", 1) for setting in settings)
    results, others = of_runs(runs)
    if not results and not others:
        fail(f"no results in {runs}: run.sh evaluate ENCODING CHECKPOINT first")
    text = "# Reading comprehension: results\n\n"
    text += (
        "Scores in percent: mean ± standard deviation over the seeds, and in brackets the score of each seed; "
        "differences are taken seed by seed.\n\n"
    )
    for split in sorted({result["split"] for result in results}, key=lambda name: (name != "valid", name)):
        text += f"## {split}\n"
        text += table([r for r in results if r["split"] == split], settings["METRIC"], settings["BASELINE"])
        text += "\n\n"
    if any("best_f1" in result for result in results):
        text += (
            '`exact` and `f1` are with the threshold of the settings for "no answer". `best_...` are with the '
            "threshold that is best on the same data; `tuned_...` with the one that was best on valid.\n\n"
        )
    if others:
        text += f"Not in the tables: {'; '.join(others)}.\n\n"
    text += PAPERS
    os.makedirs(folder, exist_ok=True)
    with whole_file(Path(folder) / "results.json") as part:
        Path(part).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    with whole_file(Path(folder) / "RESULTS.md") as part:
        Path(part).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    with in_one_line("report.py", sys.argv[2]):
        main(*sys.argv[1:])
