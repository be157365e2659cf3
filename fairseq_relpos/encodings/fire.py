"""FIRE: a bias that is a learned function of the normalised distance."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..positions import Positions
from ..rows import Clipped
from ..terms import Bias, full_precision
from .base import PositionEncoding, StackPart, register, weights_of

#: smallest psi(reach), so that no pair is divided by zero
TINY = 1e-6


class NormalisedDistanceBias(StackPart):
    """MLP_h(psi(|j-i|) / psi(max(|L|, i, j)), sign), psi(x) = log(|c| x + 1)."""

    def __init__(self, dims, c, threshold, hidden):
        super().__init__(dims)
        self.c = nn.Parameter(torch.tensor([float(c)]))
        # L as a factor of its start, so that one learning rate suits all parameters
        self.threshold = threshold
        self.factor = nn.Parameter(torch.ones(1))
        inputs = 1 if dims.causal else 2
        self.inner = nn.Linear(inputs, hidden)
        self.outer = nn.Linear(hidden, dims.num_heads)
        # a block of queries makes [block, S, hidden] values; no more than the bias has
        self.block_share = dims.num_heads / hidden

    def share(self, pos: Positions) -> Bias:
        limit = full_precision(self.factor).abs() * self.threshold
        if pos.span - 1 <= limit.item():
            # no token is beyond L, so one value for each offset says it all
            rows = Clipped(max(pos.span - 1, 1))
            offset_R = torch.arange(-rows.k, rows.k + 1, device=limit.device)
            return Bias(rows=rows, bias_row=self.of_offsets(offset_R, limit).mT)
        key_BS, query_BT = pos.key_BS(), pos.query_BT()
        block = max(1, int(pos.tgt_len * self.block_share))
        parts = [
            checkpoint(self.of_pairs, query_BX, key_BS, limit, use_reentrant=False)
            for query_BX in query_BT.split(block, dim=1)
        ]
        return Bias(bias=torch.cat(parts, 2))

    def of_pairs(self, query_BX: torch.Tensor, key_BS: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
        i, j = query_BX[:, :, None], key_BS[:, None, :]
        reach = torch.maximum(torch.maximum(i, j).to(limit), limit)
        return self.of_offsets(j - i, reach).movedim(-1, 1)

    def of_offsets(self, offset: torch.Tensor, reach: torch.Tensor) -> torch.Tensor:
        """The bias [.., H] at offsets [..], normalised by psi(reach)."""
        c, offset = full_precision(self.c).abs(), offset.to(reach)
        # psi(L) is 0 where L has been learned away
        x = torch.log1p(c * offset.abs())[..., None] / torch.log1p(c * reach).clamp(min=TINY)[..., None]
        if not self.dims.causal:
            x = torch.cat([x, offset.sign()[..., None]], -1)
        hidden = F.linear(x, *weights_of(self.inner, x.size(-1)))
        return F.linear(hidden.relu(), *weights_of(self.outer, hidden.size(-1)))


@register("fire", "li2024fire")
class FIRE(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) + MLP_h(psi(|j-i|) / psi(max(L, i, j)), sign(j-i)), psi(x) = log(|c| x + 1)
    (Li et al. 2024, FIRE, Eq. 7-8, made bidirectional).

    i, j: token positions. c (initially 0.1) and L (threshold, 512 tokens) are learned; MLP
    1-hidden-H, 2-hidden-H in bidirectional stacks, with the sign as a second input; torch's
    default initialisation. One for the stack. Any length.

    Cost: one bias [H, T, S] and the MLP once a pass: at T + S offsets, (T + S) hidden H, while
    no token is beyond L; at all pairs, T S hidden H and again in backward, if one is. H T S
    additions.
    """

    def __init__(self, dims, c: float = 0.1, threshold: float = 512.0, hidden: int = 32):
        super().__init__(dims)
        if c <= 0 or threshold <= 0 or hidden < 1:
            raise ValueError(f"c={c}, threshold={threshold}, hidden={hidden} must be positive")
        self.options = (c, threshold, hidden)

    def make_stack(self) -> StackPart:
        return NormalisedDistanceBias(self.dims, *self.options)
