"""Cross-entropy of classes or squared error of numbers, for fine-tuning, scored over a whole split."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics

from .metrics import check_classes, check_names, score


@dataclass
class SentenceScoresConfig(FairseqDataclass):
    classification_head_name: str = field(
        default="sentence_classification_head", metadata={"help": "name of the classification head"}
    )
    metrics: str = field(
        default="",
        metadata={"help": "of a validation, with commas between: fairseq_relpos/criterions/metrics.py has all"},
    )


@register_criterion("sentence_scores", dataclass=SentenceScoresConfig)
class SentenceScores(FairseqCriterion):
    """fairseq's ``sentence_prediction`` with other scores. Validation keeps the predictions of all samples, of all
    ranks, and scores them at its end, in full precision: the metrics do not depend on batches and ranks. The loss is in
    nats."""

    def __init__(self, cfg, task):
        super().__init__(task)
        self.head = cfg.classification_head_name
        self.regression = task.regression
        self.names = (cfg.metrics or ("pearson" if self.regression else "accuracy")).split(",")
        check_names(self.names, self.regression)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        output = model(**sample["net_input"], features_only=True, classification_head_name=self.head)
        scores_BC = output[0].float()
        if "target" not in sample:
            raise ValueError("these samples have no labels, so they have no loss and no score: choose another split")
        target_B = sample["target"]
        if self.regression:
            predicted_B = scores_BC[:, 0]
            loss = F.mse_loss(predicted_B, target_B.float(), reduction="sum")
        else:
            check_classes(self.names, scores_BC.size(1))
            # of numbers that are not finite argmax would be a class
            predicted_B = scores_BC.argmax(-1).float().where(scores_BC.isfinite().all(-1), torch.nan)
            loss = F.cross_entropy(scores_BC, target_B, reduction="sum")
        count = len(target_B)
        log = {"loss": loss.detach(), "ntokens": sample["ntokens"], "nsentences": count, "sample_size": count}
        if not self.training:
            kept = {"ids": sample["id"], "predictions": predicted_B, "targets": target_B}
            log |= {name: values.detach().double().cpu() for name, values in kept.items()}
            log["metrics"] = self.names
        return loss, count, log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        # a rank with one batch too few has an empty log
        count = sum(log.get("sample_size", 0) for log in logging_outputs)
        metrics.log_scalar("loss", sum(log.get("loss", 0) for log in logging_outputs) / max(count, 1), count, round=5)
        logs = [log for log in logging_outputs if "metrics" in log]
        if not logs:
            return
        for key in KEPT:
            metrics.log_concat_tensor(key, torch.cat([log[key[1:]] for log in logs]))
        for name in logs[0]["metrics"]:
            metrics.log_derived(name, lambda meters, name=name: _score(name, *(meters[key].tensor for key in KEPT)))

    @staticmethod
    def begin_validation() -> None:
        """Forgets the predictions of the validation before: fairseq keeps the meters of all validations, and saves
        them in each checkpoint."""
        for key in KEPT:
            if (meter := metrics.get_meter("valid", key)) is not None:
                meter.reset()

    def logging_outputs_can_be_summed(self) -> bool:
        """The logs of a validation have predictions, which ranks send one another instead."""
        return self.training


#: names of meters; the _ in front keeps them out of the log
KEPT = ("_ids", "_predictions", "_targets")


def _score(name, ids, predictions, targets):
    """In the order of the data: sums are rounded in the same way whatever batches and ranks there were."""
    order = ids.argsort()
    return score(name, predictions[order].numpy(), targets[order].numpy())
