"""One figure of every run as a picture: a row for each encoding, a dot for each seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from . import figures
from .differences import Values


def plot(values: Values, path: str | Path, label: str) -> Path:
    """Draws one panel, the lowest mean on top. Runs far above the others are drawn at the right edge, with their
    figures, so that the others can be told apart."""
    names = sorted(values, key=lambda name: mean(values[name].values()))
    every = [figure for of_seed in values.values() for figure in of_seed.values()]
    low, high = np.quantile(every, [0.25, 0.75])
    edge = high + 3 * (high - low)
    figure, (panel,) = figures.new_figure(width=6.4, height=0.9 + 0.24 * len(names))
    rows(panel, {name: [one for one in values[name].values() if one <= edge] for name in names})
    for row, name in enumerate(names[::-1]):
        far = sorted(one for one in values[name].values() if one > edge)
        if far:
            panel.plot(edge, row, ">", color=figures.colour_of(name), clip_on=False)
            panel.annotate(", ".join(f"{one:.2f}" for one in far), (edge, row), (8, 0), va="center", **BESIDE)
    if max(every) > edge:
        panel.set_xlim(right=edge)
    panel.set(xlabel=label)
    return figures.save(figure, path)


BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": "small", "annotation_clip": False}


def rows(panel: Any, values: Mapping[str, Sequence[float]], names: bool = True) -> None:
    """Draws a dot for each figure, in a row for each encoding from above, with its name at the axis."""
    for row, (name, of_name) in enumerate(list(values.items())[::-1]):
        panel.plot(of_name, [row] * len(of_name), "o", ms=5, alpha=0.7, color=figures.colour_of(name))
    panel.set_yticks(range(len(values)), list(values)[::-1] if names else [""] * len(values))
    panel.set_ylim(-0.7, len(values) - 0.3)
    panel.grid(axis="both", alpha=0.3)
