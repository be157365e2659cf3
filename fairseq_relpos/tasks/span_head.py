"""Models that say where an answer begins and ends."""

import logging
from typing import Any

from torch import nn

logger = logging.getLogger(__name__)


class SpanHead(nn.Linear):
    """Output vectors [B, T, E] -> logits [B, T, 2]: each token as the first and as the last one of the answer
    (Devlin et al. 2019, Sec. 4.2)."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, 2)
        nn.init.normal_(self.weight, std=0.02)  # as BERT's other weights
        nn.init.zeros_(self.bias)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """A checkpoint of the pretraining has no head: this one then stays new."""
        if prefix + "weight" not in state_dict:
            logger.info("the checkpoint has no head for answers: it begins with random weights")
            state_dict.update({prefix + name: value for name, value in self.state_dict().items()})
        super()._load_from_state_dict(state_dict, prefix, *rest)


#: where the head is in a model
NAME = "span_head"


def add_span_head(model: Any, embed_dim: int) -> None:
    """Makes a RoBERTa, also fairseq's own, return the logits of the head in the place of those of the words. The masked
    LM's head stays in the model and in its checkpoints, but is not trained."""
    setattr(model, NAME, SpanHead(embed_dim))
    words = model.encoder.sentence_encoder.embed_tokens.weight
    for parameter in model.encoder.lm_head.parameters():
        parameter.requires_grad_(parameter is words and words.requires_grad)
    # hooks run inside a model that DistributedDataParallel has wrapped, so that it sees all parameters in one pass
    model.register_forward_pre_hook(_with_features, with_kwargs=True)
    model.register_forward_hook(_spans)


def _with_features(model, args, kwargs):
    return args, {**kwargs, "features_only": True}


def _spans(model, args, output):
    return getattr(model, NAME)(output[0])


def read_every_token(model: Any) -> None:
    """Makes a sequence_encoder_NAME give an answer for each token [B, T, labels], instead of one for a sequence."""
    model.pool = _every_token


def _every_token(out_TBE, lengths_B):
    return out_TBE.transpose(0, 1)
