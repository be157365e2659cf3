"""The criterion of ELECTRA: masked tokens for the generator, replaced tokens for the discriminator."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel

from .masked_lm_order_gap import permute_blocks

#: of the histogram of scores from which a validation computes the AUC, and the largest of these scores
BINS = 1 << 17
LARGEST = 1e4
#: of the tokens that a validation samples
SEED = 1


@dataclass
class ElectraConfig(FairseqDataclass):
    generator_weight: float = field(default=1.0, metadata={"help": "of the loss of the masked tokens"})
    discriminator_weight: float = field(default=50.0, metadata={"help": "of the loss of the replaced tokens"})
    order_gap: bool = field(
        default=False,
        metadata={"help": "at each validation, also the losses with the tokens of each block permuted; twice the time"},
    )


@register_criterion("electra", dataclass=ElectraConfig)
class Electra(FairseqCriterion):
    """The loss of google-research/electra, for --task masked_lm and an electra_NAME:

        loss = w_g (mean over masked tokens of -log p_generator(token)) + w_d (mean over all tokens of the binary
               cross-entropy of "is this another token than in the text?")

    A sampled token that happens to be the original one counts as original. Pads count nowhere. <s> and </s>, which
    fairseq masks as it does any token, stay as they are: the generator does not predict them, and the discriminator
    reads them. The means are those of
    a whole update: of all its batches (--update-freq) on all ranks. All losses are logged in bits, as fairseq's are;
    accuracies and shares from 0 to 1, over all tokens of a log line or of a validation:

    - masked_lm_loss; in a validation masked_lm_accuracy; sampled_masked_lm_accuracy: how often the sampled token is the
      original one;
    - disc_loss, disc_accuracy, disc_precision, disc_recall; in a validation disc_auc, the area under the ROC curve;
    - replaced, the share of replaced tokens; base_loss and base_accuracy are those of a discriminator that knows
      nothing but this share;
    - with --order-gap, in a validation: what the loss rises by when the tokens of each block are permuted, order_gap
      of the discriminator and masked_lm_order_gap of the generator.

    A validation draws the sampled tokens of a batch from a seed of its own, so that it repeats.
    """

    def __init__(self, cfg, task):
        super().__init__(task)
        for flag in ("generator_weight", "discriminator_weight"):
            weight = getattr(cfg, flag)
            if not 0 < weight < math.inf:
                raise ValueError(
                    f"--{flag.replace('_', '-')} {weight:g}: give a number above 0 (google-research/electra has 1 for "
                    "the generator and 50 for the discriminator)"
                )
        if getattr(getattr(task, "cfg", None), "skip_masking", False):
            raise ValueError("--criterion electra needs a text with masks: leave --skip-masking out")
        if not hasattr(task, "mask_idx"):
            raise ValueError("--criterion electra needs a text with masks: use --task masked_lm")
        self.generator_weight = cfg.generator_weight
        self.discriminator_weight = cfg.discriminator_weight
        self.order_gap = cfg.order_gap
        words = task.source_dictionary
        self.fixed = (words.bos(), words.eos())
        #: all tokens of the update over its masked ones, while one runs
        self.tokens_a_mask: torch.Tensor | None = None

    @contextlib.contextmanager
    def whole_update(self, samples: Sequence[Any], add_ranks: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
        """The context in which the batches of one update are passed to ``forward``, one after another. add_ranks: adds
        up a tensor over the ranks."""
        counts = [self.text_and_target(s) for s in samples if s]
        tokens = sum(int(tokens.ne(self.padding_idx).sum()) for tokens, _ in counts)
        masked = sum(int(target.ne(self.padding_idx).sum()) for _, target in counts)
        tokens, masked = add_ranks(torch.tensor([tokens, masked], dtype=torch.float32))
        self.tokens_a_mask = tokens / masked.clamp(min=1)
        try:
            yield
        finally:
            self.tokens_a_mask = None

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        generator, discriminator, log = self.losses(model, sample)
        tokens_a_mask = log["sample_size"] / log["masked"].clamp(min=1)
        if self.training and self.tokens_a_mask is not None:
            tokens_a_mask = self.tokens_a_mask.to(generator.device)
        # fairseq divides it by the number of all tokens
        loss = self.generator_weight * tokens_a_mask * generator + self.discriminator_weight * discriminator
        if self.order_gap and not self.training:
            permuted = permute_blocks(sample, self.padding_idx, SEED)
            generator, discriminator, _ = self.losses(model, permuted)
            log |= {"permuted_generator": generator.detach(), "permuted_discriminator": discriminator.detach()}
        return loss, log["sample_size"], log

    def text_and_target(self, sample: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """The text with masks, but with its own <s> and </s>, and the original token at each mask, otherwise pad."""
        masked_text_BT, target_BT = sample["net_input"]["src_tokens"], sample["target"]
        fixed_BT = torch.zeros_like(target_BT, dtype=torch.bool)
        for token in self.fixed:
            fixed_BT |= target_BT.eq(token)
        return torch.where(fixed_BT, target_BT, masked_text_BT), target_BT.masked_fill(fixed_BT, self.padding_idx)

    def losses(self, model: Any, sample: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        """The sums of both losses, in nats, and what is logged of the sample."""
        masked_text_BT, target_BT = self.text_and_target(sample)
        random = None
        if not self.training:
            random = torch.Generator(target_BT.device).manual_seed(SEED + int(sample["id"][0]))
        found = model(**{**sample["net_input"], "src_tokens": masked_text_BT}, target=target_BT, random=random)
        if not hasattr(found, "generator_MV"):
            raise ValueError("--criterion electra trains a generator and a discriminator: use --arch electra_NAME")
        masked_BT, real_BT = target_BT.ne(self.padding_idx), masked_text_BT.ne(self.padding_idx)
        target_M = target_BT[masked_BT]
        generator = F.cross_entropy(found.generator_MV.float(), target_M, reduction="sum")
        replaced_N = found.tokens_BT.ne(torch.where(masked_BT, target_BT, masked_text_BT))[real_BT]
        scores_N = found.scores_BT[real_BT].float()
        discriminator = F.binary_cross_entropy_with_logits(scores_N, replaced_N.to(scores_N), reduction="sum")

        said_N = scores_N > 0
        log = {
            "ntokens": sample["ntokens"],
            "nsentences": len(target_BT),
            "sample_size": real_BT.sum(),
            "masked": masked_BT.sum(),
            "generator": generator.detach(),
            "discriminator": discriminator.detach(),
            "weighed_generator": self.generator_weight * generator.detach(),
            "weighed_discriminator": self.discriminator_weight * discriminator.detach(),
            "sampled_right": found.sampled_M.eq(target_M).sum(),
            "replaced": replaced_N.sum(),
            "said": said_N.sum(),
            "said_rightly": (said_N & replaced_N).sum(),
            "right": said_N.eq(replaced_N).sum(),
        }
        if not self.training:  # these take time
            log["generator_right"] = found.generator_MV.argmax(-1).eq(target_M).sum()
            bins_N = bins_of(scores_N, replaced_N)
            # the ranks of a training, whose model is wrapped, add up tensors
            log["scores"] = Histograms(bins_N) if isinstance(model, BaseFairseqModel) else histograms(bins_N)
        return generator, discriminator, log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        logs = [log for log in logging_outputs if log]  # a rank with one batch too few has an empty log
        keys = [key for key in logs[0] if key not in ("ntokens", "nsentences")]
        sums = [torch.as_tensor(sum(log[key] for log in logs)).double() for key in keys]
        # one copy from the GPU for all of them
        flat = torch.cat([one.flatten() for one in sums]).cpu()
        for key, one in zip(keys, flat.split([one.numel() for one in sums])):
            # the _ in front keeps it out of the log; sums are right whatever the sizes of the batches
            metrics.log_scalar_sum(f"_{key}", one)
        for name, (needed, figure) in FIGURES.items():
            if needed in keys:
                metrics.log_derived(name, Figure(figure))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


class Figure:
    """A figure of a log line or a validation, from the meters with the sums over all its batches."""

    def __init__(self, figure: Callable[["Figure"], float]):
        self.figure = figure

    def __call__(self, meters: Any) -> float:
        self.meters = meters
        return round(self.figure(self), 4) + 0.0  # a gap of -0.00001 is shown as 0

    def total(self, name: str) -> Any:
        value = torch.as_tensor(self.meters[f"_{name}"].sum)  # 0 after an epoch whose updates have all overflowed
        return value.item() if value.numel() == 1 else value

    def share(self, part: str, whole: str) -> float:
        return self.total(part) / max(self.total(whole), 1)

    def bits(self, loss: str, whole: str) -> float:
        return self.share(loss, whole) / math.log(2)


def entropy(share: float) -> float:
    """That of a coin, in bits."""
    return -sum(p * math.log2(p) for p in (share, 1 - share) if p > 0)


def bins_of(scores_N: torch.Tensor, replaced_N: torch.Tensor) -> torch.Tensor:
    """The bin of each token: those of original tokens come before those of replaced ones. A bin of logits is 0.03 % of
    the logit wide, since probabilities near 0 or 1 cannot be told apart."""
    to_unit = torch.asinh(scores_N * 1e3) / math.asinh(LARGEST * 1e3)  # -1 to 1; linear near 0, then a logarithm
    bins_N = ((to_unit + 1) * (BINS / 2)).long().clamp(0, BINS - 1)
    return (bins_N + BINS * replaced_N).int()


def histograms(bins_N: torch.Tensor) -> torch.Tensor:
    """Those of original and of replaced tokens, one after another."""
    return torch.bincount(bins_N, minlength=2 * BINS)


class Histograms:
    """``histograms`` that are small and short until they are added up: fairseq-validate keeps and prints what each
    batch has logged."""

    def __init__(self, bins_N: torch.Tensor) -> None:
        self.bins_N = bins_N

    def __radd__(self, total: Any) -> torch.Tensor:
        return total + histograms(self.bins_N)

    def __str__(self) -> str:
        return f"{len(self.bins_N):,} tokens"

    def __getstate__(self) -> dict[str, torch.Tensor]:
        return {"bins_N": self.bins_N.cpu()}  # another rank has another GPU


def area_under_the_curve(scores: torch.Tensor) -> float:
    """The AUC from the histograms of the scores of original and of replaced tokens; those of one bin count as equal."""
    if not isinstance(scores, torch.Tensor):  # 0: there was no token
        return math.nan
    original, replaced = scores.view(2, -1)
    pairs = original.sum() * replaced.sum()
    below = original.cumsum(0) - original / 2
    return (replaced @ below / pairs).item() if pairs else math.nan


#: name of a metric -> a sum that it needs, and what it is
FIGURES: dict[str, tuple[str, Callable[[Figure], float]]] = {
    "loss": (
        "masked",
        lambda of: of.bits("weighed_generator", "masked") + of.bits("weighed_discriminator", "sample_size"),
    ),
    "masked_lm_loss": ("masked", lambda of: of.bits("generator", "masked")),
    "disc_loss": ("masked", lambda of: of.bits("discriminator", "sample_size")),
    "base_loss": ("masked", lambda of: entropy(of.share("replaced", "sample_size"))),
    "replaced": ("masked", lambda of: of.share("replaced", "sample_size")),
    "disc_accuracy": ("masked", lambda of: of.share("right", "sample_size")),
    "base_accuracy": ("masked", lambda of: max(share := of.share("replaced", "sample_size"), 1 - share)),
    "disc_precision": ("masked", lambda of: of.share("said_rightly", "said")),
    "disc_recall": ("masked", lambda of: of.share("said_rightly", "replaced")),
    "disc_auc": ("scores", lambda of: area_under_the_curve(of.total("scores"))),
    "masked_lm_accuracy": ("generator_right", lambda of: of.share("generator_right", "masked")),
    "sampled_masked_lm_accuracy": ("masked", lambda of: of.share("sampled_right", "masked")),
    "order_gap": (
        "permuted_discriminator",
        lambda of: of.bits("permuted_discriminator", "sample_size") - of.bits("discriminator", "sample_size"),
    ),
    "masked_lm_order_gap": (
        "permuted_generator",
        lambda of: of.bits("permuted_generator", "masked") - of.bits("generator", "masked"),
    ),
}
