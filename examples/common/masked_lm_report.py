"""The tables and the picture of every run of a masked language model: masked_lm_report.py FOLDER NAME=VALUE...

Writes RESULTS.md, results.json and losses.png into FOLDER. The values are settings of the recipe, its folder (RECIPE),
and what today's data are (CONDITIONS).
"""

import json
import statistics
import sys
from pathlib import Path

from fairseq_relpos.reports import learning_rates, loss_plot, seeds_plot
from fairseq_relpos.reports.markdown import table_by_encoding, with_deviation
from fairseq_relpos.reports.order_gap import LOST, lost_heads
from fairseq_relpos.reports.recipe_runs import RecipeRuns, check_same, is_evaluated, settings_of
from fairseq_relpos.reports.run_folder import USED
from fairseq_relpos.reports.training_log import first_update

PLOT, SEEDS_PLOT = "losses.png", "seeds.png"
WELL_USED = 0.5


def main(folder, *arguments):
    settings = settings_of(arguments)
    recipe = settings["RECIPE"]
    compared = RecipeRuns(settings, lambda run: is_evaluated(run, "checkpoint_last.pt", "order_gap.json"))
    gaps = {run.name: json.loads(compared.kept(run, "order_gap.json")) for run in compared.runs}
    gaps = {name: {gap["split"]: gap for gap in of_run} for name, of_run in gaps.items()}
    check_same(
        {name: tuple(sorted((s, g["digest"]) for s, g in of_run.items())) for name, of_run in gaps.items()},
        "not validated on the same masked text",
        "run.sh validate again",
    )
    names = split_names(compared)
    splits = [split for split in names if split in gaps[compared.runs[0].name]]
    reported = [split for split in splits if split.startswith("test")]
    if not reported:
        reported = splits
        compared.notes.append("no text for tests, so the tables are about the validation text")
    chosen_on = ", ".join(names[split] for split in splits if split.startswith("valid"))
    values = {split: compared.values(lambda run, s=split: gaps[run.name][s]["loss"]) for split in reported}

    order = {name: of_run[reported[0]]["permuted"] - of_run[reported[0]]["loss"] for name, of_run in gaps.items()}
    Path(folder).mkdir(parents=True, exist_ok=True)
    loss_plot.plot(compared.runs, Path(folder, PLOT), names)
    seeds_plot.plot(values[reported[0]], Path(folder, SEEDS_PLOT), f"loss on {names[reported[0]]} (nats)")
    good = compared.tables({f"{names[split]} (nats)": v for split, v in values.items()}, lambda name: 3)
    used = order_table(compared, gaps, order, reported, names)
    soon = soon_figures(compared)
    compared.write(
        folder,
        RESULTS,
        {
            **{f"loss on {names[split]}": of_split for split, of_split in values.items()},
            "order gap": compared.values(lambda run: order[run.name]),
            **soon,
        },
        commands=PRETRAINING if recipe == "roberta_pretraining" else commands_of(settings, compared),
        reference=reference_of(compared),
        used_from=USED,
        well_used=WELL_USED,
        good=good,
        chosen_on=chosen_on,
        rates=compared.rates_table(f"on {chosen_on} (nats)"),
        plot=PLOT,
        seeds_plot=SEEDS_PLOT,
        reported=names[reported[0]],
        used=used,
        bags_of_words=bags_of_words(order),
        lost_heads=heads_in_words(compared.runs, gaps),
        soon=soon_table(compared, soon) if soon else "Not measured: that takes --criterion masked_lm_order_gap.",
        runs=compared.runs_table("parameters", "minutes", "tokens/s"),
        digests=", ".join(f"{names[s]} {g['digest']}" for s, g in gaps[compared.runs[0].name].items()),
    )
    print(f"{good}\n\n{used}\n\n{order_in_words(compared.runs, order)}\n")
    print(f"{Path(folder, 'RESULTS.md')}, {PLOT}: {len(compared.runs)} runs")


def split_names(compared):
    """valid -> wiki.valid, as the text file was called."""
    names = {}
    for split, name in texts(compared):
        name = name.split(".txt")[0]
        names[split] = f"{name} ({split})" if name in names.values() else name
    return names


def texts(compared):
    """The split and the name of each text file."""
    lines = compared.sources().splitlines()
    return [line.split(" ", 2)[1:] for line in lines if not line.startswith("vocabulary ")]


def order_table(compared, gaps, order, splits, names):
    """order: name of a run -> its gap on the first of the texts."""

    def on(split):
        def cell(runs):
            found = [gaps[run.name][split] for run in runs]
            return with_deviation([gap["permuted"] - gap["loss"] for gap in found], sign="+")

        return cell

    def smallest(runs):
        return signed(min(order[run.name] for run in runs))

    columns = {f"gap on {names[split]} (nats)": on(split) for split in splits}
    return table_by_encoding(compared.runs, {**columns, "smallest gap of a run (nats)": smallest})


def bags_of_words(order):
    """Names the runs that use order not at all or little, and says what follows for the first table."""
    unused = [name for name, gap in order.items() if gap < USED]
    little = [name for name, gap in order.items() if USED <= gap < statistics.median(order.values()) / 2]
    if not unused and not little:
        return "Every run uses it, so the losses above compare the encodings."
    told = []
    if unused:
        told.append(f"Not used so far, with a gap below {USED} nats: {', '.join(unused)}.")
    if little:
        told.append(f"Used little, with a gap below half of the median: {', '.join(little)}.")
    return (
        f"{' '.join(told)} Their losses say how soon an encoding begins to be used under this budget, not how good it "
        "may be in the end; only the others compare as encodings."
    )


def heads_in_words(runs, gaps):
    """Names the runs that have a head which no longer reads the text."""
    told, unknown = [], []
    for run in runs:
        gap = next(iter(gaps[run.name].values()))
        if not gap.get("first_token"):
            unknown.append(run.name)
        elif lost := lost_heads(gap["first_token"]):
            told.append(f"{run.name} (head {', '.join(map(str, lost))})")
    found = f"Lost heads, which give the first token more than {LOST:.0%} of their attention in every layer: "
    if len(unknown) == len(runs):
        return f"{found}not looked at in these runs."
    found += f"{', '.join(told) or 'none'}."
    return found + (f" Not looked at: {', '.join(unknown)}." if unknown else "")


def order_in_words(runs, order):
    lines = ["The gap is what the loss rises by when the words of each block are put in another order:"]
    for run in runs:
        gap = order[run.name]
        name = f"  {run.encoding}, seed {run.seed},"
        if gap >= USED:
            lines.append(
                f"{name} uses the order of the words: permuted text costs it {gap:.2f} nats a masked token more"
            )
        else:
            lines.append(
                f"{name} does not use the order yet (gap {signed(gap)}): it fills masks from a bag of words, and "
                "only more updates would show what its positions are worth"
            )
    return "\n".join(lines)


def signed(nats):
    return f"{round(nats, 3) + 0.0:+.3f}"  # + 0.0: no "-0.000"


def reference_of(compared):
    """The encoding whose final loss the others reach sooner or later: in the papers, absolute positions."""
    return "learned" if "learned" in compared.encodings else compared.baseline


def soon_figures(compared):
    """Goal -> encoding -> seed -> the first validation that reaches it, None if none does."""
    if not any(run.order_gap for run in compared.runs):
        return {}
    found = {
        f"updates until gap above {limit}": compared.values(
            lambda run, limit=limit: first_update(run.order_gap, lambda gap: gap > limit)
        )
        for limit in (USED, WELL_USED)
    }
    if reference := reference_of(compared):
        ends = {run.seed: learning_rates.figure_of(run) for run in compared.of(reference)}
        found[f"updates until the final loss of {reference}"] = compared.values(
            lambda run: first_update(run.valid, lambda loss: run.seed in ends and loss <= ends[run.seed])
        )
    return found


def soon_table(compared, soon):
    def reached(found):
        def cell(runs):
            updates = [found[run.encoding][run.seed] for run in runs]
            return " ".join(f"{update:,}" if update else "-" for update in updates)

        return cell

    columns = {"seeds": lambda runs: " ".join(str(run.seed) for run in runs)}
    return table_by_encoding(compared.runs, columns | {what: reached(found) for what, found in soon.items()})


def commands_of(settings, compared):
    """The commands, texts and machines that made these runs and this report."""
    recipe, data = settings["RECIPE"], settings["DATA"]
    files = {"train": [], "valid": [], "test": []}
    for split, name in texts(compared):
        files[split.rstrip("0123456789")].append(name)
    given = "".join(f" --{kind} {' '.join(names)}" for kind, names in files.items() if names)
    environment = settings["ENVIRONMENT"]
    return (
        f"{environment}bash examples/{recipe}/prepare.sh {data}{given}\n"
        f"{environment}bash examples/{recipe}/compare.sh {settings['COMPARED']}"
    )


PRETRAINING = """bash examples/roberta_pretraining/prepare.sh FILE...
bash examples/roberta_pretraining/run.sh train ENCODING
bash examples/roberta_pretraining/run.sh validate ENCODING"""

RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    main(*sys.argv[1:])
