"""FoX: gates that forget the past."""

import torch
from torch import nn
from torch.nn.functional import logsigmoid

from ..positions import Positions
from ..terms import Terms, full_precision
from .base import PositionEncoding, normal_table, register


@register("fox", "lin2025forgetting")
class FoX(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) + sum_{t=j+1..i} log sigmoid(w_h.x_t + b_h)
    (Lin et al. 2025).

    x: the input of the layer. w: (H, E), N(0, 0.02); b: (H), initially 0. In each layer. Any length.

    For causal stacks only: in transformer_fox the decoder has it, and the encoder is stock
    fairseq's, with its own absolute positions.

    Paper and code: only the attention. The authors' "Pro" layer also has output gates and norms of queries and keys,
    and mixes each key and value with the previous one.

    Cost: T E H for the gates and one bias [B, H, T, S] in each layer.
    """

    causal_only = "it forgets from a key up to its query"
    reads_positions = False

    def __init__(self, dims):
        super().__init__(dims)
        self.w = normal_table(dims.num_heads, dims.embed_dim)
        self.b = nn.Parameter(torch.zeros(dims.num_heads))

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        log_f_BSH = pos.of_keys("log_f", self.log_forget)
        # in float64: the difference of two long sums has few digits left in float32
        c_BHS = log_f_BSH.cumsum(1, dtype=torch.float64).mT
        bias = (c_BHS[..., -pos.tgt_len :, None] - c_BHS[:, :, None]).to(log_f_BSH.dtype)
        return Terms(q_BHTD, k_BHSD, self.scale, bias=bias)

    def log_forget(self, x_BSE: torch.Tensor) -> torch.Tensor:
        """The log of the forget gate of each token and head, [B, S, H]."""
        x_BSE, w_HE, b_H = full_precision(x_BSE, self.w, self.b)
        return logsigmoid(x_BSE @ w_HE.mT + b_H)
