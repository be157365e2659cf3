"""DeBERTa's disentangled attention (He et al. 2021), and M4M's form of it."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from ..positions import Positions
from ..rows import Clipped, QueryMinusKey
from ..terms import Rows, Terms, full_precision
from .base import INIT_STD, PositionEncoding, StackPart, normal_table, register, weights_of
from .tables import unclipped


class SharedTable(StackPart):
    """The table a, (rows, E), for all layers, with a LayerNorm if ``norm_table``."""

    def __init__(self, dims, rows, norm_table):
        super().__init__(dims)
        self.a = normal_table(rows, dims.embed_dim)
        self.layer_norm = nn.LayerNorm(dims.embed_dim, eps=1e-7) if norm_table else None

    def share(self, pos: Positions) -> torch.Tensor:
        a, norm = full_precision(self.a), self.layer_norm
        if norm is None:
            return a
        weight, bias = full_precision(norm.weight), full_precision(norm.bias)
        return F.layer_norm(a, norm.normalized_shape, weight, bias, norm.eps)


def projection(width: int, bias: bool) -> nn.Linear:
    linear = nn.Linear(width, width, bias=bias)
    nn.init.normal_(linear.weight, std=INIT_STD)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


@register("deberta", "he2021deberta", "huang2021m4m")
class DeBERTa(PositionEncoding):
    """e_ij = (q_i.k_j + q_i.(a_r W^R) + k_j.(a_r W^T)) / sqrt(3d), r = clamp(i-j, -k, k-1) + k
    (He et al. 2021, Eq. 3-4; M4M Eq. 7).

    a: (2k, E) for all layers; W^R, W^T: (E, E) in each, W^T with bias; all N(0, 0.02),
    bias 0. max_distance: k in tokens. att: c2p (content to position, the term with W^R),
    p2c (with W^T) or both; the scale counts the terms: 1 / sqrt((1+terms) d). buckets > 0:
    v2's log buckets, that many on each side, up to max_distance. norm_table: a LayerNorm on a (v2).
    share_att_key: the layer's own key and query projections instead of W^R and W^T (v2),
    only inside a model. variant=m4m: a (2n-1, d) with r = clip(j-i, -k, k), and W (d, d)
    without bias, all in each layer, for all heads.

    Paper and code: both terms read i - j, as both public codes and M4M do; p2c=j-i is the
    DeBERTa paper's index of the second. A bias of W^R, which v2's code has, is the same for
    all keys of a query and drops out of the softmax. This is DeBERTa's attention alone: its codes also drop out entries
    of a, and the paper's mask decoder adds absolute positions before the output.

    Cost: 2 T S E for the two terms; on a CPU 4k T E, with buckets 4 buckets T E, if that is less.
    And 2 min(2k, T + S) E^2 for the projected rows in each layer.
    """

    def __init__(
        self,
        dims,
        max_distance: int | None = None,
        att: Literal["c2p,p2c", "c2p", "p2c"] = "c2p,p2c",
        buckets: int = 0,
        norm_table: bool = False,
        share_att_key: bool = False,
        p2c: Literal["i-j", "j-i"] = "i-j",
        variant: Literal["deberta", "m4m"] = "deberta",
    ):
        super().__init__(dims)
        self.m4m = variant == "m4m"
        if self.m4m and (buckets or norm_table or share_att_key or p2c != "i-j"):
            raise ValueError("variant=m4m has no buckets, norm_table, share_att_key or p2c")
        terms = att.split(",")
        self.scale = ((1 + len(terms)) * dims.head_dim) ** -0.5
        k = unclipped(dims, max_distance) if self.m4m else 512 if max_distance is None else max_distance
        self.resolve(max_distance=k)
        self.rows: Clipped | QueryMinusKey
        self.p2c_rows: Clipped | QueryMinusKey
        if self.m4m:
            self.rows = self.p2c_rows = Clipped(k)
            self.a = normal_table(self.rows.count, dims.head_dim)
        else:
            self.rows = QueryMinusKey(k, buckets)
            self.p2c_rows = QueryMinusKey(k, buckets, sign=-1 if p2c == "i-j" else 1)
        self.norm_table = norm_table
        width = dims.head_dim if self.m4m else dims.embed_dim
        self.c2p, self.p2c = "c2p" in terms, "p2c" in terms
        self.share_att_key = share_att_key
        if share_att_key:
            self.w_r = self.w_t = None
        else:
            self.w_r = projection(width, bias=False) if self.c2p else None
            self.w_t = projection(width, bias=not self.m4m) if self.p2c else None

    def make_stack(self) -> StackPart:
        if self.m4m:
            return super().make_stack()
        return SharedTable(self.dims, self.rows.count, self.norm_table)

    def use_content_projections(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        if self.share_att_key and (self.w_r, self.w_t) != (k_proj, q_proj):
            # plain references: the attention owns and saves them
            object.__setattr__(self, "w_r", k_proj)
            object.__setattr__(self, "w_t", q_proj)

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        rows, C_rows, A, C = pos.remember(self, lambda length: self.projected(length, pos))
        return Terms(q_BHTD, k_BHSD, self.scale, rows=rows, C_rows=C_rows, A=A, C=C)

    def projected(self, length: int, pos: Positions) -> tuple[Rows, Rows, torch.Tensor | None, torch.Tensor | None]:
        """The two tables of the rows that ``length`` tokens read, times W^R and W^T."""
        table = full_precision(self.a) if self.m4m else self.shared(pos)
        rows, C_rows = self.rows, self.p2c_rows
        read, C_read = table, table
        in_reach = Clipped(max(length - 1, 1))
        if in_reach.count < rows.count:
            offset_R = torch.arange(-in_reach.k, in_reach.k + 1, device=table.device)
            read = table[rows(offset_R)]
            C_read = read if C_rows == rows else table[C_rows(offset_R)]
            rows = C_rows = in_reach
        A = self.project(read, self.w_r) if self.c2p else None
        C = self.project(C_read, self.w_t) if self.p2c else None
        return rows, C_rows, A, C

    def project(self, table: torch.Tensor, linear: nn.Linear | None) -> torch.Tensor:
        if linear is None:
            raise ValueError("share_att_key=True of deberta reads the layer's own projections, which only a model has")
        rows = F.linear(table, *weights_of(linear, table.size(-1)))
        heads = 1 if self.m4m else self.dims.num_heads
        return rows.unflatten(-1, (heads, self.dims.head_dim)).transpose(0, 1)
