"""The tables and the picture of every finished run: report.py FOLDER NAME=VALUE...

Writes RESULTS.md and results.json into FOLDER, and reach.png where there are blocks of several lengths. The values are
settings of the recipe and what today's data are (CONDITIONS).
"""

import json
import sys
from datetime import date
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from compared_runs import ComparedRuns, check_same, settings_of  # noqa: E402
from figures import FIGURES, perplexity_per_word  # noqa: E402

from fairseq_relpos.atomic_files import whole_file  # noqa: E402
from fairseq_relpos.reports import comparison, losses, reach  # noqa: E402

PICTURE = "reach.png"


def main(folder, *arguments):
    settings = settings_of(arguments)
    compared = ComparedRuns(settings, lambda run: is_finished(run, settings))
    scores = {run.name: json.loads(compared.kept(run, "scores.json")) for run in compared.runs}
    counts = {name: json.dumps(of_run["counts"]) for name, of_run in scores.items()}
    check_same(counts, "not scored on the same text", "run.sh score again")
    counts = json.loads(counts[compared.runs[0].name])["test"]
    what, figure, digits = FIGURES[settings["VOCABULARY"]]
    columns = settings["EVALUATIONS"].split()
    nats = {column: compared.values(lambda run, c=column: nats_of(scores[run.name], c)) for column in columns}
    values = {
        column: {
            encoding: {seed: figure(x, counts) for seed, x in of_seed.items() if x is not None}
            for encoding, of_seed in of_column.items()
        }
        for column, of_column in nats.items()
    }
    values = {column: {name: v for name, v in of_column.items() if v} for column, of_column in values.items()}
    good = "\n\n".join(
        f"### {in_words(column)}\n"
        + comparison.table(of_column, compared.baseline if compared.baseline in of_column else None, what, digits)
        for column, of_column in values.items()
        if of_column
    )
    memory = memory_table(compared, values, digits)
    per_word = [
        [
            encoding,
            losses.with_deviation(
                [perplexity_per_word(x, counts) for x in nats[columns[0]][encoding].values() if x is not None], 2
            ),
        ]
        for encoding in compared.encodings
        if encoding in values[columns[0]]
    ]
    Path(folder).mkdir(parents=True, exist_ok=True)
    lengths = lengths_of(compared)
    by_length = {
        f"{what}, blocks of {length}": compared.values(lambda run, n=length: at(lengths, run, n, counts, figure))
        for length in settings["LENGTHS"].split()
    }
    if lengths:
        reach.plot([*lengths.values()], Path(folder, PICTURE))
    text = RESULTS.format(
        today=date.today().isoformat(),
        warning=compared.warning(),
        what=what,
        convention=CONVENTIONS[settings["VOCABULARY"]].format(**counts),
        updates=" or ".join(sorted({f"{run.updates:,}" for run in compared.runs})),
        memory=memory,
        refused=refusals(compared, scores, columns),
        good=good,
        legend=comparison.LEGEND.format(baseline=compared.baseline),
        per_word=""
        if settings["VOCABULARY"] == "words"
        else PER_WORD.format(table=losses.markdown(["encoding", "exp(nats / words)"], per_word)),
        rates=compared.rates_table(),
        reach=reach_section(compared, lengths, by_length, settings["LENGTHS"].split(), what, digits),
        missing=compared.missing(),
        environment=settings["ENVIRONMENT"],
        compared=settings["COMPARED"],
        sources=Path(settings["DATA"], "sources.txt").read_text(encoding="utf-8").strip(),
        alike=compared.alike(),
        first=compared.runs[0].name,
        command=compared.kept(compared.runs[0], "trained"),
        runs=runs_table(compared),
        machines=compared.machines(),
    )
    with whole_file(Path(folder, "RESULTS.md")) as part:
        Path(part).write_text(text, encoding="utf-8")
    comparison.write(
        Path(folder, "results.json"),
        compared.baseline,
        {**{f"{what}, {in_words(column)}": of_column for column, of_column in values.items()}, **by_length},
    )
    print(f"{memory}\n\n{Path(folder, 'RESULTS.md')}: {len(compared.runs)} runs")


def is_finished(run, settings):
    """Trained to the end, and scored since."""
    scored, checkpoint = run / "scores.json", run / settings["EVALUATED"]
    if not (run / "trained").exists() or not scored.exists():
        return False
    return not checkpoint.exists() or scored.stat().st_mtime > checkpoint.stat().st_mtime


def found_in(scores, column):
    for found in scores["scores"]:
        name = "/".join(str(found[key]) for key in ("tokens", "memory", "clamp") if found[key] is not None)
        if name == column:
            return found
    return {"refused": "not scored: run.sh score again"}


def nats_of(scores, column):
    return found_in(scores, column).get("nats")


def in_words(column):
    tokens, memory, *clamp = column.split("/")
    told = "no memory" if memory == "0" else f"a memory of {memory}"
    return f"segments of {tokens}, {told}{f', clamp {clamp[0]}' if clamp else ''}"


def memory_table(compared, values, digits):
    rows = [
        [
            encoding,
            *(
                losses.with_deviation([*of_column[encoding].values()], digits) if encoding in of_column else "-"
                for of_column in values.values()
            ),
        ]
        for encoding in compared.encodings
    ]
    return losses.markdown(["encoding", *map(in_words, values)], rows)


def refusals(compared, scores, columns):
    """Why there is a gap in the table, a line for each encoding and reason."""
    lines = {}
    for run in compared.runs:
        for column in columns:
            reason = found_in(scores[run.name], column).get("refused")
            if reason:
                lines.setdefault((run.encoding, reason), []).append(column)
    told = [f"- {name}, {', '.join(dict.fromkeys(c))}: {reason}\n" for (name, reason), c in lines.items()]
    return f"Gaps:\n{''.join(told)}" if told else ""


def lengths_of(compared):
    """What `fairseq-relpos extrapolation` found, by run. The report notes runs without it."""
    places = {run.name: compared.place / run.name / "extrapolation.json" for run in compared.runs}
    without = [name for name, path in places.items() if not path.exists()]
    if without and len(without) < len(places):
        compared.notes.append(f"no longer blocks (run.sh extrapolate): {', '.join(without)}")
    return {name: reach.read(path) for name, path in places.items() if path.exists()}


def measured(lengths, run, length):
    """Of blocks without a memory; None where the run has none of this length."""
    found = lengths.get(run.name, {"measurements": []})["measurements"]
    return next((m for m in found if (m["length"], m["memory"], m["stride"]) == (int(length), 0, None)), None)


def at(lengths, run, length, counts, figure):
    """The figure of the whole text in blocks of this length, None where the positions end before."""
    found = measured(lengths, run, length)
    return None if found is None or found["loss"] is None else figure(found["loss"] * found["scored"], counts)


def reach_section(compared, lengths, by_length, wanted, what, digits):
    if not lengths:
        return "Not measured: run.sh extrapolate."
    all_tokens = [
        [
            encoding,
            *(
                mean_or_gap(compared, lengths, encoding, n, of_length[encoding], digits)
                for n, of_length in zip(wanted, by_length.values())
            ),
        ]
        for encoding in compared.encodings
    ]
    last = [
        [
            encoding,
            *(
                mean_or_gap(compared, lengths, encoding, n, last_losses(compared, lengths, encoding, n), 3)
                for n in wanted
            ),
        ]
        for encoding in compared.encodings
    ]
    head = ["encoding", *(f"{int(n):,}" for n in wanted)]
    return REACH.format(
        what=what,
        picture=PICTURE,
        all_tokens=losses.markdown(head, all_tokens),
        last=losses.markdown(head, last),
        number=next(iter(lengths.values()))["last"],
    )


def last_losses(compared, lengths, encoding, length):
    found = {run.seed: measured(lengths, run, length) for run in compared.of(encoding)}
    return {seed: m["last_loss"] if m else None for seed, m in found.items()}


def mean_or_gap(compared, lengths, encoding, length, of_seed, digits):
    values = [value for value in of_seed.values() if value is not None]
    if values:
        return losses.with_deviation(values, digits)
    ends = {m["ends_at"] for m in (measured(lengths, run, length) for run in compared.of(encoding)) if m}
    return f"ends at {ends.pop():,}" if len(ends) == 1 and None not in ends else "-"


def runs_table(compared):
    rows = [
        [run.name, f"{run.parameters:,}", f"{run.seconds / 60:,.0f}", compared.kept(run, "commit.txt")]
        for run in compared.runs
    ]
    return losses.markdown(["run", "parameters", "minutes", "commit"], rows)


CONVENTIONS = {
    "words": "Perplexity per word: exp of the mean of -log p over all {tokens:,} tokens of the test text, line ends\n"
    "and `<unk>` included, as the papers have it.",
    "pieces": "Bits per byte: -log2 p of the whole test text over its {bytes:,} bytes, line ends included, whatever\n"
    "the size of the vocabulary.",
}
PER_WORD = """
## Per word
exp(-log p of the whole text / its words), line ends included. Do not compare it with the perplexity of a paper whose
text has `<unk>`: a word that is `<unk>` costs less than its letters.

{table}
"""
REACH = """\
The test text in blocks of each length, without a memory: {what} of all tokens.

{all_tokens}

The last {number} tokens of each block alone, which have most context (nats a token). Long blocks have few of them.

{last}

![loss against the length of the blocks, a line for each encoding]({picture})"""
RESULTS = """# Results of examples/language_modeling

Written by `run.sh report` ({today}). Every token of the test text is scored once, with the weights after {updates}
updates. {convention}

{warning}## With and without a memory: {what}
Mean ± standard deviation over the seeds. A lower figure is better. A memory has so many tokens before the segment.

{memory}

{refused}
## Which differ
{good}

{legend}
{per_word}
## On longer blocks
{reach}

## The learning rates
The last validation loss (nats a token) of one seed with each rate. The best one, in bold, serves the other seeds.

{rates}

## What is missing
{missing}
## How
```
{environment}bash examples/language_modeling/compare.sh {compared}
```
Text (SHA-256, split, file):
```
{sources}
```
{alike} {first} was
```
{command}
```

{runs}

Minutes include validation, and other processes may have shared the machine: compare figures, not minutes. Machines:
{machines}
"""

if __name__ == "__main__":
    main(*sys.argv[1:])
