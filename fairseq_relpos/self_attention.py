"""The forward pass of self-attention with a position encoding: project, cache, positions, backend, out-project.

One definition serves ``attention`` (fairseq's module) and ``nn`` (torch alone).
"""

from typing import Any

import torch
from torch import Tensor, nn

from .backends import Backend, Mask
from .encodings import PositionEncoding
from .positions import Positions
from .real_tokens import RealTokens


class PositionedAttention(nn.Module):
    """Self-attention whose logits come from a position encoding.

    The class that inherits from it makes the projections.
    """

    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    out_proj: nn.Linear
    num_heads: int
    head_dim: int

    #: how many tokens away a key may be; None: any number
    window: int | None = None

    def set_encoding(self, encoding: PositionEncoding, backend: Backend, window: int | None = None) -> None:
        """Gives the module its encoding: the layer part, or a joined encoding whose layers share nothing."""
        self.position_encoding = encoding
        self.backend = backend
        self.window = window
        encoding.use_content_projections(self.q_proj, self.k_proj)

    def attend(
        self,
        x_TBE: Tensor,
        pos: Positions | None,
        padding_BS: Tensor | None = None,
        attn_mask: Tensor | None = None,
        causal: bool = False,
        dropout_p: float = 0.0,
        need_weights: bool = False,
        cache: dict[str, Any] | None = None,
        real_tokens: RealTokens | None = None,
        past_MBE: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output [T, B, E], and the weights [B, H, T, S] where they are asked for.

        pos: the positions of this pass. padding_BS: True at pads, of this step's tokens. attn_mask: ``Mask.extra``.
        cache: the layer's own dict, which keeps keys and values from step to step. real_tokens: where x is
        packed, [N, 1, E], the places of its tokens. past_MBE: what the layer remembers of earlier segments; pos and
        padding_BS then count it, too.
        """

        def spread(x):
            return x if real_tokens is None else real_tokens.spread(x)

        x_SBE = x_TBE if past_MBE is None else torch.cat([past_MBE, x_TBE])
        q_BHTD = split_heads(spread(self.q_proj(x_TBE)), self.num_heads)
        k_BHSD = split_heads(spread(self.k_proj(x_SBE)), self.num_heads)
        v_BHSD = split_heads(spread(self.v_proj(x_SBE)), self.num_heads)
        if cache is not None:
            k_BHSD, v_BHSD, padding_BS = extend(cache, k_BHSD, v_BHSD, padding_BS)
        pos = checked(pos, q_BHTD.size(2), k_BHSD.size(2))
        self.position_encoding.use_content_projections(self.q_proj, self.k_proj)  # an adapter may have replaced them
        with pos.in_layer(lambda: spread(x_SBE).transpose(0, 1), cache):
            terms = self.position_encoding.terms(q_BHTD, k_BHSD, pos)
        if padding_BS is not None:
            padding_BS = padding_BS.bool()
        mask = Mask(padding_BS, causal, attn_mask, pos.documents_BS, self.window_of(pos), pos.made)
        out_BHTD, weights_BHTS = self.backend(terms, v_BHSD, mask, dropout_p, need_weights)
        out_TBE = out_BHTD.permute(2, 0, 1, 3).flatten(2)
        return self.out_proj(out_TBE if real_tokens is None else real_tokens.pack(out_TBE)), weights_BHTS

    def window_of(self, pos: Positions) -> int | None:
        """The window of this pass, or None where it hides no key."""
        narrowest = pos.src_len
        for window in (self.window, None if pos.segment is None else pos.segment.window):
            if window is not None:
                narrowest = min(narrowest, window)
        return narrowest if narrowest < pos.src_len - 1 else None


def split_heads(x_TBE: Tensor, num_heads: int) -> Tensor:
    """[B, H, T, D]"""
    length, batch, embed_dim = x_TBE.shape
    head_dim = embed_dim // num_heads
    # heads side by side in memory, as torch's own attention has them
    x = x_TBE.contiguous().view(length, batch * num_heads, head_dim).transpose(0, 1)
    return x.view(batch, num_heads, length, head_dim)


def checked(pos: Positions | None, tgt_len: int, src_len: int) -> Positions:
    """The positions; RuntimeError where they are those of other tokens."""
    if pos is None or (pos.tgt_len, pos.src_len) != (tgt_len, src_len):
        raise RuntimeError(
            f"attention over (T, S) = {(tgt_len, src_len)}, but the positions of this pass are "
            f"{None if pos is None else (pos.tgt_len, pos.src_len)}: the stack that owns this "
            "layer must run its embed_positions on the same tokens first"
        )
    return pos


def extend(
    saved: dict[str, Any], k_BHSD: Tensor, v_BHSD: Tensor, padding_BS: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Appends this step's keys, values and pads to a layer's cache. Its keys are those of fairseq's own, and each of
    its values has one row for each sentence."""
    seen, new = 0, k_BHSD.size(2)
    if "prev_key" in saved:
        seen = saved["prev_key"].size(2)
        k_BHSD = torch.cat([saved["prev_key"], k_BHSD], dim=2)
        v_BHSD = torch.cat([saved["prev_value"], v_BHSD], dim=2)
    padding_BS = joined_padding(saved.get("prev_key_padding_mask"), padding_BS, seen, new, k_BHSD)
    saved.update(prev_key=k_BHSD, prev_value=v_BHSD, prev_key_padding_mask=padding_BS)
    return k_BHSD, v_BHSD, padding_BS


def joined_padding(before_BS: Tensor | None, now_BT: Tensor | None, seen: int, new: int, like: Tensor) -> Tensor | None:
    """The pads among ``seen`` earlier tokens and ``new`` ones; None stands for tokens without pads. like [B, ..]: any
    tensor of these sentences."""
    if before_BS is None and now_BT is None:
        return None
    parts = [
        torch.zeros(like.size(0), length, dtype=torch.bool, device=like.device) if pads is None else pads.bool()
        for pads, length in ((before_BS, seen), (now_BT, new))
    ]
    return torch.cat(parts, 1)
