"""--checkpoint-activations: a layer's activations are computed again in backward, not kept.

fairseq's own wrapper is torch's reentrant kind, which cannot hand a layer what layers share.
"""

import contextlib
from functools import partial
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint


def recompute_in_backward(layer: Any, offload: bool = False) -> None:
    """Activation checkpointing of one layer. It keeps the positions of the pass: when backward recomputes the
    layer, another forward pass may be the current one."""
    layer.forward_once = layer.forward
    layer.offload = offload
    layer.forward = partial(_checkpointed_forward, layer)


def _checkpointed_forward(layer, *args, **kwargs):
    if not (torch.is_grad_enabled() and layer.training):
        return layer.forward_once(*args, **kwargs)
    current_pass = layer.self_attn.current_pass
    positions = current_pass.positions

    def run(*args, **kwargs):
        before, current_pass.positions = current_pass.positions, positions
        try:
            return layer.forward_once(*args, **kwargs)
        finally:
            current_pass.positions = before

    with save_on_cpu() if layer.offload else contextlib.nullcontext():
        return checkpoint(run, *args, use_reentrant=False, **kwargs)
