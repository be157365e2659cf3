"""What the encodings with a table of their own in each layer have in common."""

from typing import Literal

from torch import nn

from ..rows import Clipped
from .base import PositionEncoding, normal_table

Heads = Literal["shared", "each"]
Init = Literal["normal", "ones"]


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

    def per_head(self):
        """[1|H, R, D] or [1|H, R]."""
        if self.row_kind == "scalar":
            return self.table.mT
        return self.table.unflatten(1, (self.tables, self.dims.head_dim)).transpose(0, 1)


def unclipped(dims, max_distance):
    """The clip distance k: by default none, n - 1."""
    return dims.max_len - 1 if max_distance is None else max_distance


class UnclippedTable(LayerTable):
    """A row for every offset unless max_distance says otherwise; longer sequences clamp."""

    row_type = Clipped

    def __init__(self, dims, max_distance: int | None = None, heads: Heads = "shared", scale_factor: float = 1.0):
        k = unclipped(dims, max_distance)
        super().__init__(dims, self.row_type(k), heads, scale_factor)
        self.resolve(max_distance=k)


class FactorTable(UnclippedTable):
    """Rows that are factors of q.k, which may start at 1."""

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
