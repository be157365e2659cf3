"""Self-attention with a position encoding."""

import math
from typing import Any

from torch import Tensor, nn

from ..backends import Eager, Mask, select
from ..encodings import Dims, PositionEncoding, StackPart, build
from ..layer_numbers import parse_windows, windows_text
from ..self_attention import PositionedAttention, split_heads
from ..signature import before_loading, drop_sinusoids, sign
from ..terms import Terms
from .cache import Cache, as_padding, check_input, checked_hparams, positions_of_pass

#: what to do about weights of another encoding
IF_WEIGHTS_DIFFER = "build the module with the encoding and the hparams of these weights"


def sign_module(
    stack_part: StackPart, encoding: PositionEncoding, layers: str = "all", count: int = 1, windows: str = ""
) -> None:
    """Signs every encoding: without a signature, weights with fairseq's own sinusoids would load as those of another
    encoding that has no weights either. Files of fairseq load as before."""
    sign(stack_part, encoding, layers, count, stock=False, advice=IF_WEIGHTS_DIFFER, windows=windows)
    if encoding.stock_positions:
        before_loading(stack_part, drop_sinusoids)


class Projections(nn.Module):
    """The projections of one layer's attention. memory_dim: dimension of what keys and values are made of, where it is
    not that of the queries."""

    def __init__(self, dims: Dims, dropout: float, bias: bool = True, memory_dim: int | None = None):
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(f"attention dropout={dropout}: give a number from 0 to 1")
        self.embed_dim, self.num_heads, self.head_dim = dims.embed_dim, dims.num_heads, dims.head_dim
        self.dropout = dropout
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            width = memory_dim if memory_dim is not None and name in ("k_proj", "v_proj") else dims.embed_dim
            linear = nn.Linear(width, dims.embed_dim, bias=bias)
            # torch's and fairseq's: q, k and v as parts of one matrix [3E, E]
            nn.init.xavier_uniform_(linear.weight, gain=1 if name == "out_proj" else 1 / math.sqrt(2))
            if bias:
                nn.init.zeros_(linear.bias)
            self.add_module(name, linear)

    @property
    def dropout_p(self) -> float:
        return self.dropout if self.training else 0.0


class LayerAttention(Projections, PositionedAttention):
    """One layer's self-attention. Its stack hands it an encoding and the positions of each pass."""

    forward = PositionedAttention.attend


class CrossAttention(Projections):
    """Attention of a decoder's tokens to an encoder's output. It has no positions, as in fairseq's models, whose bits
    it has."""

    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    out_proj: nn.Linear

    def forward(
        self,
        x_TBE: Tensor,
        memory_SBE: Tensor | None,
        padding_BS: Tensor | None = None,
        need_weights: bool = False,
        cache: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output [T, B, E], and the weights [B, H, T, S] where they are asked for. With a cache, keys and values
        are those of its first step."""
        kept = {} if cache is None else cache
        if "memory_key" not in kept:
            if memory_SBE is None:
                raise ValueError("the layers attend to an encoder's output: give memory, [batch, length, dimension]")
            key, value = (split_heads(proj(memory_SBE), self.num_heads) for proj in (self.k_proj, self.v_proj))
            kept.update(memory_key=key, memory_value=value, memory_padding=padding_BS)
        terms = Terms(split_heads(self.q_proj(x_TBE), self.num_heads), kept["memory_key"], self.head_dim**-0.5)
        mask = Mask(kept["memory_padding"])
        out_BHTD, weights_BHTS = Eager()(terms, kept["memory_value"], mask, self.dropout_p, need_weights)
        return self.out_proj(out_BHTD.permute(2, 0, 1, 3).flatten(2)), weights_BHTS


class RelPosSelfAttention(Projections, PositionedAttention):
    """Self-attention with a position encoding, which it owns. It takes the place of an nn.MultiheadAttention with
    batch_first=True that a model uses for self-attention.

    encoding: a name of ``fairseq_relpos.encodings.ENCODINGS``. max_len: the longest sequence in tokens; tables are made
    for it. causal: no token sees a later one. dropout: of the attention weights, in training. hparams: those of the
    encoding, by name. has_cls: whether the first token is a [CLS], which some encodings treat apart; None: where
    attention is not causal. backend: how attention is computed, one of ``fairseq_relpos.backends.names()``. window: how
    many tokens away a key may be; the others are hidden, on both sides. None: any number. bias: of the projections.
    layer: the number of the layer in its stack, from 1, which ``lfhc`` reads.

    An encoding that adds positions to the input of a whole stack (learned, sinusoidal, ...) belongs into a
    ``RelPosEncoder``; here it would leave the order of the tokens invisible, of which a warning tells.

    Examples:
        >>> attention = RelPosSelfAttention(64, 8, "tupe_r", max_len=128)
        >>> out, weights = attention(torch.randn(2, 9, 64))
        >>> out.shape, weights
        (torch.Size([2, 9, 64]), None)
    """

    # attributes of nn.MultiheadAttention that nn.TransformerEncoder asks for
    batch_first = True
    in_proj_bias = None  # keeps torch's own fused layer away
    _qkv_same_embed_dim = False  # and nested tensors, in a stack that is built with this attention

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        encoding: str = "tupe_r",
        max_len: int = 512,
        causal: bool = False,
        dropout: float = 0.0,
        *,
        hparams: dict[str, Any] | None = None,
        has_cls: bool | None = None,
        bias: bool = True,
        backend: str = "auto",
        window: int | None = None,
        layer: int = 1,
    ):
        windows = parse_windows(window, 1, "window")
        dims = Dims(embed_dim, num_heads, max_len, causal, layer=layer, has_cls=has_cls)
        super().__init__(dims, dropout, bias)
        self.causal = causal
        joined: Any = build(encoding, dims, **checked_hparams(hparams))
        self.set_encoding(joined, select(backend), windows[0])
        joined.stack.prepare_bias = self.backend.prepare_bias
        sign_module(joined.stack, joined, windows=windows_text(windows))

    @property
    def in_proj_weight(self) -> Tensor:
        raise RuntimeError(
            "nn.TransformerEncoder is about to drop the pads, and with them the positions: build it with "
            "enable_nested_tensor=False, or set its use_nested_tensor = False"
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        cache: Cache | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output [B, T, E], and None or the weights [B, T, S] ([B, H, T, S] without
        average_attn_weights).

        query [B, T, E]; key and value are the same tensor, or left out. key_padding_mask [B, T]: True at pads.
        attn_mask [T, S] or [B * H, T, S]: True where a query may not see a key, or numbers to be added to the logits.
        The output at a query that sees no key has no meaning, and its gradient depends on the backend.
        is_causal: no token sees a later one in this call; attn_mask, if given, holds beside it. cache: query and
        all masks are those of the new tokens; S counts the earlier ones, too. position_ids, document_ids [B, T]:
        see ``fairseq_relpos.positions.Positions``.
        """
        for name, other in (("key", key), ("value", value)):
            if other is not None and other is not query:
                raise ValueError(f"{name} is another tensor than query: this is self-attention, give the query alone")
        encoding: Any = self.position_encoding
        if encoding.stack.joins_input:
            encoding.warn_of_the_input_part("one attention lacks", "use fairseq_relpos.nn.RelPosEncoder")
        check_input(query, self.embed_dim)
        padding_BT = as_padding(key_padding_mask, query)
        pos, _ = positions_of_pass(
            encoding.stack, query, padding_BT, attn_mask, position_ids, document_ids, cache, self
        )
        out_TBE, weights_BHTS = self.attend(
            query.transpose(0, 1).contiguous(),
            pos,
            padding_BT,
            attn_mask,
            is_causal or self.causal,
            self.dropout_p,
            need_weights,
            None if cache is None else cache.of(self),
        )
        if weights_BHTS is not None and average_attn_weights:
            weights_BHTS = weights_BHTS.mean(1)
        return out_TBE.transpose(0, 1), weights_BHTS
