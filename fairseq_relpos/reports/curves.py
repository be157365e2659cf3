"""Curves of several runs: one colour for an encoding in every picture, one band for its seeds."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from .figures import colour_of, dashes_of, new_figure, save

#: encoding -> the curve of each run: {number of updates, or the label of a place: value}
Curves = Mapping[str, Sequence[Mapping[Any, float]]]

#: more lines than that in one panel cannot be told apart
MOST_LINES = 7
#: large panels side by side
MOST_BESIDE = 3
COLUMNS = 4
NARROW_COLUMNS = 2
#: letters in a line above a small panel
LONGEST_TITLE = 28


def plot(
    by_panel: Mapping[str, Curves],
    path: str | Path,
    x_label: str,
    y_label: str,
    skip_first: bool = False,
    doubling: bool = False,
    mark: float | None = None,
    narrow: bool = False,
) -> Path:
    """Draws the mean over the runs of each encoding, and the band from their lowest to their highest value.

    Up to MOST_LINES encodings share a panel for each key of ``by_panel``, with their names at the ends of the lines.
    More of them have a small panel each, with the others in grey behind. skip_first: the first point of a curve may lie
    outside of the picture, as that of a loss. doubling: places are powers of two, or as far apart. mark: a place with a
    vertical line. narrow: for a page of a phone's width. Raises ValueError for runs of one encoding without a common
    point.
    """
    low, high = visible(by_panel, skip_first)
    names = {name for curves in by_panel.values() for name in curves}
    if len(names) <= MOST_LINES:
        figure, panels = _large_panels(by_panel, x_label, y_label, narrow, low, high)
    else:
        figure, panels = _small_panels(by_panel, x_label, y_label, narrow)
    panels[0].set_ylim(low, high)
    places = sorted(
        {place for curves in by_panel.values() for runs in curves.values() for run in runs for place in run}
    )
    for panel in panels:
        if doubling:
            panel.set_xscale("log", base=2)
            panel.set_xticks(places, map(str, places))
            panel.minorticks_off()
        if mark is not None:
            panel.axvline(mark, color="0.6", linewidth=0.8, linestyle=":")
        panel.grid(alpha=0.3)
        panel.margins(x=0.02)
    return save(figure, path)


def _large_panels(
    by_panel: Mapping[str, Curves], x_label: str, y_label: str, narrow: bool, low: float, high: float
) -> tuple[Any, list[Any]]:
    """A panel for each key, with all of its lines."""
    columns = 1 if narrow else min(len(by_panel), MOST_BESIDE)
    rows = -(-len(by_panel) // columns)
    figure, panels = new_figure(columns, rows, width=5.4, height=3.8, sharey=True)
    for panel, (title, curves) in zip(panels, by_panel.items()):
        for name in curves:
            _draw(panel, curves[name], name)
        _name_line_ends(panel, curves, low, high)
        panel.set_title(title, fontsize="medium")
        panel.set_xlabel(x_label)
    for panel in panels[::columns]:
        panel.set_ylabel(y_label)
    for panel in panels[len(by_panel) :]:
        panel.set_visible(False)
    return figure, panels


def _small_panels(by_panel: Mapping[str, Curves], x_label: str, y_label: str, narrow: bool) -> tuple[Any, list[Any]]:
    """A panel for each line of each key, with the others in grey."""
    each = [(title, name) for title, curves in by_panel.items() for name in curves]
    columns = NARROW_COLUMNS if narrow else COLUMNS
    rows = -(-len(each) // columns)
    figure, panels = new_figure(columns, rows, width=2.5, height=1.9, sharex=True, sharey=True)
    for panel, (title, name) in zip(panels, each):
        for other, runs in by_panel[title].items():
            if other != name:
                panel.plot(*_mean(runs), color="0.85", linewidth=0.8)
        _draw(panel, by_panel[title][name], name)
        text = name if len(by_panel) == 1 else f"{name}, {title}"
        panel.set_title(textwrap.fill(text, LONGEST_TITLE), fontsize="medium", color=colour_of(name), fontweight="bold")
    for panel in panels[len(each) :]:
        panel.set_visible(False)
    figure.supxlabel(x_label, fontsize="medium")
    figure.supylabel(y_label, fontsize="medium")
    return figure, panels


def visible(by_panel: Mapping[str, Curves], skip_first: bool = False) -> tuple[float, float]:
    """Returns the range of values to show; without the first point of each curve, in which runs differ from one another
    least and from their end most, if that may be skipped."""
    values = [
        value
        for curves in by_panel.values()
        for runs in curves.values()
        for run in runs
        for value in list(run.values())[1 if skip_first and len(run) > 2 else 0 :]
        if math.isfinite(value)  # a run that has diverged
    ]
    if not values:
        raise ValueError("no line has a finite value: all runs have diverged")
    low, high = min(values), max(values)
    return low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1)


def _mean(runs: Sequence[Mapping[Any, float]]) -> tuple[list[Any], list[float]]:
    places = [place for place in runs[0] if all(place in run for run in runs)]
    if not places:
        raise ValueError("no line over several runs: they were never validated at the same number of updates")
    return places, [mean(run[place] for run in runs) for place in places]


def _draw(panel: Any, runs: Sequence[Mapping[Any, float]], name: str) -> None:
    places, middle = _mean(runs)
    colour = colour_of(name)
    marker = {"marker": "o", "markersize": 2.5} if len(places) <= 10 else {}
    panel.plot(places, middle, color=colour, linestyle=dashes_of(name), linewidth=1.5, zorder=3, **marker)
    if len(runs) > 1:
        lowest = [min(run[place] for run in runs) for place in places]
        highest = [max(run[place] for run in runs) for place in places]
        panel.fill_between(places, lowest, highest, color=colour, alpha=0.2, linewidth=0, zorder=2)


def _name_line_ends(panel: Any, curves: Curves, low: float, high: float) -> None:
    """Writes each name beside the end of its line, moved apart where they would cover one another."""
    ends: dict[str, tuple[Any, float]] = {}
    for name, runs in curves.items():
        finite = [(place, value) for place, value in zip(*_mean(runs)) if math.isfinite(value)]
        if finite:
            ends[name] = finite[-1]
    last = max((place for place, _ in ends.values()), default=0)
    at_edge = sorted((value, name) for name, (place, value) in ends.items() if place == last)
    least = 0.055 * (high - low)
    heights: list[float] = []
    for value, _ in at_edge:
        heights.append(max(value, heights[-1] + least) if heights else value)
    shift = sum(heights) / len(heights) - sum(value for value, _ in at_edge) / len(at_edge) if at_edge else 0
    beside = {name: height - shift for height, (_, name) in zip(heights, at_edge)}
    for name, end in ends.items():  # a line that ends before the others has its name where it ends
        panel.annotate(
            name,
            (1.01, beside[name]) if name in beside else end,
            xycoords=("axes fraction" if name in beside else "data", "data"),
            color=colour_of(name),
            fontsize="small",
            va="center",
            annotation_clip=False,
        )
