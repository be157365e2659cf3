"""How every picture of the project looks; drawn without a display."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

DOTS_PER_INCH = 110  # 600 to 1,500 pixels wide: readable in a README
#: blue below 0, white at 0, red above; few colours, which makes the files small
HEAT = plt.get_cmap("RdBu_r", 127)


def new_figure(columns=1, rows=1, width=4.6, height=3.6):
    """A figure and its panels in one list; width and height of a panel in inches."""
    figure, panels = plt.subplots(
        rows, columns, figsize=(columns * width, rows * height), squeeze=False, layout="constrained"
    )
    return figure, list(panels.flat)


def line_colours(count):
    """Told apart by colour-blind readers too, up to ten."""
    return [plt.get_cmap("tab10" if count <= 10 else "turbo")(i if count <= 10 else i / count)
            for i in range(count)]


def save(figure, path) -> Path:
    path = Path(path)
    if path.suffix != ".png":
        raise ValueError(f"--output {path}: pictures are written as .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight")
    plt.close(figure)
    return path
