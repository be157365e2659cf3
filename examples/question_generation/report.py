"""A table of every finished run: report.py FOLDER NAME=VALUE...    -> FOLDER/RESULTS.md, FOLDER/results.json

The values are those of settings.sh.
"""

import json
import sys
from pathlib import Path

from fairseq_relpos.reports import learning_rates
from fairseq_relpos.reports import translation_report as tables
from fairseq_relpos.reports.recipe_runs import RecipeRuns, is_evaluated, settings_of


def main(folder, *arguments):
    settings = settings_of(arguments)
    compared = RecipeRuns(settings, lambda run: is_finished(run, settings))
    scores = {run.name: scores_of(compared.place / run.name) for run in compared.runs}
    # METEOR may not have been there for all of them
    names = [name for name in scores[compared.runs[0].name] if all(name in found for found in scores.values())]
    figures = {
        f"{name} on {settings['SCORED']}": compared.values(lambda run, n=name: scores[run.name][n]["value"])
        for name in names
    }
    figures["validation loss (nats)"] = compared.values(learning_rates.figure_of)
    good = compared.tables(figures, lambda name: 3 if "loss" in name else 2)
    first = scores[compared.runs[0].name]
    compared.write(
        folder,
        RESULTS,
        figures,
        good=good,
        rates=compared.rates_table("(nats)"),
        meanings="\n".join(f"- {name}: {first[name]['signature'] or first[name]['meaning']}" for name in names),
        training=tables.training_table(compared.runs),
    )
    print(f"{good}\n\n{Path(folder, 'RESULTS.md')}: {len(compared.runs)} runs")


def is_finished(run, settings):
    """Trained to the end, decoded since then with these settings, and scored after that."""
    if not is_evaluated(run, settings["EVALUATED"], "decoded", "scored") or not (run / "scores.json").exists():
        return False
    kept = [(run / name).read_text(encoding="utf-8").strip() for name in ("decoded", "scored")]
    return kept == [settings["DECODING"], settings["SCORING"]]


def scores_of(run):
    return {score["name"]: score for score in json.loads((run / "scores.json").read_text(encoding="utf-8"))}


RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    main(*sys.argv[1:])
