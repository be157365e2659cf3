"""The readable reference: evaluate the logits, softmax, weighted sum."""

import torch.nn.functional as F

from ..terms import Half, dot, evaluate, weighted_values
from .base import Backend, normal


class Eager(Backend):
    name = "eager"

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        logits = evaluate(terms)
        hidden = mask.additive(terms, logits.dtype)
        if hidden is not None:
            logits = logits + hidden
        weights = normal(normal(logits).softmax(-1))
        kept = F.dropout(weights, dropout_p)
        half = Half.of(v_BHSD)
        if half is None:
            out_BHTD = kept.to(v_BHSD.dtype) @ v_BHSD
        else:
            out_BHTD = dot(kept, v_BHSD.mT, half).to(v_BHSD.dtype)
        if terms.values is not None:
            out_BHTD = out_BHTD + weighted_values(terms, kept).to(v_BHSD.dtype)
        return out_BHTD, weights if need_weights else None
