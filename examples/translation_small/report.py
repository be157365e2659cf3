"""Tables and plots of every finished run of a translation recipe: report.py FOLDER NAME=VALUE...

Writes RESULTS.md, losses.png and lengths.png into FOLDER. The values are those of settings.sh.
"""

import json
import sys
from pathlib import Path

from fairseq_relpos.reports import learning_rates, translation_scores
from fairseq_relpos.reports import translation_report as tables
from fairseq_relpos.reports.markdown import table_by_encoding
from fairseq_relpos.reports.recipe_runs import RecipeRuns, is_evaluated, settings_of
from fairseq_relpos.reports.run_folder import COMPARED_SCORES

LOSSES, LENGTHS = "losses.png", "lengths.png"


def main(folder, *arguments):
    settings = settings_of(arguments)
    data = Path(settings["DATA"])
    tests = test_sets(data, settings)
    compared = RecipeRuns(settings, lambda run: is_finished(run, settings))
    runs = [evaluated(run, compared, tests, settings) for run in compared.runs]
    by_name = {run.run.name: run for run in runs}
    figures = {
        f"{name} on {test.name}": compared.values(lambda run, t=test, n=name: by_name[run.name].score(t.name, n))
        for test in tests.values()
        for name in COMPARED_SCORES
    }
    figures["validation loss (nats), on which rates were chosen"] = compared.values(learning_rates.figure_of)
    Path(folder).mkdir(parents=True, exist_ok=True)
    edges = [int(edge) for edge in settings["LENGTH_EDGES"].split()]
    buckets = {test.name: tables.buckets_of(runs, test, beyond(edges, test.sources)) for test in tests.values()}
    tables.plot_losses(runs, Path(folder, LOSSES))
    tables.plot_lengths(buckets, Path(folder, LENGTHS))
    good = compared.tables(figures, lambda name: 3 if "loss" in name else 1)
    scores = "\n\n".join(
        f"### {test.name} ({len(test.sources):,} sentences)\n" + tables.scores_table(runs, test, compared.baseline)
        for test in tests.values()
    )
    training = tables.training_table(compared.runs)
    compared.write(
        folder,
        RESULTS,
        figures,
        good=good,
        rates=compared.rates_table("(nats)"),
        penalties=penalties(compared, settings),
        scores=scores,
        training=training,
        signatures="\n".join(
            f"- {name}: {'; '.join(f'`{t}`' if '|' in t else t for t in texts)}"
            for name, texts in tables.signatures(runs).items()
        ),
        lengths="\n\n".join(f"### {name}\n{tables.length_table(found)}" for name, found in buckets.items()),
        sources=Path(data, "sources.txt").read_text(encoding="utf-8").strip(),
    )
    print(f"{good}\n\n{scores}\n\n{training}\n\n{Path(folder, 'RESULTS.md')}, {LOSSES}, {LENGTHS}: {len(runs)} runs")


def test_sets(data, settings):
    """split -> test set, called what its source file was called."""
    if not Path(data, "text").is_dir():
        sys.exit(f"report: error: no data in {data}: run prepare.sh first, or set DATA")
    names = {}
    ending = f".{settings['SOURCE']}"
    for line in Path(data, "sources.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("vocabulary "):  # of a given one, only its digest
            continue
        _, split, name = line.split(" ", 2)
        if split.startswith("test") and ending in name:
            name = name[: name.rindex(ending)]
            names[split] = f"{name} ({split})" if name in names.values() else name
    sides = {}
    for language in ("SOURCE", "TARGET"):
        for split in names:
            path = Path(data, "text", f"{split}.{settings[language]}")
            sides[language, split] = translation_scores.read_lines(path)
            if settings["TEXT"] == "tokenised":
                text = translation_scores.Text.of(sides[language, split], settings[language], tokenised=True)
                sides[language, split] = text.raw
    return {
        split: tables.TestSet(name, sides["SOURCE", split], sides["TARGET", split], settings["TARGET"])
        for split, name in names.items()
    }


def beyond(edges, sources):
    """The edges, and the double of the last as long as most of the sources are longer, as joined ones are."""
    edges = list(edges)
    lengths = sorted(len(source.split()) for source in sources)
    while lengths[len(lengths) // 2] > edges[-1]:
        edges.append(2 * edges[-1])
    return edges


def is_finished(run, settings):
    """Trained to the end, decoded since then with these settings, scored after that."""
    if not is_evaluated(run, settings["EVALUATED"], "decoded", "scores.json"):
        return False
    return (run / "decoded").read_text(encoding="utf-8").strip() == settings["DECODING"]


def penalties(compared, settings):
    """The length penalty that each run was translated with, in the order of the seeds."""
    if not settings["LENGTH_PENALTIES"]:
        return f"All runs have the length penalty {settings['LENGTH_PENALTY']}."

    def chosen(runs):
        return " ".join(compared.kept(run, "length_penalty").split()[0] for run in runs)

    return table_by_encoding(compared.runs, {f"length penalty, of {settings['LENGTH_PENALTIES']}": chosen})


def evaluated(run, compared, tests, settings):
    found, path = tables.Evaluated(run), compared.place / run.name
    for split, scores in json.loads((path / "scores.json").read_text(encoding="utf-8")).items():
        if split not in tests:
            continue
        lines = translation_scores.read_lines(path / f"{split}.{settings['TARGET']}")
        found.translations[tests[split].name] = lines
        found.scores[tests[split].name] = [translation_scores.Score(**score) for score in scores]
    for test in tests.values():
        if len(found.translations.get(test.name, [])) != len(test.sources):
            sys.exit(
                f"report: error: {path} has not translated all of {test.name}: run.sh generate and "
                "score again, or set DATA to what it was trained with"
            )
    return found


RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    main(*sys.argv[1:])
