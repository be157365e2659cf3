"""PaTH: positions as products of reflections that depend on the tokens."""

import torch
from torch import nn
from torch.nn.functional import normalize, pad

from ..positions import Positions
from ..terms import Terms, full_precision
from .base import PositionEncoding, normal_table, register


@register("path", "yang2025path")
class PaTH(PositionEncoding):
    """e_ij = q_i^T P_i P_(i-1) ... P_(j+1) k_j / sqrt(d), P_t = 1 - beta_t w_t w_t^T,
    w_t = W_h x_t / |W_h x_t|, beta_t = 2 sigmoid(u_h.x_t + b_h)   (Yang et al. 2025).

    x: the input of the layer. W: (E, E) and u: (H, E), N(0, 0.02); b: (H), initially 0. In each layer. Any length.

    For causal stacks only: in transformer_path the decoder has it, and the encoder is stock
    fairseq's, with its own absolute positions.

    Paper and code: W has full rank, and w_t depends only on x_t; the authors' layer has a W of low rank and a short
    convolution over the tokens before the norm.

    Cost: S^2 E for w.w and w.k, T S E for q.w, T S^2 H for a triangular solve and a product, and several
    [B, H, T, S] tensors in each layer. A decoding step changes every key: S E. The authors have a kernel that needs
    no such tensor.
    """

    causal_only = "it multiplies what lies from a key up to its query"
    reads_positions = False

    def __init__(self, dims):
        super().__init__(dims)
        self.W = normal_table(dims.embed_dim, dims.embed_dim)
        self.u = normal_table(dims.num_heads, dims.embed_dim)
        self.b = nn.Parameter(torch.zeros(dims.num_heads))

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        if pos.decoding:
            new_BHTD = k_BHSD[:, :, -pos.tgt_len :]
            e = self.steps(pos, *full_precision(q_BHTD, new_BHTD, *self.reflections(pos.x)))
        else:
            found = pos.of_keys("reflections", lambda x_BSE: torch.cat(self.reflections(x_BSE), -1).transpose(1, 2))
            w_BHSD, beta_BHS1 = found.transpose(1, 2).split([self.dims.head_dim, 1], -1)
            e = self.products(*full_precision(q_BHTD, k_BHSD, w_BHSD, beta_BHS1))
        return Terms(q_BHTD, k_BHSD, 0.0, bias=self.scale * e)

    def products(
        self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, w_BHSD: torch.Tensor, beta_BHS1: torch.Tensor
    ) -> torch.Tensor:
        """The logits of a full pass, unscaled. The product of reflections is 1 - W^T A^-1 diag(beta) W, where W has
        the rows w_t of the tokens j+1 .. i, and A = 1 + the part of beta_t w_t.w_s below the diagonal (the UT
        transform)."""
        length = k_BHSD.size(2)
        past = length - q_BHTD.size(2)
        A_BHSS = (beta_BHS1 * (w_BHSD @ w_BHSD.mT)).tril(-1) + torch.eye(
            length, dtype=w_BHSD.dtype, device=w_BHSD.device
        )
        at_keys_BHSS = beta_BHS1 * (w_BHSD @ k_BHSD.mT).tril(-1)
        at_queries_BHTS = (q_BHTD @ w_BHSD.mT).tril(past)
        solved_BHTS = torch.linalg.solve_triangular(A_BHSS, at_queries_BHTS, upper=False, left=False)
        return q_BHTD @ k_BHSD.mT - solved_BHTS @ at_keys_BHSS

    def steps(
        self, pos: Positions, q_BHTD: torch.Tensor, k_BHTD: torch.Tensor, w_BHTD: torch.Tensor, beta_BHT1: torch.Tensor
    ) -> torch.Tensor:
        """The logits of a decoding step. It keeps P_i ... P_(j+1) k_j of every key, and each new token reflects
        them."""
        rows = []

        def moved(before_BSHD):
            keys_BHSD = k_BHTD[:, :, :0] if before_BSHD is None else before_BSHD.transpose(1, 2)
            for q, k, w, beta in zip(*(x.split(1, 2) for x in (q_BHTD, k_BHTD, w_BHTD, beta_BHT1))):
                keys_BHSD = torch.cat([keys_BHSD - beta * (keys_BHSD @ w.mT) * w, k], 2)
                row = q @ keys_BHSD.mT
                rows.append(pad(row, (0, pos.src_len - row.size(-1))))
            return keys_BHSD.transpose(1, 2)

        pos.carried("moved", moved)
        return torch.cat(rows, 2)

    def reflections(self, x_BSE: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """w_t and beta_t of each token and head, [B, H, S, D] and [B, H, S, 1]; beta_t is from 0 to 2."""
        x_BSE, W_EE, u_HE, b_H = full_precision(x_BSE, self.W, self.u, self.b)
        w_BSHD = normalize((x_BSE @ W_EE.mT).unflatten(2, (self.dims.num_heads, -1)), dim=-1)
        beta_BSH = 2 * torch.sigmoid(x_BSE @ u_HE.mT + b_H)
        return w_BSHD.transpose(1, 2), beta_BSH.mT[..., None]
