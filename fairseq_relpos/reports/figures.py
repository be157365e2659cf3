"""The style of every picture of the project, drawn without a display."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from ..atomic_files import whole_file  # noqa: E402

DOTS_PER_INCH = 110  # 600 to 1,500 pixels wide: readable in a README
#: file ending -> metadata to leave out, because they would make two files of one picture differ
FORMATS = {".png": {"Software": None}, ".svg": {"Date": None}}
#: blue below 0, white at 0, red above; few colours keep the files small
HEAT = plt.get_cmap("RdBu_r", 127)
#: white at 0, blue above
SHARE = plt.get_cmap("Blues", 127)


def new_figure(
    columns: int = 1, rows: int = 1, width: float = 4.6, height: float = 3.6, **grid: Any
) -> tuple[plt.Figure, list[plt.Axes]]:
    """Returns a figure and the list of its panels; width and height are those of a panel, in inches."""
    figure, panels = plt.subplots(
        rows, columns, figsize=(columns * width, rows * height), squeeze=False, layout="constrained", **grid
    )
    return figure, list(panels.flat)


#: The colour of an encoding, the same in every picture. Those that are compared most have the most different ones.
COLOURS = {
    "none": "#7f7f7f",
    "learned": "#000000",
    "sinusoidal": "#8c564b",
    "shape": "#c49c94",
    "t5": "#1f77b4",
    "t5_nob": "#6baed6",
    "bert_r": "#17becf",
    "at5": "#0b3d91",
    "at5_nob": "#9467bd",
    "alibi": "#bcbd22",
    "kerple_log": "#98df8a",
    "kerple_power": "#31a354",
    "sandwich": "#cedb9c",
    "fire": "#637939",
    "tisa": "#9edae5",
    "tupe_a": "#ff7f0e",
    "tupe_a_tie_cls": "#fdae6b",
    "tupe_r": "#d62728",
    "tupe_r_tie_cls": "#ff9896",
    "shaw": "#2ca02c",
    "lfhc": "#74c476",
    "transformer_xl": "#7b4173",
    "gcdf": "#ce6dbd",
    "deberta": "#e377c2",
    "m4": "#b8860b",
    "m4_reset": "#e7ba52",
    "bert_ad": "#5254a3",
    "cope": "#393b79",
    "dape": "#ffb3c6",
    "fox": "#00c8a0",
    "path": "#004d40",
    "m1": "#a55194",
    "m2": "#de9ed6",
    "m3": "#8c6d31",
    "m4m": "#843c39",
    "abs_m4m": "#d6616b",
    "rope": "#008080",
    "pope": "#40e0ff",
}


def colour_of(encoding: str) -> str:
    """Returns the colour of an encoding, with hyperparameters or not; one of ten for a name that has none."""
    name = encoding.split(" ")[0]
    others = [f"C{number}" for number in range(10)]
    return COLOURS.get(name, others[zlib.crc32(encoding.encode()) % len(others)])


def dashes_of(encoding: str) -> str:
    """Returns the line style of an encoding: solid, unless other hyperparameters give it the colour of another line."""
    _, _, variant = encoding.partition(" ")
    return ("--", ":", "-.")[zlib.crc32(encoding.encode()) % 3] if "=" in variant else "-"


def heat_maps(
    maps: Sequence[tuple[str, Any]],
    columns: int,
    side: float,
    label: str,
    title: str,
    path: str | Path,
    axes: tuple[str, str] = ("", ""),
    tokens: Sequence[str] = (),
    colours: Any = HEAT,
) -> Path:
    """Draws a panel for each (title, map [rows, columns]), all with one colour scale. axes: the labels of x and y;
    tokens: names of the places on both. The scale of HEAT is white at 0, and as long below as above."""
    figure, panels = new_figure(columns, -(-len(maps) // columns), width=side, height=side)
    strongest = max(abs(values).max().item() for _, values in maps)
    lowest = -strongest if colours is HEAT else 0
    for panel, (name, values) in zip(panels, maps):
        picture = panel.imshow(values, cmap=colours, vmin=lowest, vmax=strongest, interpolation="nearest")
        panel.set_title(name, fontsize="medium")
        panel.set(xlabel=axes[0], ylabel=axes[1])
        for axis in (panel.xaxis, panel.yaxis) if tokens else ():
            name_places(axis, tokens)
        if not tokens:
            panel.locator_params(integer=True)
    for panel in panels[len(maps) :]:
        panel.set_axis_off()
    figure.colorbar(picture, ax=panels, label=label)
    figure.suptitle(title)
    return save(figure, path)


def name_places(axis: Any, tokens: Sequence[str]) -> None:
    """Writes the tokens along an axis; a $ among them begins no formula."""
    axis.set_ticks(range(len(tokens)), tokens, parse_math=False, fontsize=7)
    if axis.axis_name == "x":
        axis.set_tick_params(rotation=90)


def line_colours(count: int) -> list[Any]:
    """Returns colours for lines; up to ten, colour-blind readers can tell them apart."""
    return [plt.get_cmap("tab10" if count <= 10 else "turbo")(i if count <= 10 else i / count) for i in range(count)]


def picture_path(path: str | Path) -> Path:
    """Returns the path. Raises ValueError if no picture can have this ending."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"--output {path}: pictures are written as {' or '.join(FORMATS)}")
    return path


def save(figure: plt.Figure, path: str | Path) -> Path:
    """Writes the picture atomically. The same picture gives the same file, to the last byte."""
    path = picture_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part, matplotlib.rc_context({"svg.hashsalt": "fairseq_relpos"}):
        figure.savefig(
            part, format=path.suffix[1:], dpi=DOTS_PER_INCH, bbox_inches="tight", metadata=FORMATS[path.suffix]
        )
    plt.close(figure)
    return path
