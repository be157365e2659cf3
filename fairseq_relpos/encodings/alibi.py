"""Biases that fall with the distance: ALiBi, and KERPLE's logarithm and power."""

from typing import Literal

import torch
from torch import nn

from ..tensors import kept
from ..terms import full_precision
from .base import HasModelType, PositionEncoding, StackPart, register
from .tables import DistanceBias


def slopes(num_heads: int) -> torch.Tensor:
    """The authors' rule: 2^(-8h/H) for h = 1..H if H is a power of two; else those of the
    next lower power of two, then every other one of the next higher."""
    power = 2 ** (num_heads.bit_length() - 1)
    first = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return torch.tensor(first + between[: num_heads - power], dtype=torch.float64)


@kept(maxsize=64)
def _slopes_on(device, num_heads):
    return slopes(num_heads).to(device)


class FixedSlopes(HasModelType, DistanceBias):
    """The fixed slopes. ``right`` is added to the distance of each key to the right of its query."""

    def __init__(self, dims, right):
        super().__init__(dims)
        self.right = right

    def bias_row(self, offset_R: torch.Tensor) -> torch.Tensor:
        distance_R = offset_R.abs() + self.right * (offset_R > 0).double()
        slope_H = _slopes_on(offset_R.device, self.dims.num_heads)
        return (-slope_H[:, None] * distance_R).to(torch.promote_types(self.model_dtype, torch.float32))


class TrainedSlopes(DistanceBias):
    """Learned slopes for each head and side."""

    def __init__(self, dims):
        super().__init__(dims)
        sides = 1 if dims.causal else 2
        start = slopes(dims.num_heads).to(torch.get_default_dtype())
        self.slope = nn.Parameter(start[:, None].repeat(1, sides))

    def bias_row(self, offset_R: torch.Tensor) -> torch.Tensor:
        slope = full_precision(self.slope)
        left, right = slope[:, :1], slope[:, -1:]
        return -torch.where(offset_R > 0, right, left) * offset_R.abs()


@register("alibi", "press2022alibi")
class ALiBi(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) - m_h |j - i|   (Press et al. 2022, Sec. 3).

    m_h = 2^(-8h/H); if H is not a power of two, the authors' rule adds slopes. No
    parameters, any length. The paper has causal stacks; an encoder cannot tell left from right with
    it. form=asymmetric: -m_h (|j-i| + 0.5 [j>i]), so that it can; form=trained: a slope for each head and
    side (H, 2), initially m_h, for all layers.

    Cost: one bias [H, T, S] once a pass; H T S additions. Far keys get weights below 1e-38, which
    x86 CPUs compute slowly. eager, fused and lean make them 0; with sdpa
    torch.set_flush_denormal(True) does.
    """

    def __init__(self, dims, form: Literal["symmetric", "asymmetric", "trained"] = "symmetric"):
        super().__init__(dims)
        self.form = form

    def make_stack(self) -> StackPart:
        if self.form == "trained":
            return TrainedSlopes(self.dims)
        return FixedSlopes(self.dims, right=0.5 if self.form == "asymmetric" else 0.0)


def uniform(*shape: int) -> torch.Tensor:
    """U(0, 1) without 0 and 1, whose logarithm and logit are infinite."""
    return torch.empty(*shape).uniform_(0, 1).clamp(1e-4, 1 - 2**-8)


class LogKernel(DistanceBias):
    """KERPLE's logarithmic bias. r1 and r2 > 0 are the softplus of free parameters."""

    def __init__(self, dims):
        super().__init__(dims)
        r = uniform(2, dims.num_heads) * torch.tensor([[2.0], [1.0]])
        self.r = nn.Parameter(r.expm1().log())

    def bias_row(self, offset_R: torch.Tensor) -> torch.Tensor:
        r1, r2 = nn.functional.softplus(full_precision(self.r))[..., None]
        return -r1 * torch.log1p(r2 * offset_R.abs())


@register("kerple_log", "chi2022kerple")
class KerpleLog(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) - r_{1,h} log(1 + r_{2,h} |j - i|), r_1, r_2 > 0
    (Chi et al. 2022, KERPLE, Eq. 4).

    r: (2, H), the softplus of free parameters, initially r_1 U(0, 2) and r_2 U(0, 1), as in the
    authors' code; per_layer=True, as in the authors' code: in each layer; False: one for the stack.
    Symmetric, so an encoder cannot tell left from right; the paper has causal stacks. Any length.

    Paper and code: the authors' code clamps r_1 and r_2 to 0.01 or more; softplus does not stop their gradient.

    Cost: one bias [H, T, S] in each layer; H T S additions.
    """

    def __init__(self, dims, per_layer: bool = True):
        super().__init__(dims)
        self.per_layer = per_layer

    def make_stack(self) -> StackPart:
        return LogKernel(self.dims)


class PowerKernel(DistanceBias):
    """KERPLE's power bias. r1 > 0 is the softplus of a free parameter, r2 in (0, 2) twice its sigmoid."""

    def __init__(self, dims):
        super().__init__(dims)
        r1, r2 = uniform(2, dims.num_heads)
        self.r = nn.Parameter(torch.stack([r1.expm1().log(), r2.logit()]))

    def bias_row(self, offset_R: torch.Tensor) -> torch.Tensor:
        factor, exponent = full_precision(self.r)[..., None]
        r1, r2 = nn.functional.softplus(factor), 2 * exponent.sigmoid()
        return -r1 * offset_R.abs().to(r2) ** r2


@register("kerple_power", "chi2022kerple")
class KerplePower(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) - r_{1,h} |j - i|^{r_{2,h}}, r_1 > 0, 0 < r_2 < 2
    (Chi et al. 2022, KERPLE, Eq. 4).

    r: (2, H): r_1 is the softplus of free parameters, r_2 twice their sigmoid; initially r_1 U(0, 1)
    and r_2 U(0, 2), as in the authors' code; per_layer=True, as in the authors' code: in
    each layer; False: one for the stack. r_2 = 1 is ALiBi with learned slopes. Symmetric, so an
    encoder cannot tell left from right; the paper has causal stacks. Any length.

    Paper and code: the authors' code clamps r_1 and r_2 to 0.01 or more, and r_2 to 2 or less. A
    clamped parameter gets no gradient, so softplus and sigmoid are used here instead.

    Cost: one bias [H, T, S] in each layer; H T S additions.
    """

    def __init__(self, dims, per_layer: bool = True):
        super().__init__(dims)
        self.per_layer = per_layer

    def make_stack(self) -> StackPart:
        return PowerKernel(self.dims)
