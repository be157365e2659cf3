"""Cross-entropy of classes or squared error of numbers, with accuracy."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics


@dataclass
class SequenceLabelsCriterionConfig(FairseqDataclass):
    tolerance: float = field(default=0.04, metadata={"help": "a number is right if it is this close to its label"})


@register_criterion("sequence_labels", dataclass=SequenceLabelsCriterionConfig)
class SequenceLabelsCriterion(FairseqCriterion):
    """The loss is the mean over the sequences, in nats where the labels are classes. The accuracy is the share
    of right answers; a number is right within ``tolerance`` (0.04: Hochreiter and Schmidhuber 1997)."""

    def __init__(self, task, tolerance):
        super().__init__(task)
        self.tolerance = tolerance

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        target_B = sample["target"]
        output_BV = model(**sample["net_input"]).float()
        if target_B.is_floating_point():
            target_B = target_B.float()
            loss = F.mse_loss(output_BV[:, 0], target_B, reduction="sum")
            right = (output_BV[:, 0] - target_B).abs() < self.tolerance
        else:
            loss = F.cross_entropy(output_BV, target_B, reduction="sum")
            right = output_BV.argmax(-1) == target_B
        count = len(target_B)
        return (
            loss,
            count,
            {
                "loss": loss.detach(),
                "right": right.sum(),
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
        metrics.log_scalar("loss", total("loss") / count, count, round=5)
        metrics.log_scalar("accuracy", total("right") / count, count, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
