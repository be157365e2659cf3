"""The real tokens of a padded batch, and the way between them and the batch.

Projections, feed-forward, norms and dropout treat each token by itself, so a layer may have the
N real tokens of a padded batch [T, B] as [N, 1, E]; the attention, which needs the sentences,
gets them back in their places between its projections (Zeng et al. 2022, "Boosting
Distributed Training Performance of the Unpadded BERT Model"). Real tokens come out the same; a pad
comes out of a layer as 0.
"""

import torch


class RealTokens:
    """The places of the N real tokens in a padded batch."""

    def __init__(self, padding_BT):
        self.length, self.batch = padding_BT.size(1), padding_BT.size(0)
        # waits for the device, as fairseq's own look for pads does: once a pass
        self.rows_N = (~padding_BT.bool()).t().flatten().nonzero()[:, 0]

    def pack(self, x_TBE: torch.Tensor) -> torch.Tensor:
        """The real tokens of the batch, [N, 1, E]."""
        return _Pack.apply(x_TBE.flatten(0, 1), self.rows_N)[:, None]

    def spread(self, x_N1E: torch.Tensor) -> torch.Tensor:
        """The padded batch, [T, B, E], with 0 at pads."""
        rows = _Spread.apply(x_N1E[:, 0], self.rows_N, self.length * self.batch)
        return rows.view(self.length, self.batch, -1)


class _Pack(torch.autograd.Function):
    """index_select with a faster gradient: torch's own adds it row by row, although no row occurs twice."""

    @staticmethod
    def forward(ctx, x, rows):
        ctx.save_for_backward(rows)
        ctx.count = x.size(0)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx, grad):
        return _Spread.apply(grad, ctx.saved_tensors[0], ctx.count), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rows, count):
        ctx.save_for_backward(rows)
        return x.new_zeros(count, x.size(1)).index_copy_(0, rows, x)

    @staticmethod
    def backward(ctx, grad):
        return _Pack.apply(grad, ctx.saved_tensors[0]), None, None
