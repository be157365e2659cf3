"""Cross-entropy of the first and the last token of an answer."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics


@dataclass
class SpanPredictionCriterionConfig(FairseqDataclass):
    pass


@register_criterion("span_prediction", dataclass=SpanPredictionCriterionConfig)
class SpanPredictionCriterion(FairseqCriterion):
    """The loss is the mean over the windows of the mean of both tokens' losses; as other criterions of fairseq, it is
    logged in bits. Only tokens of the text and <s> are possible. ``exact`` is the share of windows in which both tokens
    are right.

    EM and F1 of questions, which may have several windows, come from ``fairseq_relpos.finetuning.squad predict``.
    """

    def __init__(self, task):
        super().__init__(task)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        loss, right = loss_of(logits_of(model, sample), sample["target"])
        count = len(sample["target"])
        return (
            loss,
            count,
            {
                "loss": loss.detach(),
                "right": right,
                "ntokens": sample["ntokens"],
                "nsentences": count,
                "sample_size": count,
            },
        )

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        def total(key):
            return utils.item(sum(log.get(key, 0) for log in logging_outputs))

        count = total("sample_size")
        metrics.log_scalar("loss", total("loss") / count / math.log(2), count, round=5)
        metrics.log_scalar("exact", total("right") / count, count, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def logits_of(model: Any, sample: dict[str, Any]) -> torch.Tensor:
    """Returns the logits [B, T, 2] in float32, lowest where no answer may begin or end."""
    logits_BT2 = model(**sample["net_input"]).float()
    return logits_BT2.masked_fill(~sample["allowed"][..., None], torch.finfo(torch.float32).min)


def loss_of(logits_BT2: torch.Tensor, target_B2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sum of the windows' losses in nats, and in how many windows both tokens are right."""
    loss = F.cross_entropy(logits_BT2, target_B2, reduction="sum") / 2
    return loss, (logits_BT2.argmax(1) == target_B2).all(1).sum()
