"""--unpad: an encoder's layers see the real tokens of a batch, not its pads; see ``real_tokens``."""

from functools import partial
from typing import Any

from ..real_tokens import RealTokens


def run_on_real_tokens(layer: Any) -> None:
    """Makes an encoder layer of fairseq compute real tokens alone. Its input and output stay [T, B, E]."""
    layer.forward_of_all = layer.forward
    layer.forward = partial(_forward, layer)


def _forward(layer, x_TBE, encoder_padding_mask, *args, **kwargs):
    if encoder_padding_mask is None:
        return layer.forward_of_all(x_TBE, encoder_padding_mask, *args, **kwargs)
    current = layer.self_attn.current_pass
    real_tokens = current.real_tokens = current.positions.once(RealTokens)
    try:
        x_N1E = layer.forward_of_all(real_tokens.pack(x_TBE), encoder_padding_mask, *args, **kwargs)
        return real_tokens.spread(x_N1E)
    finally:
        current.real_tokens = None
