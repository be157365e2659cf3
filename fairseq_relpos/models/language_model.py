"""transformer_lm_NAME and its sizes for every position encoding: decoder-only language models."""

import argparse
import copy
import dataclasses
import logging
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

from .. import flags
from ..architectures import endings_of
from ..checkpoints.adopting import adopt_hparams
from ..checkpoints.fitting import FittingModel
from ..encodings import ENCODINGS, Dims, build, find, names_for
from ..once import log_once
from ..override import override_self_attention, resolved_hparams, settings_of
from ..segments import Place, SegmentMemory

logger = logging.getLogger(__name__)


@register_model("transformer_lm_relpos")
class RelPosLanguageModel(FittingModel, TransformerLanguageModel):
    """fairseq's transformer_lm with the position encoding that --position-encoding names, and a segment memory."""

    encoding_name: str

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        TransformerLanguageModel.add_args(parser)
        flags.add_flags(parser)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "RelPosLanguageModel":
        flags.need_layers(args, "decoder")
        flags.check_sizes(args.decoder_embed_dim, args.decoder_attention_heads, "decoder")
        flags.complete(args, causal=True)
        adopt_hparams(args)
        hparams, window = flags.hparams(args.position_hparams), flags.window(args)
        flags.refuse_other_numbers(args, "decoder", args.position_encoding, hparams, window)
        stock = stock_settings(args)
        memory = memory_of(args, getattr(task, "args", None))
        if stock.max_target_positions is None:
            # the tables that end somewhere have a row for each token that the training sees, also in the memory
            stock.max_target_positions = args.tokens_per_sample + memory.length
        model = super().build_model(stock, task)
        # saved with the checkpoint: another --tokens-per-sample must not change a table
        args.max_target_positions = stock.max_target_positions
        args.decoder_layers = len(model.decoder.layers)  # of which --decoder-layers-to-keep leaves some out
        encoding = override_self_attention(
            model.decoder,
            args.position_encoding,
            hparams,
            causal=True,
            max_len=args.max_target_positions,
            settings=settings_of(args),
            has_cls=False,
            length_flag="--max-target-positions",
            segment_memory=True,
        )
        args.position_hparams = resolved_hparams(encoding)
        model.encoding_name = args.position_encoding
        model.remember(memory)
        if memory.length and flags.randomized_positions(args):
            raise ValueError("--randomized-positions and --memory-length: a memory has positions, too; leave one out")
        check_room(memory, args, getattr(task, "args", None), model.decoder.embed_positions.hard_limit)
        return model

    def remember(self, memory: SegmentMemory) -> None:
        """Gives the model this segment memory, which is empty. Only batches that say their ``place`` use it."""
        length = memory.length or memory.eval_length
        if length and self.decoder.embed_positions.joins_input:
            raise ValueError(
                f"a segment memory of {length} tokens (--memory-length): {self.encoding_name} adds positions to the "
                "input, and what a layer remembers would keep them while the text moves on; encodings that can: "
                + " ".join(can_remember())
            )
        if memory.length and self.decoder.decoder_layerdrop:  # in evaluation no layer is dropped
            raise ValueError(
                f"--decoder-layerdrop {self.decoder.decoder_layerdrop:g}: a layer that is dropped has nothing to "
                "remember for the next segment; leave it out, or --memory-length"
            )
        self.decoder.embed_positions.segment_memory = memory

    def forward(self, src_tokens: torch.Tensor, place: Place | None = None, **kwargs: Any) -> Any:
        """fairseq's forward. place: where the rows are in their streams; without it there is no segment memory."""
        current_pass = self.decoder.embed_positions.current_pass
        current_pass.place = place
        try:
            return super().forward(src_tokens, **kwargs)
        finally:
            current_pass.place = None


def memory_of(args: argparse.Namespace, of_the_task: Any) -> SegmentMemory:
    """The segment memory that the settings ask for. Settings of the task, from the command line, win over ``args``,
    which may be a checkpoint's."""
    sources = (of_the_task, args)
    lengths = [getattr(source, name, None) for source in sources for name in ("eval_memory_length", "memory_length")]
    memory = SegmentMemory(
        getattr(args, "memory_length", None) or 0,
        next((length for length in lengths if length is not None), 0),
        any(getattr(source, "same_length", False) for source in sources),
    )
    for flag, length in (("--memory-length", memory.length), ("--eval-memory-length", memory.eval_length)):
        if length < 0:
            raise ValueError(f"{flag} {length}: give 0 or more")
    if memory.same_length and not (memory.length or memory.eval_length):
        raise ValueError(
            "--same-length says how much of a memory each query sees: add --memory-length M, or leave it out"
        )
    if memory.eval_length and not hasattr(of_the_task, "memory_length"):
        log_once(logger, f"the segment memory of {memory.eval_length} tokens is not in use: --task lm_streams uses it")
    return memory


def can_remember() -> list[str]:
    """The names of the encodings that a model with a segment memory can have."""
    dims = Dims(embed_dim=8, num_heads=2, max_len=8, causal=True)
    stacks = {name: build(name, dims).stack for name in names_for(causal=True)}
    return [name for name, stack in stacks.items() if stack is None or not stack.joins_input]


def check_room(memory: SegmentMemory, args: argparse.Namespace, of_the_task: Any, hard_limit: int | None) -> None:
    """Raises ValueError where absolute positions end before memory and segment do."""
    tokens = getattr(of_the_task, "tokens_per_sample", None) or getattr(args, "tokens_per_sample", None)
    for flag, length in (("--memory-length", memory.length), ("--eval-memory-length", memory.eval_length)):
        if length and tokens and hard_limit is not None and length + tokens > hard_limit:
            raise ValueError(
                f"{flag} {length} and --tokens-per-sample {tokens}: {args.position_encoding} has {hard_limit} absolute "
                "positions and counts memory and segment together; remember fewer, train with "
                f"--max-target-positions {length + tokens}, or choose a relative encoding"
            )


def stock_settings(args: argparse.Namespace) -> argparse.Namespace:
    """A copy of ``args`` for fairseq's own builder. It switches off fairseq's recomputation, and asks for fairseq's
    learned positions only where they are the encoding."""
    if args.no_token_positional_embeddings:
        raise ValueError(
            "--no-token-positional-embeddings: what joins the token embeddings is the position "
            "encoding's; leave the flag out (--position-encoding none has no positions at all)"
        )
    if getattr(args, "unpad", False):
        raise ValueError("--unpad is for the layers of an encoder, and a language model has none: leave it out")
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
    for _ending in endings_of("transformer_lm"):
        _register(_name, _ending)
