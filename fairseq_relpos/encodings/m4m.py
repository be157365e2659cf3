"""M4M: the product of three dot products."""

from .absolute import LearnedPositions
from .base import StackPart, register
from .huang import QueryAndKeyRows


@register("m4m", "huang2021m4m")
class M4M(QueryAndKeyRows):
    """e_ij = (q_i.k_j)(q_i.a_r)(k_j.a_r) / sqrt(d), r = clip(j-i, -k, k)
    (M4M, "multiplicative position embeddings", Sec. 2.7).

    a: (2k+1, d) in each layer, N(0, 0.02), one for all heads; heads=each: (2k+1, H d).
    With 0.02 attention is initially nearly uniform. The products are made in float32 whatever
    the model's precision: three factors overflow fp16. max_distance: k in tokens, default
    n - 1; longer sequences clamp. scale_factor f: 1 / sqrt(f d).

    Cost: 2 T S E; on a CPU 2 (2k+1) T E, if that is less. The backend eager keeps the factors,
    [B, H, T, S] each, for backward.
    """

    product = True


@register("abs_m4m", "huang2021m4m")
class AbsoluteM4M(M4M):
    """x_i = w_i + p_i; e_ij = (q_i.k_j)(q_i.a_r)(k_j.a_r) / sqrt(d)   (M4M Sec. 3.1).

    ``learned`` at the input (stack part) and m4m in each layer, with its max_distance,
    heads and scale_factor. A sequence longer than n is an error.

    Cost: as m4m.
    """

    def make_stack(self) -> StackPart:
        return LearnedPositions(self.dims)
