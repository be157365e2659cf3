"""Write the parts of the documentation that can be generated.

- README.md: the table of encodings, and the table of results from the runs of examples/roberta_small.
- docs/encodings.md: a section for each encoding, from its docstring.
- CITATION.cff: the papers of fairseq_relpos/references.bib.
- docs/troubleshooting.md: the catalogue of mends.
- docs/reach.md: the table of language models, from the results of examples/language_modeling.
- docs/moving.md: a trained model with other encodings, from the logs of examples/roberta_small/moving.
- docs/papers.md: the tables and figures of five papers, from docs/papers.ini and the results files of the recipes.
- docs/claims.md: the papers' claims, and results of the recipes that test them.

    python scripts/make_docs.py            # writes
    python scripts/make_docs.py --check    # only checks whether they are up to date
"""

import inspect
import json
import re
import shlex
import shutil
import statistics
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import claims  # noqa: E402
import papers  # noqa: E402

from fairseq_relpos.architectures import bert_base  # noqa: E402
from fairseq_relpos.cli.docstrings import equation_and_source, paragraphs  # noqa: E402
from fairseq_relpos.cli.params import count_at_bert_base  # noqa: E402
from fairseq_relpos.encodings import ENCODINGS, accepted_values, build, hyperparameters, to_text  # noqa: E402
from fairseq_relpos.mends.catalogue import KINDS, MENDS  # noqa: E402
from fairseq_relpos.references import bibliography, papers_of  # noqa: E402
from fairseq_relpos.reports import differences, learning_rates  # noqa: E402
from fairseq_relpos.reports.markdown import markdown_table, with_deviation  # noqa: E402
from fairseq_relpos.reports.training_log import LOG_NAME, first_update, read_run  # noqa: E402

MEASURED = ROOT / "benchmarks/results/attention_cpu.json"
LEGEND = """\
# The position encodings

Written by `python scripts/make_docs.py` from the docstrings in `fairseq_relpos/encodings/`.

i query, j key, l = j - i (key minus query), h head, d dimension of a head, E of the model,
H heads, T query and S key length, n the configured maximum length in tokens. e_ij is the
logit before masking and softmax. Tables are initialised as N(0, 0.02) unless stated otherwise.

*Parameters* are counted at RoBERTa-base's size: 12 layers of 768 dimensions and 12 heads, 512
positions; `cope` in a causal stack of that size. Attention itself needs 2 T S E multiplications
for each sentence and layer, and its largest tensor is [B, H, T, S]; *Cost* is the additional
cost. "Once a pass" means once per forward pass, not for each layer and sentence. *Measured* is one
attention, forward and backward, without dropout, on the machine in
[benchmarks](../benchmarks/RESULTS.md#attention_cpu): its time as a multiple of torch's
`scaled_dot_product_attention` without positions, and its peak memory above inputs and outputs,
including everything that layers share. [performance](performance.md#measured-on-a-cpu) explains
the two allocators.
[Figures](#figures) are at the end. Abbreviations in the sources:
"""
FIGURES = [
    ("curve_t5.png", "Bias of each head of a `t5` against the relative position, as initialised."),
    ("prior_at5.png", "Bias of each head of an `at5`, as initialised (AT5 Figure 4 has trained ones)."),
    ("buckets.png", "Buckets of `t5`, and the function that replaces them in `at5` (AT5 Figure 3)."),
    ("prior_matrix.png", "The fixed matrix R of `transformer_xl` and of `gcdf` (GCDF Figure 2)."),
    (
        "distance.png",
        "Distance between rows i and i + k of R: in `gcdf` it falls with i and grows "
        "with k, ever more slowly (LFHC/GCDF Figures 5 and 6).",
    ),
    ("tupe_r_bias.png", "Learned bias of each head of a small `tupe_r`, trained on blocks of 64 tokens."),
    ("tupe_r_attention.png", "Attention of its heads in a sentence."),
]


#: family -> encoding -> its phrase in the list of docs/encodings.md, in README's order
FAMILIES = {
    "Added to the token embeddings": {
        "none": "no positions at all: a control",
        "learned": "a learned vector for each position, as in stock fairseq",
        "sinusoidal": "a fixed vector of sines and cosines for each position, as in stock fairseq",
        "shape": "`sinusoidal`, with all positions shifted by a random number in training",
    },
    "A bias that depends on the distance": {
        "t5": "a learned bias for each bucket of distances",
        "t5_nob": "a learned bias for each distance, without buckets",
        "bert_r": "`learned` and `t5` together",
        "at5": "a small network (MLP) of the distance",
        "at5_nob": "a small network of a learned number for each distance",
        "alibi": "a fixed penalty, linear in the distance",
        "kerple_log": "a learned penalty, logarithmic in the distance",
        "kerple_power": "a learned penalty, a learned power of the distance",
        "sandwich": "a fixed penalty, the product of two sinusoidal vectors",
        "fire": "a small network of the distance, relative to the position",
        "tisa": "a sum of learned Gaussian curves over the distance",
    },
    "A bias that depends on both positions": {
        "tupe_a": "products of position vectors with their own projections; [CLS] is untied",
        "tupe_a_tie_cls": "`tupe_a` with [CLS] as an ordinary token",
        "tupe_r": "`tupe_a` and `t5` together",
        "tupe_r_tie_cls": "`tupe_r` with [CLS] as an ordinary token",
    },
    "Content and position together": {
        "shaw": "query times a learned vector of the distance; with `values=true` the paper's value embeddings, too",
        "lfhc": "`shaw`, with fine distances in low layers and coarse ones in high layers",
        "transformer_xl": "query, plus a learned vector, times a projected sinusoid of the distance",
        "gcdf": "`transformer_xl` with Gaussian distribution functions instead of sinusoids",
        "deberta": "query and key, each times its own projection of a vector of the distance",
        "m4": "query and key, each times the same learned vector of the distance",
        "m4_reset": "`m4` with the untied [CLS] of `tupe_a`",
        "bert_ad": "query and key each get a projected position vector, separate from the word's",
        "cope": "query times a vector of a position that is a sum of gates; decoders only",
        "dape": "a penalty of the distance, adapted to the logits of all heads by a small network",
        "fox": "a penalty that grows with every token that a gate forgets; decoders only",
        "path": "reflections that depend on the tokens between key and query; decoders only",
    },
    "Positions multiply the logit": {
        "m1": "a learned factor for each distance, the same on both sides",
        "m2": "a learned factor for each distance on each side",
        "m3": "a learned factor for each distance and dimension of the head",
        "m4m": "the three products of `m4`, multiplied instead of added",
        "abs_m4m": "`learned` and `m4m` together",
    },
    "Rotation": {
        "rope": "query and key are rotated by an angle that grows with the position",
        "pope": "`rope` with lengths that depend only on the content and angles only on the position",
    },
}
#: the folder of README's table of results
SMALL = ROOT / "examples/roberta_small"

#: in CITATION.cff everything from here on is written by this script
REFERENCES = "# Written by scripts/make_docs.py from fairseq_relpos/references.bib:\nreferences:\n"
CFF_KINDS = {"inproceedings": "conference-paper", "article": "article", "misc": "article"}


def short_list():
    """README's list: a line for each family, with a link for each encoding."""
    return "\n".join(
        f"- {family}: {', '.join(f'[`{name}`](docs/encodings.md#{name})' for name in phrases)}"
        for family, phrases in FAMILIES.items()
    )


def table():
    """The list of docs/encodings.md: what each encoding does, its paper, its file."""
    described = [name for phrases in FAMILIES.values() for name in phrases]
    if sorted(described) != sorted(ENCODINGS):
        wrong = ", ".join(sorted(set(described) ^ set(ENCODINGS)))
        sys.exit(f"scripts/make_docs.py: FAMILIES needs one phrase for each encoding; check {wrong}")
    lines = ["| name | where the position acts | year | paper | code |", "|---|---|---|---|---|"]
    for family, phrases in FAMILIES.items():
        lines.append(f"| **{family}** | | | | |")
        for name, phrase in phrases.items():
            cls = ENCODINGS[name]
            paper = papers_of(cls)[0]
            authors = paper.citation.removesuffix(f" {paper.year}")
            file = Path(inspect.getsourcefile(cls)).relative_to(ROOT)
            lines.append(
                f"| [`{name}`](#{name}) | {phrase} | {paper.year} | [{authors}]({paper.url}) "
                f"| [{file.name}](../{file}) |"
            )
    return "\n".join(lines)


def results():
    """README's table of results: the losses of all seeds, and what the order of the tokens is worth."""
    _, figures = differences.read(SMALL / "tokens64_amp/results.json")
    (losses, *_) = (values for what, values in figures.items() if what.startswith("loss on"))
    gaps = figures["order gap"]
    lines = ["| encoding | seeds | loss (nats) | order gap (nats) |", "|---|---:|---:|---:|"]
    for name, of_seed in sorted(losses.items(), key=lambda item: statistics.mean(item[1].values())):
        losses_of_runs = with_deviation(list(of_seed.values()))
        gap = statistics.mean(gaps[name].values())
        link = f"[`{name}`](docs/encodings.md#{name})"
        lines.append(f"| {link} | {len(of_seed)} | {losses_of_runs} | {gap:.2f} |")
    return "\n".join(lines)


def bfloat16():
    """roberta_small's losses in float32 and with --amp, of the encodings that have three seeds of both."""
    (in_float32, *_), (with_amp, *_) = (
        [values for what, values in differences.read(SMALL / folder / "results.json")[1].items() if "wiki" in what]
        for folder in ("tokens64", "tokens64_amp")
    )
    lines = ["| encoding | float32 | `--amp` | difference |", "|---|---:|---:|---:|"]
    for name in sorted(in_float32.keys() & with_amp.keys()):
        seeds = in_float32[name].keys() & with_amp[name].keys()
        if len(seeds) < 3:
            continue
        formats = [[values[name][seed] for seed in sorted(seeds)] for values in (with_amp, in_float32)]
        after, before = (with_deviation(losses) for losses in formats)
        lines.append(f"| `{name}` | {before} | {after} | {differences.paired(*formats).text()} |")
    return "\n".join(lines)


def moving():
    """A trained model that goes on with another encoding, beside the same encodings trained anew: losses on books.valid
    during the trainings."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("moving", "tokens64_amp"):
            shutil.unpack_archive(SMALL / name / "runs.tar.xz", Path(folder, name))
        moved = [read_run(log.parent) for log in sorted(Path(folder, "moving").rglob(LOG_NAME))]
        encodings = sorted({run.encoding for run in moved})
        anew = {encoding: with_the_best_rate(Path(folder, "tokens64_amp"), encoding) for encoding in encodings}
    original = learning_rates.figure_of(next(run for run in anew["learned"] if run.seed == 1))
    updates = sorted(moved[0].valid["valid"])
    head = ["encoding", f"after {updates[0]} updates", f"after {updates[-1]:,}", f"updates until {original:.2f}"]
    rows = []
    for encoding in encodings:
        ours, theirs = [run for run in moved if run.encoding == encoding], anew[encoding]
        losses = [with_deviation([run.valid["valid"][update] for run in ours]) for update in (updates[0], updates[-1])]
        end = with_deviation([learning_rates.figure_of(run) for run in theirs]) if theirs else ""
        rows.append([f"`{encoding}`", *losses, reached(ours, original), reached(theirs, original), end])
    return markdown_table([*head, f"anew: updates until {original:.2f}", "anew: after 6,000"], rows)


def reached(runs, loss):
    """Returns after how many updates each run had this validation loss."""
    updates = [first_update(run.valid, lambda found: found <= loss) for run in runs]
    return " ".join(f"{update:,}" if update else "-" for update in updates)


def with_the_best_rate(place, encoding):
    """Returns the runs of an encoding with the learning rate that a report chooses, by the first seed."""
    rates = sorted(path.name.removeprefix("lr") for path in place.glob("lr*"))
    tried = learning_rates.tried(place, rates, encoding, "1")
    rate = learning_rates.choose({rate: [figure] for rate, figure in tried.items()}, lower=True)
    return [read_run(log.parent) for log in sorted(place.glob(f"lr{rate}/{encoding}-seed*/{LOG_NAME}"))]


def reach(folder):
    """The effect of longer blocks and of a memory on language models, each run compared with itself."""
    _, figures = differences.read(ROOT / "examples" / folder / "results.json")
    blocks, ends = (
        {length: figures[f"{what}, {where} of {length}"] for length in (128, 256, 512, 2048)}
        for what, where in (("bits per byte", "blocks"), ("nats a token", "the end of blocks"))
    )
    columns = {"of 256": (blocks, 256), "of 512": (blocks, 512), "of 2,048": (blocks, 2048)}
    columns["last 32 tokens of 2,048 (nats)"] = (ends, 2048)
    changes = {name: (figures_at[length], figures_at[128]) for name, (figures_at, length) in columns.items()}
    if remembering := figures.get("bits per byte, segments of 128, a memory of 384"):
        changes["with a memory of 384"] = (remembering, figures["bits per byte, segments of 128, no memory"])
    lines = [
        f"| encoding | bits per byte in blocks of 128 | {' | '.join(changes)} |",
        f"|---|{'---:|' * (len(changes) + 1)}",
    ]
    for name, of_seed in sorted(blocks[128].items(), key=lambda item: statistics.mean(item[1].values())):
        pairs = [(now.get(name), before[name]) for now, before in changes.values()]
        cells = [
            differences.paired([now[seed] for seed in now], [before[seed] for seed in now]).text() if now else "none"
            for now, before in pairs
        ]
        lines.append(f"| `{name}` | {statistics.mean(of_seed.values()):.3f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def mends():
    """A table for each kind of mend."""
    parts = []
    for kind, meaning in KINDS.items():
        lines = [
            f"**{kind}**: {meaning}.\n",
            "| mend | stock fairseq | with the plugin | versions |",
            "|---|---|---|---|",
        ]
        for mend in MENDS:
            if mend.kind == kind:
                lines.append(f"| `{mend.name}` | {mend.stock} | {mend.here} | {mend.versions} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def abbreviations():
    """The meaning of the short names in the sources, as one sentence."""
    used = {key for cls in ENCODINGS.values() for key in cls.papers}
    names = [
        f"{name}: {meaning}"
        for paper in bibliography().values()
        if paper.key in used
        for name, meaning in paper.names.items()
    ]
    return "\n".join(textwrap.wrap("; ".join(names) + ".", 98, break_on_hyphens=False))


def citation():
    """CITATION.cff with every paper of the bibliography."""
    before = (ROOT / "CITATION.cff").read_text(encoding="utf-8").split(REFERENCES)[0]
    return before + REFERENCES + "".join(map(citation_of, bibliography().values()))


def citation_of(paper):
    # JSON's strings are YAML's
    lines = [f"  - type: {CFF_KINDS[paper.kind]}", f"    title: {json.dumps(paper.title)}", "    authors:"]
    for family, given in paper.authors:
        lines += [f"      - family-names: {json.dumps(family)}", f"        given-names: {json.dumps(given)}"]
    lines += [f"    year: {paper.year}", f"    url: {json.dumps(paper.url)}"]
    if paper.doi:
        lines.append(f"    doi: {json.dumps(paper.doi)}")
    if paper.venue:
        where = "journal" if paper.kind == "article" else "collection-title"
        lines.append(f"    {where}: {json.dumps(paper.venue)}")
    return "\n".join(lines) + "\n"


def pages():
    measured = measurements()
    described = [page(name, measured[name]) for name in sorted(ENCODINGS)]
    return "\n".join([LEGEND, f"{abbreviations()}\n", f"{table()}\n", *described, figures()])


def page(name, measured):
    cls = ENCODINGS[name]
    logit, source = equation_and_source(cls)
    words = {title: escaped(text) for title, text in paragraphs(cls).items()}
    cited = "\n".join(f"- {paper.citation}: [{paper.title}]({paper.url})" for paper in papers_of(cls))
    parts = [f"## `{name}`", f"```text\n{logit}\n```", f"Source: {escaped(source)}", cited, words[""]]
    if "Paper and code" in words:
        parts.append(f"*Paper and code*: {words['Paper and code']}")
    c = count_at_bert_base(name)
    parts.append(f"*Parameters*: {c['model']:,} ({c['stack']:,} in the stack, {c['layer']:,} in each layer).")
    parts.append(f"*Cost*: {words['Cost']}")
    parts.append(f"*Measured*: {measured}.")
    return "\n\n".join([*parts, options(name)]) + "\n"


def options(name):
    accepted = hyperparameters(ENCODINGS[name])
    if not accepted:
        return "No options."
    resolved = build(name, bert_base(name)).hparams
    lines = ["| option | default | accepted |", "|---|---|---|"]
    for key, parameter in accepted.items():
        default, at_base = to_text(parameter.default), to_text(resolved[key])
        note = "" if default == at_base else f" (here `{at_base}`)"
        lines.append(f"| `{key}` | `{default}`{note} | {escaped(accepted_values(parameter.annotation))} |")
    return "\n".join(lines)


def measurements():
    """Name -> time and memory at each length, from the benchmark's own file."""
    result = json.loads(MEASURED.read_text(encoding="utf-8"))
    return {name: measured(name, result) or "not yet" for name in ENCODINGS}


def measured(name, result):
    parts = []
    for allocator in result["settings"]["allocators"]:
        rows = [
            row for row in result["rows"] if (row["encoding"], row["allocator"], row["dropout"]) == (name, allocator, 0)
        ]
        if not rows:
            return None
        times = ", ".join(f"{row['ratio']:.2f}" for row in rows)
        parts.append(f"time {times} with the {allocator} allocator")
    if rows[0]["scratch_mib"] is not None:
        parts.append(", ".join(f"{row['scratch_mib']:.1f}" for row in rows) + " MiB")
    lengths = ", ".join(str(row["length"]) for row in rows)
    return f"{'; '.join(parts)}; at T = {lengths}"


def figures():
    """Each picture with the command that draws it, as scripts/make_figures.sh has it."""
    script = (ROOT / "scripts/make_figures.sh").read_text(encoding="utf-8")
    commands = {}
    for line in script.replace('"$CHECKPOINT"', "CHECKPOINT").splitlines():
        if line.startswith("draw "):
            name, *words = shlex.split(line)[1:]
            commands[name] = shlex.join(["fairseq-relpos", "plot", *words])
    parts = ["## Figures", "`bash scripts/make_figures.sh` draws all of them."]
    for name, caption in FIGURES:
        parts.append(f"![{caption.replace('`', '')}](images/{name})")
        parts.append(f"{caption}\n`{commands[name]}`")
    return "\n\n".join(parts) + "\n"


def papers_page():
    try:
        return papers.page()
    except papers.Wrong as wrong:
        sys.exit(f"make_docs.py: error: {papers.INDEX.name} {wrong}")


def escaped(text):
    """Markdown shows formulas as they stand only where nothing in them is markup. The site's Markdown knows fewer
    characters with a backslash than GitHub's."""
    return re.sub(r"([*_>])", r"\\\1", text).replace("<", "&lt;").replace("|", "&#124;")


def page_with(path, **tables):
    """A page and its new text, with each table between its two marks."""
    page = (ROOT / path).read_text(encoding="utf-8")
    for name, text in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    return {ROOT / path: page}


def main():
    wanted = {
        **page_with("README.md", encodings=short_list(), results=results()),
        **page_with("docs/troubleshooting.md", mends=mends()),
        **page_with("docs/reach.md", reach=reach("language_modeling"), recent_reach=reach("language_modeling/reach")),
        **page_with("docs/moving.md", moving=moving()),
        **page_with("examples/roberta_small/README.md", bfloat16=bfloat16()),
        ROOT / "docs/encodings.md": pages(),
        ROOT / "CITATION.cff": citation(),
        ROOT / "docs/papers.md": papers_page(),
        ROOT / "docs/claims.md": claims.page(),
    }
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run python scripts/make_docs.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
