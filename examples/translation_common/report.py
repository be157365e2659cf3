"""Tables and plots of every finished run of a translation recipe: report.py FOLDER NAME=VALUE...

Writes RESULTS.md, losses.png and lengths.png into FOLDER. The values are those of settings.sh.
"""

import json
import sys
from datetime import date
from pathlib import Path

from fairseq_relpos.atomic_files import whole_file
from fairseq_relpos.reports import translation
from fairseq_relpos.reports import translation_report as tables
from fairseq_relpos.reports.machine import cpu_name, versions
from fairseq_relpos.reports.training_log import how_alike, read_run, tell_variants_apart

LOSSES, LENGTHS = "losses.png", "lengths.png"


def main(folder, *values):
    settings = dict(value.split("=", 1) for value in values)
    data, runs_folder = Path(settings["DATA"]), Path(settings["RUNS"])
    tests = test_sets(data, settings)
    finished, missing = [], []
    for log in sorted(runs_folder.glob("*/train.log")):
        (finished if is_finished(log.parent, settings) else missing).append(log.parent)
    if not finished:
        sys.exit(
            f"report: error: no run in {runs_folder} has come to its end with these settings and this "
            "text: run.sh train, generate and score first, or compare.sh"
        )
    runs = [evaluated(path, tests, settings) for path in finished]
    tell_variants_apart([run.run for run in runs])
    runs.sort(key=order_of(settings))
    Path(folder).mkdir(parents=True, exist_ok=True)
    edges = [int(edge) for edge in settings["LENGTH_EDGES"].split()]
    buckets = {test.name: tables.buckets_of(runs, test, edges) for test in tests.values()}
    tables.plot_losses(runs, Path(folder, LOSSES))
    tables.plot_lengths(buckets, Path(folder, LENGTHS))
    scores = "\n\n".join(
        f"### {test.name} ({len(test.sources):,} sentences)\n" + tables.scores_table(runs, test, settings["BASELINE"])
        for test in tests.values()
    )
    training = tables.training_table(runs)
    text = RESULTS.format(
        **settings,
        scores=scores,
        training=training,
        signatures="\n".join(
            f"- {name}: {'; '.join(f'`{t}`' if '|' in t else t for t in texts)}"
            for name, texts in tables.signatures(runs).items()
        ),
        lengths="\n\n".join(f"### {name}\n{tables.length_table(found)}" for name, found in buckets.items()),
        sources=Path(data, "sources.txt").read_text(encoding="utf-8").strip(),
        alike=how_alike(
            [path.joinpath("trained").read_text() for path in finished],
            "encoding (with the flags that it needs) and seed",
        ),
        first=runs[0].run.name,
        command=(runs_folder / runs[0].run.name / "trained").read_text().strip(),
        commits=", ".join(sorted({(path / "commit.txt").read_text().strip() for path in finished})),
        missing=f"\nNot finished with these settings, so not here: {', '.join(path.name for path in missing)}.\n"
        if missing
        else "",
        cpu=cpu_name(),
        versions=versions("torch", "fairseq-fixed", "sentencepiece", "sacrebleu", "sacremoses"),
        today=date.today().isoformat(),
    )
    with whole_file(Path(folder, "RESULTS.md")) as part:
        Path(part).write_text(text, encoding="utf-8")
    print(f"{scores}\n\n{training}\n\n{Path(folder, 'RESULTS.md')}, {LOSSES}, {LENGTHS}: {len(runs)} runs")


def test_sets(data, settings):
    """split -> test set, called what its source file was called."""
    if not Path(data, "text").is_dir():
        sys.exit(f"report: error: no data in {data}: run prepare.sh first, or set DATA")
    names = {}
    ending = f".{settings['SOURCE']}"
    for line in Path(data, "sources.txt").read_text(encoding="utf-8").splitlines():
        _, split, name = line.split(" ", 2)
        if split.startswith("test") and ending in name:
            name = name[: name.rindex(ending)]
            names[split] = f"{name} ({split})" if name in names.values() else name
    sides = {}
    for language in ("SOURCE", "TARGET"):
        for split in names:
            path = Path(data, "text", f"{split}.{settings[language]}")
            sides[language, split] = translation.read_lines(path)
            if settings["TEXT"] == "tokenised":
                text = translation.Text.of(sides[language, split], settings[language], tokenised=True)
                sides[language, split] = text.raw
    return {
        split: tables.TestSet(name, sides["SOURCE", split], sides["TARGET", split], settings["TARGET"])
        for split, name in names.items()
    }


def is_finished(run, settings):
    """Trained to the end, decoded since then with these settings, scored after that."""
    steps = [run / settings["EVALUATED"], run / "decoded", run / "scores.json"]
    if not all(path.exists() for path in [run / "trained", *steps[1:]]):
        return False
    if steps[1].read_text(encoding="utf-8").strip() != settings["DECODING"]:
        return False
    times = [path.stat().st_mtime for path in steps if path.exists()]
    return times == sorted(times)


def evaluated(path, tests, settings):
    found = tables.Evaluated(read_run(path))
    for split, scores in json.loads((path / "scores.json").read_text(encoding="utf-8")).items():
        if split not in tests:
            continue
        lines = translation.read_lines(path / f"{split}.{settings['TARGET']}")
        found.translations[tests[split].name] = lines
        found.scores[tests[split].name] = [translation.Score(**score) for score in scores]
    for test in tests.values():
        if len(found.translations.get(test.name, [])) != len(test.sources):
            sys.exit(
                f"report: error: {path} has not translated all of {test.name}: run.sh generate and "
                "score again, or set DATA to what it was trained with"
            )
    return found


def order_of(settings):
    return lambda run: (run.run.encoding != settings["BASELINE"], run.run.encoding, run.run.seed)


RESULTS = """# Results of {NAME}

Written by `run.sh report` ({today}) from logs and translations. With several seeds: mean ± standard
deviation.

## Scores
{scores}

"- {BASELINE}": difference in BLEU from {BASELINE} with the same seed. p: of sacreBLEU's paired
bootstrap against {BASELINE}, 1,000 samples, one number for each seed. It knows the chance in the
choice of sentences, not that in the training: compare differences with the deviation over seeds.

{signatures}

Scores of different names do not compare with one another.

## Training
{training}

Loss: negative log-likelihood a target token on the validation set, without label smoothing. Tokens/s
(median) and minutes (validation included) are of cores that other processes may have shared.

![validation loss]({losses})

## By length of the source
BLEU, and the length of the translations divided by that of the references.

{lengths}

![BLEU by length]({lengths_plot})

## How
Evaluated: {EVALUATED}, beam {BEAM}, length penalty {LENGTH_PENALTY}. Text (SHA-256, split, file):
```
{sources}
```
{alike} {first} was
```
{command}
```
Code: {commits}. {cpu}; {versions}.
{missing}""".replace("{losses}", LOSSES).replace("{lengths_plot}", LENGTHS)

if __name__ == "__main__":
    main(*sys.argv[1:])
