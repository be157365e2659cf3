"""What an encoding's docstring says, cut up for printing."""

import inspect
import re


def equation(cls) -> str:
    """The first paragraph, equation and source, on one line."""
    first = inspect.getdoc(cls).split("\n\n")[0]
    return re.sub(r"\s+", " ", first)


def explanation(cls) -> str:
    """The rest."""
    return "\n\n".join(inspect.getdoc(cls).split("\n\n")[1:])
