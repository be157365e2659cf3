"""T5's scalar biases, and BERT-R."""

from typing import Literal

from ..positions import Positions
from ..rows import Clipped, LogBuckets
from ..terms import Bias, full_precision
from .absolute import LearnedPositions
from .base import PositionEncoding, StackPart, normal_table, register
from .tables import unclipped


class BiasTable(StackPart):
    """The table b, (rows, H), or (rows, 1) if heads share it. It is multiplied by ``bias_scale``."""

    def __init__(self, dims, rows, heads="each", bias_scale=1.0):
        super().__init__(dims)
        self.rows = rows
        self.bias_scale = bias_scale
        self.b = normal_table(rows.count, dims.num_heads if heads == "each" else 1)

    def share(self, pos: Positions) -> Bias:
        bias_row = self.bias_scale * full_precision(self.b).mT
        return Bias(rows=self.rows, bias_row=bias_row.expand(self.dims.num_heads, -1))


class ScalarBias(PositionEncoding):
    """e_ij = s q_i.k_j + b_{h, row(j-i)}: the common part of t5 and t5_nob."""

    def __init__(self, dims, rows, heads, scale, scale_bias, per_layer):
        super().__init__(dims)
        self.rows = rows
        self.heads = heads
        self.bias_scale = self.scale if scale_bias else 1.0
        self.scale = self.scale if scale == "sqrt" else 1.0
        self.per_layer = per_layer

    def make_stack(self) -> StackPart:
        return BiasTable(self.dims, self.rows, self.heads, self.bias_scale)


@register("t5", "raffel2020t5", "ke2021tupe", "wu2021at5")
class T5(ScalarBias):
    """e_ij = q_i.k_j / sqrt(d) + b_{h, bucket(j-i)}   (Raffel et al. 2020; TUPE Eq. 6;
    AT5 Eq. 14-16).

    b: (num_buckets, H), N(0, 0.02), shared by all layers; per_layer gives each its own.
    max_distance in tokens: distances from there on share the last bucket. A causal
    stack uses all buckets for the past. scale=none is the original T5, whose logits are
    not divided; scale_bias also divides b; heads=shared: one b for all heads.

    Cost: one bias [H, T, S] once a pass; H T S additions.
    """

    def __init__(
        self,
        dims,
        num_buckets: int = 32,
        max_distance: int = 128,
        heads: Literal["each", "shared"] = "each",
        scale: Literal["sqrt", "none"] = "sqrt",
        scale_bias: bool = False,
        per_layer: bool = False,
    ):
        rows = LogBuckets(num_buckets, max_distance, dims.causal)
        super().__init__(dims, rows, heads, scale, scale_bias, per_layer)


@register("t5_nob", "wu2021at5")
class T5NoBuckets(ScalarBias):
    """e_ij = q_i.k_j / sqrt(d) + b_{h, clip(j-i, -k, k)}   (AT5's ablation "T5-NoB").

    b: (2k+1, H), N(0, 0.02), shared by all layers. max_distance: k in tokens, default
    n - 1, a bias for every offset; longer sequences clamp. M4M's Eq. 4 ("Raffel") is
    scale_bias=True heads=shared per_layer=True; scale as in t5.

    Cost: as t5.
    """

    def __init__(
        self,
        dims,
        max_distance: int | None = None,
        heads: Literal["each", "shared"] = "each",
        scale: Literal["sqrt", "none"] = "sqrt",
        scale_bias: bool = False,
        per_layer: bool = False,
    ):
        k = unclipped(dims, max_distance)
        super().__init__(dims, Clipped(k), heads, scale, scale_bias, per_layer)
        self.resolve(max_distance=k)


class LearnedPositionsAndBias(LearnedPositions):
    """The table of ``learned`` under its own key, and the table b of ``t5``."""

    def __init__(self, dims, rows):
        super().__init__(dims)
        self.rows = rows
        self.b = normal_table(rows.count, dims.num_heads)

    def share(self, pos: Positions) -> Bias:
        return Bias(rows=self.rows, bias_row=full_precision(self.b).mT)


@register("bert_r", "ke2021tupe", "devlin2019bert")
class BertR(PositionEncoding):
    """x_i = w_i + p_i; e_ij = q_i.k_j / sqrt(d) + b_{h, bucket(j-i)}   (TUPE Sec. 4,
    baseline BERT-R).

    ``learned`` at the input and ``t5``'s bias (num_buckets, max_distance); both belong to the stack.

    Cost: as t5.
    """

    def __init__(self, dims, num_buckets: int = 32, max_distance: int = 128):
        super().__init__(dims)
        self.rows = LogBuckets(num_buckets, max_distance, dims.causal)

    def make_stack(self) -> StackPart:
        return LearnedPositionsAndBias(self.dims, self.rows)
