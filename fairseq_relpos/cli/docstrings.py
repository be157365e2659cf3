"""The parts of an encoding's docstring, for printing.

The first paragraph is the equation, then, after several spaces or on a new line, the source in parentheses and
whatever else a reader needs at first sight. A later paragraph may begin with "Paper and code:", where the two
disagree; one begins with "Cost:".
"""

import inspect
import re

TITLES = ("Paper and code", "Cost")


def equation_and_source(cls: type) -> tuple[str, str]:
    equation, source = equation_in(inspect.getdoc(cls) or "").split("   ")
    return equation, source


def equation(cls: type) -> str:
    return equation_in(inspect.getdoc(cls) or "")


def equation_in(docstring: str) -> str:
    """Returns the equation and, after three spaces, the source."""
    first = docstring.split("\n\n")[0]
    return "   ".join(map(one_line, re.split(r"(?:\s{2,}|\n)(?=\()", first, maxsplit=1)))


def explanation(cls: type) -> str:
    """Returns everything after the first paragraph."""
    return "\n\n".join(_paragraphs(cls)[1:])


def paragraphs(cls: type) -> dict[str, str]:
    """Returns the later paragraphs by their title, and those without a title under ""."""
    titled, others = {}, []
    for paragraph in _paragraphs(cls)[1:]:
        title, colon, text = paragraph.partition(": ")
        if colon and title in TITLES:
            titled[title] = text
        else:
            others.append(paragraph)
    return {**titled, "": "\n\n".join(others)}


def _paragraphs(cls):
    return inspect.getdoc(cls).split("\n\n")


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
