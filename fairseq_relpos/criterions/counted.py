"""A criterion that counts right answers: the base of sequence_labels and span_prediction."""

from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics


class CountingCriterion(FairseqCriterion):
    """Logs the mean loss of the samples, and the share of right answers."""

    #: what the log calls the share of right answers
    share = "accuracy"
    #: nats in the unit in which the loss is logged
    unit = 1.0

    def loss_and_right(self, model: Any, sample: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the sum of the samples' losses in nats, and how many answers are right."""
        raise NotImplementedError

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        loss, right = self.loss_and_right(model, sample)
        count = len(sample["target"])
        counts = {"ntokens": sample["ntokens"], "nsentences": count, "sample_size": count}
        return loss, count, {"loss": loss.detach(), "right": right, **counts}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        def total(key):
            return utils.item(sum(log.get(key, 0) for log in logging_outputs))

        count = total("sample_size")
        metrics.log_scalar("loss", total("loss") / count / cls.unit, count, round=5)
        metrics.log_scalar(cls.share, total("right") / count, count, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
