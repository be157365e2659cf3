"""Attention with a position encoding for any PyTorch model. It needs torch alone, no fairseq."""

from .attention import RelPosSelfAttention
from .cache import Cache
from .encoder import EncoderStates, RelPosEncoder, RelPosEncoderLayer

__all__ = ["Cache", "EncoderStates", "RelPosEncoder", "RelPosEncoderLayer", "RelPosSelfAttention"]
