"""Wrappers of a fairseq layer. Each replaces ``layer.forward``; the last one is the outermost.

1. ``torch_compile`` (--torch-compile): compiles the layer except its attention, so it must see the layer itself.
2. ``unpad`` (--unpad): gives the compiled layer real tokens alone, in an encoder.
3. ``memory`` (--memory-length): gives the attention what is remembered of earlier segments.
4. ``checkpointing`` (--checkpoint-activations): recomputes all of that in backward.
"""

from torch import nn

from .checkpointing import recompute_in_backward
from .memory import remember_the_input
from .torch_compile import compile_around_attention
from .unpad import run_on_real_tokens


def wrap(
    layer: nn.Module,
    causal: bool,
    torch_compile: bool,
    unpad: bool,
    checkpoint_activations: bool,
    offload: bool,
    segment_memory: bool = False,
) -> None:
    """Wraps an encoder or decoder layer as asked, in the order above."""
    if torch_compile:
        compile_around_attention(layer)
    if unpad and not causal and not hasattr(layer, "encoder_attn"):  # a decoder's layer takes the encoder's pads, too
        run_on_real_tokens(layer)
    if segment_memory:
        remember_the_input(layer)
    if checkpoint_activations:
        recompute_in_backward(layer, offload)
