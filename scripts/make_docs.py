"""Write what the encodings' own docstrings say into docs/encodings.md and README.md.

    python scripts/make_docs.py            # writes
    python scripts/make_docs.py --check    # only says whether they are up to date
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fairseq_relpos.cli.docstrings import equation, equation_and_source, explanation  # noqa: E402
from fairseq_relpos.encodings import ENCODINGS, hyperparameters, to_text  # noqa: E402

BEGIN, END = "<!-- encodings: begin -->", "<!-- encodings: end -->"
LEGEND = """\
# The position encodings

Written by `python scripts/make_docs.py` from the docstrings in `fairseq_relpos/encodings/`.

i query, j key, l = j - i (key minus query), h head, d dimension of a head, E of the model,
H heads, T query and S key length, n the configured maximum length in tokens. e_ij is the
logit before masking and softmax. Tables start as N(0, 0.02) unless said otherwise.
"""


def table():
    lines = ["| `roberta_...` | logit (and input) | source |", "|---|---|---|"]
    for name in sorted(ENCODINGS):
        logit, source = (text.replace("|", r"\|") for text in equation_and_source(ENCODINGS[name]))
        lines.append(f"| `{name}` | `{logit}` | {source} |")
    return "\n".join(lines)


def pages():
    sections = [LEGEND]
    for name in sorted(ENCODINGS):
        cls = ENCODINGS[name]
        accepted = " ".join(f"{k}={to_text(p.default)}" for k, p in hyperparameters(cls).items())
        sections.append(
            f"## `{name}`\n\n```text\n{equation(cls)}\n```\n\n{in_words(cls)}\n\n"
            f"Hyperparameters: {f'`{accepted}`' if accepted else 'none'}.\n"
        )
    return "\n".join(sections)


def in_words(cls):
    """Markdown shows formulas as they stand only where nothing in them is markup."""
    return re.sub(r"([*_^|<>])", r"\\\1", explanation(cls))


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
