"""Segment memory: a layer keeps its input, and its attention gets what is remembered of the segments before."""

from functools import partial
from typing import Any


def remember_the_input(layer: Any) -> None:
    """Makes a decoder layer of fairseq take part in the segment memory of its stack, where a pass has one."""
    layer.forward_without_memory = layer.forward
    layer.forward = partial(_forward, layer)


def _forward(layer, x_TBE, *args, **kwargs):
    current = layer.self_attn.current_pass
    segment = current.positions.segment
    if segment is None:
        return layer.forward_without_memory(x_TBE, *args, **kwargs)
    # a pre-norm layer's own input is kept, and normalised anew with the weights of now
    norm = layer.self_attn_layer_norm if layer.normalize_before else None
    current.past_MBE = segment.enter(layer, x_TBE, norm)
    try:
        return layer.forward_without_memory(x_TBE, *args, **kwargs)
    finally:
        current.past_MBE = None
