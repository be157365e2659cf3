"""Cross-entropy of the first and the last token of an answer."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass

from .counted import CountingCriterion


@dataclass
class SpanPredictionCriterionConfig(FairseqDataclass):
    pass


@register_criterion("span_prediction", dataclass=SpanPredictionCriterionConfig)
class SpanPredictionCriterion(CountingCriterion):
    """The loss is the mean over the windows of the mean of both tokens' losses; as other criterions of fairseq, it is
    logged in bits. Only tokens of the text and <s> are possible. ``exact`` is the share of windows in which both tokens
    are right.

    EM and F1 of questions, which may have several windows, come from ``fairseq_relpos.finetuning.squad predict``.
    """

    share = "exact"
    unit = math.log(2)

    def loss_and_right(self, model: Any, sample: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return loss_of(logits_of(model, sample), sample["target"])


def logits_of(model: Any, sample: dict[str, Any]) -> torch.Tensor:
    """Returns the logits [B, T, 2] in float32, lowest where no answer may begin or end."""
    logits_BT2 = model(**sample["net_input"]).float()
    return logits_BT2.masked_fill(~sample["allowed"][..., None], torch.finfo(torch.float32).min)


def loss_of(logits_BT2: torch.Tensor, target_B2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sum of the windows' losses in nats, and in how many windows both tokens are right."""
    loss = F.cross_entropy(logits_BT2, target_B2, reduction="sum") / 2
    return loss, (logits_BT2.argmax(1) == target_B2).all(1).sum()
