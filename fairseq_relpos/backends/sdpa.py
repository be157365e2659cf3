"""torch's scaled_dot_product_attention, with positions as its additive mask."""

import torch
import torch.nn.functional as F

from ..terms import Terms
from .base import NO_VALUES, Backend


class SDPA(Backend):
    name = "sdpa"

    def refuses(self, terms: Terms, need_weights: bool, device: torch.device | None = None) -> str | None:
        if terms.values is not None:
            return NO_VALUES
        if not terms.is_additive_bias:
            return "positions depend on the content, which scaled_dot_product_attention cannot add"
        if need_weights:
            return "scaled_dot_product_attention returns no attention weights"
        return None

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        dtype = v_BHSD.dtype
        bias = terms.dense_bias()
        # the kernels know this mask themselves
        causal = bias is None and mask.only_causal(terms)
        added = None if causal else mask.additive(terms, dtype)
        if bias is not None:
            added = bias.to(dtype) if added is None else bias.to(dtype) + added
        if added is not None:
            # [1|B, 1|H, T, S]: fused kernels refuse three dimensions and broadcast four
            added = added[(None,) * (4 - added.dim())]
        out_BHTD = F.scaled_dot_product_attention(
            terms.q_BHTD.to(dtype),
            terms.k_BHSD.to(dtype),
            v_BHSD,
            attn_mask=added,
            dropout_p=dropout_p,
            is_causal=causal,
            scale=terms.scale,
        )
        return out_BHTD, None
