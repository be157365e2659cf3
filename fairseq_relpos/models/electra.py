"""electra_NAME, electra_NAME_small and electra_NAME_large for every position encoding."""

import argparse
import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from fairseq.models.roberta.model import base_architecture, roberta_large_architecture
from fairseq.modules import LayerNorm
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import nn

from .. import flags
from ..checkpoints.discriminator import need_discriminator
from ..checkpoints.fitting import FittingModel
from ..encodings import ENCODINGS
from .roberta import RelPosRoberta, set_layer_norm_eps


class Replaced(NamedTuple):
    """The result of one pass of ELECTRA. M: the masked tokens of the batch, V: the dictionary."""

    #: the generator's logits
    generator_MV: torch.Tensor
    #: what was sampled from them
    sampled_M: torch.Tensor
    #: the text that the discriminator has read: the original one with the sampled tokens in it
    tokens_BT: torch.Tensor
    #: the logit that a token is not that of the original text
    scores_BT: torch.Tensor


@register_model("electra_relpos")
class RelPosElectra(FittingModel, BaseFairseqModel):
    """ELECTRA (Clark et al. 2020), with the position encoding that --position-encoding names in both of its parts.

        x      = the text with masks            logits = generator(x), at the masks
        text'  = the text with a token sampled from softmax(logits) at each mask
        scores = W_2 gelu(W_1 discriminator(text') + b_1) + b_2,  for each token: is it another one than in the text?

    The discriminator is a roberta_NAME without its head for masks, which `fairseq-relpos export-discriminator` gives
    back. The generator is a narrower roberta_NAME. Both have one table of token embeddings E: the generator reads
    E[token] P + p (P: from the discriminator's width to its own), and predicts with E, too. Position encodings are not
    shared, because their shapes depend on the width and the number of heads. No gradient goes through the sampling.

    Paper and code: google-research/electra adds absolute positions to E before P; here they are the generator's own.
    Its small model has embeddings of 128 below a width of 256; here they have the width of the model, as in RoBERTa.
    <pad> is never sampled: it would hide a token.
    """

    def __init__(self, args, discriminator, generator):
        super().__init__()
        self.args = args
        self.discriminator = discriminator
        self.generator = generator
        self.score_tokens = TokenScores(args.encoder_embed_dim, args.activation_fn).apply(init_bert_params)
        self.pad = discriminator.encoder.dictionary.pad()

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        RelPosRoberta.add_args(parser)
        parser.add_argument(
            "--generator-size",
            metavar="SHARE",
            help="of the discriminator's heads, width and feed-forward width that the generator has, such as 1/4; "
            "both have as many layers (default: 1/3, and 1/4 in _small and _large)",
        )

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "RelPosElectra":
        if getattr(args, "untie_weights_roberta", False):
            raise ValueError(
                "--untie-weights-roberta: generator and discriminator of an ELECTRA have one table of token "
                "embeddings, which predicts, too; leave it out"
            )
        flags.check_sizes(args.encoder_embed_dim, args.encoder_attention_heads)
        heads = generator_heads(args.generator_size, args.encoder_attention_heads)
        discriminator = RelPosRoberta.build_model(args, task)
        generator = RelPosRoberta.build_model(narrower(args, heads), task)
        share_embeddings(generator, discriminator)
        # it reads what the generator, which has looked at the first tokens, leaves of them
        discriminator.check_first_token = None
        discriminator.encoder.lm_head = None  # no gradient would reach it
        return cls(args, discriminator, generator)

    def forward(
        self,
        src_tokens: torch.Tensor,
        target: torch.Tensor | None = None,
        random: torch.Generator | None = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        **unused: Any,
    ) -> Replaced:
        """src_tokens: the text with masks, [B, T]. target: the original token where one is to be predicted, otherwise
        pad. random: where random numbers come from, if not from torch's global generator. position_ids, document_ids:
        as RelPosRoberta takes them, for both parts."""
        if target is None:
            raise ValueError(
                "electra_NAME trains with --criterion electra, which tells it the masked tokens: give this one, or "
                "train roberta_NAME; `fairseq-relpos export-discriminator` makes one of a trained ELECTRA"
            )
        masked_BT = target.ne(self.pad)
        given = {"position_ids": position_ids, "document_ids": document_ids}
        logits_MV = self.generator(src_tokens, masked_tokens=masked_BT, **given)[0]
        sampled_M = sample(logits_MV.detach(), self.pad, random)
        tokens_BT = torch.where(masked_BT, target, src_tokens).masked_scatter(masked_BT, sampled_M)
        features_BTE = self.discriminator(tokens_BT, features_only=True, **given)[0]
        return Replaced(logits_MV, sampled_M, tokens_BT, self.score_tokens(features_BTE))

    def max_positions(self) -> int:
        return self.discriminator.max_positions()

    def load_state_dict(self, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        need_discriminator("the checkpoint", state_dict)
        return super().load_state_dict(state_dict, *args, **kwargs)


def sample(logits_MV: torch.Tensor, pad: int, random: torch.Generator | None = None) -> torch.Tensor:
    """Draws a token, but never <pad>, from each softmax(logits), in float32. It looks up one random number in the
    sums of the probabilities; torch.multinomial draws one for every word, which takes ten times as long on a CPU."""
    probabilities_MV = logits_MV.softmax(-1, dtype=torch.float32)
    probabilities_MV[:, pad] = 0
    sums_MV = probabilities_MV.cumsum(-1)
    place_M1 = torch.rand(len(sums_MV), 1, generator=random, device=sums_MV.device) * sums_MV[:, -1:]
    # the first sum that is larger: never that of a token whose probability is 0
    found_M = torch.searchsorted(sums_MV, place_M1, right=True)[:, 0]
    return found_M.clamp(max=sums_MV.size(1) - 1)  # of logits that are not finite, too, whose loss says so


class TokenScores(nn.Module):
    """The head of the discriminator: one logit for each token."""

    def __init__(self, embed_dim: int, activation_fn: str):
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.activation_fn = utils.get_activation_fn(activation_fn)
        self.project_out = nn.Linear(embed_dim, 1)

    def forward(self, features_BTE: torch.Tensor) -> torch.Tensor:
        return self.project_out(self.activation_fn(self.dense(features_BTE)))[..., 0]


class NarrowEmbedding(nn.Module):
    """Token embeddings of another module, projected to a smaller width. They begin as large as the module's, as those
    of a RoBERTa are: with a RoBERTa's projection (a deviation of 0.02) they would begin far smaller than positions that
    are added to them, 4.4 times at a width of 128."""

    def __init__(self, table: nn.Embedding, embed_dim: int):
        super().__init__()
        self.shared = (table,)  # in a tuple: it is the other module's, and has one name in a checkpoint
        self.project = nn.Linear(table.embedding_dim, embed_dim)
        nn.init.normal_(self.project.weight, std=table.embedding_dim**-0.5)
        nn.init.zeros_(self.project.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.project(self.shared[0](tokens))


class WideHead(nn.Module):
    """RoBERTa's head for masks, from a smaller width to token embeddings of another module."""

    def __init__(self, embed_dim: int, table: nn.Embedding, activation_fn: Callable[..., torch.Tensor]):
        super().__init__()
        self.shared = (table,)
        self.dense = nn.Linear(embed_dim, table.embedding_dim)
        self.activation_fn = activation_fn
        self.layer_norm = LayerNorm(table.embedding_dim)
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings))

    def forward(self, features: torch.Tensor, masked_tokens: torch.Tensor | None = None, **unused: Any) -> torch.Tensor:
        if masked_tokens is not None:
            features = features[masked_tokens]
        x = self.layer_norm(self.activation_fn(self.dense(features)))
        return F.linear(x, self.shared[0].weight, self.bias)


def share_embeddings(generator: RelPosRoberta, discriminator: RelPosRoberta) -> None:
    """Makes a RoBERTa read and predict with the token embeddings of a wider one."""
    table = discriminator.encoder.sentence_encoder.embed_tokens
    width, encoder = generator.args.encoder_embed_dim, generator.encoder
    encoder.sentence_encoder.embed_tokens = NarrowEmbedding(table, width)
    encoder.lm_head = WideHead(width, table, encoder.lm_head.activation_fn).apply(init_bert_params)
    set_layer_norm_eps(encoder.lm_head, getattr(generator.args, "layer_norm_eps", None))


def generator_heads(share: str, heads: int) -> int:
    """The number of the generator's heads. Raises ValueError where the share of the discriminator's is no whole one."""
    try:
        exact = Fraction(str(share)) * heads
    except (ValueError, ZeroDivisionError):
        exact = Fraction(0)
    found = round(exact)
    if not 1 <= found <= heads or abs(exact - found) > Fraction(1, 100):  # 0.333 of 12 is meant to be 4
        raise ValueError(
            f"--generator-size {share or 'is empty'}: the generator's share of the discriminator's {heads} attention "
            f"heads must give whole heads: N/{heads} with an N from 1 to {heads}"
        )
    return found


def narrower(args: argparse.Namespace, heads: int) -> argparse.Namespace:
    """The settings of the generator. Its heads have the discriminator's width."""
    ours = copy.copy(args)
    ours.encoder_attention_heads = heads
    ours.encoder_embed_dim = args.encoder_embed_dim // args.encoder_attention_heads * heads
    ours.encoder_ffn_embed_dim = max(1, round(args.encoder_ffn_embed_dim * heads / args.encoder_attention_heads))
    return ours


def set_generator_size(args: argparse.Namespace, usual: str) -> None:
    if getattr(args, "generator_size", None) is None:
        args.generator_size = usual


def _register(name):
    @register_model_architecture("electra_relpos", f"electra_{name}")
    def base(args):
        flags.set_defaults(args, name)
        set_generator_size(args, "1/3")
        base_architecture(args)

    @register_model_architecture("electra_relpos", f"electra_{name}_small")
    def small(args):
        set_generator_size(args, "1/4")
        args.encoder_embed_dim = getattr(args, "encoder_embed_dim", 256)
        args.encoder_ffn_embed_dim = getattr(args, "encoder_ffn_embed_dim", 1024)
        args.encoder_attention_heads = getattr(args, "encoder_attention_heads", 4)
        base(args)

    @register_model_architecture("electra_relpos", f"electra_{name}_large")
    def large(args):
        flags.set_defaults(args, name)
        set_generator_size(args, "1/4")
        roberta_large_architecture(args)


for _name in ENCODINGS:
    _register(_name)
