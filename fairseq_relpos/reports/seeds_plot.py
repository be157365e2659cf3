"""One figure of every run as a picture: a row for each encoding, a dot for each seed."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from . import figures
from .differences import Values


def plot(values: Values, path: str | Path, label: str) -> Path:
    """Draws one panel, the lowest mean on top. If fewer than half of the runs are far above the others, they are drawn
    at the right edge, with their figures, so that the others can be told apart."""
    names = sorted(values, key=lambda name: mean(values[name].values()))
    edge = edge_of([figure for of_seed in values.values() for figure in of_seed.values()])
    figure, (panel,) = figures.new_figure(width=6.4, height=0.9 + 0.24 * len(names))
    rows(panel, {name: [one for one in values[name].values() if one <= edge] for name in names})
    for row, name in enumerate(names[::-1]):
        far = sorted(one for one in values[name].values() if one > edge)
        if far:
            panel.plot(edge, row, ">", color=figures.colour_of(name), clip_on=False)
            panel.annotate(", ".join(f"{one:.2f}" for one in far), (edge, row), (8, 0), va="center", **BESIDE)
    if math.isfinite(edge):
        panel.set_xlim(right=edge)
    panel.set(xlabel=label)
    return figures.save(figure, path)


def edge_of(runs: Sequence[float]) -> float:
    """Returns a figure a little above the runs that are near one another, infinite if no others are far above them: a
    gap of more than a third of the whole range, with fewer than half of the runs above it."""
    ordered = sorted(runs)
    gaps = [above - below for below, above in pairwise(ordered)]
    below = gaps.index(max(gaps)) if gaps else 0
    near = ordered[: below + 1]
    if not gaps or gaps[below] * 3 <= ordered[-1] - ordered[0] or len(near) * 2 <= len(ordered):
        return math.inf
    return near[-1] + 0.05 * (near[-1] - near[0])


BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": "small", "annotation_clip": False}


def rows(panel: Any, values: Mapping[str, Sequence[float]], names: bool = True) -> None:
    """Draws a dot for each figure, in a row for each encoding from above, with its name at the axis."""
    for row, (name, of_name) in enumerate(list(values.items())[::-1]):
        panel.plot(of_name, [row] * len(of_name), "o", ms=5, alpha=0.7, color=figures.colour_of(name))
    panel.set_yticks(range(len(values)), list(values)[::-1] if names else [""] * len(values))
    panel.set_ylim(-0.7, len(values) - 0.3)
    panel.grid(axis="both", alpha=0.3)
