"""torch's scaled_dot_product_attention, positions as its additive mask."""

import torch.nn.functional as F

from .base import Backend


class SDPA(Backend):
    name = "sdpa"

    def refuses(self, terms, need_weights):
        if not terms.content_free:
            return "positions depend on the content, which scaled_dot_product_attention cannot add"
        if need_weights:
            return "scaled_dot_product_attention returns no attention weights"
        return None

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        dtype = v_BHSD.dtype
        bias = terms.dense_bias()
        hidden = mask.additive(terms, dtype)
        if bias is None:
            added = hidden
        else:
            added = bias.to(dtype) if hidden is None else bias.to(dtype) + hidden
        out_BHTD = F.scaled_dot_product_attention(
            terms.q_BHTD.to(dtype),
            terms.k_BHSD.to(dtype),
            v_BHSD,
            attn_mask=added,
            dropout_p=dropout_p,
            scale=terms.scale,
        )
        return out_BHTD, None
