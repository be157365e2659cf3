"""transformer_NAME and its sizes for every position encoding: encoder and decoder."""

import argparse
import copy
import logging
from collections.abc import Mapping
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel
from fairseq.modules.checkpoint_activations import checkpoint_wrapper

from .. import flags
from ..architectures import endings_of
from ..checkpoints.fitting import FittingModel
from ..encodings import ENCODINGS, find
from ..override import layers_of, override_self_attention, recomputation, resolved_hparams, settings_of
from ..signature import refuse_positions
from . import copy_head

#: the flags that set the longest input of each stack
LENGTH_FLAGS = {"encoder": "--max-source-positions", "decoder": "--max-target-positions"}


class EncoderDecoder(FittingModel):
    """Mixin in front of an encoder-decoder model of fairseq: the position encoding that --position-encoding names is in
    the self-attention of encoder and decoder; encoder-decoder attention has no positions."""

    #: whether fairseq builds learned positions in any case, which the encoding then replaces; so the weights that all
    #: encodings have in common are drawn alike
    always_learned = False

    #: the stacks, and whether each is causal
    stacks: Mapping[str, bool] = flags.STACKS

    #: whether the model has --copy-from-source
    may_copy = True

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        flags.add_flags(parser, cls.stacks)
        if cls.may_copy:
            parser.add_argument(
                copy_head.FLAG,
                action="store_true",
                help="the decoder may copy words of the source (pointer-generator); needs one dictionary for both",
            )

    @staticmethod
    def longest_input(stack: Any) -> int:
        """The number of vectors that the layers of the stack see at most."""
        return stack.max_positions()

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> Any:
        flags.need_layers(args, *cls.stacks)
        flags.complete(args, cls.stacks)
        chosen = flags.chosen_stacks(args.position_stacks)
        names = flags.encodings_of(args.position_encoding, chosen)
        hparams = flags.hparams_of(args.position_hparams, chosen)
        windows = flags.windows_of(args, chosen)
        for name in chosen:
            flags.refuse_other_numbers(args, name, names[name], hparams[name], windows[name])
        if getattr(args, "unpad", False) and "encoder" not in chosen:
            logging.getLogger(__name__).warning("--unpad changes nothing: the encoder remains as in stock fairseq")
        copies = getattr(args, "copy_from_source", False)
        if copies:
            copy_head.refuse_what_cannot_copy(args, task)
        model = super().build_model(stock_settings(args, names, cls.always_learned), task)
        if copies:
            copy_head.copy_from_source(model)
        resolved = {}
        for name, causal in cls.stacks.items():
            stack = getattr(model, name)
            setattr(args, f"{name}_layers", len(stack.layers))  # of which --..-layers-to-keep leaves some out
            if name in chosen:
                encoding = override_self_attention(
                    stack,
                    names[name],
                    hparams[name],
                    causal=causal,
                    max_len=cls.longest_input(stack),
                    settings=settings_of(args, windows[name]),
                    has_cls=False,
                    length_flag=LENGTH_FLAGS[name],
                )
                resolved[name] = resolved_hparams(encoding)
            else:
                keep_stock(stack, *recomputation(args))
        # saved with the checkpoint: a later --max-source-positions must not change a table
        args.position_hparams = flags.hparams_text(resolved)
        return model


@register_model("transformer_relpos")
class RelPosTransformer(EncoderDecoder, TransformerModel):
    """fairseq's transformer with the position encoding that --position-encoding names."""


def keep_stock(stack: Any, recompute: bool, offload: bool) -> None:
    """Keeps the positions of fairseq in a stack; a checkpoint in which it had an encoding does not fit it."""
    refuse_positions(stack)
    if recompute:
        for layer in layers_of(stack):
            checkpoint_wrapper(layer, offload_to_cpu=offload)


def stock_settings(args: argparse.Namespace, names: dict[str, str], always_learned: bool = False) -> argparse.Namespace:
    """A copy of ``args`` for fairseq's own builder. It switches off fairseq's recomputation, and gives a stack
    fairseq's learned positions only where its encoding is ``learned``, or in any case."""
    args = copy.copy(args)
    args.checkpoint_activations = args.offload_activations = False
    for stack, name in names.items():
        embed_dim, num_heads = (getattr(args, f"{stack}_{name}") for name in ("embed_dim", "attention_heads"))
        flags.check_sizes(embed_dim, num_heads, stack)
        learned = find(name).stock_positions == "learned"
        if getattr(args, f"{stack}_learned_pos", False) and not (learned or always_learned):
            raise ValueError(
                f"--{stack}-learned-pos and the position encoding {name} contradict each other: "
                f"leave out the first, or use --position-encoding {stack}=learned"
            )
        setattr(args, f"{stack}_learned_pos", learned or always_learned)
    if args.no_token_positional_embeddings and set(names) == set(flags.STACKS):
        raise ValueError(
            "--no-token-positional-embeddings: what joins the token embeddings is the position "
            "encoding's; leave the flag out (--position-encoding none has no positions at all)"
        )
    return args


def register_sizes(family: str, named_otherwise: Mapping[str, str] | None = None) -> None:
    """Registers FAMILY_NAME of the model FAMILY_relpos for every encoding, with each ending, in the size of stock
    fairseq's architecture with the same ending. named_otherwise: ending -> what stock fairseq calls it."""
    model = f"{family}_relpos"
    for name in ENCODINGS:
        for ending in endings_of(family):
            stock = ARCH_CONFIG_REGISTRY[(named_otherwise or {}).get(ending, f"{family}{ending}")]
            _register(model, f"{family}_{name}{ending}", name, stock, MODEL_REGISTRY[model].stacks)


def _register(model, arch, name, stock, stacks):
    @register_model_architecture(model, arch)
    def architecture(args):
        flags.set_defaults(args, name, stacks)
        stock(args)


register_sizes("transformer")
