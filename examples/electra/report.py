"""The tables of every finished run: report.py FOLDER NAME=VALUE...

Writes RESULTS.md and results.json into FOLDER. The values are settings of the recipe and what today's data are
(CONDITIONS).
"""

import math
import sys
from pathlib import Path

from fairseq_relpos.reports.markdown import markdown_table
from fairseq_relpos.reports.recipe_runs import RecipeRuns, is_evaluated, settings_of
from fairseq_relpos.reports.training_log import entry_of

#: metrics of criterion electra; losses are logged in bits
LOSSES = ("disc_loss", "base_loss", "masked_lm_loss", "order_gap")
SHARES = ("disc_auc", "disc_accuracy", "base_accuracy", "disc_precision", "disc_recall", "sampled_masked_lm_accuracy")


def main(folder, *arguments):
    compared = RecipeRuns(settings_of(arguments), lambda run: is_evaluated(run, "checkpoint_last.pt", "export.txt"))
    found = {run.name: last_validation(compared.place / run.name / "train.log") for run in compared.runs}
    splits = sorted(set.intersection(*map(set, found.values())))
    values = {
        f"discriminator, {split} (nats)": compared.values(lambda run, s=split: found[run.name][s]["disc_loss"])
        for split in splits
    }
    compared.write(
        folder,
        RESULTS,
        values,
        losses=compared.tables(values, lambda name: 4),
        figures="\n\n".join(figures_table(compared, found, split) for split in splits),
        runs=compared.runs_table("learning rate", "parameters", "minutes"),
    )
    print(Path(folder, "RESULTS.md"))


def last_validation(log):
    """split -> metric -> value, losses in nats"""
    found = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        entry = entry_of(line)
        for key in entry:
            split = key.removesuffix("_disc_loss")
            if split != key and split != "train":
                found[split] = {
                    metric: float(entry[f"{split}_{metric}"]) * (math.log(2) if metric in LOSSES else 1)
                    for metric in (*LOSSES, *SHARES)
                    if f"{split}_{metric}" in entry
                }
    return found


def figures_table(compared, found, split):
    metrics = [metric for metric in (*LOSSES, *SHARES) if all(metric in of_run[split] for of_run in found.values())]
    rows = [
        [run.encoding, str(run.seed), *(f"{found[run.name][split][metric]:.4f}" for metric in metrics)]
        for run in compared.runs
    ]
    return markdown_table([f"encoding, {split}", "seed", *metrics], rows)


RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    main(*sys.argv[1:])
