"""PoPE: magnitudes say what, angles say where."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus

from ..positions import Positions
from ..terms import Terms, full_precision
from .base import PositionEncoding, register
from .rope import rotation


@register("pope", "gopalakrishnan2025pope")
class PoPE(PositionEncoding):
    """e_ij = sum_c softplus(q_ic) softplus(k_jc) cos((j - i) base^(-c/d) + delta_hc) / sqrt(d), c = 0 .. d - 1
    (Gopalakrishnan et al. 2025).

    base: of the angles. delta: (H, d) in each layer, initially 0, limited to -2 pi .. 0. Any length.

    Paper and code: the limit is a clamp, as in public code, and 0 lies on it: a delta that an update moves above 0 has
    no gradient and counts as 0 from then on.

    Cost: 2 (T + S) E for twice the dimensions in queries and keys, and T S E more in q.k.
    """

    def __init__(self, dims, base: float = 10000.0):
        super().__init__(dims)
        if base <= 0:
            raise ValueError(f"base={base} must be positive")
        self.base = base
        self.delta = nn.Parameter(torch.zeros(dims.num_heads, dims.head_dim))

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        # slots will do: padding to the left shifts query and key alike
        cos, sin = pos.remember(self, lambda length: self.angles(length, k_BHSD.device))
        keys: Any = pos.key_BS()[:, None] if pos.given else slice(pos.src_len)
        queries = keys[..., pos.src_len - pos.tgt_len :] if pos.given else slice(pos.src_len - pos.tgt_len, pos.src_len)
        q, k, delta_HD = full_precision(q_BHTD, k_BHSD, self.delta.clamp(-2 * math.pi, 0))
        q, k = softplus(q), softplus(k)
        cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        turn, lift = delta_HD.cos()[:, None], delta_HD.sin()[:, None]  # [H, 1, D]
        cos_k, sin_k = cos[keys] * turn - sin[keys] * lift, sin[keys] * turn + cos[keys] * lift
        return Terms(
            torch.cat([q * cos[queries], q * sin[queries]], -1), torch.cat([k * cos_k, k * sin_k], -1), self.scale
        )

    def angles(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin for at least ``length`` positions, [length, D], which stay on the device."""
        d = self.dims.head_dim
        return rotation(1 << (length - 1).bit_length(), 2 * d, d, (self.base, "none", 1.0, None), device)
