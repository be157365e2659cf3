"""The criterion of masked language models, which also says at each validation whether a model uses the order of the
tokens."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.logging import metrics


@dataclass
class MaskedLmOrderGapConfig(MaskedLmConfig):
    permutation_seed: int = field(default=1, metadata={"help": "of the permutations, whatever --seed is"})


@register_criterion("masked_lm_order_gap", dataclass=MaskedLmOrderGapConfig)
class MaskedLmOrderGap(MaskedLmLoss):
    """fairseq's ``masked_lm``, and at each validation the order gap: what the loss rises by when the tokens of each
    block are permuted and the targets moved along.

        order_gap = loss(permuted blocks) - loss(blocks)

    It is logged as ``order_gap``, in bits a masked token as ``loss`` is. A model that reads a block as a bag of words
    has a gap of 0. The training is that of ``masked_lm`` to the last bit; a validation takes twice the time.
    """

    def __init__(self, cfg, task):
        super().__init__(cfg, task)
        self.permutation_seed = cfg.permutation_seed

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        loss, sample_size, log = super().forward(model, sample, reduce)
        if not self.training:
            permuted = permute_blocks(sample, self.padding_idx, self.permutation_seed)
            log["permuted_loss"] = super().forward(model, permuted, reduce)[0].detach()
        return loss, sample_size, log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        MaskedLmLoss.reduce_metrics(logging_outputs)
        logs = [log for log in logging_outputs if "permuted_loss" in log]
        if logs:
            masked = sum(log["sample_size"] for log in logs)
            risen = sum(log["permuted_loss"] - log["loss"] for log in logs)
            metrics.log_scalar("order_gap", risen / masked / math.log(2), masked, round=3)


def permute_blocks(sample: dict[str, Any], pad: int, seed: int) -> dict[str, Any]:
    """Returns the sample with columns 1, 2, ... of each row in random order, and the targets moved with them. <s> stays
    first and pads stay last. The order of a block depends only on the seed and its number."""
    tokens = sample["net_input"]["src_tokens"]
    order = torch.arange(tokens.size(1)).repeat(tokens.size(0), 1)
    lengths = tokens.ne(pad).sum(1).tolist()
    for row, (block, length) in enumerate(zip(sample["id"].tolist(), lengths)):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + block)
        order[row, 1:length] = 1 + torch.randperm(length - 1, generator=generator)
    order = order.to(tokens.device)
    moved = dict(sample, target=sample["target"].gather(1, order))
    moved["net_input"] = dict(sample["net_input"], src_tokens=tokens.gather(1, order))
    return moved
