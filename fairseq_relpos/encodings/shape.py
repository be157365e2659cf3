"""SHAPE: sinusoids at randomly shifted positions."""

import torch

from ..positions import Positions
from .absolute import SinusoidalPositions, position_rows
from .base import PositionEncoding, StackPart, register


class ShiftedSinusoids(SinusoidalPositions):
    """Sinusoids whose positions are shifted at random in training."""

    def __init__(self, dims, max_shift):
        super().__init__(dims)
        self.max_shift = max_shift

    def embed(self, tokens_BT: torch.Tensor, pos: Positions | None = None) -> torch.Tensor:
        if not self.training:
            return super().embed(tokens_BT, pos)
        pad = self.dims.padding_idx
        rows_BT = position_rows(tokens_BT, pad, pos)
        shift_B1 = torch.randint(self.max_shift + 1, (len(tokens_BT), 1), device=tokens_BT.device)
        rows_BT = rows_BT + shift_B1 * rows_BT.ne(pad)
        span = tokens_BT.size(1) if pos is None else pos.span
        table = self.table(span + self.max_shift, tokens_BT.device)
        return torch.nn.functional.embedding(rows_BT, table)


@register("shape", "kiyono2021shape")
class SHAPE(PositionEncoding):
    """x_i = w_i + sinusoid(i + k), k ~ U{0..K} for each sequence in training, 0 otherwise;
    e_ij = q_i.k_j / sqrt(d)   (Kiyono et al. 2021, Eq. 4).

    K: max_shift in tokens, 500 in the paper. Encoder and decoder draw their own k.
    Otherwise as `sinusoidal`: no parameters, any length, attention unchanged. In a RoBERTa, use
    `--scale-embedding`, too.

    Cost: an addition to the input once a pass.
    """

    def __init__(self, dims, max_shift: int = 500):
        super().__init__(dims)
        if max_shift < 0:
            raise ValueError(f"max_shift={max_shift} must not be negative")
        self.max_shift = max_shift

    def make_stack(self) -> StackPart:
        return ShiftedSinusoids(self.dims, self.max_shift)
