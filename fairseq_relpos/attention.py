"""fairseq's self-attention with positions: its arguments, results and cache, around ``PositionedAttention``."""

from typing import Any

from fairseq.modules import MultiheadAttention
from torch import Tensor

from .backends import Backend
from .encodings import PositionEncoding
from .positions import CurrentPass
from .self_attention import PositionedAttention


class RelPosMultiheadAttention(PositionedAttention, MultiheadAttention):
    """fairseq's self-attention with its logits taken from a position encoding.

    An existing MultiheadAttention becomes one: set its ``__class__`` and ``attach`` an
    encoding. Projections, state-dict keys, hooks and the decoding cache stay fairseq's;
    only ``forward`` is replaced, whole, because fairseq's leaves for torch's fused
    function in training and for its own code when decoding.
    """

    # of fairseq's class
    dropout_module: Any
    _get_input_buffer: Any
    _set_input_buffer: Any

    def attach(
        self,
        encoding: PositionEncoding,
        backend: Backend,
        current_pass: CurrentPass,
        causal: bool,
        window: int | None = None,
    ) -> "RelPosMultiheadAttention":
        """Gives the module its encoding, and says where it finds the positions of each pass."""
        self.set_encoding(encoding, backend, window)
        self.current_pass = current_pass
        self.causal = causal
        return self

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """fairseq's arguments and results: query [T, B, E] in, [T, B, E] and the weights
        out, [B, T, S] averaged over the heads or [H, B, T, S] with need_head_weights."""
        if before_softmax or static_kv:
            raise ValueError(
                "self-attention with positions has no before_softmax and no static_kv: "
                "both belong to encoder-decoder attention"
            )
        cache = None
        if incremental_state is not None:
            cache = self._get_input_buffer(incremental_state)
            self._set_input_buffer(incremental_state, cache)  # ``attend`` fills it; fairseq reorders it with the beam
        current = self.current_pass
        pos = current.positions
        # in a causal stack fairseq passes its future mask, and passes none where it wants
        # the full context (alignment) or decodes one step
        causal = self.causal and attn_mask is not None
        hidden, padding_BS = None if causal else attn_mask, key_padding_mask
        if pos is not None and pos.segment is not None:
            causal, hidden, padding_BS = True, None, pos.segment.hidden_BS()
        out, weights_BHTS = self.attend(
            query,
            pos,
            padding_BS,
            hidden,
            causal,
            self.dropout_p(),
            need_weights or need_head_weights,
            cache,
            current.real_tokens,
            current.past_MBE,
        )
        if weights_BHTS is None:
            return out, None
        weights_HBTS = weights_BHTS.transpose(0, 1)
        return out, weights_HBTS if need_head_weights else weights_HBTS.mean(0)

    def dropout_p(self) -> float:
        active = self.training or self.dropout_module.apply_during_inference
        return self.dropout_module.p if active else 0.0
