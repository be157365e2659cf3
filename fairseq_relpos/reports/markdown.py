"""The Markdown tables of all reports, and the mean ± standard deviation in their cells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, stdev

from .training_log import Run


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns the table. Its first column is text, the others are numbers and aligned to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table_by_encoding(runs: Iterable[Run], columns: Mapping[str, Callable[[list[Run]], str]]) -> str:
    """Returns a table with a row for each encoding, in the order of the runs. ``columns``: what makes a cell from the
    runs of an encoding."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.encoding, []).append(run)
    rows = [[name, *(cell(of_one) for cell in columns.values())] for name, of_one in groups.items()]
    return markdown_table(["encoding", *columns], rows)


def with_deviation(values: Sequence[float], digits: int = 3, sign: str = "") -> str:
    """Returns the mean, and the standard deviation if there are several values."""
    text = f"{mean(values):{sign}.{digits}f}"
    return f"{text} ± {stdev(values):.{digits}f}" if len(values) > 1 else text
