"""Put a position encoding into an encoder or decoder that fairseq has built.

A built stack is changed in place rather than subclassed: fairseq names its encoder and
decoder classes in the builders of its models, gives ``build_encoder_layer`` no layer
index, and re-initialises every Embedding and Linear after building. This way one
function serves every model family, the common weights of all encodings are those of the
stock architecture, and each encoding keeps its own initialisation.
"""

import argparse
import logging
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
from .signature import sign

logger = logging.getLogger(__name__)


def override_self_attention(
    stack: Any,
    name: str,
    hparams: dict,
    causal: bool,
    max_len: int,
    layers: str = "all",
    backend: str = "auto",
    has_cls: bool | None = None,
    checkpoint_activations: bool = False,
    offload_activations: bool = False,
    torch_compile: bool = False,
    unpad: bool = False,
    device: torch.device | None = None,
    length_flag: str = "--max-positions",
    segment_memory: bool = False,
    randomized: int | None = None,
    window: str = "",
) -> PositionEncoding:
    """Give ``stack`` (a TransformerEncoder or TransformerDecoder) the encoding ``name``.

    hparams: as in ``build_stack``. layers: those that have the encoding, as in ``parse_layers``. max_len: n in tokens,
    which the user gave by length_flag. checkpoint_activations: recompute each layer in backward; fairseq's own wrapper
    cannot hand a layer what layers share.
    offload_activations: keep the inputs of recomputed layers in CPU memory meanwhile.
    torch_compile: compile each layer except its attention, for training.
    unpad: layers compute nothing for pads; a decoder's layers stay as they are.
    device: where the model will run, if not where it is.
    segment_memory: the layers can remember earlier segments, once the stack has a ``SegmentMemory``.
    randomized: in training, the tokens have random positions below this number.
    window: how many tokens away a key may be, as in ``parse_windows``.
    Returns an encoding that carries the resolved hyperparameters.
    """
    find(name)
    with flags.prefix_errors("--position-encoding"):
        check_serves(name, causal)
    all_layers = layers_of(stack)
    chosen = parse_layers(layers, len(all_layers))
    windows = parse_windows(window, len(all_layers))
    refuse_what_positions_cannot_serve(all_layers)
    attention = all_layers[0].self_attn
    dims = Dims(
        attention.embed_dim, attention.num_heads, max_len, causal, padding_idx=stack.padding_idx, has_cls=has_cls
    )
    with flags.prefix_errors("--attention-backend"):
        chosen_backend = select(backend)
    # the encodings' own draws must not move those of the rest of the training
    with torch.random.fork_rng(devices=[]):
        with flags.prefix_errors("--position-hparams"):
            encoding, stack_part, parts = build_stack(name, dims, hparams, len(all_layers), chosen)
    adopt_common_weights(stack_part, stack.embed_positions)
    stack_part.to(next(stack.parameters()))
    stack_part.length_option = length_flag
    stack_part.prepare_bias = chosen_backend.prepare_bias
    if randomized is not None:
        stack_part.randomized = randomized
        with flags.prefix_errors("--randomized-positions"):
            stack_part.check_length(randomized)
    as_stock = encoding.stock_positions == kind_of(stack.embed_positions)
    window_text = windows_text(windows)
    sign(stack_part, encoding, layers, len(all_layers), stock=as_stock and not window_text, windows=window_text)
    stack.embed_positions = stack_part
    for layer, part, farthest in zip(all_layers, parts, windows):
        part.to(next(layer.parameters()))
        layer.self_attn.__class__ = RelPosMultiheadAttention
        layer.self_attn.attach(part, chosen_backend, stack_part.current_pass, causal, farthest)
        # fairseq 0.12.2 computes whole layers in torch's fused function in eval mode,
        # attention included; other versions do not know the attribute
        layer.can_use_fastpath = False
    with flags.prefix_errors("--attention-backend"):
        refuse_what_the_backend_cannot_serve(stack_part, all_layers, chosen_backend, device)
    for layer in all_layers:
        wrap(layer, causal, torch_compile, unpad, checkpoint_activations, offload_activations, segment_memory)
    return encoding


def options(args: argparse.Namespace) -> dict[str, Any]:
    """What ``override_self_attention`` takes from the flags of every model."""
    offload = getattr(args, "offload_activations", False)
    return {
        "layers": args.position_layers,
        "backend": args.attention_backend,
        "randomized": flags.randomized_positions(args),
        "device": flags.device_of(args),
        "torch_compile": getattr(args, "torch_compile", False),
        "unpad": getattr(args, "unpad", False),
        "checkpoint_activations": offload or getattr(args, "checkpoint_activations", False),
        "offload_activations": offload,
    }


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
