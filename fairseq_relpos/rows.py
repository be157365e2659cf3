"""Offset -> table row: pure functions of the relative position j - i, with a row count.

Each is a frozen dataclass: equal settings are equal rows, so they can key a cache.
A row function takes an integer tensor of offsets of any shape and returns rows of the
same shape in 0 .. count - 1.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .tensors import kept


@dataclass(frozen=True)
class Clipped:
    """row(l) = clip(l, -k, k) + k   (Shaw et al. 2018, Sec. 3.2), k in tokens.

    With k = n - 1 every offset of an n-token sequence has a row of its own.
    """

    k: int

    def __post_init__(self):
        check_clip_distance(self.k)

    @property
    def count(self) -> int:
        return 2 * self.k + 1

    def __call__(self, offset):
        return offset.clamp(-self.k, self.k) + self.k


@dataclass(frozen=True)
class LogBuckets:
    """T5's buckets (Raffel et al. 2020; TUPE Eq. 6, AT5 Eq. 14-16).

    With m buckets a side, distances below m // 2 have a bucket each; bucket
    m // 2 + x begins where (m - m // 2) log(r / (m // 2)) / log(M / (m // 2)) = x,
    M = max_distance in tokens; all distances from M on share the last one.
    Not causal: half of the buckets for l <= 0, the upper half for l > 0.
    Causal: all buckets for the past; the future is bucket 0.

    The borders are computed in integers, so no rounding moves them.
    """

    num_buckets: int
    max_distance: int
    causal: bool = False

    def __post_init__(self):
        if self.num_buckets < 2:
            raise ValueError(f"num_buckets={self.num_buckets}: at least 2 are needed")
        if not self.causal and self.num_buckets % 2:
            raise ValueError(
                f"num_buckets={self.num_buckets}: a bidirectional stack needs an even number, half for each side"
            )
        if self.max_distance <= self._per_side // 2:
            raise ValueError(
                f"max_distance={self.max_distance}: must exceed the {self._per_side // 2} tokens "
                f"that num_buckets={self.num_buckets} tell apart exactly"
            )

    @property
    def count(self) -> int:
        return self.num_buckets

    @property
    def _per_side(self) -> int:
        return self.num_buckets if self.causal else self.num_buckets // 2

    def __call__(self, offset):
        borders = _borders_on(offset.device, self._per_side, self.max_distance)
        distance = (-offset).clamp(min=0) if self.causal else offset.abs()
        bucket = torch.bucketize(distance, borders, right=True)
        return bucket if self.causal else bucket + self._per_side * (offset > 0)


@kept(maxsize=64)
def _borders_on(device, buckets: int, max_distance: int):
    return torch.tensor(_log_borders(buckets, max_distance), device=device)


@functools.cache
def _log_borders(buckets: int, max_distance: int):
    """The smallest distance of each bucket but the first."""
    exact = buckets // 2
    steps = buckets - exact
    borders = list(range(1, exact + 1))
    distance = exact
    for step in range(1, steps):
        # (distance / exact) ** steps < (max_distance / exact) ** step, in integers
        while distance**steps * exact**step < max_distance**step * exact**steps:
            distance += 1
        borders.append(distance)
    return tuple(borders)


@dataclass(frozen=True)
class Distance:
    """row(l) = min(|l|, k)   (Huang et al. 2020, Eq. 11), k in tokens: the sign is lost."""

    k: int

    def __post_init__(self):
        check_clip_distance(self.k)

    @property
    def count(self) -> int:
        return self.k + 1

    def __call__(self, offset):
        return offset.abs().clamp(max=self.k)


@dataclass(frozen=True)
class ByLayer:
    """row = clip(round(x / layer), -k, k) + k, x = i - j = -l: coarser in higher layers
    (Qu et al. 2021, LFHC, Eq. 9), k in rows, layer counts from 1.

    rounding: away from zero (the authors' code) or floor (Eq. 9 as printed).
    """

    k: int
    layer: int
    rounding: str = "away"

    def __post_init__(self):
        check_clip_distance(self.k)

    @property
    def count(self) -> int:
        return 2 * self.k + 1

    def __call__(self, offset):
        x = -offset
        if self.rounding == "floor":
            coarse = x.div(self.layer, rounding_mode="floor")
        else:
            coarse = x.sign() * -(-x.abs()).div(self.layer, rounding_mode="floor")
        return coarse.clamp(-self.k, self.k) + self.k


@dataclass(frozen=True)
class QueryMinusKey:
    """row = clamp(x, -k, k - 1) + k, x = i - j = -l (He et al. 2021, DeBERTa, Eq. 3; the
    reverse direction with sign = 1), 2k rows.

    buckets > 0: x is first put into DeBERTa v2's log buckets, b to a side, and k = b:
    exact up to b // 2, then b // 2 + ceil(log(|x| / m) / log((k_max - 1) / m) (m - 1)), m = b // 2;
    row 0 is for x <= -k_max, beyond the last bucket.
    """

    k: int
    buckets: int = 0
    sign: int = -1

    def __post_init__(self):
        check_clip_distance(self.k)
        if self.buckets and (self.buckets < 4 or self.k <= self.buckets // 2 + 1):
            raise ValueError(
                f"buckets={self.buckets}: 0 (none), or at least 4 with max_distance={self.k} more than half of it"
            )

    @property
    def span(self) -> int:
        return self.buckets or self.k

    @property
    def count(self) -> int:
        return 2 * self.span

    def __call__(self, offset):
        x = self.sign * offset
        if self.buckets:
            middle = self.buckets // 2
            far = x.abs().clamp(min=middle).double()
            log_bucket = (
                middle + torch.ceil(torch.log(far / middle) / math.log((self.k - 1) / middle) * (middle - 1)).long()
            )
            x = torch.where(x.abs() <= middle, x, x.sign() * log_bucket)
        return x.clamp(-self.span, self.span - 1) + self.span


@dataclass(frozen=True)
class Spread:
    """Rows of a table that has a copy of its row for each offset -(S-1) .. T-1, in this order.

    ``rows`` are those of the table before. row(l) is the first of the equal copies, so that offsets share a row where
    they did before; all copies are one row's, so any of them would do.
    """

    rows: Callable[[torch.Tensor], torch.Tensor]
    tgt_len: int
    src_len: int

    @property
    def count(self) -> int:
        return self.tgt_len + self.src_len - 1

    def __call__(self, offset):
        place_L = torch.arange(self.count, device=offset.device)
        copied, copy_L = self.rows(place_L - (self.src_len - 1)).unique(return_inverse=True)
        first_R = place_L.new_full(copied.shape, self.count).scatter_reduce(0, copy_L, place_L, "amin")
        return first_R[copy_L][offset + self.src_len - 1]


def check_clip_distance(k: int) -> None:
    """Raises ValueError for a clip distance below 1."""
    if k < 1:
        raise ValueError(f"max_distance={k}: the clip distance must be at least 1 token")
