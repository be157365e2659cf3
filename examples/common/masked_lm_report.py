"""The tables and the picture of every run of a masked language model:

    masked_lm_report.py RUNS DATA BASELINE FOLDER RECIPE

Writes RESULTS.md and losses.png into FOLDER. RECIPE: the folder of examples/ whose runs they are. Runs lie in RUNS, or
in a folder of RUNS for each learning rate (compare.sh); what is reported of an encoding is the rate that did best on
`valid`.
"""

import json
import os
import sys
from datetime import date
from pathlib import Path
from statistics import mean, median

from fairseq_relpos.atomic_files import whole_file
from fairseq_relpos.reports import comparison, learning_rates, losses
from fairseq_relpos.reports.training_log import how_alike, read_run, tell_variants_apart

ROOT = Path(__file__).resolve().parents[2]
PLOT = "losses.png"
USED = 0.05  # nats that a loss must rise by when the tokens are permuted
WELL_USED = 0.5
DIVERGED = 0.5  # nats that the last validation may be above the best one


def main(runs_folder, data, baseline, folder, recipe):
    finished, running = [], []
    for log in sorted(Path(runs_folder).glob("**/train.log")):
        (finished if is_finished(log.parent) else running).append(log.parent)
    if not finished:
        sys.exit(f"report: error: no finished run in {runs_folder}: run.sh train, then validate")
    check_same_text(finished)
    runs = [read_run(path) for path in finished]
    for run, path in zip(runs, finished):
        run.name = str(path.relative_to(runs_folder))
    tell_variants_apart(runs)
    folders = dict(zip((run.name for run in runs), finished))
    diverged = [run for run in runs if has_diverged(run)]
    tried = learning_rates.tried(runs, first_seed(runs))
    chosen = {encoding: learning_rates.best(figures) for encoding, figures in tried.items()}
    compared = [
        run for run in runs if run not in diverged and run.learning_rate == chosen.get(run.encoding, run.learning_rate)
    ]
    if not compared:
        sys.exit(f"report: error: every run in {runs_folder} has diverged: {names_of(diverged)}")
    compared.sort(key=lambda run: (run.encoding != baseline, run.encoding, run.seed))
    check_alike_within_encodings(compared, folders)
    gaps = {run.name: read_gaps(folders[run.name]) for run in compared}
    check_same_masks(gaps)
    names = split_names(data)
    splits = [split for split in names if split in next(iter(gaps.values()))]
    reported = [split for split in splits if split.startswith("test")] or splits
    baseline = baseline if any(run.encoding == baseline for run in compared) else compared[0].encoding
    values = {
        split: by_encoding(compared, lambda run, split=split: gaps[run.name][split]["loss"]) for split in reported
    }

    Path(folder).mkdir(parents=True, exist_ok=True)
    losses.plot(compared, Path(folder, PLOT), names)
    good = "\n\n".join(
        comparison.table(of_split, baseline, f"{names[split]} (nats)") for split, of_split in values.items()
    )
    used = order_table(compared, gaps, reported, names)
    text = RESULTS.format(
        today=date.today().isoformat(),
        recipe=recipe,
        commands=commands_of(recipe, runs, tried, data),
        baseline=baseline,
        used_from=USED,
        well_used=WELL_USED,
        updates=" or ".join(sorted({f"{run.updates:,}" for run in compared})),
        good=good,
        legend=comparison.LEGEND.format(baseline=baseline),
        chosen_on=", ".join(names[split] for split in splits if split.startswith("valid")),
        plot=PLOT,
        used=used,
        bags_of_words=bags_of_words(compared, gaps),
        soon=soon_table(compared, baseline),
        rates=rates_table(tried, chosen)
        if any(len(figures) > 1 for figures in tried.values())
        else "One rate was tried.",
        runs=runs_table(compared, folders),
        machines="\n".join(sorted({f"- {kept(folders[run.name] / 'machine.txt')}" for run in compared})),
        command=(folders[compared[0].name] / "trained").read_text().strip(),
        alike=how_alike(
            [(folders[run.name] / "trained").read_text() for run in compared],
            "encoding (with the flags that it needs), seed and learning rate",
            ["lr"],
        ),
        first=compared[0].name,
        sources=Path(data, "sources.txt").read_text().strip(),
        digests=", ".join(f"{names[s]} {g['digest']}" for s, g in gaps[compared[0].name].items()),
        missing=missing(values, diverged, running, runs_folder, tried, chosen),
    )
    results = Path(folder, "RESULTS.md")
    with whole_file(results) as part:
        Path(part).write_text(text, encoding="utf-8")
    print(f"{good}\n\n{used}\n\n{order_in_words(compared, gaps)}\n")
    print(f"{results}, {PLOT}: {len(compared)} runs")


def is_finished(run):
    """Trained to the end, and validated since."""
    validated, checkpoint = run / "order_gap.json", run / "checkpoint_last.pt"
    if not (run / "trained").exists() or not validated.exists():
        return False
    return not checkpoint.exists() or validated.stat().st_mtime > checkpoint.stat().st_mtime


def names_of(runs):
    return ", ".join(run.name for run in runs)


def check_same_text(folders):
    """Losses of other text, or of other words, do not compare."""
    by_conditions = {}
    for folder in folders:
        kept = folder / "conditions"
        by_conditions.setdefault(kept.read_text() if kept.exists() else None, []).append(str(folder))
    by_conditions.pop(None, None)
    if len(by_conditions) > 1:
        groups = "; ".join(", ".join(group) for group in by_conditions.values())
        sys.exit(f"report: error: the runs were trained on different data: {groups}. Give each its own RUNS")


def has_diverged(run):
    return any(
        not values[max(values)] <= min(values.values()) + DIVERGED  # so that no number has, too
        for values in run.valid.values()
    )


def first_seed(runs):
    """The seed with which the learning rates were tried: the lowest of those with most of them."""
    rates = {}
    for run in runs:
        rates.setdefault(run.seed, set()).add((run.encoding, run.learning_rate))
    return max(sorted(rates), key=lambda seed: len(rates[seed]))


def check_alike_within_encodings(runs, folders):
    """A mean over seeds is of one training."""
    for encoding in dict.fromkeys(run.encoding for run in runs):
        group = [run for run in runs if run.encoding == encoding]
        told = how_alike([(folders[run.name] / "trained").read_text() for run in group], f"seed ({names_of(group)})")
        if told.startswith("**"):
            sys.exit(f"report: error: {told.replace('*', '')} Move those that do not belong here to another RUNS")


def read_gaps(folder):
    return {gap["split"]: gap for gap in json.loads((folder / "order_gap.json").read_text())}


def check_same_masks(gaps):
    by_digests = {}
    for name, of_run in gaps.items():
        by_digests.setdefault(tuple((s, g["digest"]) for s, g in sorted(of_run.items())), []).append(name)
    if len(by_digests) != 1:
        groups = "; ".join(", ".join(group) for group in by_digests.values())
        sys.exit(f"report: error: the runs were not validated on the same masked text: {groups}. run.sh validate again")


def sources(data):
    """The split and the name of each text file."""
    lines = Path(data, "sources.txt").read_text().splitlines()
    return [line.split(" ", 2)[1:] for line in lines if not line.startswith("vocabulary ")]


def split_names(data):
    """valid -> wiki.valid, as the text file was called."""
    return {split: name.split(".txt")[0] for split, name in sources(data)}


def by_encoding(runs, figure):
    values = {}
    for run in runs:
        values.setdefault(run.encoding, {})[run.seed] = figure(run)
    return values


def gap_of(run, gaps):
    return max(gap["permuted"] - gap["loss"] for gap in gaps[run.name].values())


def order_table(runs, gaps, splits, names):
    head = ["encoding", *(f"gap on {names[split]} (nats)" for split in splits), "smallest gap of a run (nats)"]
    rows = []
    for encoding in dict.fromkeys(run.encoding for run in runs):
        group = [run for run in runs if run.encoding == encoding]
        row = [encoding]
        for split in splits:
            found = [gaps[run.name][split]["permuted"] - gaps[run.name][split]["loss"] for run in group]
            row.append(losses.with_deviation([round(gap, 6) + 0.0 for gap in found], sign="+"))
        rows.append([*row, signed(min(gap_of(run, gaps) for run in group))])
    return losses.markdown(head, rows)


def bags_of_words(runs, gaps):
    """Which runs have not begun to use order, and what that means for the first table."""
    unused = [run.name for run in runs if gap_of(run, gaps) < USED]
    if not unused:
        return "Every run uses it, so the losses above compare the encodings."
    return (
        f"Not used so far, with a gap below {USED} nats: {', '.join(unused)}. Their losses say how "
        "soon an encoding begins to be used under this budget, not how good it is in the end; "
        "only the others compare as encodings."
    )


def order_in_words(runs, gaps):
    lines = ["The gap is what the loss rises by when the words of each block are put in another order:"]
    for run in runs:
        gap = gap_of(run, gaps)
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


def first_update(by_split, is_reached):
    """The first validation whose mean over the splits is reached, None if there is none."""
    updates = sorted(set.intersection(*map(set, by_split.values()))) if by_split else []
    return next((u for u in updates if is_reached(mean(values[u] for values in by_split.values()))), None)


def soon_table(runs, baseline):
    ends = [learning_rates.figure_of(run) for run in runs if run.encoding == baseline]
    end = mean(ends)
    head = ["encoding", "seeds", f"gap above {USED}", f"gap above {WELL_USED}", f"loss below {end:.2f} nats"]
    rows = []
    for encoding in dict.fromkeys(run.encoding for run in runs):
        group = [run for run in runs if run.encoding == encoding]
        reached = [
            [first_update(run.order_gap, lambda gap: gap > USED) for run in group],
            [first_update(run.order_gap, lambda gap: gap > WELL_USED) for run in group],
            [first_update(run.valid, lambda loss: loss <= end) for run in group],
        ]
        cells = [" ".join(f"{update:,}" if update else "-" for update in updates) for updates in reached]
        rows.append([encoding, " ".join(str(run.seed) for run in group), *cells])
    return losses.markdown(head, rows)


def rates_table(tried, chosen):
    rates = sorted({rate for figures in tried.values() for rate in figures}, key=float)
    rows = []
    for encoding in sorted(tried):
        cells = [f"{tried[encoding][rate]:.3f}" if rate in tried[encoding] else "-" for rate in rates]
        place = rates.index(chosen[encoding])
        cells[place] = f"**{cells[place]}**"
        rows.append([encoding, *cells])
    return losses.markdown(["encoding", *rates], rows)


def missing(values, diverged, running, runs_folder, tried, chosen):
    """What a reader would otherwise take to be there."""
    found = comparison.missing_seeds(next(iter(values.values())))
    rates = {rate for figures in tried.values() for rate in figures}
    found += [
        f"{encoding}: the learning rates {', '.join(sorted(rates - set(figures), key=float))} were not tried"
        for encoding, figures in tried.items()
        if rates - set(figures)
    ]
    at_edge = [
        f"{encoding} ({chosen[encoding]})"
        for encoding, figures in tried.items()
        if len(figures) > 1 and float(chosen[encoding]) in (max(map(float, figures)), min(map(float, figures)))
    ]
    if at_edge:
        found.append(
            "the best rate is the first or the last of the grid, so that a better one may lie beyond: "
            + ", ".join(at_edge)
        )
    if diverged:
        found.append(f"diverged (the last validation more than {DIVERGED} nats above the best): {names_of(diverged)}")
    if running:
        found.append(f"not finished: {', '.join(str(path.relative_to(runs_folder)) for path in running)}")
    return "".join(f"- {line}\n" for line in found) or "Nothing.\n"


def runs_table(runs, folders):
    rows = [
        [
            run.name,
            f"{run.parameters:,}",
            f"{run.seconds / 60:,.0f}",
            tokens_per_second(run),
            kept(folders[run.name] / "commit.txt"),
        ]
        for run in runs
    ]
    return losses.markdown(["run", "parameters", "minutes", "tokens/s", "commit"], rows)


def kept(file):
    return file.read_text().strip() if file.exists() else "not kept"


def tokens_per_second(run):
    """The median: a validation falls into some of the measurements."""
    return f"{median(run.tokens_per_second.values()):,.0f}" if run.tokens_per_second else "-"


def commands_of(recipe, runs, tried, data):
    """What makes these runs and this report."""
    if recipe == "roberta_pretraining":
        return PRETRAINING
    files = {"train": [], "valid": [], "test": []}
    for split, name in sources(data):
        files[split.rstrip("0123456789")].append(name)
    given = "".join(f" --{kind} {' '.join(names)}" for kind, names in files.items() if names)
    seeds = sorted({run.seed for run in runs}, key=lambda seed: (seed != first_seed(runs), seed))
    rates = sorted({rate for figures in tried.values() for rate in figures}, key=float)
    settings = os.environ.get("SETTINGS", "").replace(f"{ROOT}/", "")
    environment = [f"SETTINGS={settings}"] if settings else []
    environment += [f'SEEDS="{" ".join(map(str, seeds))}"', f'LEARNING_RATES="{" ".join(rates)}"']
    encodings = " ".join(dict.fromkeys(run.encoding.split(" ")[0] for run in runs))
    return (
        f"bash examples/{recipe}/prepare.sh data-bin/{recipe}{given}\n"
        f"{' '.join(environment)} bash examples/{recipe}/compare.sh {encodings}"
    )


PRETRAINING = """bash examples/roberta_pretraining/prepare.sh FILE...
bash examples/roberta_pretraining/run.sh train ENCODING
bash examples/roberta_pretraining/run.sh validate ENCODING"""

RESULTS = """# Results of examples/{recipe}

Written by `run.sh report` ({today}) from the logs. Losses are in nats a masked token (fairseq
logs bits), of the weights after the last update, on the same masked text for every run.

## How good: the loss after {updates} updates
{good}

{legend} A lower loss is better.

![validation loss, with a band from the lowest to the highest seed]({plot})

## Is the order of the tokens used?
The gap is what the loss rises by when the tokens of each block are permuted (`<s>` kept first) and the
targets moved along. A gap of 0 is a model of bags of words, whose position encoding does not matter.

{used}

{bags_of_words}

## How soon: updates until positions are used
A figure for each seed, in the order of the seeds: the first validation (of {chosen_on}) whose gap is above
{used_from} and {well_used} nats, and whose loss is as low as that of {baseline} at its end.

{soon}

## The learning rates
The last validation loss on {chosen_on} (nats) of one seed with each rate. The best one, in bold, serves the
other seeds.

{rates}

## What is missing
{missing}
## How
```
{commands}
```
Text (SHA-256, split, file), encoded with one vocabulary:
```
{sources}
```
{alike} {first} was
```
{command}
```
Inputs and targets of the validation have the same digest for every run ({digests}).
fairseq draws the masks of a block from seed, epoch and its number, and counts every validation as
epoch 1, so those during a training with the same seed use these masks, too.

{runs}

Minutes include validation, of one core where nothing else is said, and other processes may have shared it:
compare losses, not minutes. The runs' machines:
{machines}
"""

if __name__ == "__main__":
    main(*sys.argv[1:])
