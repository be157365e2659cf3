"""A report as Markdown for a terminal, and as one HTML file that needs no other file and no network."""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..visible import visible
from .markdown import markdown_table

#: wide tables scroll in a box of their own, so that the page itself fits a phone
STYLE = """\
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; padding: 1rem;
  max-width: 60rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { border-top: 2px solid #ddd; padding-top: 1rem; margin-top: 2.5rem; font-size: 1.3rem; }
h3 { margin: 1.8rem 0 0.4rem; font-size: 1.05rem; }
.table { overflow-x: auto; margin: 0.5rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top; }
td { white-space: nowrap; }
th:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
table.words th, table.words td { text-align: left; white-space: normal; }
thead th { border-bottom: 2px solid #888; vertical-align: bottom; }
.warning { border-left: 0.3rem solid #b35900; background: #fff4e5; padding: 0.5rem 0.8rem; margin: 0.6rem 0; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; }
code { font-size: 0.9em; background: #f3f3f3; padding: 0 0.2em; }
@media (max-width: 40rem) { table { font-size: 0.85rem; } th, td { padding: 0.25rem 0.4rem; } }
"""


@dataclass
class Picture:
    file: Path
    #: what a reader learns from it who does not see it
    text: str


@dataclass
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    #: words, not numbers, in all columns
    words: bool = False


@dataclass
class Text:
    text: str
    #: the tag in HTML and the beginning of the line in Markdown
    kind: str = "p"


MARKS = {"h1": "# ", "h2": "## ", "h3": "### ", "p": "", "warning": "**Warning:** "}


@dataclass
class Page:
    blocks: list[Text | Table | Picture] = field(default_factory=list)

    def add(self, text: str, kind: str = "p") -> None:
        self.blocks.append(Text(text, kind))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False) -> None:
        self.blocks.append(Table(head, rows, words))

    def markdown(self) -> str:
        """Returns it without the pictures."""
        parts = []
        for block in self.blocks:
            if isinstance(block, Text):
                parts.append(MARKS[block.kind] + visible(block.text))
            elif isinstance(block, Table):
                rows = [block.head, *block.rows]
                cells = [[visible(cell).replace("\n", "\\n").replace("|", "\\|") for cell in row] for row in rows]
                parts.append(markdown_table(cells[0], cells[1:]))
        return "\n\n".join(parts)

    def html(self) -> str:
        titles = [block.text for block in self.blocks if isinstance(block, Text) and block.kind == "h2"]
        body = []
        for block in self.blocks:
            if isinstance(block, Text) and block.kind == "h2":
                body.append(f'<h2 id="{titles.index(block.text)}">{_inline(block.text)}</h2>')
            elif isinstance(block, Text) and block.kind == "warning":
                body.append(f'<p class="warning"><strong>Warning:</strong> {_inline(block.text)}</p>')
            elif isinstance(block, Text):
                body.append(f"<{block.kind}>{_inline(block.text)}</{block.kind}>")
                if block.kind == "h1" and len(titles) > 1:
                    links = "".join(f'<li><a href="#{i}">{_inline(title)}</a></li>' for i, title in enumerate(titles))
                    body.append(f"<nav><ul>{links}</ul></nav>")
            elif isinstance(block, Table):
                body.append(_table(block))
            else:
                body.append(_picture(block))
        title = next(block.text for block in self.blocks if isinstance(block, Text))
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<style>\n{STYLE}</style>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
        )


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in table.head)
    rows = [
        f'<tr><th scope="row">{_inline(row[0])}</th>'
        + "".join(f"<td>{_inline(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    ]
    kind = ' class="words"' if table.words else ""
    # a box that scrolls must be reached by the keyboard, too
    return (
        f'<div class="table" tabindex="0"><table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _picture(picture: Picture) -> str:
    coded = base64.b64encode(picture.file.read_bytes()).decode()
    alt = html.escape(picture.text)
    return f'<figure><img src="data:image/svg+xml;base64,{coded}" alt="{alt}"></figure>'
