"""The readable reference: evaluate the logits, softmax, weighted sum."""

import torch.nn.functional as F

from ..terms import evaluate
from .base import Backend


class Eager(Backend):
    name = "eager"

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        logits = evaluate(terms)
        hidden = mask.additive(terms, logits.dtype)
        if hidden is not None:
            logits = logits + hidden
        weights = logits.softmax(-1)
        kept = F.dropout(weights, dropout_p).to(v_BHSD.dtype)
        return kept @ v_BHSD, weights if need_weights else None
