"""--torch-compile: in training, torch compiles each layer except its attention.

Linear maps, norms, dropout and residuals become fused kernels. Attention stays with its backend,
and so do positions and the decoding cache: torch.compile breaks its graph there. Layers differ in
nothing else, so one compiled function serves them all.
"""

import functools
from typing import Any

import torch

from ..mends.replace import put

#: compiled variants of a layer that torch may keep
FORMS = 64


def compile_around_attention(layer: Any) -> None:
    """Compiles the layer for training. In evaluation and decoding it runs as it is."""
    layer.forward = functools.partial(_forward, layer)


def _forward(layer, *args, **kwargs):
    if not layer.training:
        return _as_it_is(layer, *args, **kwargs)
    compiled = _compiled(type(layer.self_attn))
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        return compiled(layer, *args, **kwargs)
    except BackendCompilerFailed as error:
        reason = str(error).split("\n", 1)[0]
        raise RuntimeError(
            f"--torch-compile: torch cannot compile on this machine ({reason}); install what is "
            "missing, or leave the flag out"
        ) from error


def _as_it_is(layer, *args, **kwargs):
    return type(layer).forward(layer, *args, **kwargs)


@functools.cache
def _compiled(attention):
    """attention: the class of the layers' attention."""
    # here and not above: it makes torch import its compiler, which takes a second
    for name in ("forward", "_get_input_buffer"):
        setattr(attention, name, torch.compiler.disable(getattr(attention, name)))
    # encoder or decoder, pads or none, one sentence or several: each is a form of its own, and beyond
    # torch's limit of 8 the rest would run as it is
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    put(torch._dynamo.config, limit, max(FORMS, getattr(torch._dynamo.config, limit)), "compiled-forms")
    return torch.compile(_as_it_is, dynamic=True)
