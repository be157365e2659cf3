"""Write what the encodings' own docstrings say into docs/encodings.md and README.md.

    python scripts/make_docs.py            # writes
    python scripts/make_docs.py --check    # only says whether they are up to date
"""

import json
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fairseq_relpos.cli.docstrings import equation_and_source, paragraphs  # noqa: E402
from fairseq_relpos.cli.params import count  # noqa: E402
from fairseq_relpos.encodings import (  # noqa: E402
    ENCODINGS,
    Dims,
    accepted_values,
    build,
    hyperparameters,
    to_text,
)

BEGIN, END = "<!-- encodings: begin -->", "<!-- encodings: end -->"
BASE = Dims(embed_dim=768, num_heads=12, max_len=512)
MEASURED = ROOT / "benchmarks/results/attention_cpu.json"
LEGEND = """\
# The position encodings

Written by `python scripts/make_docs.py` from the docstrings in `fairseq_relpos/encodings/`.

i query, j key, l = j - i (key minus query), h head, d dimension of a head, E of the model,
H heads, T query and S key length, n the configured maximum length in tokens. e_ij is the
logit before masking and softmax. Tables start as N(0, 0.02) unless said otherwise.

*Parameters* are counted at RoBERTa-base's size: 12 layers of 768 dimensions and 12 heads, 512
positions. *Cost* is what a layer does for one sentence beyond attention without positions, whose
two products have 2 T S E multiplications and whose largest tensor is [B, H, T, S]; what is done
once a pass is not repeated for each layer and sentence. *Measured* are time and peak memory of
one attention, forward and backward, as multiples of the same without positions, for the lengths
and the machine in [benchmarks](../benchmarks/RESULTS.md); what layers share counts in full there.
[Figures](#figures) stand at the end.
"""
FIGURES = [
    ("curve_t5.png", "Bias of each head of a `t5` against the relative position, as initialised."),
    ("prior_at5.png", "`at5` as initialised: each head's bias, a prior over positions (AT5 Figure 4)."),
    ("buckets.png", "Buckets of `t5`, and what `at5` has in their place (AT5 Figure 3)."),
    ("prior_matrix.png", "The fixed matrix R of `transformer_xl` and of `gcdf` (GCDF Figure 2)."),
    ("distance.png", "How far apart R keeps i and i + k: under `gcdf` it falls with i and grows "
     "with k, ever less (LFHC/GCDF Figures 5 and 6)."),
    ("tupe_r_bias.png", "What a small `tupe_r` has learned: the bias of each head for all pairs."),
    ("tupe_r_attention.png", "Where its heads look in a sentence."),
]


def table():
    lines = ["| `roberta_...` | logit (and input) | source |", "|---|---|---|"]
    for name in sorted(ENCODINGS):
        logit, source = (text.replace("|", r"\|") for text in equation_and_source(ENCODINGS[name]))
        lines.append(f"| `{name}` | `{logit}` | {source} |")
    return "\n".join(lines)


def pages():
    measured = measurements()
    return "\n".join([LEGEND, *(page(name, measured[name]) for name in sorted(ENCODINGS)), figures()])


def page(name, measured):
    cls = ENCODINGS[name]
    logit, source = equation_and_source(cls)
    words = {title: escaped(text) for title, text in paragraphs(cls).items()}
    parts = [f"## `{name}`", f"```text\n{logit}\n```", f"Source: {escaped(source)}", words[""]]
    if "Paper and code" in words:
        parts.append(f"*Paper and code*: {words['Paper and code']}")
    c = count(f"roberta_{name}", BASE.max_len)
    parts.append(f"*Parameters*: {c['model']:,} ({c['stack']:,} in the stack, {c['layer']:,} in each layer).")
    parts.append(f"*Cost*: {words['Cost']}")
    parts.append(f"*Measured*: {measured}.")
    return "\n\n".join([*parts, options(name)]) + "\n"


def options(name):
    accepted = hyperparameters(ENCODINGS[name])
    if not accepted:
        return "No options."
    resolved = build(name, BASE).hparams
    lines = ["| option | default | accepted |", "|---|---|---|"]
    for key, parameter in accepted.items():
        default, at_base = to_text(parameter.default), to_text(resolved[key])
        note = "" if default == at_base else f" (here `{at_base}`)"
        lines.append(f"| `{key}` | `{default}`{note} | {escaped(accepted_values(parameter.annotation))} |")
    return "\n".join(lines)


def measurements():
    """Name -> time and memory at each length, from the benchmark's own file."""
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]
    found = {}
    for name in ENCODINGS:
        mine = [row for row in rows if row["encoding"] == name]
        time, memory, lengths = (
            ", ".join(shape.format(row[key]) for row in mine)
            for key, shape in (("ratio", "{:.2f}"), ("memory", "{:.2f}"), ("length", "{}"))
        )
        found[name] = f"time {time}; memory {memory}; at T = {lengths}" if mine else "not yet"
    return found


def figures():
    """Each picture with the command that draws it, as scripts/make_figures.sh has it."""
    script = (ROOT / "scripts/make_figures.sh").read_text(encoding="utf-8")
    commands = {}
    for line in script.replace('"$CHECKPOINT"', "CHECKPOINT").splitlines():
        if line.startswith("draw "):
            name, *words = shlex.split(line)[1:]
            commands[name] = shlex.join(["fairseq-relpos", "plot", *words])
    parts = ["## Figures", "All are drawn by `bash scripts/make_figures.sh`."]
    for name, caption in FIGURES:
        parts.append(f"![{caption.replace('`', '')}](images/{name})")
        parts.append(f"{caption}\n`{commands[name]}`")
    return "\n\n".join(parts) + "\n"


def escaped(text):
    """Markdown shows formulas as they stand only where nothing in them is markup."""
    return re.sub(r"([*_^|<>])", r"\\\1", text)


def main():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    wanted = {
        ROOT / "README.md": f"{before}{BEGIN}\n{table()}\n{END}{after}",
        ROOT / "docs/encodings.md": pages(),
    }
    stale = [path for path, text in wanted.items()
             if not path.exists() or path.read_text(encoding="utf-8") != text]
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
