"""docs/papers.md: every table and figure of the five papers, its command, and our numbers beside the paper's.

Made of docs/papers.ini, whose head explains its keys, and of the results files that it names. Used by make_docs.py.
"""

import configparser
import re
from dataclasses import dataclass
from pathlib import Path

from fairseq_relpos.cli import params
from fairseq_relpos.references import bibliography
from fairseq_relpos.reports.markdown import markdown_table, with_deviation

HERE = "**here**: "
ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / "docs/papers.ini"
PAPER = {"paper", "title", "note"}
DATA = {"what", "commands"}
ENTRY = set(
    "measures kind setting numbers after full hardware hours data laptop minutes ours picture differs reason".split()
)
#: of an entry that measures nothing
KINDS = {
    "drawing": "A drawing: nothing is measured. The command prints the equation.",
    "settings": "A table of settings: nothing is measured.",
    "data": "A table of data: nothing is measured.",
    "proof": "A proof: nothing is measured.",
    "arithmetic": "Arithmetic: nothing is measured.",
}

HEAD = """\
# The papers' tables and figures

Each entry has the paper's numbers, the commands that reproduce them, and our numbers beside the paper's.
**Our numbers are from small models**, unless stated otherwise: they show that the command works. They ran on CPUs, some
on an H100; each recipe names its machines. No paper's pretraining has been repeated here. Each entry lists the
differences. Ours are means ± standard deviations.

Run the commands, one after another, in the root of a clone, after `bash scripts/setup.sh && source .venv/bin/activate`
([installing.md](installing.md)). A stopped command resumes when it is run again. `run.sh command` instead of
`run.sh train` only prints the training ([recipes.md](recipes.md)). Replace `HOST`, `wiki/`, `TEXTS` and the files of
other projects by your own. The README of the recipe describes them;
[that of roberta_pretraining](../examples/roberta_pretraining/README.md) says where `wiki/` and `books_...` come from. A
`plot` writes its picture into the current folder.

{contents}

"here": *numbers*, ours are on this page for at least two encodings; *picture*, ours is; *command*, there is a command,
and no result that compares; *no command*, with the reason. The others measure nothing.
`python scripts/make_docs.py` writes this page from [papers.ini](papers.ini) and from the results files named there.

## Data for the commands at laptop size
Prepare these once, if an entry names them.

{data}
{papers}"""


class Wrong(Exception):
    """An error in papers.ini or in a file that it names, in one line."""


@dataclass
class Paper:
    name: str
    key: str
    title: str
    note: str
    entries: dict[str, dict[str, str]]

    @property
    def heading(self):
        return f"{self.title} ({bibliography()[self.key].citation})"


def read(path=INDEX):
    """The sections [data ...] by name, and the papers with their entries."""
    index = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    index.read_string(Path(path).read_text(encoding="utf-8"))
    data, papers = {}, {}
    for section in index.sections():
        values = {key: value.strip() for key, value in index[section].items()}
        paper, _, what = section.partition(" ")
        accepted = DATA if paper == "data" else ENTRY if what else PAPER
        unknown = sorted(set(values) - accepted)
        if unknown:
            raise Wrong(f"[{section}]: unknown key {', '.join(unknown)}; give {', '.join(sorted(accepted))}")
        if paper == "data":
            data[what] = values
        elif what:
            check(section, values)
            papers[paper].entries[what] = values
        else:
            papers[section] = Paper(section, values["paper"], values["title"], values.get("note", ""), {})
    for paper in papers.values():
        for what, values in paper.entries.items():
            for name in values.get("data", "").split():
                if name not in data:
                    raise Wrong(f"[{paper.name} {what}]: no section [data {name}]")
            first = values.get("after")
            if first and not any(first == f"{one.name} {name}" for one in papers.values() for name in one.entries):
                raise Wrong(f"[{paper.name} {what}]: after = {first}: no such entry")
    return data, list(papers.values())


def check(section, values):
    for key, needs in {"full": ("hardware", "hours"), "laptop": ("minutes",), "ours": ("numbers", "differs")}.items():
        missing = [name for name in needs if key in values and name not in values]
        if missing:
            raise Wrong(f"[{section}]: {key} without {', '.join(missing)}")


def lines_of(values, key):
    return [line.strip() for line in values.get(key, "").splitlines() if line.strip()]


# --- results files ---


def text_of(section, file):
    path = ROOT / file
    if not path.is_file():
        raise Wrong(f"[{section}]: no results file {file}: let `run.sh report` write it")
    return path.read_text(encoding="utf-8")


def tables(text):
    """(heading above it, head, rows) of every table of a Markdown page."""
    heading, block = "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])])
            continue
        if len(block) > 2:
            yield heading, block[0], block[2:]
        block = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


def column_of(section, file, heading, column):
    """A table below such a heading with such a column: its head, its rows, the place of the column."""
    found = [(head, rows) for above, head, rows in tables(text_of(section, file)) if re.match(heading, above)]
    found.sort(key=lambda table: not {"seed", "seeds", "folds"} & set(table[0]))  # these say how many runs there are
    for head, rows in found:
        for place, name in enumerate(head):
            if re.fullmatch(column, name):
                return head, rows, place
    raise Wrong(f"[{section}]: {file} has no column {column!r} in a table below a heading {heading!r}")


def ours_of(section, line):
    """encoding -> our number with its seeds, and what it is, with a link to the file."""
    parts = [part.strip() for part in line.split(" | ")]
    if parts[0] == "params":
        of_table = [(name, hparams) for table, name, hparams, *_ in params.PAPERS if table == parts[1]]
        found = {name: f"{params.count(f'roberta_{name}', 512, **hparams)['model']:,}" for name, hparams in of_table}
        return "parameters, `fairseq-relpos params`", found
    file, heading, column, what = parts
    head, rows, place = column_of(section, file, heading, column)
    values = {}
    for row in rows:
        values.setdefault(row[head.index("encoding")].strip("`"), []).append(row)
    title = what.replace("{}", head[place])
    return f"[{title}](../{file})", {name: cell_of(head, of_one, place) for name, of_one in values.items()}


def cell_of(head, rows, place):
    """The number, and how many seeds it has: from the table's own column, or from the number of its rows."""
    cell = rows[0][place]
    if "seed" in head:  # a row for each run
        number = with_deviation([float(row[place]) for row in rows], digits=len(cell.partition(".")[2]))
        return counted_runs(number, len(rows), "seed")
    for name in ("seeds", "folds"):
        if name in head:
            runs = rows[0][head.index(name)].split()
            several = len(runs) == 1 and "±" in cell  # it says how many
            return counted_runs(cell, int(runs[0]) if several else len(runs), name.removesuffix("s"))
    match = re.fullmatch(r"(.+) \((\d+)\)", cell)
    return counted_runs(match[1], int(match[2]), "seed") if match else cell


def counted_runs(number, count, what):
    return f"{number} ({count} {what}{'s' if count > 1 else ''})"


def quoted(section, text):
    """The text with what stands in [[FILE ~ expression]] and [[FILE | heading | column]]."""

    def quote(match):
        if " ~ " in match[1]:
            file, _, expression = match[1].partition(" ~ ")
            found = re.search(expression, text_of(section, file))
            if found is None:
                raise Wrong(f"[{section}]: {file} has no text {expression!r}")
            return " ".join(" ".join(found.groups()).split())
        file, heading, column = match[1].split(" | ")
        _, rows, place = column_of(section, file, heading, column)
        numbers = [float(row[place].replace(",", "")) for row in rows]
        least, most = min(numbers), max(numbers)
        return f"{least:g}" if least == most else f"{least:g} to {most:g}"

    return " ".join(re.sub(r"\[\[(.+?)\]\](?!\])", quote, text).split())


# --- the page ---


def page(path=INDEX):
    data, papers = read(path)
    return HEAD.format(
        contents="\n\n".join(contents_of(paper) for paper in papers),
        data="\n".join(data_section(name, values) for name, values in data.items()),
        papers="\n".join(paper_section(paper, data) for paper in papers),
    )


def anchor(heading):
    """As GitHub and mkdocs make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def contents_of(paper):
    rows = [
        f"| [{what}](#{anchor(f'{paper.name} {what}')}) | {values['measures']} | {state(values)} |"
        for what, values in paper.entries.items()
    ]
    head = f"| [{paper.heading}](#{anchor(paper.heading)}) | what it measures | here |"
    return "\n".join([head, "|---|---|---|", *rows])


def state(values):
    if "ours" in values:
        return "numbers"
    if "picture" in values:
        return "picture"
    if "kind" in values:
        return values["kind"]
    return "command" if values.keys() & {"full", "laptop"} else "no command"


def block(values, key):
    return "```bash\n{}\n```".format("\n".join(lines_of(values, key)))


def data_section(name, values):
    return f"### Data {name}\n\n{capital(values['what'])}.\n\n{block(values, 'commands')}\n"


def paper_section(paper, data):
    cited = bibliography()[paper.key]
    parts = [f"## {paper.heading}", f"[{cited.title}]({cited.url}). {paper.note}"]
    entries = (entry(f"{paper.name} {what}", values) for what, values in paper.entries.items())
    return "\n\n".join([*parts, *entries]) + "\n"


def entry(name, values):
    parts = [f"### {name}", f"**{capital(values['measures'])}.**"]
    if "setting" in values:
        parts.append(f"*The paper*: {quoted(name, values['setting'])}")
    if "numbers" in values:
        parts.append(numbers(name, values))
    if "kind" in values:
        parts.append(f"*{KINDS[values['kind']]}*")
    if "reason" in values:
        parts.append(f"*Reason*: {quoted(name, values['reason'])}")
    if "full" in values:
        first = values.get("after")
        told = f" The commands of [{first}](#{anchor(first)}) make its data or models." if first else ""
        parts.append(
            f"*At the size of the paper*. Hardware of the paper: {values['hardware']}. "
            f"Hours: {quoted(name, values['hours'])}.{told}"
        )
        parts.append(block(values, "full"))
    if "laptop" in values:
        first = ", ".join(f"[{one}](#{anchor(f'Data {one}')})" for one in values.get("data", "").split())
        told = f" Data first: {first}." if first else ""
        parts.append(f"*On a laptop*: {quoted(name, values['minutes'])}.{told}")
        parts.append(block(values, "laptop"))
    if "picture" in values:
        parts.append(f"![{values['measures']}]({relative(values['picture'])})")
    if "differs" in values:
        parts.append(f"*Differences*: {quoted(name, values['differs'])}")
    return "\n\n".join(parts)


def capital(text):
    return text[0].upper() + text[1:]


def relative(path):
    if not (ROOT / path).exists():
        raise Wrong(f"no picture {path}")
    return path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"


def numbers(name, values):
    """The paper's table. After the names of its rows stands a column for each of our results, which a wide table would
    hide at its other end."""
    return markdown_table(*table_of(name, values))


def table_of(name, values):
    """The head and the rows of this table. The heads of our columns begin with HERE."""
    head, *rows = ([cell.strip() for cell in line.split("|")] for line in lines_of(values, "numbers"))
    for row in rows:
        if len(row) != len(head):
            raise Wrong(f"[{name}]: the row {row[0]!r} has {len(row)} cells, and the head {len(head)}")
    columns = [ours_of(name, line) for line in lines_of(values, "ours")]
    encodings = [(re.findall(r"`([^`]+)`", row[0]) or [None])[0] for row in rows]
    for place, (title, found) in enumerate(columns, 1):
        if sum(encoding in found for encoding in encodings) < 2:
            raise Wrong(f"[{name}]: fewer than two encodings of the table have a number in {title}")
        for encoding, row in zip(encodings, rows, strict=True):
            row.insert(place, found.get(encoding, ""))
        head.insert(place, f"{HERE}{title}")
    return head, rows
