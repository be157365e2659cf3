"""The table and the plot of every run of a masked language model: masked_lm_report.py RUNS DATA BASELINE FOLDER RECIPE.

Writes RESULTS.md and losses.png into FOLDER; runs that are not finished are left out. RECIPE: the folder
of examples/ whose runs they are.
"""

import json
import sys
from datetime import date
from pathlib import Path
from statistics import median

from fairseq_relpos.reports import losses
from fairseq_relpos.reports.machine import cpu_name, versions
from fairseq_relpos.reports.training_log import how_alike, read_run, tell_variants_apart

PLOT = "losses.png"
USED = 0.05  # nats that a loss must rise by when the tokens are permuted


def main(runs_folder, data, baseline, folder, recipe):
    finished, running = [], []
    for log in sorted(Path(runs_folder).glob("*/train.log")):
        (finished if is_finished(log.parent) else running).append(log.parent)
    if not finished:
        sys.exit(f"report: error: no finished run in {runs_folder}: run.sh train, then validate")
    runs = [read_run(path) for path in finished]
    tell_variants_apart(runs)
    runs.sort(key=order_of(baseline))
    gaps = {run.name: {gap["split"]: gap for gap in read_gaps(runs_folder, run)} for run in runs}
    check_same_batches(gaps)
    names = split_names(data)
    Path(folder).mkdir(parents=True, exist_ok=True)
    losses.plot(runs, Path(folder, PLOT), names)
    text = RESULTS.format(
        recipe=recipe,
        commands=COMMANDS[recipe],
        losses_table=losses_table(runs, gaps, names, baseline),
        baseline=baseline,
        plot=PLOT,
        gaps_table=gaps_table(runs, gaps, names),
        bags_of_words=bags_of_words(runs, gaps),
        runs_table=runs_table(runs, runs_folder),
        command=Path(runs_folder, runs[0].name, "trained").read_text().strip(),
        alike=how_alike(
            [path.joinpath("trained").read_text() for path in finished],
            "encoding (with the flags that it needs) and seed",
        ),
        first=runs[0].name,
        sources=Path(data, "sources.txt").read_text().strip(),
        digests=", ".join(f"{names[s]} {g['digest']}" for s, g in gaps[runs[0].name].items()),
        cpu=cpu_name(),
        versions=versions("torch", "fairseq-fixed", "sentencepiece", "numpy"),
        today=date.today().isoformat(),
    )
    if running:
        text += "\nNot finished, so not here: " + ", ".join(path.name for path in running) + ".\n"
    results = Path(folder, "RESULTS.md")
    results.write_text(text, encoding="utf-8")
    print(f"{losses_table(runs, gaps, names, baseline)}\n\n{gaps_table(runs, gaps, names)}\n")
    print(f"{order_in_words(runs, gaps)}\n")
    print(f"{results}, {PLOT}: {len(runs)} runs")


def is_finished(run):
    """Trained to the end, and validated since."""
    validated, checkpoint = run / "order_gap.json", run / "checkpoint_last.pt"
    if not (run / "trained").exists() or not validated.exists():
        return False
    return not checkpoint.exists() or validated.stat().st_mtime > checkpoint.stat().st_mtime


def order_of(baseline):
    return lambda run: (run.encoding != baseline, run.encoding, run.seed)


def read_gaps(runs_folder, run):
    return json.loads(Path(runs_folder, run.name, "order_gap.json").read_text())


def check_same_batches(gaps):
    digests = {tuple((s, g["digest"]) for s, g in sorted(of_run.items())) for of_run in gaps.values()}
    if len(digests) != 1:
        sys.exit(
            "report: error: the runs were not validated on the same masked text: "
            f"run.sh validate again ({', '.join(gaps)})"
        )


def split_names(data):
    """valid -> wiki.valid, as the text file was called."""
    names = {}
    for line in Path(data, "sources.txt").read_text().splitlines():
        _, split, name = line.split(" ", 2)
        names[split] = name.split(".txt")[0]
    return names


def losses_table(runs, gaps, names, baseline):
    splits = list(next(iter(gaps.values())))
    loss_of = lambda run, split: gaps[run.name][split]["loss"]  # noqa: E731
    reference = {run.seed: run for run in runs if run.encoding == baseline}
    head = ["encoding", "seeds", "updates"]
    for split in splits:
        head += [f"{names[split]} (nats)", f"- {baseline}"]
    rows = []
    for encoding in dict.fromkeys(run.encoding for run in runs):
        group = [run for run in runs if run.encoding == encoding]
        row = [
            encoding,
            " ".join(str(run.seed) for run in group),
            " ".join(sorted({f"{run.updates:,}" for run in group})),
        ]
        for split in splits:
            paired = [
                loss_of(run, split) - loss_of(reference[run.seed], split)
                for run in group
                if run.seed in reference and encoding != baseline
            ]
            row += [
                losses.with_deviation([loss_of(run, split) for run in group]),
                losses.with_deviation(paired, sign="+") if paired else "-",
            ]
        rows.append(row)
    return losses.markdown(head, rows)


def gaps_table(runs, gaps, names):
    splits = list(next(iter(gaps.values())))
    head = ["encoding", "seed"]
    for split in splits:
        head += [f"{names[split]} permuted (nats)", "gap (nats)"]
    rows = []
    for run in runs:
        row = [run.encoding, str(run.seed)]
        for split in splits:
            gap = gaps[run.name][split]
            row += [f"{gap['permuted']:.3f}", signed(gap["permuted"] - gap["loss"])]
        rows.append(row)
    return losses.markdown(head, rows)


def bags_of_words(runs, gaps):
    """Which runs have not begun to use order, and what that means for the first table."""
    unused = [run.name for run in runs if max(gap["permuted"] - gap["loss"] for gap in gaps[run.name].values()) < USED]
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
        gap = max(gap["permuted"] - gap["loss"] for gap in gaps[run.name].values())
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


def runs_table(runs, runs_folder):
    rows = [
        [
            run.name,
            f"{run.parameters:,}",
            f"{run.seconds / 60:,.0f}",
            tokens_per_second(run),
            Path(runs_folder, run.name, "commit.txt").read_text().strip(),
        ]
        for run in runs
    ]
    return losses.markdown(["run", "parameters", "minutes", "tokens/s", "commit"], rows)


def tokens_per_second(run):
    """The median: a validation falls into some of the measurements."""
    return f"{median(run.tokens_per_second.values()):,.0f}" if run.tokens_per_second else "-"


COMMANDS = {
    "roberta_small": "bash examples/roberta_small/prepare.sh data-bin/roberta_small --train FILE... --valid FILE...\n"
    "bash examples/roberta_small/compare.sh",
    "roberta_pretraining": "bash examples/roberta_pretraining/prepare.sh FILE...\n"
    "bash examples/roberta_pretraining/run.sh train ENCODING\n"
    "bash examples/roberta_pretraining/run.sh validate ENCODING",
}

RESULTS = """# Results of examples/{recipe}

Written by `run.sh report` ({today}) from the logs. Losses are in nats a masked token (fairseq
logs bits), of the weights after the last update, on the same masked text for every run.

## Validation loss
{losses_table}

"- {baseline}": difference from {baseline} with the same seed; negative is better. With several seeds:
mean ± standard deviation.

![losses]({plot})

## Is the order of the tokens used?
The same text and masks, with the tokens of each block permuted (`<s>` kept first) and the targets
moved along. A gap of 0 is a model of bags of words, whose position encoding does not matter.

{gaps_table}

{bags_of_words}

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

{runs_table}

Minutes include validation, of one core where nothing else is said, and other processes may have shared it:
compare losses, not minutes.
{cpu}; {versions}.
"""

if __name__ == "__main__":
    main(*sys.argv[1:])
