"""The position biases of a built stack, as numbers and as a picture."""

from typing import Any

import numpy as np
import torch

from .positions import Positions
from .terms import Bias

HEADS_A_ROW = 4


@torch.no_grad()
def position_biases(stack: Any, length: int) -> dict[str, torch.Tensor]:
    """Returns additive biases [H, T, S] by title: one of the whole stack (title ""), or one for each layer that has
    its own; none for an encoding without a bias. A stack in training mode gives its bias without dropout."""
    parts = {"": stack.embed_positions}
    for number, layer in enumerate(stack.layers, 1):
        parts[f"layer {number}"] = layer.self_attn.position_encoding.stack
    biases = {}
    for title, part in parts.items():
        if part is None:
            continue
        part.check_length(length)
        training = part.training
        part.eval()
        shared = part.evaluate(Positions.of(length, length, device=next(stack.parameters()).device))
        part.train(training)
        if isinstance(shared, Bias):
            bias_BHTS = shared.dense(length, length).bias
            assert bias_BHTS is not None
            biases[title] = bias_BHTS[0]
    return biases


def mosaic(bias_HTS: torch.Tensor) -> np.ndarray:
    """Returns a picture, bytes [height, width, 3]: the heads side by side, one point for each pair of positions. The
    colour is white at 0 and darkest at the largest absolute value."""
    from matplotlib import colormaps

    values = bias_HTS.float().cpu()
    strongest = values.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    heat = colormaps["RdBu_r"].resampled(127)  # as reports.figures.HEAT
    points = heat((values / strongest / 2 + 0.5).numpy(), bytes=True)[..., :3]
    # a white line between heads
    points = np.pad(points, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=255)
    heads, height, width, _ = points.shape
    columns = min(heads, HEADS_A_ROW)
    rows = -(-heads // columns)
    grid = np.full((rows * columns, height, width, 3), 255, np.uint8)
    grid[:heads] = points
    return grid.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)
