"""Put a position encoding into an encoder or decoder that fairseq has built.

A built stack is changed in place rather than subclassed: fairseq names its encoder and
decoder classes in the builders of its models, gives ``build_encoder_layer`` no layer
index, and re-initialises every Embedding and Linear after building. This way one
function serves every model family, the common weights of all encodings are those of the
stock architecture, and each encoding keeps its own initialisation.
"""

import argparse
import logging
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from torch import nn

from . import flags
from .attention import RelPosMultiheadAttention
from .backends import Backend, select
from .encodings import Dims, PositionEncoding, StackPart, build_stack, check_serves, find, to_text
from .layer_numbers import parse_layers, parse_windows, windows_text
from .layers import wrap
from .once import log_once
from .signature import sign

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """The flags of a model that serve every encoding alike; without flags, their defaults.

    layers: those that have the encoding, as in ``parse_layers``.
    window: how many tokens away a key may be, as in ``parse_windows``.
    randomized: in training, the tokens have random positions below this number.
    device: where the model will run, if not where it is.
    recompute: compute each layer again in backward. offload: keep the inputs of these layers in CPU memory meanwhile.
    torch_compile: compile each layer except its attention, for training.
    unpad: layers compute nothing for pads; a decoder's layers stay as they are.
    """

    layers: str = "all"
    window: str = ""
    backend: str = "auto"
    randomized: int | None = None
    device: torch.device | None = None
    recompute: bool = False
    offload: bool = False
    torch_compile: bool = False
    unpad: bool = False


def settings_of(args: argparse.Namespace, window: str | None = None) -> Settings:
    """window: that of one stack, for a model that has two."""
    recompute, offload = recomputation(args)
    return Settings(
        layers=args.position_layers,
        window=flags.window(args) if window is None else window,
        backend=args.attention_backend,
        randomized=flags.randomized_positions(args),
        device=flags.device_of(args),
        recompute=recompute,
        offload=offload,
        torch_compile=getattr(args, "torch_compile", False),
        unpad=getattr(args, "unpad", False),
    )


def recomputation(args: argparse.Namespace) -> tuple[bool, bool]:
    """--checkpoint-activations and --offload-activations; the second includes the first."""
    offload = getattr(args, "offload_activations", False)
    return offload or getattr(args, "checkpoint_activations", False), offload


def override_self_attention(
    stack: Any,
    name: str,
    hparams: dict[str, str],
    causal: bool,
    max_len: int,
    settings: Settings = Settings(),
    has_cls: bool | None = None,
    length_flag: str = "--max-positions",
    segment_memory: bool = False,
) -> PositionEncoding:
    """Gives ``stack`` (a TransformerEncoder or TransformerDecoder of fairseq) the position encoding ``name``.

    hparams: as in ``build_stack``. max_len: n in tokens, which the user gave by length_flag. has_cls: as in ``Dims``.
    segment_memory: the layers can remember earlier segments, once the stack has a ``SegmentMemory``.
    fairseq must have built the stack without recomputation: its own wrapper cannot hand a layer what layers share.
    Returns an encoding that carries the resolved hyperparameters. Raises ValueError, one line, for a name,
    hyperparameter, layer, window or backend that there is not, or that does not serve this stack.
    """
    find(name)
    with flags.prefix_errors("--position-encoding"):
        check_serves(name, causal)
    layers = layers_of(stack)
    chosen = parse_layers(settings.layers, len(layers))
    windows = parse_windows(settings.window, len(layers))
    refuse_what_positions_cannot_serve(layers)
    with flags.prefix_errors("--attention-backend"):
        backend = select(settings.backend)
    attention = layers[0].self_attn
    dims = Dims(
        attention.embed_dim,
        attention.num_heads,
        max_len,
        causal,
        padding_idx=stack.padding_idx,
        has_cls=has_cls,
        randomized=settings.randomized,
    )
    # the encodings' own draws must not move those of the rest of the training
    with torch.random.fork_rng(devices=[]), flags.prefix_errors("--position-hparams"):
        encoding, stack_part, layer_parts = build_stack(name, dims, hparams, len(layers), chosen)
    adopt_common_weights(stack_part, stack.embed_positions)
    stack_part.to(next(stack.parameters()))
    stack_part.length_option = length_flag
    stack_part.prepare_bias = backend.prepare_bias
    if settings.randomized is not None:
        with flags.prefix_errors("--randomized-positions"):
            stack_part.randomize(settings.randomized, cls_at_0=any(part.reads_cls for part in layer_parts))
        if not encoding.reads_positions:
            log_once(logger, f"--randomized-positions does nothing: {name} reads no positions", logging.WARNING)
    stock = encoding.stock_positions == kind_of(stack.embed_positions) and not windows_text(windows)
    sign(stack_part, encoding, settings.layers, len(layers), stock=stock, windows=windows_text(windows))
    stack.embed_positions = stack_part
    for layer, part, window in zip(layers, layer_parts, windows):
        part.to(next(layer.parameters()))
        layer.self_attn.__class__ = RelPosMultiheadAttention
        layer.self_attn.attach(part, backend, stack_part.current_pass, causal, window)
        # fairseq 0.12.2 computes whole layers in torch's fused function in eval mode,
        # attention included; other versions do not know the attribute
        layer.can_use_fastpath = False
    with flags.prefix_errors("--attention-backend"):
        refuse_what_the_backend_cannot_serve(stack_part, layers, backend, settings.device)
    for layer in layers:
        wrap(
            layer, causal, settings.torch_compile, settings.unpad, settings.recompute, settings.offload, segment_memory
        )
    return encoding


def layers_of(stack: Any) -> list[Any]:
    """All layers of the stack; iterating over a LayerDropModuleList would drop some."""
    return [stack.layers[number] for number in range(len(stack.layers))]


def kind_of(stock_positions: nn.Module | None) -> str | None:
    """The kind of position embedding that fairseq has built: "learned", "sinusoidal" or None."""
    kinds = {LearnedPositionalEmbedding: "learned", SinusoidalPositionalEmbedding: "sinusoidal"}
    return kinds.get(type(stock_positions))


def adopt_common_weights(stack_part: StackPart, stock_positions: nn.Module | None) -> None:
    """Keeps the weights that fairseq has drawn under the same key and shape (a learned table)."""
    if stock_positions is None:
        return
    own = stack_part.state_dict()
    common = {
        key: value
        for key, value in stock_positions.state_dict().items()
        if key in own and own[key].shape == value.shape
    }
    stack_part.load_state_dict(common, strict=False)


def refuse_what_positions_cannot_serve(layers: list[Any]) -> None:
    """Raises ValueError for variants of attention that have no positions."""
    for layer in layers:
        attention = layer.self_attn
        if getattr(attention, "use_xformers", False):
            raise ValueError("xformers (--...-xformers-att-config) replaces the attention itself; leave it out")
        if attention.bias_k is not None or attention.add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn add keys that have no position; leave them out")
        if not attention.self_attention:
            raise ValueError("--cross-self-attention mixes two sequences of positions; leave it out")


def refuse_what_the_backend_cannot_serve(
    stack_part: StackPart, layers: list[Any], backend: Backend, device: torch.device | None
) -> None:
    """Checks the backend on the terms of a pass over two tokens, before any data is read."""
    weight = next(layers[0].parameters())
    length = min(2, stack_part.dims.max_len)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        stack_part(torch.full((1, length), stack_part.dims.padding_idx + 1, device=weight.device))
        for layer in layers:
            attention = layer.self_attn
            x_BHTD = weight.new_zeros(1, attention.num_heads, length, attention.head_dim)
            positions: Any = stack_part.current_pass.positions
            with positions.in_layer(lambda width=attention.embed_dim: weight.new_zeros(1, length, width)):
                terms = attention.position_encoding.terms(x_BHTD, x_BHTD, positions)
            backend.check(terms, device or weight.device)
    stack_part.current_pass.positions = None


def resolved_hparams(encoding: PositionEncoding) -> str:
    """The text for --position-hparams that rebuilds exactly this encoding."""
    return " ".join(f"{key}={to_text(value)}" for key, value in {**encoding.hparams, **encoding.layer_hparams}.items())
