"""transformer_lm_NAME and its sizes for every position encoding: decoder-only language models."""

import argparse
import copy
import dataclasses
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

from .. import flags, register
from ..checkpoints.adopting import adopt_hparams
from ..checkpoints.fitting import FittingModel
from ..encodings import ENCODINGS, find
from ..override import override_self_attention, resolved_hparams

#: each size is that of stock fairseq's architecture with the same ending
ENDINGS = (
    "",
    "_big",
    "_gbw",
    "_baevski_gbw",
    "_wiki103",
    "_baevski_wiki103",
    "_gpt",
    *(f"_gpt2_{size}" for size in ("tiny", "small", "medium", "big")),
    *(f"_gpt3_{size}" for size in ("small", "medium", "large", "xl", "2_7", "6_7", "13", "175")),
)


@register_model("transformer_lm_relpos")
class RelPosLanguageModel(FittingModel, TransformerLanguageModel):
    """fairseq's transformer_lm with the position encoding that --position-encoding names."""

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        TransformerLanguageModel.add_args(parser)
        flags.add_flags(parser)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "RelPosLanguageModel":
        register()
        flags.need_layers(args, "decoder")
        flags.check_sizes(args.decoder_embed_dim, args.decoder_attention_heads, "decoder")
        adopt_hparams(args)
        stock = stock_settings(args)
        model = super().build_model(stock, task)
        # saved with the checkpoint: another --tokens-per-sample must not change a table
        args.max_target_positions = stock.max_target_positions
        offload = getattr(args, "offload_activations", False)
        encoding = override_self_attention(
            model.decoder,
            args.position_encoding,
            flags.hparams(args.position_hparams),
            causal=True,
            max_len=args.max_target_positions,
            layers=args.position_layers,
            backend=args.attention_backend,
            torch_compile=getattr(args, "torch_compile", False),
            device=flags.device_of(args),
            has_cls=False,
            checkpoint_activations=offload or getattr(args, "checkpoint_activations", False),
            offload_activations=offload,
            length_flag="--max-target-positions",
        )
        args.position_hparams = resolved_hparams(encoding)
        return model


def stock_settings(args: argparse.Namespace) -> argparse.Namespace:
    """A copy of ``args`` for fairseq's own builder. It switches off fairseq's recomputation, and asks for fairseq's
    learned positions only where they are the encoding."""
    if args.no_token_positional_embeddings:
        raise ValueError(
            "--no-token-positional-embeddings: what joins the token embeddings is the position "
            "encoding's; leave the flag out (--position-encoding none has no positions at all)"
        )
    args = copy.copy(args)
    args.checkpoint_activations = args.offload_activations = False
    args.decoder_learned_pos = is_learned(args)
    return args


def is_learned(args: argparse.Namespace) -> bool:
    return find(args.position_encoding).stock_positions == "learned"


def plain_architecture(args: argparse.Namespace) -> None:
    """Sets what is not given to the defaults of fairseq's transformer_lm, which is post-norm. fairseq's own
    architecture function of this name does nothing: there the defaults are those of a dataclass."""
    for field in dataclasses.fields(TransformerLanguageModelConfig):
        belongs_to_the_task = isinstance(field.default, str) and field.default.startswith("${")
        if not (belongs_to_the_task or hasattr(args, field.name)):
            setattr(args, field.name, field.default)


def _register(name, ending):
    stock = ARCH_CONFIG_REGISTRY[f"transformer_lm{ending}"] if ending else plain_architecture

    @register_model_architecture("transformer_lm_relpos", f"transformer_lm_{name}{ending}")
    def architecture(args):
        flags.set_defaults(args, name, causal=True)
        if getattr(args, "decoder_learned_pos", False) and not is_learned(args):
            raise ValueError(
                f"--decoder-learned-pos and the position encoding {args.position_encoding} contradict each other: "
                "leave out the first, or use --position-encoding learned"
            )
        args.decoder_learned_pos = is_learned(args)  # gpt3's sizes have learned positions otherwise
        stock(args)


for _name in ENCODINGS:
    for _ending in ENDINGS:
        _register(_name, _ending)
