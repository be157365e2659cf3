"""RoPE: queries and keys are rotated by their positions."""

import functools
from typing import Any

import torch

from ..positions import Positions
from ..terms import Terms
from .base import PositionEncoding, register


@register("rope", "su2021roformer")
class RoPE(PositionEncoding):
    """e_ij = (R_i q_i).(R_j k_j) / sqrt(d)   (Su et al. 2021, Eq. 14-16), which depends on
    positions only through j - i.

    R_p turns the pair (c, c + d/2) by the angle p base^(-2c/d). No parameters, any length.
    d must be even.

    Paper and code: pairs are halves apart, as in the codes; the paper pairs neighbours, a
    permutation of the head's dimensions.

    Cost: 2 (T + S) E.
    """

    def __init__(self, dims, base: float = 10000.0):
        super().__init__(dims)
        if dims.head_dim % 2:
            raise ValueError(f"a head of {dims.head_dim} dimensions cannot be split into pairs")
        if base <= 0:
            raise ValueError(f"base={base} must be positive")
        self.base = base

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        # slots will do: padding to the left shifts query and key alike
        cos, sin = pos.remember(self, lambda length: self.rotation(length, k_BHSD.device))
        # [S, D/2] in order; [B, 1, S, D/2] where positions are given
        keys: Any = pos.key_BS()[:, None] if pos.given else slice(pos.src_len)
        queries = keys[..., pos.src_len - pos.tgt_len :] if pos.given else slice(pos.src_len - pos.tgt_len, pos.src_len)
        return Terms(rotate(q_BHTD, cos[queries], sin[queries]), rotate(k_BHSD, cos[keys], sin[keys]), self.scale)

    def rotation(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin for at least ``length`` positions. Rounding up keeps the number of tables small; they
        stay on the device."""
        return rotation(1 << (length - 1).bit_length(), self.dims.head_dim, self.base, device)


@functools.lru_cache(maxsize=8)
def rotation(length: int, head_dim: int, base: float, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of every position and pair, [length, D/2], float64."""
    with torch.inference_mode(False):  # trainings read it, too
        frequency = base ** (-torch.arange(0, head_dim, 2).double() / head_dim)
        angle = torch.arange(length).double()[:, None] * frequency
        return angle.cos().to(device), angle.sin().to(device)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x rotated in float32 at least. The result keeps that type, so that it is not rounded to half precision
    twice."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    wide, cos, sin = x.to(dtype), cos.to(dtype), sin.to(dtype)
    left, right = wide.chunk(2, -1)
    # one new tensor: while decoding this is done to every key at every step
    out = wide * torch.cat([cos, cos], -1)
    half = left.size(-1)
    out[..., :half].addcmul_(right, sin, value=-1)
    out[..., half:].addcmul_(left, sin)
    return out
