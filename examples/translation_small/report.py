"""Tables and plots of every finished run of a translation recipe: report.py FOLDER NAME=VALUE...

Writes RESULTS.md, losses.png and lengths.png into FOLDER. The values are those of settings.sh.
"""

import json
import sys
from pathlib import Path

from fairseq_relpos.reports import differences, learning_rates, loss_plot, translation_scores
from fairseq_relpos.reports import translation_report as tables
from fairseq_relpos.reports.markdown import table_by_encoding
from fairseq_relpos.reports.recipe_runs import RecipeRuns, is_evaluated, settings_of
from fairseq_relpos.reports.run_folder import COMPARED_SCORES

LOSSES, LENGTHS = "losses.png", "lengths.png"
#: a difference in BLEU as in AT5's Table 6
GAP = 0.3
#: residual degrees of freedom; with 10, the 95 % interval of the error is 0.7 to 1.75 times the estimate
ENOUGH_DEGREES = 10


def main(folder, *arguments):
    settings = settings_of(arguments)
    compared = RecipeRuns(settings, lambda run: is_finished(run, settings))
    runs = [evaluated(run, compared.place / run.name) for run in compared.runs]
    by_name = {run.run.name: run for run in runs}
    tests = {name: sum(bucket.sentences for bucket in buckets) for name, buckets in runs[0].buckets.items()}
    figures = {"validation loss (nats), on which rates were chosen": compared.values(learning_rates.figure_of)}
    figures |= {
        f"{name} on {test}": compared.values(lambda run, t=test, n=name: by_name[run.name].score(t, n))
        for test in tests
        for name in reversed(COMPARED_SCORES)  # chrF varies least with the seed
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    buckets = {test: tables.buckets_of(runs, test) for test in tests}
    loss_plot.plot(compared.runs, Path(folder, LOSSES), {"valid": ""})
    tables.plot_lengths(buckets, Path(folder, LENGTHS))
    good = compared.tables(figures, lambda name: 3 if "loss" in name else 1)
    scores = "\n\n".join(
        f"### {test} ({sentences:,} sentences)\n" + tables.scores_table(runs, test) for test, sentences in tests.items()
    )
    training = tables.training_table(compared.runs)
    compared.write(
        folder,
        RESULTS,
        figures,
        good=good,
        needed=needed(figures),
        rates=compared.rates_table("(nats)"),
        penalties=penalties(compared, settings),
        scores=scores,
        training=training,
        signatures="\n".join(
            f"- {name}: {'; '.join(f'`{t}`' if '|' in t else t for t in texts)}"
            for name, texts in tables.signatures(runs).items()
        ),
        lengths="\n\n".join(f"### {name}\n{tables.length_table(found)}" for name, found in buckets.items()),
    )
    print(f"{good}\n\n{scores}\n\n{training}\n\n{Path(folder, 'RESULTS.md')}, {LOSSES}, {LENGTHS}: {len(runs)} runs")


def needed(figures):
    """Returns a sentence with the seeds that a difference of GAP BLEU on the first test set needs; empty if the error
    is too uncertain."""
    name, values = next((name, values) for name, values in figures.items() if name.startswith("BLEU"))
    model = differences.Model(values)
    if not model.deviation or model.degrees < ENOUGH_DEGREES:
        return ""
    seeds = model.seeds_needed(GAP)
    return (
        f"\nA difference of {GAP} {name} needs about {seeds} seeds of each encoding (power 80 %, one t test at 5 %, "
        f"the error from {model.degrees} degrees of freedom). Dunnett's test needs more.\n"
    )


def is_finished(run, settings):
    """Trained to the end, decoded since then with these settings, scored after that with these edges."""
    if not is_evaluated(run, settings["EVALUATED"], "decoded", "lengths.json", "scores.json"):
        return False
    edges = json.loads((run / "lengths.json").read_text(encoding="utf-8"))["edges"]
    decoded = (run / "decoded").read_text(encoding="utf-8").strip()
    return (decoded, edges) == (settings["DECODING"], settings["LENGTH_EDGES"])


def penalties(compared, settings):
    """The length penalty that each run was translated with, in the order of the seeds."""
    if not settings["LENGTH_PENALTIES"]:
        return f"All runs have the length penalty {settings['LENGTH_PENALTY']}."

    def chosen(runs):
        return " ".join(compared.kept(run, "length_penalty").split()[0] for run in runs)

    return table_by_encoding(compared.runs, {f"length penalty, of {settings['LENGTH_PENALTIES']}": chosen})


def evaluated(run, path):
    scores, lengths = (
        json.loads((path / name).read_text(encoding="utf-8")) for name in ("scores.json", "lengths.json")
    )
    names = lengths["names"]
    return tables.Evaluated(
        run,
        {names[split]: [translation_scores.Score(**one) for one in found] for split, found in scores.items()},
        {names[split]: [translation_scores.Bucket(**one) for one in lengths[split]] for split in scores},
    )


RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    main(*sys.argv[1:])
