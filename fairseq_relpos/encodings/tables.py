"""Shared parts of encodings: tables in each layer, biases of the offset, and types of options."""

import logging
from typing import Literal

import torch
from torch import nn

from ..positions import Positions
from ..rows import Clipped, Distance
from ..terms import Bias
from .base import Dims, PositionEncoding, StackPart, normal_table

logger = logging.getLogger(__name__)

Heads = Literal["shared", "each"]
Init = Literal["normal", "ones"]
Cls = Literal["auto", "first"]


class LayerTable(PositionEncoding):
    """A table over the relative positions, in each layer: vectors a [R, d] or scalars [R]
    for all heads, [R, H d] or [R, H] for each head. s = 1 / sqrt(scale_factor d)."""

    #: entries of one row for one head: "vector" (d) or "scalar"
    row_kind = "vector"

    def __init__(self, dims, rows, heads="shared", scale_factor=1.0):
        super().__init__(dims)
        if scale_factor <= 0:
            raise ValueError(f"scale_factor={scale_factor} must be positive")
        self.scale = (scale_factor * dims.head_dim) ** -0.5
        self.rows = rows
        self.tables = 1 if heads == "shared" else dims.num_heads
        width = self.tables * (dims.head_dim if self.row_kind == "vector" else 1)
        self.table = normal_table(rows.count, width)

    def per_head(self, table: torch.Tensor | None = None) -> torch.Tensor:
        """The table, or another one like it, split by heads: [1|H, R, D] or [1|H, R]."""
        table = self.table if table is None else table
        if self.row_kind == "scalar":
            return table.mT
        return table.unflatten(1, (self.tables, self.dims.head_dim)).transpose(0, 1)


def unclipped(dims: Dims, max_distance: int | None) -> int:
    """The clip distance k; by default the largest distance, which clips nothing."""
    return dims.span - 1 if max_distance is None else max_distance


class UnclippedTable(LayerTable):
    """A row for every offset unless max_distance says otherwise; longer sequences clamp."""

    row_type: type[Clipped] | type[Distance] = Clipped

    def __init__(self, dims, max_distance: int | None = None, heads: Heads = "shared", scale_factor: float = 1.0):
        k = unclipped(dims, max_distance)
        super().__init__(dims, self.row_type(k), heads, scale_factor)
        self.resolve(max_distance=k)


class FactorTable(UnclippedTable):
    """A table whose rows multiply q.k and may start at 1."""

    def __init__(
        self,
        dims,
        max_distance: int | None = None,
        heads: Heads = "shared",
        scale_factor: float = 1.0,
        init: Init = "normal",
    ):
        super().__init__(dims, max_distance, heads, scale_factor)
        if init == "ones":
            nn.init.ones_(self.table)


class DistanceBias(StackPart):
    """A bias for each head that depends only on the offset, so any length works."""

    def share(self, pos: Positions) -> Bias:
        return pos.remember(self, lambda length: self.bias(length, pos.device))

    def bias(self, length: int, device: torch.device | None) -> Bias:
        reach = max(length - 1, 1)
        own = next(iter([*self.parameters(), *self.buffers()]), torch.empty(0)).device
        offset_R = torch.arange(-reach, reach + 1, device=device or own)
        return Bias(rows=Clipped(reach), bias_row=self.bias_row(offset_R))

    def bias_row(self, offset_R: torch.Tensor) -> torch.Tensor:
        """The bias [H, R] at these offsets j - i."""
        raise NotImplementedError
