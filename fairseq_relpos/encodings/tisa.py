"""TISA: a bias that is a sum of Gaussian curves over the offset."""

import torch
from torch import nn

from ..terms import full_precision
from .base import PositionEncoding, StackPart, register
from .tables import DistanceBias


class Bells(DistanceBias):
    """a, b and c, (S, H) each: height, sharpness and centre of S bells in each head."""

    def __init__(self, dims, kernels):
        super().__init__(dims)
        shape = kernels, dims.num_heads
        self.a = nn.Parameter(torch.empty(shape).normal_(0.1, 0.01))
        self.b = nn.Parameter(torch.empty(shape).normal_(0.1, 0.01))
        self.c = nn.Parameter(torch.empty(shape).normal_(0, 5))

    def bias_row(self, offset_R: torch.Tensor) -> torch.Tensor:
        a, b, c = (full_precision(x)[..., None] for x in (self.a, self.b, self.c))
        return (a * torch.exp(-b.abs() * (offset_R - c).square())).sum(0)


@register("tisa", "wennberg2021tisa")
class TISA(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) + sum_{s=1..S} a_{h,s} exp(-|b_{h,s}| (j - i - c_{h,s})^2)
    (Wennberg & Henter 2021, TISA).

    S: kernels, 5 in the paper. a, b, c: (S, H) each; a and b N(0.1, 0.01), c N(0, 5) in tokens,
    as in the authors' code. per_layer=True: in each layer; False: one set for the stack. Any
    length: far from every centre the bias is 0.

    Cost: the bells at T + S offsets and one bias [H, T, S] in each layer; H T S additions.
    """

    def __init__(self, dims, kernels: int = 5, per_layer: bool = True):
        super().__init__(dims)
        if kernels < 1:
            raise ValueError(f"kernels={kernels} must be 1 or more")
        self.kernels = kernels
        self.per_layer = per_layer

    def make_stack(self) -> StackPart:
        return Bells(self.dims, self.kernels)
