"""roberta_NAME and roberta_NAME_large for every position encoding."""

import argparse
from typing import Any

import torch
from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture, roberta_large_architecture

from .. import flags
from ..checkpoints.adopting import adopt_hparams
from ..checkpoints.fitting import FittingModel
from ..encodings import ENCODINGS
from ..override import override_self_attention, resolved_hparams, settings_of
from .hub_interface import RelPosHubInterface
from .pooling import POOLING, pool


@register_model("roberta_relpos")
class RelPosRoberta(FittingModel, RobertaModel):
    """fairseq's RoBERTa with the position encoding that --position-encoding names."""

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> RelPosHubInterface:
        interface = super().from_pretrained(*args, **kwargs)
        interface.__class__ = RelPosHubInterface
        return interface

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        RobertaModel.add_args(parser)
        flags.add_flags(parser)
        parser.add_argument(
            "--no-layernorm-embedding",
            action="store_false",
            dest="layernorm_embedding",
            help="no LayerNorm of the embeddings, as in checkpoints that have none",
        )
        parser.add_argument(
            "--scale-embedding",
            action="store_false",
            dest="no_scale_embedding",
            help="multiply token embeddings by the root of their dimension before positions are added, as a "
            "Transformer does; for sinusoidal and shape, which outweigh the tokens otherwise",
        )
        parser.add_argument(
            "--pooling",
            choices=POOLING,
            help="which output vectors a classification head reads: that of the first token, <s> (cls, the default), "
            "that of the last one, </s>, or the mean or the maximum of all",
        )
        parser.add_argument(
            "--layer-norm-eps",
            type=float,
            metavar="E",
            help="what LayerNorms add to the variance (default: 1e-5); models from elsewhere may have another one",
        )
        parser.add_argument(
            "--checkpoint-activations",
            action="store_true",
            help="save memory: compute each layer's activations again in backward",
        )

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "RelPosRoberta":
        flags.need_layers(args, "encoder")
        flags.check_sizes(args.encoder_embed_dim, args.encoder_attention_heads)
        flags.complete(args)
        adopt_hparams(args)
        hparams, window = flags.hparams(args.position_hparams), flags.window(args)
        flags.refuse_other_numbers(args, "encoder", args.position_encoding, hparams, window)
        # the plugin recomputes layers itself; fairseq's wrapper must stay out
        recompute = getattr(args, "checkpoint_activations", False)
        args.checkpoint_activations = False
        model = super().build_model(args, task)
        args.checkpoint_activations = recompute
        set_layer_norm_eps(model, getattr(args, "layer_norm_eps", None))
        encoder = model.encoder.sentence_encoder
        encoding = override_self_attention(
            encoder,
            args.position_encoding,
            hparams,
            causal=False,
            max_len=encoder.max_source_positions,
            settings=settings_of(args),
        )
        check_tokens_per_sample(args, encoder.embed_positions.hard_limit)
        # saved with the checkpoint: a later --max-positions must not change a table
        args.position_hparams = resolved_hparams(encoding)
        if encoding.reads_cls:
            model.check_first_token = FirstTokenCheck(task.source_dictionary)
        return model

    check_first_token = None

    def forward(
        self,
        src_tokens: torch.Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: str | None = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """fairseq's forward with two more arguments. position_ids [B, T]: the token positions, from 0.
        document_ids [B, T]: attention stays within a document; without position_ids, each document counts its
        tokens from 0."""
        if self.check_first_token is not None:
            unmasked = features_only or classification_head_name is not None
            self.check_first_token(src_tokens, unmasked)
        pooling = getattr(self.args, "pooling", None) or "cls"
        pools = classification_head_name is not None and pooling != "cls"
        given = (src_tokens, features_only or pools, return_all_hiddens, None if pools else classification_head_name)
        with self.encoder.sentence_encoder.embed_positions.given(position_ids, document_ids):
            x, extra = super().forward(*given, **kwargs)
        if pools:
            lengths_B = src_tokens.ne(self.encoder.dictionary.pad()).sum(1)
            # fairseq's head reads the first vector
            x = self.classification_heads[classification_head_name](pool(pooling, x, lengths_B)[:, None])
        return x, extra


def set_layer_norm_eps(model: torch.nn.Module, eps: float | None) -> None:
    """Gives all LayerNorms of a model this eps; None: they keep theirs. A LayerNorm of an encoding is its own."""
    if eps is None:
        return
    if not 0 < eps < 1:
        raise ValueError(f"--layer-norm-eps {eps}: a small number is needed, such as 1e-5")
    modules: Any = model.modules()
    for module in modules:
        if hasattr(module, "normalized_shape"):  # torch's LayerNorm or apex's
            module.eps = eps


def check_tokens_per_sample(args: argparse.Namespace, hard_limit: int | None) -> None:
    """Raises ValueError for training sequences that are longer than the absolute positions."""
    wanted = getattr(args, "tokens_per_sample", None)
    if hard_limit is not None and wanted is not None and wanted > hard_limit:
        raise ValueError(
            f"--tokens-per-sample {wanted} exceeds the {hard_limit} absolute positions of "
            f"{args.position_encoding}: add --max-positions {wanted}, or, where a model is trained already, "
            f"use --tokens-per-sample {hard_limit}"
        )


class FirstTokenCheck:
    """Checks that sentences begin with <s>, which an encoding that unties [CLS] takes for [CLS].

    In data prepared without <s>, no sentence begins with it. Masked-LM training may hide or
    replace the <s> of some sentences (1.5 % get a word in its place), so there the check fails
    only after a few sentences without <s>, and the first <s> ends it.
    """

    ENOUGH = 4

    def __init__(self, dictionary):
        self.dictionary = dictionary
        self.without = 0

    def __call__(self, tokens_BT, unmasked: bool):
        if not unmasked and self.without is None:
            return
        d = self.dictionary
        real_BT = tokens_BT.ne(d.pad())
        first_B = tokens_BT.gather(1, real_BT.int().argmax(1, keepdim=True))[:, 0]
        if first_B.eq(d.bos()).any():
            self.without = None
            return
        seen = first_B.ne(d.index("<mask>")).sum().item()
        if not unmasked:
            self.without += seen
        if unmasked or self.without >= self.ENOUGH:
            raise ValueError(
                f"sentences begin with {d[first_B[0]]!r} instead of <s>: this position encoding "
                "treats the first token as [CLS]; for --task sentence_prediction add "
                "--init-token 0, or use an encoding that ties [CLS] (..._tie_cls)"
            )


def _register(name):
    @register_model_architecture("roberta_relpos", f"roberta_{name}")
    def base(args):
        flags.set_defaults(args, name)
        base_architecture(args)

    @register_model_architecture("roberta_relpos", f"roberta_{name}_large")
    def large(args):
        flags.set_defaults(args, name)
        roberta_large_architecture(args)


for _name in ENCODINGS:
    _register(_name)
