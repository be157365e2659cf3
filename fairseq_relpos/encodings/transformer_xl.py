"""Fixed encodings of the distance, projected: Transformer-XL, and GCDF."""

from collections.abc import Callable

import torch
from torch import nn

from ..positions import Positions
from ..rows import Clipped
from ..tensors import kept
from ..terms import Rows, Terms, full_precision
from .base import INIT_STD, PositionEncoding, StackPart, normal_table, register, weights_of


def sinusoids_of_distance(reach: int, dim: int) -> torch.Tensor:
    frequency = 10000.0 ** (-torch.arange(0, dim, 2).double() / dim)
    angle = distances(reach)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1)[:, :dim]


def gaussian_cdf_of_distance(reach: int, dim: int) -> torch.Tensor:
    sigma = dim ** (torch.arange(1, dim + 1).double() / dim)
    return torch.special.ndtr(distances(reach)[:, None] / sigma)


def distances(reach: int) -> torch.Tensor:
    """The distances i - j in the order of the rows, in which j - i ascends."""
    return torch.arange(reach, -reach - 1, -1).double()


def around_zero(
    function: Callable[[int, int], torch.Tensor], factor: float, reach: int, weight: torch.Tensor
) -> torch.Tensor:
    """factor function(reach, E) with the device and dtype of ``weight`` [.., E]. It is cut out of a larger, cached
    table."""
    room = max(64, 1 << reach.bit_length())
    table = _kept(function, factor, room, weight.size(-1), weight.dtype, weight.device)
    return table[room - reach : room + reach + 1]


@kept(maxsize=8)
def _kept(function, factor, reach, dim, dtype, device):
    return (factor * function(reach, dim)).to(device, dtype)


class SharedBiases(StackPart):
    """The vectors u and v, (H, d), for all layers."""

    def __init__(self, dims):
        super().__init__(dims)
        self.u = normal_table(dims.num_heads, dims.head_dim)
        self.v = normal_table(dims.num_heads, dims.head_dim)

    def share(self, pos: Positions) -> tuple[torch.Tensor, torch.Tensor]:
        return full_precision(self.u), full_precision(self.v)


class ProjectedPrior(PositionEncoding):
    """s [(q_i + u).k_j + (q_i + v).(W R_{i-j})] with a fixed matrix R.

    In the normal form: u is added to the query, and (v - u).(W R) is a bias of the row.
    """

    free_in_evaluation = ("clamp",)

    def __init__(self, dims, untie, clamp):
        super().__init__(dims)
        if clamp is not None and clamp < 1:
            raise ValueError(f"clamp={clamp} must be 1 or more")
        self.untie = untie
        self.clamp = clamp
        self.w = nn.Linear(dims.embed_dim, dims.embed_dim, bias=False)
        nn.init.normal_(self.w.weight, std=INIT_STD)
        if untie:
            self.u = normal_table(dims.num_heads, dims.head_dim)
            self.v = normal_table(dims.num_heads, dims.head_dim)

    def make_stack(self) -> StackPart:
        return StackPart(self.dims) if self.untie else SharedBiases(self.dims)

    #: (reach, E) -> R / factor over i - j = reach .. -reach, [2 reach + 1, E] in float64
    function: Callable[[int, int], torch.Tensor]
    factor = 1.0

    def prior(self, reach: int) -> torch.Tensor:
        return self.factor * self.function(reach, self.dims.embed_dim)

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        u, v = (self.u, self.v) if self.untie else self.shared(pos)
        difference_HD = full_precision(v) - full_precision(u)
        rows, A, bias_row = pos.remember(self, lambda length: self.projected(length, difference_HD))
        return Terms(q_BHTD + u[:, None].to(q_BHTD.dtype), k_BHSD, self.scale, rows=rows, A=A, bias_row=bias_row)

    def projected(self, length: int, difference_HD: torch.Tensor) -> tuple[Rows, torch.Tensor, torch.Tensor]:
        """W R as a table A, and its product with v - u."""
        reach = max(length - 1, 1)
        if self.clamp is not None:
            reach = min(reach, self.clamp)
        w, _ = weights_of(self.w, self.dims.embed_dim)
        rows_RE = around_zero(self.function, self.factor, reach, w) @ w.mT
        A = rows_RE.unflatten(-1, difference_HD.shape).transpose(0, 1)
        return Clipped(reach), A, self.scale * (difference_HD[:, None] * A).sum(-1)


@register("transformer_xl", "dai2019transformerxl", "qu2021encoding")
class TransformerXL(ProjectedPrior):
    """e_ij = [(q_i + u).k_j + (q_i + v).(W R_{i-j})] / sqrt(d)
    (Dai et al. 2019; LFHC/GCDF paper Eq. 6-8).

    R_p = [sin(p f_c) | cos(p f_c)], f_c = 10000^(-2c/E). W: (E, E) in each layer, N(0, 0.02),
    no bias; u, v: (H, d), N(0, 0.02), for all layers, or untie=True: in each. R is a function,
    so any length works; left and right differ at any distance. clamp: larger distances count as clamp
    tokens, as in the authors' evaluation (400 there); it may change for a trained model.

    Paper and code: sines and cosines in halves as in the codes; the papers interleave them, a
    permutation of W's columns. The codes also drop out entries of R.

    Cost: T S E, and (T + S) E^2 for W R in each layer, once for all sentences.
    """

    function = staticmethod(sinusoids_of_distance)

    def __init__(self, dims, untie: bool = False, clamp: int | None = None):
        super().__init__(dims, untie, clamp)


@register("gcdf", "qu2021encoding")
class GCDF(ProjectedPrior):
    """e_ij = [(q_i + u).k_j + (q_i + v).(W R_{i-j})] / sqrt(d), R_{p,c} = lambda Phi(p / E^(c/E)), c = 1..E
    (Qu et al. 2021, GCDF, Eq. 14-15).

    Phi: the Gaussian cumulative distribution, wider in higher dimensions. lambda: scale, 4
    in the paper. W: (E, E), u, v: (H, d), all in each layer, N(0, 0.02). clamp: as in transformer_xl.

    Paper and code: the author's code reads R_{j-i}, the same family with W negated, and swaps
    the sides of positions beyond its table; here far positions keep their side.

    Cost: as transformer_xl.
    """

    function = staticmethod(gaussian_cdf_of_distance)

    def __init__(self, dims, lambda_: float = 4.0, clamp: int | None = None):
        super().__init__(dims, True, clamp)
        self.factor = lambda_
