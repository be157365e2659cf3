"""docs/claims.md: what the papers claim, and what the runs of the recipes say. Used by make_docs.py."""

import configparser
import json
from pathlib import Path

from fairseq_relpos.references import bibliography
from fairseq_relpos.reports import comparison
from fairseq_relpos.reports.losses import markdown, with_deviation

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = ROOT / "docs/claims.ini"
SUPPORTED, CONTRADICTED = "supported", "contradicted at this scale"

PAGE = """\
# The claims of the papers, tested at a small scale

Written by `python scripts/make_docs.py` from [claims.ini](claims.ini) and from the `results.json` that the reports
of the recipes write. The papers' models have 100 times the parameters and more, and mostly other tasks: a verdict
here is about this scale alone.

Each claim is one test that was planned before the runs. One was changed after them: GCDF is tested on language models,
as in its paper, and no longer on masked ones. Runs of the same seed are paired, and the verdict is
"{same}" unless Student's t test gives p < 0.05, without a correction for the number of claims. ± is
half the width of the 95 % interval. A run that never reached a loss is named, and the difference leaves it out. In
roberta_small every encoding has the learning rate that did best on the validation data
([recipes.md](recipes.md#comparisons)). All language models have one rate, which was chosen on `transformer_xl`.

{tables}
"""


def page():
    claims = configparser.ConfigParser(interpolation=None)
    claims.read_string(CLAIMS.read_text(encoding="utf-8"))
    papers = {}
    for title in claims.sections():
        papers.setdefault(claims[title]["paper"], []).append(row(title, claims[title]))
    head = ["claim", "paper's numbers", "here", "difference", "seeds", "verdict"]
    tables = []
    for key, rows in papers.items():
        paper = bibliography()[key]
        tables.append(f"## {paper.citation}: [{paper.title}]({paper.url})\n\n{markdown(head, rows)}")
    return PAGE.format(same=comparison.SAME, tables="\n\n".join(tables))


def row(title, claim):
    what = " ".join([f"**{title}**: {claim['claim']}", *([claim["note"]] if "note" in claim else [])])
    results = ROOT / "examples" / claim["recipe"] / "results.json"
    _, figures = comparison.read(results) if results.exists() else ("", {})
    found = [(name, values) for name, values in figures.items() if name.startswith(claim["figure"])]
    ours, against = claim["ours"], claim["against"]
    if not found or not (ours in found[0][1] and against in found[0][1]):
        command = f"`bash examples/{claim['recipe']}/compare.sh {ours} {against}`"
        return [what, claim["theirs"], no_runs(claim["recipe"], ours, against), command, "", ""]
    figure, values = found[0]
    seeds = sorted(values[ours].keys() & values[against].keys())
    if not seeds:
        return [what, claim["theirs"], f"{figure}: no common seed", "", "", comparison.SAME]
    one = comparison.difference([values[ours][s] for s in seeds], [values[against][s] for s in seeds])
    digits = 0 if figure.startswith("updates") else 1 if figure.startswith("BLEU") else 3
    both = ", ".join(
        f"{with_deviation([values[name][s] for s in seeds], digits)} (`{name}`)" for name in (ours, against)
    )
    return [
        what,
        claim["theirs"],
        f"{figure}: {both}",
        one.text(digits),
        " ".join(map(str, seeds)) + left_out(results, figure, ours, against),
        verdict(one, claim),
    ]


def no_runs(recipe, *encodings):
    """Where there are runs of older settings, says so: they are in RESULTS.md, but not in results.json."""
    path = ROOT / "examples" / recipe / "RESULTS.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if all(f"\n| {name} |" in text for name in encodings):
        return f"none by this protocol; [RESULTS.md](../examples/{recipe}/RESULTS.md) has older runs"
    return "no runs yet"


def left_out(results, figure, *encodings):
    """The runs that the difference is not of, because they never reached a loss: null in the file."""
    found = json.loads(results.read_text(encoding="utf-8"))["figures"][figure]
    never = [f"seed {seed} of `{name}`" for name in encodings for seed, value in found[name].items() if value is None]
    return f" ({', '.join(never)} never reached it)" if never else ""


def verdict(one, claim):
    if one.verdict == comparison.SAME:
        return comparison.SAME
    return SUPPORTED if one.verdict == claim["better"] else CONTRADICTED
