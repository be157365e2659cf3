"""What an encoding's docstring says, cut up for printing.

Its first paragraph is the equation, then, after several spaces or on a new line, the
source in parentheses and whatever else has to be known at first sight. A later one may
begin with "Paper and code:", where the two disagree; one begins with "Cost:".
"""

import inspect
import re

TITLES = ("Paper and code", "Cost")


def equation_and_source(cls) -> tuple:
    first = inspect.getdoc(cls).split("\n\n")[0]
    equation, source = re.split(r"(?:\s{2,}|\n)(?=\()", first, maxsplit=1)
    return one_line(equation), one_line(source)


def equation(cls) -> str:
    return "   ".join(equation_and_source(cls))


def explanation(cls) -> str:
    """Everything after the first paragraph."""
    return "\n\n".join(inspect.getdoc(cls).split("\n\n")[1:])


def paragraphs(cls) -> dict:
    """The later paragraphs by what they begin with, those of no title under ""."""
    found = {"": []}
    for paragraph in inspect.getdoc(cls).split("\n\n")[1:]:
        title, colon, text = paragraph.partition(": ")
        if colon and title in TITLES:
            found[title] = text
        else:
            found[""].append(paragraph)
    return {**found, "": "\n\n".join(found[""])}


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
