"""DAPE: a bias of the distance that a small network adapts to the content."""

from typing import Literal

import torch
from torch import nn
from torch.nn.functional import leaky_relu
from torch.utils.checkpoint import checkpoint

from ..positions import Positions
from ..terms import BLOCK, Terms, full_precision
from .base import PositionEncoding, StackPart, build_layer_part, register, weights_of


@register("dape", "zheng2024dape")
class DAPE(PositionEncoding):
    """e_ij = a_ij + b_ij + f(a_ij, b_ij), a_ij = q_i.k_j / sqrt(d), f(a, b) = W_2 leaky_relu(W_1 [a; b] + c)
    (Zheng et al. 2024, DAPE).

    a and b have a number for each head, and f mixes the heads. bias: the encoding whose bias is b, with its default
    hyperparameters; the parameters of b are those of the stack or of each layer, as there. hidden: units of f. W_1:
    (hidden, 2H), c: (hidden), W_2: (H, hidden), in each layer, with torch's default initialisation. Any length. The
    paper has causal stacks; an encoder tells left from right if b does.

    Paper and code: the authors' f adds a bias to the result, which is the same for all keys, so the softmax cancels it.
    They clamp r_1 and r_2 of kerple_log, and use leaky_relu inside of fire, too.

    Cost: T S E for q.k once more, 3 T S H hidden for f, which backward computes again, and several [B, H, T, S]
    tensors in each layer.
    """

    def __init__(
        self,
        dims,
        bias: Literal["kerple_log", "alibi", "fire", "kerple_power", "sandwich", "t5", "tisa"] = "kerple_log",
        hidden: int = 32,
    ):
        super().__init__(dims)
        if hidden < 1:
            raise ValueError(f"hidden={hidden} must be 1 or more")
        self.bias, self.hidden = bias, hidden
        self.per_layer = build_layer_part(bias, dims).per_layer
        self.inner = nn.Linear(2 * dims.num_heads, hidden)
        self.outer = nn.Linear(hidden, dims.num_heads, bias=False)
        # a block of queries makes [hidden, block, S] values, and those of a long sequence are no more than a bias
        self.block_share = dims.num_heads / hidden

    def make_stack(self) -> StackPart:
        return build_layer_part(self.bias, self.dims).make_stack()

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        b_BHTS = self.shared(pos).dense(pos.tgt_len, pos.src_len).bias
        inner, outer = weights_of(self.inner, 2 * self.dims.num_heads), weights_of(self.outer, self.hidden)
        q, k, b_BHTS, *weights = full_precision(q_BHTD, k_BHSD, b_BHTS, *inner, outer[0])
        a_BHTS = self.scale * q @ k.mT
        block = max(BLOCK, int(pos.tgt_len * self.block_share))
        parts = [
            checkpoint(adapted, a, b, *weights, use_reentrant=False)
            for a, b in zip(a_BHTS.split(block, 2), b_BHTS.split(block, 2))
        ]
        return Terms(q_BHTD, k_BHSD, self.scale, bias=torch.cat(parts, 2))


def adapted(
    a_BHTS: torch.Tensor, b_BHTS: torch.Tensor, w_FG: torch.Tensor, c_F: torch.Tensor, w_HF: torch.Tensor
) -> torch.Tensor:
    """b + f(a, b), with F hidden units and G = 2H."""
    of_a_FH, of_b_FH = w_FG.chunk(2, 1)
    inner_BFX = of_a_FH @ a_BHTS.flatten(2) + (of_b_FH @ b_BHTS.flatten(2) + c_F[:, None])
    return b_BHTS + (w_HF @ leaky_relu(inner_BFX)).view_as(a_BHTS)
