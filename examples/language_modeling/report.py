"""The tables and the picture of every finished run: report.py FOLDER NAME=VALUE...

Writes RESULTS.md and results.json into FOLDER, and reach.png where there are blocks of several lengths. The values are
settings of the recipe and what today's data are (CONDITIONS).
"""

import json
import re
import sys
from pathlib import Path

from figures import FIGURES, perplexity_per_word

from fairseq_relpos.reports import differences, extrapolation_plot
from fairseq_relpos.reports.markdown import markdown_table, table_by_encoding, with_deviation
from fairseq_relpos.reports.recipe_runs import RecipeRuns, check_same, is_evaluated, settings_of

PICTURE = "reach.png"


def main(folder, *arguments):
    settings = settings_of(arguments)
    evaluated = settings["EVALUATED"]
    compared = RecipeRuns(settings, lambda run: is_scored(run, settings))
    scores = {run.name: json.loads(compared.kept(run, "scores.json")) for run in compared.runs}
    texts = {name: json.dumps(of_run["counts"]) for name, of_run in scores.items()}
    check_same(texts, "not scored on the same text", "run.sh score again")
    counts = scores[compared.runs[0].name]["counts"]["test"]
    what, figure, digits = FIGURES[settings["VOCABULARY"]]
    columns = settings["EVALUATIONS"].split()
    nats = {column: compared.values(lambda run, c=column: nats_of(scores[run.name], c)) for column in columns}
    values = {column: {} for column in columns}
    for column, of_column in nats.items():
        for encoding, of_seed in of_column.items():
            if known := {seed: figure(x, counts) for seed, x in of_seed.items() if x is not None}:
                values[column][encoding] = known
    memory = memory_table(compared, values, digits)
    Path(folder).mkdir(parents=True, exist_ok=True)
    lengths = lengths_of(compared, settings, counts["tokens"])
    wanted = settings["LENGTHS"].split() if lengths else []
    found = {length: compared.values(lambda run, n=length: measured(lengths, run, n)) for length in wanted}
    whole = {length: each(lambda m: figure(m["loss"] * m["scored"], counts), found[length]) for length in wanted}
    last = {length: each(lambda m: m["last_loss"], found[length]) for length in wanted}
    if lengths:
        extrapolation_plot.plot([*lengths.values()], Path(folder, PICTURE), ["last"])
    compared.write(
        folder,
        RESULTS,
        {
            **{f"{what}, {in_words(column)}": of_column for column, of_column in values.items()},
            **{f"{what}, blocks of {length}": of_length for length, of_length in whole.items()},
            **{f"nats a token, the end of blocks of {length}": of_length for length, of_length in last.items()},
        },
        what=what,
        convention=CONVENTIONS[settings["VOCABULARY"]].format(**counts),
        memory=memory,
        weights="" if evaluated == "checkpoint_last.pt" else f"of {evaluated} from trainings that ended ",
        rates=compared.rates_table("(nats a token)"),
        refused=refusals(compared, scores, columns),
        good=paired_tables(compared, values, what, digits),
        per_word="" if settings["VOCABULARY"] == "words" else per_word(compared, nats[columns[0]], columns[0], counts),
        reach=reach_section(settings, compared, lengths, found, whole, last, what, digits),
        runs=compared.runs_table("parameters", "minutes"),
    )
    print(f"{memory}\n\n{Path(folder, 'RESULTS.md')}: {len(compared.runs)} runs")


def is_scored(run, settings):
    """Whether the run is finished and was scored as the settings say, as run.sh judges it."""
    finished = (run / "scores.json").exists() and is_evaluated(run, settings["EVALUATED"], "scores.json.how")
    return finished and (run / "scores.json.how").read_text().strip().endswith(settings["HOW_SCORED"])


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
    def of(of_column):
        def cell(runs):
            scored = of_column.get(runs[0].encoding)
            return with_deviation([*scored.values()], digits) if scored else "-"

        return cell

    return table_by_encoding(compared.runs, {in_words(name): of(of_column) for name, of_column in values.items()})


def refusals(compared, scores, columns):
    """Why there is a gap in the table, a line for each encoding and reason. The encodings that have none are in the
    table, so the reason ends before it names them."""
    lines, reasons = {}, {}
    for run in compared.runs:
        for column in columns:
            reason = found_in(scores[run.name], column).get("refused")
            if reason:
                key = run.encoding, re.sub(r"\d+", "N", reason)  # the length of the memory is that of the column
                reasons.setdefault(key, reason.partition("; encodings that can")[0])
                lines.setdefault(key, []).append(column)
    told = [f"- {key[0]}, {', '.join(dict.fromkeys(c))}: {reasons[key]}\n" for key, c in lines.items()]
    return f"Gaps:\n{''.join(told)}" if told else ""


def lengths_of(compared, settings, tokens):
    """The results of `fairseq-relpos extrapolation` on the test text, by run. The report notes runs without them."""
    found, without, otherwise = {}, [], []
    evaluated = settings["EVALUATED"]
    for run in compared.runs if settings["LENGTHS"].split() else []:
        path = compared.place / run.name / "extrapolation.json"
        if not path.exists():
            without.append(run.name)
            continue
        reach = extrapolation_plot.read(path)
        how = reach["split"], reach["tokens"], Path(reach["checkpoint"]).name, reach.get("changed") or ""
        # an extrapolation that was stopped has the first lengths alone
        is_whole = set(map(int, settings["LENGTHS"].split())) <= {one["length"] for one in reach["measurements"]}
        if is_whole and how == ("test", tokens, evaluated, "") and is_evaluated(path.parent, evaluated, path.name):
            # variants of an encoding have names of their own
            found[run.name] = {**reach, "encoding": run.encoding}
        else:
            otherwise.append(run.name)
    compared.note("longer blocks, not finished with these settings (run.sh extrapolate)", otherwise)
    if found and without:
        compared.notes.append(f"no longer blocks (run.sh extrapolate): {', '.join(without)}")
    return found


def measured(lengths, run, length):
    """The measurement of blocks without a memory; None where the run has none of this length."""
    found = lengths.get(run.name, {"measurements": []})["measurements"]
    return next((m for m in found if (m["length"], m["memory"], m["stride"]) == (int(length), 0, None)), None)


def each(figure, by_encoding):
    """The figures of what was measured, None where the positions end before."""
    return {
        encoding: {seed: None if m is None or m["loss"] is None else figure(m) for seed, m in of_seed.items()}
        for encoding, of_seed in by_encoding.items()
    }


def reach_section(settings, compared, lengths, found, whole, last, what, digits):
    if not lengths:
        return f"Not measured: {'run.sh extrapolate' if settings['LENGTHS'] else 'LENGTHS is empty'}."
    return REACH.format(
        what=what,
        picture=PICTURE,
        shortest=f"{int(next(iter(whole))):,}",
        whole=rise_table(compared, found, whole, digits),
        last=rise_table(compared, found, last, 3),
        number=next(iter(lengths.values()))["last"],
    )


def rise_table(compared, found, by_length, digits):
    """The figure at the first length, and what it changes by at the others, each run compared with itself."""
    first, *others = by_length
    rows = []
    for encoding in compared.encodings:
        begin = by_length[first][encoding]
        row = [encoding, mean_or_gap(begin, found[first][encoding], digits)]
        for length in others:
            now = by_length[length][encoding]
            seeds = [seed for seed in begin if begin[seed] is not None and now[seed] is not None]
            if seeds:
                one = differences.paired([now[seed] for seed in seeds], [begin[seed] for seed in seeds])
                row.append(one.text(digits))
            else:
                row.append(mean_or_gap(now, found[length][encoding], digits))
        rows.append(row)
    return markdown_table(["encoding", f"{int(first):,}", *(f"{int(n):,} - {int(first):,}" for n in others)], rows)


def mean_or_gap(of_seed, found, digits):
    values = [value for value in of_seed.values() if value is not None]
    if values:
        return with_deviation(values, digits)
    ends = {m and m["ends_at"] for m in found.values()}
    return f"ends at {ends.pop():,}" if len(ends) == 1 and None not in ends else "-"


def paired_tables(compared, values, what, digits):
    """A table for each memory. Without the baseline, which may have none, there are no differences."""
    return "\n\n".join(
        f"### {in_words(column)}\n"
        + differences.table(of_column, compared.baseline if compared.baseline in of_column else None, what, digits)
        for column, of_column in values.items()
        if of_column
    )


def per_word(compared, nats, column, counts):
    found = {name: [perplexity_per_word(x, counts) for x in of.values() if x is not None] for name, of in nats.items()}
    rows = [[name, with_deviation(found[name], 2)] for name in compared.encodings if found[name]]
    return PER_WORD.format(table=markdown_table(["encoding", f"exp(nats / words), {in_words(column)}"], rows))


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
The test text in blocks of each length, without a memory: {what} of all tokens in blocks of {shortest} (mean ± standard
deviation), and what it changes by in longer ones: each run compared with itself, mean ± half the width of the 95 %
interval over the seeds (Student's t, without a correction).

{whole}

The last {number} tokens of each block alone, which have most context (nats a token). Long blocks have few of them.

{last}

![loss of the last {number} tokens against the length of the blocks, a line for each encoding]({picture})

The dotted line is the length of the training; the band is the range of the seeds."""
RESULTS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

if __name__ == "__main__":
    main(*sys.argv[1:])
