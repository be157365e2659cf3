"""Sandwich: the inner product of two sinusoidal position vectors, as a bias."""

import torch

from ..tensors import kept
from .base import HasModelType, PositionEncoding, StackPart, register
from .tables import DistanceBias


@kept(maxsize=64)
def products(reach: int, width: int, device: torch.device) -> torch.Tensor:
    """p_i.p_j - width / 2 of sinusoidal vectors of this width, at the distances 0 .. reach; float64."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    distance = torch.arange(reach + 1, dtype=torch.float64)
    return ((distance[:, None] * frequency).cos() - 1).sum(1).to(device)


class InnerProducts(HasModelType, DistanceBias):
    """The products, divided by another number in each head."""

    def __init__(self, dims, width):
        super().__init__(dims)
        self.width = width

    def bias_row(self, offset_R: torch.Tensor) -> torch.Tensor:
        reach = offset_R.size(0) // 2
        # few tables stay in the memory while lengths differ from batch to batch
        product_R = products(1 << reach.bit_length(), self.width, offset_R.device)[offset_R.abs()]
        heads = self.dims.num_heads
        divisor_H = torch.arange(1, heads + 1, dtype=torch.float64, device=offset_R.device) * (8 / heads)
        return (product_R / divisor_H[:, None]).to(torch.promote_types(self.model_dtype, torch.float32))


@register("sandwich", "chi2023sandwich")
class Sandwich(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) + (p_i.p_j - D / 2) / (8 h / H), p_i.p_j = sum_{c=0}^{D/2-1} cos((j - i) / 10000^(2c/D))
    (Chi et al. 2023, Sandwich).

    p: the sinusoidal vectors of D (width, 128 in the paper) dimensions. Each of the heads h = 1..H
    scales the product differently. No parameters, any length; D must be even. Symmetric, so an
    encoder cannot tell left from right; the paper has causal stacks. The
    bias falls about as the logarithm of the distance, like those of t5 and kerple_log. Subtracting D / 2
    makes it 0 at distance 0, without effect on the softmax.

    Cost: one bias [H, T, S] once a pass; H T S additions.
    """

    def __init__(self, dims, width: int = 128):
        super().__init__(dims)
        if width < 2 or width % 2:
            raise ValueError(f"width={width} must be even and positive")
        self.width = width

    def make_stack(self) -> StackPart:
        return InnerProducts(self.dims, self.width)
