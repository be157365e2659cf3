"""No positions, and the absolute encodings that are added to the input embedding."""

import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

from ..positions import Positions
from ..tensors import kept
from .base import INIT_STD, Dims, HasModelType, PositionEncoding, StackPart, register


@register("none", "wu2021at5")
class NoPositions(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d)   (AT5's "Non-PE").

    A control. An encoder does not see the order of the tokens; a causal stack sees it through the mask.
    No parameters.

    Cost: none.
    """

    reads_positions = False

    def shared(self, pos: Positions) -> None:
        """None, also in a layer that --position-layers excludes from another encoding."""
        return None


def position_rows(tokens_BT: torch.Tensor, padding_idx: int, pos: Positions | None = None) -> torch.Tensor:
    """The table row of each token, in fairseq's numbering: a pad reads row padding_idx, the n-th real token row
    padding_idx + n, with padding on either side. With ``pos``, only the rows of its queries, at the given
    positions if there are any."""
    real_BT = tokens_BT.ne(padding_idx).long()
    numbers_BT = pos.key_BS() + 1 if pos is not None and pos.given else real_BT.cumsum(1)
    rows_BT = numbers_BT * real_BT + padding_idx
    return rows_BT if pos is None else rows_BT[:, pos.src_len - pos.tgt_len :]


class LearnedPositions(StackPart):
    """p, (n + padding_idx + 1, E), under the state-dict key of fairseq's own table."""

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.hard_limit = dims.max_len
        rows = dims.max_len + dims.padding_idx + 1
        self.weight = nn.Parameter(torch.empty(rows, dims.embed_dim).normal_(0, INIT_STD))
        with torch.no_grad():
            self.weight[dims.padding_idx].zero_()

    def embed(self, tokens_BT: torch.Tensor, pos: Positions | None = None) -> torch.Tensor:
        pad = self.dims.padding_idx
        return F.embedding(position_rows(tokens_BT, pad, pos), self.weight, padding_idx=pad)


@register("learned", "devlin2019bert", "ke2021tupe")
class Learned(PositionEncoding):
    """x_i = w_i + p_i; e_ij = q_i.k_j / sqrt(d)   (BERT; TUPE Eq. 4, "BERT-A").

    p: one row a position, (n, E) plus fairseq's rows up to the pad; the pad's row is 0, the others as
    in stock fairseq: N(0, 0.02) in a RoBERTa and a BART, N(0, 1/sqrt(E)) in a Transformer and a language
    model. Stack part. A sequence longer than n is an error. Outputs, losses and state-dict keys are
    those of fairseq's stock architecture (but with --quant-noise-pq, whose noise does not reach stock's
    self-attention), so there is no signature in the state dict: a file without one holds this encoding.

    Cost: an addition to the input once a pass.
    """

    stock_positions = "learned"

    def make_stack(self) -> StackPart:
        return LearnedPositions(self.dims)


class SinusoidalPositions(HasModelType, StackPart):
    """fairseq's sinusoids, computed for the length at hand."""

    def __init__(self, dims: Dims):
        super().__init__(dims)
        if dims.embed_dim < 4:
            raise ValueError(f"embed_dim={dims.embed_dim}: sinusoids of several frequencies need 4 or more")

    def embed(self, tokens_BT: torch.Tensor, pos: Positions | None = None) -> torch.Tensor:
        rows_BT = position_rows(tokens_BT, self.dims.padding_idx, pos)
        length = tokens_BT.size(1)
        make = functools.partial(self.table, device=tokens_BT.device)
        return F.embedding(rows_BT, make(length) if pos is None else pos.remember(self, make))

    def table(self, length: int, device: torch.device) -> torch.Tensor:
        """A table with at least the rows that ``length`` tokens read. A row does not depend on the number of
        rows."""
        pad = self.dims.padding_idx
        rows = max(64, 1 << (pad + length).bit_length())
        return _kept_sinusoids(rows, self.dims.embed_dim, pad, self.model_dtype, device)


@kept(maxsize=8)
def _kept_sinusoids(rows, dim, padding_idx, dtype, device):
    return sinusoids(rows, dim, padding_idx).to(device, dtype)


def sinusoids(rows: int, dim: int, padding_idx: int) -> torch.Tensor:
    """The table of fairseq's sinusoids, in float32 as there, so that results agree to the last bit: sin of all
    frequencies, then cos, and a zero row for the pad."""
    half = dim // 2
    frequency = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angle = torch.arange(rows).float()[:, None] * frequency
    table = F.pad(torch.cat([angle.sin(), angle.cos()], 1), (0, dim % 2))
    table[padding_idx] = 0
    return table


@register("sinusoidal", "vaswani2017attention")
class Sinusoidal(PositionEncoding):
    """x_i = w_i + [sin(i f_c) | cos(i f_c)], f_c = 10000^(-c / (E/2 - 1))
    (Vaswani et al. 2017, Sec. 3.5, in tensor2tensor's and fairseq's layout).

    No parameters, any length. Equals fairseq's SinusoidalPositionalEmbedding. A sinusoid has a root mean square of
    0.71. A Transformer multiplies its token embeddings by sqrt(E) before; a RoBERTa does not, so that its tokens,
    N(0, 0.02), are initially small compared with the positions: `--scale-embedding` multiplies them there, too. Without
    it, a small RoBERTa learned no positions with one rate, and late with another (examples/roberta_small/README.md).

    Paper and code: the paper has 10000^(-2c/E), with sines and cosines side by side.

    Cost: an addition to the input once a pass.
    """

    stock_positions = "sinusoidal"

    def make_stack(self) -> StackPart:
        return SinusoidalPositions(self.dims)
