"""Methods 1 to 4 of Huang et al. 2020: scalars and vectors that multiply query and key."""

import logging

import torch
from torch import nn

from ..once import log_once
from ..positions import Positions
from ..rows import Distance
from ..terms import Terms, full_precision
from .base import register
from .tables import Cls, FactorTable, Heads, UnclippedTable

logger = logging.getLogger(__name__)


class ScalarGain(FactorTable):
    row_kind = "scalar"

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        return Terms(q_BHTD, k_BHSD, self.scale, rows=self.rows, gain=self.per_head())


@register("m1", "huang2020relative")
class M1(ScalarGain):
    """e_ij = (q_i.k_j) w_{|j-i|} / sqrt(d)   (Huang et al. 2020, Sec. 3.5.1, Eq. 11-12).

    w: (n) in each layer, N(0, 0.02), or 1 with init=ones, initially as `none`; one for
    all heads, heads=each: (n, H). max_distance: default n - 1; longer sequences clamp.
    scale_factor f: 1 / sqrt(f d). Symmetric: an encoder cannot tell left from right.

    Cost: H T S multiplications.
    """

    row_type = Distance


@register("m2", "huang2020relative")
class M2(ScalarGain):
    """e_ij = (q_i.k_j) w_{j-i} / sqrt(d)   (Huang et al. 2020, Sec. 3.5.2, Eq. 12-13).

    As m1, but the sign of the distance counts. w: (2n-1) in each layer; max_distance,
    heads, scale_factor and init as in m1.

    Cost: as m1.
    """


@register("m3", "huang2020relative")
class M3(FactorTable):
    """e_ij = sum_c q_ic k_jc a_{r,c} / sqrt(d), r = clip(j-i, -k, k)
    (Huang et al. 2020, Sec. 3.5.3, Eq. 14-15).

    a: (2k+1, d) in each layer, N(0, 0.02) (or 1 with init=ones, initially as `none`);
    with 0.02 attention is initially nearly uniform. One for all heads, heads=each: (2k+1, H d).
    max_distance: k in tokens, default n - 1; longer sequences clamp. scale_factor f:
    1 / sqrt(f d).

    Cost: 2 T S E instead of q.k's T S E, and not as a matrix product but for each pair. On a CPU
    with a C++ compiler, compiled code computes it.
    On a GPU it is hundreds of times slower than attention without positions, and runs only
    with a backend that is named.
    """

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        return Terms(q_BHTD, k_BHSD, self.scale, rows=self.rows, gate=self.per_head())


class QueryAndKeyRows(UnclippedTable):
    """Dot products of the query and of the key with the same row of a."""

    product = False

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        a_HRD = self.per_head()
        return Terms(q_BHTD, k_BHSD, self.scale, rows=self.rows, A=a_HRD, C=a_HRD, product=self.product)


@register("m4", "huang2020relative")
class M4(QueryAndKeyRows):
    """e_ij = (q_i.k_j + q_i.a_r + k_j.a_r) / sqrt(d), r = clip(j-i, -k, k)
    (Huang et al. 2020, Sec. 3.5.4, Eq. 16).

    a: (2k+1, d) in each layer, N(0, 0.02), one for all heads; heads=each: (2k+1, H d).
    max_distance: k in tokens, default n - 1; longer sequences clamp. scale_factor f:
    1 / sqrt(f d). Hugging Face called it relative_key_query, with the table reversed.
    Clipping costs little: F1 on SQuAD 1.1 is 90.30 with k=32, 90.53 without (Huang Table 4).

    Cost: 2 T S E; on a CPU 2 (2k+1) T E, if that is less.
    """


@register("m4_reset", "huang2021m4m")
class M4Reset(QueryAndKeyRows):
    """e_ij = (q_i.k_j + v_ij) / sqrt(d), v_ij = q_i.a_r + k_j.a_r, its scaled value reset to
    theta_1 where i is [CLS], else to theta_2 where j is   (M4M Sec. 3.1).

    m4 with TUPE's reset. theta_1 and theta_2 are parameters: (2, H) in each layer, 0.
    max_distance, heads and scale_factor as in m4. cls=auto: the first token of a RoBERTa or
    ELECTRA is [CLS], that of a source or sentence of other models is not; cls=first: it is in
    every encoder. Without [CLS], as in decoders, it is m4.

    Cost: as m4.
    """

    def __init__(
        self,
        dims,
        max_distance: int | None = None,
        heads: Heads = "shared",
        scale_factor: float = 1.0,
        cls: Cls = "auto",
    ):
        super().__init__(dims, max_distance, heads, scale_factor)
        self.reads_cls = not dims.causal and (dims.has_cls or cls == "first")
        if self.reads_cls:
            self.theta = nn.Parameter(torch.zeros(2, dims.num_heads))
        else:
            log_once(logger, f"{self.name}: no [CLS] in this stack, so nothing is reset")

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        terms = super().terms(q_BHTD, k_BHSD, pos)
        if self.reads_cls and pos.cls is not False:
            terms.reset = full_precision(self.theta)
            terms.cls_BS = pos.cls_BS()
        return terms
