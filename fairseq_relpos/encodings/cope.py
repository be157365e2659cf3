"""CoPE: contextual positions, which count the tokens that a query selects."""

import torch
from torch import nn

from ..positions import Positions
from ..terms import Terms, by_table, full_precision
from .base import PositionEncoding, register
from .tables import Heads


@register("cope", "golovneva2024cope")
class CoPE(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) + q_i.e[p_ij], p_ij = min(sum_{t=j..i} sigmoid(q_i.k_t / sqrt(d)), npos_max - 1)
    (Golovneva et al. 2024, CoPE).

    A position p is a sum of gates over tokens, so it is not an integer:
    e[p] = (p - floor(p)) e[ceil(p)] + (1 - p + floor(p)) e[floor(p)]. e: (npos_max, d) in each
    layer, initially 0 as in the authors' code, one for all heads; heads=each: (npos_max, H d).
    npos_max: positions 0 .. npos_max - 1; larger positions count as npos_max - 1. Any length.

    For causal stacks only: in transformer_cope the decoder has it, and the encoder is stock
    fairseq's, with its own absolute positions.

    Paper and code: the equations omit sqrt(d); this is the code that the paper prints.
    scale_gates=False takes the sigmoid of q_i.k_t; scale_positions=True also divides q_i.e[p] by sqrt(d),
    the default of the authors' training code.

    Cost: T S E for q.k once more, T npos_max E, and several [B, H, T, S] tensors in each layer.
    """

    causal_only = "it counts the tokens from a key up to its query"
    reads_positions = False

    def __init__(
        self, dims, npos_max: int = 64, heads: Heads = "shared", scale_gates: bool = True, scale_positions: bool = False
    ):
        super().__init__(dims)
        if npos_max < 1:
            raise ValueError(f"npos_max={npos_max} must be 1 or more")
        self.gate_scale = self.scale if scale_gates else 1.0
        self.position_scale = self.scale if scale_positions else 1.0
        tables = 1 if heads == "shared" else dims.num_heads
        self.e = nn.Parameter(torch.zeros(npos_max, tables * dims.head_dim))

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        bias = self.bias(*full_precision(q_BHTD, k_BHSD, self.e))
        return Terms(q_BHTD, k_BHSD, self.scale, bias=bias)

    def bias(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        """The bias q_i.e[p_ij]. It counts all keys up to the query; a decoding step has them in its cache."""
        gates = torch.sigmoid(self.gate_scale * q_BHTD @ k_BHSD.mT).tril(k_BHSD.size(2) - q_BHTD.size(2))
        p = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(e) - 1)
        e_HRD = e.unflatten(1, (-1, self.dims.head_dim)).transpose(0, 1)
        at_integers = by_table(self.position_scale * q_BHTD, e_HRD.mT)
        row = p.nan_to_num()  # NaN is the number of no row; it stays NaN in the result
        above = at_integers.gather(-1, row.ceil().long())
        below = at_integers.gather(-1, row.floor().long())
        return torch.lerp(below, above, p - p.floor())
