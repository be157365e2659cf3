"""SHAPE: sinusoids at positions shifted at random."""

import torch

from .absolute import SinusoidalPositions, position_rows, sinusoids
from .base import PositionEncoding, register


class ShiftedSinusoids(SinusoidalPositions):
    def __init__(self, dims, max_shift):
        super().__init__(dims)
        self.max_shift = max_shift

    def embed(self, tokens_BT):
        if not self.training:
            return super().embed(tokens_BT)
        pad = self.dims.padding_idx
        rows_BT = position_rows(tokens_BT, pad)
        shift_B1 = torch.randint(self.max_shift + 1, (len(tokens_BT), 1), device=tokens_BT.device)
        rows_BT = rows_BT + shift_B1 * tokens_BT.ne(pad)
        table = sinusoids(pad + 1 + tokens_BT.size(1) + self.max_shift, self.dims.embed_dim, pad)
        return torch.nn.functional.embedding(rows_BT, table.to(tokens_BT.device))


@register("shape")
class SHAPE(PositionEncoding):
    """x_i = w_i + sinusoid(i + k), k ~ U{0..K} for each sequence in training, 0 otherwise
    (Kiyono et al. 2021, Eq. 4); e_ij = q_i.k_j / sqrt(d).

    K: max_shift in tokens, 500 in the paper. Encoder and decoder draw their own k.
    `sinusoidal` otherwise: no parameters, any length, attention untouched.
    """

    def __init__(self, dims, max_shift: int = 500):
        super().__init__(dims)
        if max_shift < 0:
            raise ValueError(f"max_shift={max_shift} must not be negative")
        self.max_shift = max_shift

    def make_stack(self):
        return ShiftedSinusoids(self.dims, self.max_shift)
