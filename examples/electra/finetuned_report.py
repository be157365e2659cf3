"""Discriminators beside masked language models, after fine-tuning: finetuned_report.py SWEEP FOLDER

Writes FINETUNED.md and finetuned.json into FOLDER. A checkpoint lies in a folder electra-ENCODING-seedN or
masked_lm-ENCODING-seedN. One pretraining is one number: the mean test score over the seeds of its fine-tuning, with the
learning rate that has the best median on the validation data.
"""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from sweep import Sweep  # noqa: E402

from fairseq_relpos.atomic_files import write_text  # noqa: E402
from fairseq_relpos.finetuning.errors import in_one_line  # noqa: E402
from fairseq_relpos.reports import differences, score_table, sweeps  # noqa: E402
from fairseq_relpos.reports.machine import describe  # noqa: E402
from fairseq_relpos.reports.markdown import markdown_table, with_deviation  # noqa: E402

NAMES = {"electra": "ELECTRA", "masked_lm": "masked LM"}
KINDS = tuple(NAMES)


def name_pretrainings(runs):
    """Adds of each checkpoint what its folder says: its kind, its encoding and the seed of its pretraining."""
    folders = runs.checkpoint.map(lambda path: Path(path).parent.name)
    runs[["kind", "encoding", "pretraining"]] = folders.str.extract(r"(electra|masked_lm)-(.+)-seed(\d+)")
    return runs.astype({"pretraining": int, "seed": int})


def pretrainings(runs):
    """((kind, encoding, seed of the pretraining), its runs) of each."""
    return runs.groupby(["kind", "encoding", "pretraining"])


def tests_of(runs):
    """seed of the fine-tuning -> percent, with the chosen learning rate."""
    found = score_table.scores(score_table.chosen(runs), "test").sort_values("seed")
    return {seed: 100 * value for seed, value in zip(found.seed, found.value)}


def values_of(runs):
    """kind -> encoding -> seed of the pretraining -> percent."""
    found = {kind: {} for kind in KINDS}
    for (kind, encoding, seed), of_one in pretrainings(runs):
        if not tests_of(of_one):
            raise ValueError(f"{kind}-{encoding}-{seed}: no run has a score; give other LEARNING_RATES")
        found[kind].setdefault(encoding, {})[seed] = mean(tests_of(of_one).values())
    return found


def pairs_of(values, encodings):
    """The scores of ELECTRA and of the masked language models, in the same order of encodings and seeds."""
    if unpaired := sorted(set(values["electra"]) ^ set(values["masked_lm"])):
        raise ValueError(
            f"one of ELECTRA and the masked language models lacks {', '.join(unpaired)}: let both end first"
        )
    seeds = {encoding: sorted(values["electra"][encoding]) for encoding in encodings}
    for encoding, of_one in seeds.items():
        if of_one != sorted(values["masked_lm"][encoding]):
            raise ValueError(f"{encoding}: ELECTRA and the masked language models have other seeds: let both end first")
    return [[values[kind][encoding][seed] for encoding in encodings for seed in seeds[encoding]] for kind in KINDS]


def compared_table(values, over_all):
    encodings = sorted(values["electra"])
    lines = []
    for encoding in encodings:
        electra, masked = pairs_of(values, [encoding])
        scores = [with_deviation(electra, 2), with_deviation(masked, 2)]
        lines.append([encoding, str(len(masked)), *scores, differences.paired(electra, masked).text(2), "", ""])
    electra, masked = pairs_of(values, encodings)
    scores = [f"{mean(electra):.2f}", f"{mean(masked):.2f}"]
    lines.append(["all", f"{len(masked)} pairs", *scores, over_all.text(2), *over_all.judged()])
    head = ["encoding", "seeds", *(f"{name}, test" for name in NAMES.values()), "ELECTRA - masked LM", "p", "verdict"]
    return markdown_table(head, lines)


def each_table(runs):
    lines = []
    for (kind, encoding, seed), of_one in pretrainings(runs):
        best, tests = score_table.chosen(of_one), tests_of(of_one)
        validation = 100 * score_table.scores(best).value.mean()
        shown = ", ".join(f"{test:.2f}" for test in tests.values())
        name, average = f"{NAMES[kind]}, {encoding}, {seed}", f"{mean(tests.values()):.2f}"
        lines.append([name, best.rate.iloc[0], f"{validation:.2f}", shown, average])
    return markdown_table(["pretraining", "rate", "validation", "test, by seed of the fine-tuning", "mean"], lines)


def constant(runs):
    """The score of the most frequent label on the test part, in percent, and the name of the metric."""
    facts = next(filter(None, runs.facts))
    return 100 * facts["majority"]["test"], facts["metric"]


def main(runs, folder):
    scored = score_table.read(Sweep(runs).records())
    score_table.check_alike(scored)
    scored = name_pretrainings(scored)
    tasks = dict(iter(scored.groupby("task")))
    values = {task: values_of(found) for task, found in tasks.items()}
    pairs = {task: pairs_of(of_task, sorted(of_task["electra"])) for task, of_task in values.items()}
    over_all = {task: differences.paired(*both) for task, both in pairs.items()}
    judged = {task: one for task, one in over_all.items() if not one.reason}
    corrected = differences.holm([one.p_value for one in judged.values()])
    over_all |= {task: replace(one, p_value=p) for (task, one), p in zip(judged.items(), corrected)}
    parts, figures = [], {}
    for task, found in tasks.items():
        guess, metric = constant(found)
        parts.append(
            f"## {task}: {metric}, in percent\n{compared_table(values[task], over_all[task])}\n\n"
            f"Always the most frequent label: {guess:.2f}.\n\n{each_table(found)}\n"
        )
        figures |= {f"{task}, {NAMES[kind]}": of_kind for kind, of_kind in values[task].items()}
    each = {
        f"{task} {kind}-{encoding}-{seed}": tests_of(of_one)
        for task, found in tasks.items()
        for (kind, encoding, seed), of_one in pretrainings(found)
    }
    text = RESULTS.format(
        machine=describe(),
        tables="\n".join(parts),
        rule=sweeps.RULES["median"],
        counts=sweeps.summary(scored),
        missing="".join(f"Missing: {line}. " for line in differences.missing_seeds(each)),
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder, "FINETUNED.md"), text)
    differences.write(Path(folder, "finetuned.json"), None, figures)
    print(Path(folder, "FINETUNED.md"))


RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    with in_one_line():
        main(*sys.argv[1:])
