"""Relative key vectors: Shaw et al., and LFHC, which coarsens them by layer."""

from typing import Literal

import torch

from ..positions import Positions
from ..rows import ByLayer
from ..terms import Terms
from .base import normal_table, register
from .tables import Heads, LayerTable, UnclippedTable


class RelativeKeys(LayerTable):
    """A table whose rows are added to the keys."""

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        return Terms(q_BHTD, k_BHSD, self.scale, rows=self.rows, A=self.per_head())


@register("shaw", "shaw2018relative", "huang2021m4m", "huang2020relative", "ke2021tupe")
class Shaw(RelativeKeys, UnclippedTable):
    """e_ij = q_i.(k_j + a_r) / sqrt(d), r = clip(j-i, -k, k); values=True: o_i = sum_j softmax_j(e_ij) (v_j + a^V_r)
    (Shaw et al. 2018, Eq. 3-5; M4M Sec. 2.2; Huang Eq. 7-9).

    a: (2k+1, d) in each layer, N(0, 0.02), one for all heads; heads=each: (2k+1, H d).
    max_distance: k in tokens, default n - 1; longer sequences clamp. scale_factor f:
    1 / sqrt(f d). values: with the value embeddings a^V of the original paper, a table like a. The papers that compare
    with it omit them (TUPE, footnote 3: they "did not improve much").

    Paper and code: Shaw et al. translate with max_distance=16, Qu et al. use 2 to 16; Huang et al.
    do not clip. Tensor2tensor, OpenNMT and CTranslate2 have a^V.

    Cost: T S E; on a CPU (2k+1) T E, if that is less. values=True: T S E more, and only the backend eager, which keeps
    several [B, H, T, S] tensors for backward.
    """

    added_later = {"values": False}

    def __init__(
        self,
        dims,
        max_distance: int | None = None,
        heads: Heads = "shared",
        scale_factor: float = 1.0,
        values: bool = False,
    ):
        super().__init__(dims, max_distance, heads, scale_factor)
        self.value_table = normal_table(*self.table.shape) if values else None

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        values = None if self.value_table is None else self.per_head(self.value_table)
        return Terms(q_BHTD, k_BHSD, self.scale, rows=self.rows, A=self.per_head(), values=values)


@register("lfhc", "qu2021encoding")
class LFHC(RelativeKeys):
    """e_ij = q_i.(k_j + a_r) / sqrt(d), r = clip(sign(x) ceil(|x| / layer), -k, k), x = i-j
    (Qu et al. 2021, LFHC, Eq. 9).

    a: (2k+1, H d) in each layer, N(0, 0.02), each head its own; heads=shared: (2k+1, d).
    layer counts from 1: low layers are fine, high ones coarse with a larger reach. max_distance: k in
    rows, so layer l distinguishes distances up to k l tokens. scale_factor f: 1 / sqrt(f d).

    Paper and code: rounding=away from zero is the authors' code, rounding=floor is Eq. 9 as
    printed. Their code has a table for each head; the paper drops the head index. The paper clips:
    max_distance is 2 to 16.

    Cost: T S E; on a CPU (2k+1) T E, if that is less.
    """

    counts_layers = True

    def __init__(
        self,
        dims,
        max_distance: int = 16,
        heads: Heads = "each",
        rounding: Literal["away", "floor"] = "away",
        scale_factor: float = 1.0,
    ):
        super().__init__(dims, ByLayer(max_distance, dims.layer, rounding), heads, scale_factor)
