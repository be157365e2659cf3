"""Offset -> table row: pure functions of the relative position j - i, with a row count.

Each is a frozen dataclass: equal settings are equal rows, so they can key a cache.
A row function takes an integer tensor of offsets of any shape and returns rows of the
same shape in 0 .. count - 1.
"""

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Clipped:
    """row(l) = clip(l, -k, k) + k   (Shaw et al. 2018, Sec. 3.2), k in tokens.

    With k = n - 1 every offset of an n-token sequence has a row of its own.
    """

    k: int

    def __post_init__(self):
        if self.k < 1:
            raise ValueError(f"max_distance={self.k}: the clip distance must be at least 1 token")

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
                f"num_buckets={self.num_buckets}: a bidirectional stack needs an even number, "
                "half for each side"
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
        borders = torch.tensor(
            _log_borders(self._per_side, self.max_distance), device=offset.device
        )
        distance = (-offset).clamp(min=0) if self.causal else offset.abs()
        bucket = torch.bucketize(distance, borders, right=True)
        return bucket if self.causal else bucket + self._per_side * (offset > 0)


@functools.lru_cache(maxsize=None)
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
