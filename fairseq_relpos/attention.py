"""The one attention module: project, cache, positions, mask, backend, out-project."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from .backends import Backend, Mask
from .encodings import PositionEncoding
from .layers.unpad import RealTokens
from .positions import CurrentPass, Positions


class RelPosMultiheadAttention(MultiheadAttention):
    """fairseq's self-attention with its logits taken from a position encoding.

    An existing MultiheadAttention becomes one: set its ``__class__`` and ``attach`` an
    encoding. Projections, state-dict keys, hooks and the decoding cache stay fairseq's;
    only ``forward`` is replaced, whole, because fairseq's leaves for torch's fused
    function in training and for its own code when decoding.
    """

    def attach(
        self, encoding: PositionEncoding, backend: Backend, current_pass: CurrentPass, causal: bool
    ) -> "RelPosMultiheadAttention":
        """Gives the module its encoding: the layer part, or a joined encoding whose layers share nothing."""
        self.position_encoding = encoding
        self.backend = backend
        self.current_pass = current_pass
        self.causal = causal
        encoding.use_content_projections(self.q_proj, self.k_proj)
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
        keys = query if self.past_MBE is None else torch.cat([self.past_MBE, query])
        q_BHTD = self.split_heads(self.spread(self.q_proj(query)))
        k_BHSD = self.split_heads(self.spread(self.k_proj(keys)))
        v_BHSD = self.split_heads(self.spread(self.v_proj(keys)))
        padding_BS, cache = key_padding_mask, None
        if incremental_state is not None:
            cache = self._get_input_buffer(incremental_state)
            k_BHSD, v_BHSD, padding_BS = self.extend(cache, k_BHSD, v_BHSD, padding_BS)
            self._set_input_buffer(incremental_state, cache)
        pos = self.positions(q_BHTD, k_BHSD)
        with pos.in_layer(lambda: self.spread(keys).transpose(0, 1), cache):
            terms = self.position_encoding.terms(q_BHTD, k_BHSD, pos)
        mask = self.mask(padding_BS, attn_mask, pos)
        out_BHTD, weights_BHTS = self.backend(terms, v_BHSD, mask, self.dropout_p(), need_weights or need_head_weights)
        out = self.out_proj(self.pack(out_BHTD.permute(2, 0, 1, 3).flatten(2)))
        if weights_BHTS is None:
            return out, None
        weights_HBTS = weights_BHTS.transpose(0, 1)
        return out, weights_HBTS if need_head_weights else weights_HBTS.mean(0)

    #: what the layer remembers of earlier segments, [M, B, E], while it runs (layers/memory.py)
    past_MBE: Tensor | None = None

    #: the places of the packed tokens in their batch, while --unpad runs the layer
    real_tokens: RealTokens | None = None

    def spread(self, x: Tensor) -> Tensor:
        """Puts the packed tokens of --unpad back into the padded batch."""
        return x if self.real_tokens is None else self.real_tokens.spread(x)

    def pack(self, x_TBE: Tensor) -> Tensor:
        """Takes the real tokens out of the padded batch, while --unpad runs the layer."""
        return x_TBE if self.real_tokens is None else self.real_tokens.pack(x_TBE)

    def split_heads(self, x_TBE: Tensor) -> Tensor:
        length, batch, _ = x_TBE.shape
        # heads side by side in memory, as torch's own attention has them
        x = x_TBE.contiguous().view(length, batch * self.num_heads, self.head_dim).transpose(0, 1)
        return x.view(batch, self.num_heads, length, self.head_dim)

    def dropout_p(self) -> float:
        active = self.training or self.dropout_module.apply_during_inference
        return self.dropout_module.p if active else 0.0

    def positions(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor) -> Positions:
        """The Positions of this pass; RuntimeError where they are those of other tokens."""
        pos = self.current_pass.positions
        lengths = (q_BHTD.size(2), k_BHSD.size(2))
        if pos is None or (pos.tgt_len, pos.src_len) != lengths:
            raise RuntimeError(
                f"attention over (T, S) = {lengths}, but the positions of this pass are "
                f"{None if pos is None else (pos.tgt_len, pos.src_len)}: the stack that owns this "
                "layer must run its embed_positions on the same tokens first"
            )
        return pos

    def mask(self, padding_BS: torch.Tensor | None, attn_mask: torch.Tensor | None, pos: Positions) -> Mask:
        if pos.segment is not None:
            return Mask(
                pos.segment.hidden_BS(), causal=True, extra=pos.segment.too_far_TS(pos), documents_BS=pos.documents_BS
            )
        if padding_BS is not None:
            padding_BS = padding_BS.bool()
        # in a causal stack fairseq passes its future mask, and passes none where it wants
        # the full context (alignment) or decodes one step
        if self.causal and attn_mask is not None:
            return Mask(padding_BS, causal=True, documents_BS=pos.documents_BS)
        return Mask(padding_BS, extra=attn_mask, documents_BS=pos.documents_BS)

    def extend(
        self, saved: dict[str, Any], k_BHSD: torch.Tensor, v_BHSD: torch.Tensor, padding_BS: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Appends this step's keys and values to fairseq's own cache, which fairseq reorders with the beam."""
        if "prev_key" in saved:
            k_BHSD = torch.cat([saved["prev_key"], k_BHSD], dim=2)
            v_BHSD = torch.cat([saved["prev_value"], v_BHSD], dim=2)
        padding_BS = self._append_prev_key_padding_mask(
            key_padding_mask=padding_BS,
            prev_key_padding_mask=saved.get("prev_key_padding_mask"),
            batch_size=k_BHSD.size(0),
            src_len=k_BHSD.size(2),
            static_kv=False,
        )
        saved.update(prev_key=k_BHSD, prev_value=v_BHSD, prev_key_padding_mask=padding_BS)
        return k_BHSD, v_BHSD, padding_BS
