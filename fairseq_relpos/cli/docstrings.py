"""What an encoding's docstring says, cut up for printing.

Its first paragraph is the equation, then, after several spaces or on a new line, the
source in parentheses and whatever else has to be known at first sight.
"""

import inspect
import re


def equation_and_source(cls) -> tuple:
    first = inspect.getdoc(cls).split("\n\n")[0]
    equation, source = re.split(r"(?:\s{2,}|\n)(?=\()", first, maxsplit=1)
    return one_line(equation), one_line(source)


def equation(cls) -> str:
    return "   ".join(equation_and_source(cls))


def explanation(cls) -> str:
    """Everything after the first paragraph."""
    return "\n\n".join(inspect.getdoc(cls).split("\n\n")[1:])


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
