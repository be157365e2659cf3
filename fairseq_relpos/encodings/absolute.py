"""No positions, and the absolute encodings that join the input embedding."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from .base import INIT_STD, Dims, PositionEncoding, StackPart, register


@register("none")
class NoPositions(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d)   (AT5's "Non-PE"): the order of the tokens is invisible.

    A control. No parameters.
    """


def position_rows(tokens_BT, padding_idx):
    """fairseq's numbering: pads read row padding_idx, the n-th real token row
    padding_idx + n, whichever side the padding is on."""
    real_BT = tokens_BT.ne(padding_idx).long()
    return real_BT.cumsum(1) * real_BT + padding_idx


class LearnedPositions(StackPart):
    """p, (n + padding_idx + 1, E), under the state-dict key of fairseq's own table."""

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.hard_limit = dims.max_len
        rows = dims.max_len + dims.padding_idx + 1
        self.weight = nn.Parameter(torch.empty(rows, dims.embed_dim).normal_(0, INIT_STD))
        with torch.no_grad():
            self.weight[dims.padding_idx].zero_()

    def embed(self, tokens_BT):
        pad = self.dims.padding_idx
        return F.embedding(position_rows(tokens_BT, pad), self.weight, padding_idx=pad)


@register("learned")
class Learned(PositionEncoding):
    """x_i = w_i + p_i; e_ij = q_i.k_j / sqrt(d)   (BERT; TUPE Eq. 4, "BERT-A").

    p: one row a position, (n, E) plus fairseq's rows up to the pad; N(0, 0.02), the pad's
    row 0. Stack part. A sequence longer than n is an error. Outputs, losses and state-dict
    keys are those of fairseq's stock architecture, so there is no signature in the state
    dict: a file without one holds this encoding.
    """

    writes_stock_files = True

    def make_stack(self):
        return LearnedPositions(self.dims)


class SinusoidalPositions(StackPart):
    def embed(self, tokens_BT):
        pad, dim = self.dims.padding_idx, self.dims.embed_dim
        table = sinusoids(pad + 1 + tokens_BT.size(1), dim, pad).to(tokens_BT.device)
        return F.embedding(position_rows(tokens_BT, pad), table)


def sinusoids(rows, dim, padding_idx):
    """fairseq's table, in float32 as there, so that results agree to the last bit:
    sin of all frequencies, then cos, a zero row for the pad."""
    half = dim // 2
    frequency = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angle = torch.arange(rows).float()[:, None] * frequency
    table = F.pad(torch.cat([angle.sin(), angle.cos()], 1), (0, dim % 2))
    table[padding_idx] = 0
    return table


@register("sinusoidal")
class Sinusoidal(PositionEncoding):
    """x_i = w_i + [sin(i f_c) | cos(i f_c)], f_c = 10000^(-c / (E/2 - 1))
    (Vaswani et al. 2017, Sec. 3.5, in tensor2tensor's and fairseq's layout).

    No parameters, any length. Equals fairseq's SinusoidalPositionalEmbedding.
    """

    def make_stack(self):
        return SinusoidalPositions(self.dims)
