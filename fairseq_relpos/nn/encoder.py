"""A stack of Transformer layers whose self-attention has a position encoding."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..backends import select
from ..encodings import Dims, build_stack
from ..layer_numbers import parse_layers, parse_windows, windows_text
from ..positions import Positions
from ..real_tokens import RealTokens
from .attention import CrossAttention, LayerAttention, sign_module
from .cache import Cache, as_padding, check_input, checked_hparams, positions_of_pass

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "tanh": torch.tanh,
    "silu": F.silu,
}


class EncoderStates(NamedTuple):
    """The output [B, T, E]; the inputs of the layers and the output of the last one, [B, T, E] each; the attention
    weights of each layer, [B, H, T, S], or None, and those of its attention to an encoder's output.

    Examples:
        >>> encoder = RelPosEncoder(16, 2, 3, "t5")
        >>> states = encoder.states(torch.randn(1, 5, 16), need_weights=True)
        >>> states.output.shape, len(states.hidden), states.weights[0].shape
        (torch.Size([1, 5, 16]), 4, torch.Size([1, 2, 5, 5]))
    """

    output: Tensor
    hidden: list[Tensor]
    weights: list[Tensor | None]
    memory_weights: list[Tensor | None]


class RelPosEncoderLayer(nn.Module):
    """One layer: self-attention and feed-forward, each with a residual connection and a LayerNorm after it, or before
    it (norm_first). With memory_dim, attention to an encoder's output of this dimension stands between the two. The
    names of its parameters are fairseq's. Inside a stack x is [T, B, E].

    Examples:
        >>> encoder = RelPosEncoder(16, 2, 3, "t5", position_layers="first")
        >>> [layer.self_attn.position_encoding.name for layer in encoder.layers]
        ['t5', 'none', 'none']
    """

    def __init__(
        self,
        dims: Dims,
        ffn_dim: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        norm_first: bool = False,
        layer_norm_eps: float = 1e-5,
        memory_dim: int | None = None,
    ):
        super().__init__()
        self.norm_first = norm_first
        self.dropout, self.activation_dropout = dropout, activation_dropout
        self.activation = activation_of(activation)
        self.self_attn = LayerAttention(dims, attention_dropout)
        self.self_attn_layer_norm = nn.LayerNorm(dims.embed_dim, eps=layer_norm_eps)
        self.encoder_attn: CrossAttention | None = None
        if memory_dim is not None:
            self.encoder_attn = CrossAttention(dims, attention_dropout, memory_dim=memory_dim)
            self.encoder_attn_layer_norm = nn.LayerNorm(dims.embed_dim, eps=layer_norm_eps)
        self.fc1 = nn.Linear(dims.embed_dim, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, dims.embed_dim)
        self.final_layer_norm = nn.LayerNorm(dims.embed_dim, eps=layer_norm_eps)

    def forward(
        self,
        x_TBE: Tensor,
        pos: Positions,
        padding_BT: Tensor | None = None,
        attn_mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
        cache: dict[str, Any] | None = None,
        real_tokens: RealTokens | None = None,
        memory_SBE: Tensor | None = None,
        memory_padding_BS: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The arguments are those of ``PositionedAttention.attend``, and an encoder's output with its pads. Returns x
        and the weights of both attentions."""
        attention, memory_weights_BHTS = self.self_attn, None
        y = self.self_attn_layer_norm(x_TBE) if self.norm_first else x_TBE
        y, weights_BHTS = attention(
            y, pos, padding_BT, attn_mask, causal, attention.dropout_p, need_weights, cache, real_tokens
        )
        x = x_TBE + F.dropout(y, self.dropout, self.training)
        if not self.norm_first:
            x = self.self_attn_layer_norm(x)
        if self.encoder_attn is not None:
            y = self.encoder_attn_layer_norm(x) if self.norm_first else x
            y, memory_weights_BHTS = self.encoder_attn(y, memory_SBE, memory_padding_BS, need_weights, cache)
            x = x + F.dropout(y, self.dropout, self.training)
            if not self.norm_first:
                x = self.encoder_attn_layer_norm(x)
        y = self.final_layer_norm(x) if self.norm_first else x
        y = F.dropout(self.activation(self.fc1(y)), self.activation_dropout, self.training)
        x = x + F.dropout(self.fc2(y), self.dropout, self.training)
        return x if self.norm_first else self.final_layer_norm(x), weights_BHTS, memory_weights_BHTS


class RelPosEncoder(nn.Module):
    """A stack of ``num_layers`` layers with one position encoding, of which they share what its paper shares.

    ``causal=True`` makes it the decoder of a language model, memory_dim besides that of an encoder-decoder model: its
    layers attend to an encoder's output of this dimension, too. Its input are embeddings, [B, T, E]; an encoding that
    joins the input (learned, sinusoidal, ...) is added there.

    encoding, max_len, hparams, has_cls, backend: as in ``RelPosSelfAttention``. ffn_dim: 4 embed_dim by default.
    hparams, besides: "layer.3.base" is that of one layer, "layer.1-5.base" and "every.3.base" of some.
    position_layers: layers that see positions: all, first, numbers from 1 such as "1,3-5", "every.4" or "not.every.4".
    window: as in ``RelPosSelfAttention``; "128 every.3=none" is 128 but in layers 3, 6, .. dropout: of the input and
    of what each part of a layer adds. attention_dropout, activation_dropout: of the attention weights, and in the
    feed-forward. activation: gelu, relu, tanh, silu or a function. norm_first: LayerNorm before each part of a layer
    and at the end (pre-norm), not after each part. layernorm_embedding: a LayerNorm of the input, after positions have
    joined it, as in BERT. layer_norm_eps: added to each variance. checkpoint_activations: backward computes each
    layer's activations again, which saves memory. unpad: layers compute nothing for pads, which come out as 0; it
    serves full passes.

    The names of its parameters are those of fairseq's encoders and decoders with the same encoding, without
    ``embed_tokens``.

    Examples:
        >>> encoder = RelPosEncoder(16, 2, 3, "tupe_r", max_len=32)
        >>> pads = torch.tensor([[False, False, True]])
        >>> encoder(torch.randn(1, 3, 16), pads).shape
        torch.Size([1, 3, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        encoding: str = "tupe_r",
        max_len: int = 512,
        causal: bool = False,
        dropout: float = 0.1,
        *,
        ffn_dim: int | None = None,
        hparams: dict[str, Any] | None = None,
        position_layers: str = "all",
        window: int | str | None = None,
        has_cls: bool | None = None,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        norm_first: bool = False,
        layernorm_embedding: bool = False,
        layer_norm_eps: float = 1e-5,
        backend: str = "auto",
        checkpoint_activations: bool = False,
        unpad: bool = False,
        memory_dim: int | None = None,
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers={num_layers}: give 1 or more")
        if unpad and memory_dim is not None:
            raise ValueError("unpad is for layers without memory_dim: leave one of the two out")
        chosen = parse_layers(position_layers, num_layers, "position_layers")
        windows = parse_windows(window, num_layers, "window")
        dims = Dims(embed_dim, num_heads, max_len, causal, has_cls=has_cls)
        self.causal, self.dropout, self.memory_dim = causal, dropout, memory_dim
        self.checkpoint_activations, self.unpad = checkpoint_activations, unpad
        serving = select(backend)
        #: the encoding with its resolved hyperparameters; the layers have their own
        first, self.embed_positions, parts = build_stack(encoding, dims, checked_hparams(hparams), num_layers, chosen)
        self.hparams, self.reads_cls = {**first.hparams, **first.layer_hparams}, first.reads_cls
        self.embed_positions.prepare_bias = serving.prepare_bias
        sign_module(self.embed_positions, first, position_layers, num_layers, windows_text(windows))
        self.layernorm_embedding = nn.LayerNorm(embed_dim, layer_norm_eps) if layernorm_embedding else None
        self.layers = nn.ModuleList()
        for part, farthest in zip(parts, windows):
            layer = RelPosEncoderLayer(
                *(dims, ffn_dim or 4 * embed_dim, dropout, attention_dropout, activation_dropout, activation),
                *(norm_first, layer_norm_eps, memory_dim),
            )
            layer.self_attn.set_encoding(part, serving, farthest)
            self.layers.append(layer)
        self.layer_norm = nn.LayerNorm(embed_dim, layer_norm_eps) if norm_first else None

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        *,
        cache: Cache | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        memory: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """[B, T, E] from [B, T, E]. memory [B, S, memory_dim]: an encoder's output; memory_key_padding_mask [B, S]:
        True at its pads. With a cache, the first step keeps both. The other arguments are those of
        ``RelPosSelfAttention.forward``."""
        return self.states(
            x,
            key_padding_mask,
            attn_mask,
            cache=cache,
            position_ids=position_ids,
            document_ids=document_ids,
            memory=memory,
            memory_key_padding_mask=memory_key_padding_mask,
        ).output

    def states(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
        *,
        cache: Cache | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        memory: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> EncoderStates:
        """``forward`` with all that lies between. need_weights: the attention weights of each layer, too."""
        check_input(x, self.embed_positions.dims.embed_dim)
        padding_BT = as_padding(key_padding_mask, x)
        memory_SBE, memory_padding_BS = self.memory_of(x, memory, memory_key_padding_mask)
        pos, padding_BS = positions_of_pass(
            self.embed_positions, x, padding_BT, attn_mask, position_ids, document_ids, cache, self
        )
        x_BTE = self.embed(x, pos, padding_BS)
        real_tokens = None
        if padding_BT is not None:
            x_BTE = x_BTE.masked_fill(padding_BT[..., None], 0)
            if cache is None and not padding_BT.any():
                padding_BT = None
            elif cache is None and self.unpad:
                real_tokens = pos.once(RealTokens)
        x_TBE = x_BTE.transpose(0, 1)
        hidden, weights, memory_weights = [x_BTE], [], []
        how = (attn_mask, self.causal, need_weights)
        for layer in self.layers:
            packed = x_TBE if real_tokens is None else real_tokens.pack(x_TBE)
            kept = None if cache is None else cache.of(layer)
            # computed again, a layer would enter its keys into the cache again
            run = partial(self.run, layer) if cache is None else layer
            packed, weights_BHTS, memory_weights_BHTS = run(
                packed, pos, padding_BT, *how, kept, real_tokens, memory_SBE, memory_padding_BS
            )
            x_TBE = packed if real_tokens is None else real_tokens.spread(packed)
            hidden.append(x_TBE.transpose(0, 1))
            weights.append(weights_BHTS)
            memory_weights.append(memory_weights_BHTS)
        output = hidden[-1]
        if self.layer_norm is not None:
            output = self.layer_norm(x_TBE).transpose(0, 1)
            if padding_BT is not None and real_tokens is not None:
                output = output.masked_fill(padding_BT[..., None], 0)
        return EncoderStates(output, hidden, weights, memory_weights)

    def memory_of(
        self, x_BTE: Tensor, memory_BSE: Tensor | None, mask_BS: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """An encoder's output [S, B, E] and its pads, None where there are none. Checks them first."""
        if memory_BSE is None:
            return None, None
        if self.memory_dim is None:
            raise ValueError("memory is for layers that attend to an encoder's output: build them with memory_dim")
        if memory_BSE.dim() != 3 or memory_BSE.shape[::2] != (x_BTE.size(0), self.memory_dim):
            wanted = f"[{x_BTE.size(0)}, length, {self.memory_dim}]"
            raise ValueError(
                f"memory of shape {tuple(memory_BSE.shape)}: give [batch, length, memory_dim], {wanted} here"
            )
        padding_BS = as_padding(mask_BS, memory_BSE)
        if padding_BS is not None and not padding_BS.any():
            padding_BS = None
        return memory_BSE.transpose(0, 1), padding_BS

    def embed(self, x_BTE: Tensor, pos: Positions, padding_BS: Tensor | None = None) -> Tensor:
        """The input of the first layer: x, what the encoding adds to it, LayerNorm and dropout."""
        if self.embed_positions.joins_input:
            pad = self.embed_positions.dims.padding_idx
            tokens_BS = torch.full((x_BTE.size(0), pos.src_len), pad + 1, device=x_BTE.device)
            if padding_BS is not None:
                tokens_BS = tokens_BS.masked_fill(padding_BS, pad)
            positions: Any = self.embed_positions.embed(tokens_BS, pos)
            x_BTE = x_BTE + positions
        if self.layernorm_embedding is not None:
            x_BTE = self.layernorm_embedding(x_BTE)
        return F.dropout(x_BTE, self.dropout, self.training)

    def run(self, layer: nn.Module, *args: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """One layer, whose activations backward computes again if that is asked for."""
        if self.checkpoint_activations and self.training and torch.is_grad_enabled():
            return checkpoint(layer, *args, use_reentrant=False)
        return layer(*args)


def activation_of(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is not known: give {', '.join(ACTIVATIONS)} or a function")
    return ACTIVATIONS[activation]
