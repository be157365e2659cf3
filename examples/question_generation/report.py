"""A table of every finished run: report.py FOLDER NAME=VALUE...    -> FOLDER/RESULTS.md, FOLDER/results.json

The values are those of settings.sh.
"""

import json
import sys
from datetime import date
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from compared_runs import ComparedRuns, settings_of  # noqa: E402

from fairseq_relpos.atomic_files import whole_file  # noqa: E402
from fairseq_relpos.reports import comparison, learning_rates  # noqa: E402
from fairseq_relpos.reports import translation_report as tables  # noqa: E402


def main(folder, *arguments):
    settings = settings_of(arguments)
    compared = ComparedRuns(settings, lambda run: is_finished(run, settings))
    scores = {run.name: scores_of(compared.place / run.name) for run in compared.runs}
    # METEOR may not have been there for all of them
    names = [name for name in scores[compared.runs[0].name] if all(name in found for found in scores.values())]
    figures = {
        f"{name} on {settings['SCORED']}": compared.values(lambda run, n=name: scores[run.name][n]["value"])
        for name in names
    }
    figures["validation loss (nats)"] = compared.values(learning_rates.figure_of)
    good = "\n\n".join(
        comparison.table(values, compared.baseline, what, digits=3 if "loss" in what else 2)
        for what, values in figures.items()
    )
    first = scores[compared.runs[0].name]
    text = RESULTS.format(
        **{**settings, "BASELINE": compared.baseline},
        warning=compared.warning(),
        good=good,
        legend=comparison.LEGEND.format(baseline=compared.baseline),
        meanings="\n".join(f"- {name}: {first[name]['signature'] or first[name]['meaning']}" for name in names),
        rates=compared.rates_table(),
        missing=compared.missing(),
        training=tables.training_table([tables.Evaluated(run) for run in compared.runs]),
        sources=compared.sources(),
        alike=compared.alike(),
        first=compared.runs[0].name,
        command=compared.kept(compared.runs[0], "trained"),
        commits=", ".join(sorted({compared.kept(run, "commit.txt") for run in compared.runs})),
        machines=compared.machines(),
        today=date.today().isoformat(),
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    with whole_file(Path(folder, "RESULTS.md")) as part:
        Path(part).write_text(text, encoding="utf-8")
    comparison.write(Path(folder, "results.json"), compared.baseline, figures)
    print(f"{good}\n\n{Path(folder, 'RESULTS.md')}: {len(compared.runs)} runs")


def is_finished(run, settings):
    """Trained to the end, decoded since then with these settings, and scored after that."""
    steps = [run / settings["EVALUATED"], run / "decoded", run / "scored"]
    if not all(path.exists() for path in [run / "trained", run / "scores.json", *steps[1:]]):
        return False
    times = [path.stat().st_mtime for path in steps if path.exists()]
    kept = [path.read_text(encoding="utf-8").strip() for path in steps[1:]]
    return kept == [settings["DECODING"], settings["SCORING"]] and times == sorted(times)


def scores_of(run):
    return {score["name"]: score for score in json.loads((run / "scores.json").read_text(encoding="utf-8"))}


RESULTS = """# Results of examples/{RECIPE}

Written by `run.sh report` ({today}) from logs and scores.

{warning}## How good
{good}

{legend} A higher score and a lower loss are better. The loss is the negative log-likelihood of a token of a question,
without label smoothing.

{meanings}

Tokens of the scores: {TOKENS}, lower case: {LOWERCASE}. Scores of other names or tokens do not compare.

## The learning rates
{rates}

## What is missing
{missing}
## Training
{training}

Tokens/s (median) and minutes (validation included) are of cores that other processes may have shared.

## The papers' numbers
Qu et al. (2021) report ROUGE-L alone, and do not say by which definition:

| dev | T5 | Shaw | LFHC | XL | GCDF |
|---|---|---|---|---|---|
| SQuAD | 47.14 | 47.26 | 47.42 | 47.21 | 47.55 |
| CMRC 2018 | 60.06 | 60.14 | 60.33 | 60.33 | 60.63 |

Their encoder is BERT-base or a Chinese RoBERTa, so they are no goal for a model that was trained from scratch.

## How
```
{ENVIRONMENT}bash examples/{RECIPE}/compare.sh {COMPARED}
```
Evaluated: {EVALUATED} on {SCORED}, beam {BEAM}, length penalty {LENGTH_PENALTY}, no {NO_REPEAT} tokens twice.
Text (SHA-256, split, file):
```
{sources}
```
{alike} {first} was
```
{command}
```
Code: {commits}. The runs' machines:
{machines}
"""

if __name__ == "__main__":
    main(*sys.argv[1:])
