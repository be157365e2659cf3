"""TUPE: separate correlations of positions and of words, and an untied [CLS] (Ke et al. 2021)."""

import logging
import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from ..once import log_once
from ..positions import Positions
from ..rows import LogBuckets
from ..terms import Bias, Terms, full_precision
from .base import INIT_STD, Dims, PositionEncoding, StackPart, normal_table, register, weights_of
from .tables import Cls

ClsReset = Literal["code", "paper"]
Theta = Literal["projected", "free"]

logger = logging.getLogger(__name__)


class ProjectedPositions(StackPart):
    """The table p, its LayerNorm, and its projections U^Q and U^K, all with biases as in the authors' code.
    ``extra`` rows come before position 0."""

    def __init__(self, dims, extra=0):
        super().__init__(dims)
        self.hard_limit = dims.max_len
        self.extra = extra
        self.p = normal_table(dims.max_len + extra, dims.embed_dim)
        self.layer_norm = nn.LayerNorm(dims.embed_dim)
        self.u_q = nn.Linear(dims.embed_dim, dims.embed_dim)
        self.u_k = nn.Linear(dims.embed_dim, dims.embed_dim)
        for linear in (self.u_q, self.u_k):
            nn.init.normal_(linear.weight, std=INIT_STD)
            nn.init.zeros_(linear.bias)

    def project(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """p_i U^Q and p_i U^K of the table rows first .. last - 1, each [H, rows, D]."""
        norm = self.layer_norm
        rows = full_precision(self.p[first:last])
        if len(rows) < last - first:  # pads may lie beyond the table
            rows = F.pad(rows, (0, 0, 0, last - first - len(rows)))
        rows = F.layer_norm(
            rows, norm.normalized_shape, full_precision(norm.weight), full_precision(norm.bias), norm.eps
        )
        return self.heads(self.u_q, rows), self.heads(self.u_k, rows)

    def heads(self, linear: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
        x = F.linear(rows, *weights_of(linear, self.dims.embed_dim))
        return x.unflatten(-1, (self.dims.num_heads, self.dims.head_dim)).transpose(0, 1)

    def of_tokens(self, pos: Positions) -> tuple[torch.Tensor, torch.Tensor]:
        """p U^Q of the queries, [1|B, H, T, D], and p U^K of the keys, [1|B, H, S, D]."""
        q_HSD, k_HSD = pos.remember(self, lambda length: self.project(self.extra, self.extra + length))
        if pos.slots_say_tokens:
            last = pos.src_len
            return q_HSD[None, :, last - pos.tgt_len : last], k_HSD[None, :, :last]
        return q_HSD[:, pos.query_BT()].transpose(0, 1), k_HSD[:, pos.key_BS()].transpose(0, 1)


class UntiedPositions(ProjectedPositions):
    """(2d)^-1/2 (p_i U^Q).(p_j U^K), reset at [CLS], plus the relative bias if there is one.

    theta=projected has the table of TUPE's Appendix B and code: row 0 makes theta_1, row 1 makes theta_2
    and is [CLS]'s own slot, row t + 1 is position t.
    """

    def __init__(
        self, dims: Dims, scale: float, buckets: LogBuckets | None, untied: bool, cls_reset: ClsReset, theta: Theta
    ):
        projected = untied and theta == "projected"
        super().__init__(dims, extra=1 if projected else 0)
        self.scale = scale
        self.untied = untied
        self.buckets = buckets
        self.bias_at_cls = untied and cls_reset == "code" and buckets is not None
        self.theta = nn.Parameter(torch.zeros(2, dims.num_heads)) if untied and not projected else None
        if buckets is not None:
            self.b = normal_table(buckets.count + self.bias_at_cls, dims.num_heads)

    def share(self, pos: Positions) -> Bias:
        q_BHTD, k_BHSD = self.of_tokens(pos)
        bias = Bias(bias=(self.scale * q_BHTD) @ k_BHSD.mT)
        if self.buckets is not None:
            bias.rows = self.buckets
            bias.bias_row = full_precision(self.b[: self.buckets.count]).mT
        if self.untied and pos.cls is not False:
            bias.reset = self.reset_2H()
            bias.cls_BS = pos.cls_BS()
        return bias

    def reset_2H(self) -> torch.Tensor:
        """theta_1 (from [CLS]) and theta_2 (to [CLS]), plus the rows of b that the authors' code keeps for
        them: row 16 of 32, which no bucket uses, and row 32."""
        if self.theta is not None:
            theta = full_precision(self.theta)
        else:
            q_HRD, k_HRD = self.project(0, 2)
            theta = self.scale * (q_HRD * k_HRD).sum(-1).mT
        if self.buckets is not None and self.bias_at_cls:
            count = self.buckets.count
            theta = theta + full_precision(torch.stack([self.b[count // 2], self.b[count]]))
        return theta

    @torch.no_grad()
    def lost_heads(self) -> list[int]:
        """Those whose theta_2 exceeds every other position score by more than ln T + 5, with T = max_len: before the
        words are looked at, [CLS] has more than 99 % of the attention."""
        if not self.untied:
            return []
        length = self.dims.max_len
        q_HTD, k_HSD = self.project(self.extra, self.extra + length)
        scores_HTS = self.scale * q_HTD @ k_HSD.mT
        if self.buckets is not None:
            place_T = torch.arange(length, device=scores_HTS.device)
            scores_HTS += full_precision(self.b).mT[:, self.buckets(place_T - place_T[:, None])]
        beyond_H = self.reset_2H()[1] - scores_HTS.amax((1, 2))
        return [head for head, beyond in enumerate(beyond_H.tolist(), 1) if beyond > math.log(length) + 5]


class Untied(PositionEncoding):
    """Base class of the TUPE variants. A tied variant, and any stack without [CLS], has no reset."""

    def __init__(self, dims, buckets=None, cls="auto", cls_reset="code", theta="projected", untied=True):
        super().__init__(dims)
        self.scale = (2 * dims.head_dim) ** -0.5
        has_cls = not dims.causal and (dims.has_cls or cls == "first")
        if untied and not has_cls:
            log_once(logger, f"{self.name}: no [CLS] in this stack, so it stays tied")
        self.reads_cls = untied and has_cls
        self.stack_options = (self.scale, buckets, self.reads_cls, cls_reset, theta)

    def make_stack(self) -> StackPart:
        return UntiedPositions(self.dims, *self.stack_options)


@register("tupe_a", "ke2021tupe")
class TupeA(Untied):
    """e_ij = q_i.k_j / sqrt(2d) + reset((p_i U^Q).(p_j U^K) / sqrt(2d))
    (TUPE Eq. 8, 10, 11), p_i after a LayerNorm.

    reset returns theta_1 if i is [CLS], else theta_2 if j is, else its argument. Each head
    has its theta_1 = (t_1 U^Q).(t_1 U^K) / sqrt(2d), and theta_2 from t_2, which all layers share;
    t_1 and t_2, after the LayerNorm, are learned rows (Appendix B). With theta=free, theta_1 and
    theta_2 are parameters themselves, (2, H), initially 0; no paper has this.

    cls=auto: the first token of a RoBERTa or ELECTRA is [CLS], that of a source or sentence of
    other models is not; cls=first: it is in every encoder. Without [CLS], as in decoders, nothing
    is reset.

    p: (n + 1, E), N(0, 0.02), with t_1 before the positions and t_2 as that of [CLS]; (n, E) with
    theta=free or without [CLS]. U^Q, U^K: (E, E) with bias, N(0, 0.02), biases 0. All in the
    stack: one [H, T, S] table for every layer and the whole batch. Nothing is added to the input
    embedding. A sequence longer than n is an error.

    Cost: 2 T E^2 + T S E and one bias [H, T, S] once a pass; H T S additions.
    """

    def __init__(self, dims, cls: Cls = "auto", theta: Theta = "projected"):
        super().__init__(dims, cls=cls, theta=theta)


@register("tupe_r", "ke2021tupe")
class TupeR(Untied):
    """e_ij = q_i.k_j / sqrt(2d) + reset((p_i U^Q).(p_j U^K) / sqrt(2d)) + b_{h, r}
    (TUPE Eq. 9-11 as in the authors' code), p_i after a LayerNorm.

    reset returns theta_1 if i is [CLS], else theta_2 if j is, else its argument: two
    numbers for each head, from two learned rows of p, or parameters with theta=free; tupe_a has
    their equation. cls=auto: the first token of a RoBERTa or ELECTRA is [CLS], that of a source or
    sentence of other models is not; cls=first: it is in every encoder. Without [CLS], as in
    decoders, nothing is reset.

    r is t5's bucket(j-i), of num_buckets and max_distance; [CLS] has its own rows: r =
    num_buckets / 2, which bucket never returns, if i is [CLS], else r = num_buckets if j is.
    b: (num_buckets + 1, H), N(0, 0.02), not scaled. p, U^Q, U^K: as in tupe_a.

    Paper and code: in the paper (cls_reset=paper) b_{h, bucket(j-i)} is within reset, so [CLS] has
    no b, and b is (num_buckets, H). The default, cls_reset=code, is the authors' code. The
    paper's footnote 3 clips at 128; its code, and this, use buckets.

    Cost: as tupe_a.
    """

    def __init__(
        self,
        dims,
        num_buckets: int = 32,
        max_distance: int = 128,
        cls: Cls = "auto",
        cls_reset: ClsReset = "code",
        theta: Theta = "projected",
    ):
        buckets = LogBuckets(num_buckets, max_distance, dims.causal)
        super().__init__(dims, buckets, cls, cls_reset, theta)


@register("tupe_a_tie_cls", "ke2021tupe")
class TupeATied(Untied):
    """e_ij = q_i.k_j / sqrt(2d) + (p_i U^Q).(p_j U^K) / sqrt(2d)   (TUPE Sec. 4.3).

    tupe_a without the reset: [CLS] is an ordinary token. p: (n, E).

    Cost: as tupe_a.
    """

    def __init__(self, dims):
        super().__init__(dims, untied=False)


@register("tupe_r_tie_cls", "ke2021tupe")
class TupeRTied(Untied):
    """e_ij = q_i.k_j / sqrt(2d) + (p_i U^Q).(p_j U^K) / sqrt(2d) + b_{h, bucket(j-i)}
    (TUPE Sec. 4.3).

    tupe_r without the reset; bucket is t5's, of num_buckets and max_distance. p: (n, E),
    b: (num_buckets, H).

    Cost: as tupe_a.
    """

    def __init__(self, dims, num_buckets: int = 32, max_distance: int = 128):
        buckets = LogBuckets(num_buckets, max_distance, dims.causal)
        super().__init__(dims, buckets, untied=False)


class ProjectedOperands(ProjectedPositions):
    """Projected positions that layers add to their q and k."""

    def share(self, pos: Positions) -> tuple[torch.Tensor, torch.Tensor]:
        return self.of_tokens(pos)


@register("bert_ad", "ke2021tupe", "devlin2019bert")
class BertAD(PositionEncoding):
    """e_ij = (q_i + p_i U^Q).(k_j + p_j U^K) / sqrt(4d)   (TUPE Sec. 4.3, "BERT-A^d").

    Words and positions have their own projections, and the cross terms remain. p: (n, E)
    after a LayerNorm, U^Q, U^K: (E, E) with bias; in the stack. Nothing is added to the input
    embedding. A sequence longer than n is an error.

    Cost: 2 T E^2 once a pass; (T + S) E additions.
    """

    def __init__(self, dims):
        super().__init__(dims)
        self.scale = (4 * dims.head_dim) ** -0.5

    def make_stack(self) -> StackPart:
        return ProjectedOperands(self.dims)

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        position_q_BHTD, position_k_BHSD = self.shared(pos)
        return Terms(q_BHTD + position_q_BHTD, k_BHSD + position_k_BHSD, self.scale)
