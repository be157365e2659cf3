"""Cross-entropy of classes or squared error of numbers, with accuracy."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass

from .counted import CountingCriterion


@dataclass
class SequenceLabelsCriterionConfig(FairseqDataclass):
    tolerance: float = field(default=0.04, metadata={"help": "a number is right if it is this close to its label"})


@register_criterion("sequence_labels", dataclass=SequenceLabelsCriterionConfig)
class SequenceLabelsCriterion(CountingCriterion):
    """The loss is the mean over the sequences, in nats where the labels are classes. The accuracy is the share
    of right answers; a number is right within ``tolerance`` (0.04: Hochreiter and Schmidhuber 1997)."""

    def __init__(self, task, tolerance):
        super().__init__(task)
        self.tolerance = tolerance

    def loss_and_right(self, model: Any, sample: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        target_B = sample["target"]
        output_BV = model(**sample["net_input"]).float()
        if target_B.is_floating_point():
            target_B = target_B.float()
            loss = F.mse_loss(output_BV[:, 0], target_B, reduction="sum")
            return loss, ((output_BV[:, 0] - target_B).abs() < self.tolerance).sum()
        loss = F.cross_entropy(output_BV, target_B, reduction="sum")
        return loss, (output_BV.argmax(-1) == target_B).sum()
