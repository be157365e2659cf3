"""The positions of a stack in CTranslate2's terms.

CTranslate2 has four kinds: a table that joins the input, a bias of the distance in T5's buckets, Shaw's relative keys,
and rotation; and ALiBi in decoders. ``put_positions`` says which of them an encoding is, by what the encoding
declares.
"""

from typing import Any

import numpy as np
import torch
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec, RotaryScalingType
from ctranslate2.specs.model_spec import OPTIONAL
from fairseq.modules import LearnedPositionalEmbedding

from ..encodings import PositionEncoding, StackPart
from ..encodings.absolute import NoPositions
from ..encodings.alibi import FixedSlopes
from ..encodings.rope import RoPE, frequencies
from ..encodings.shaw import RelativeKeys
from ..override import layers_of
from ..positions import Positions
from ..terms import Bias, over_offsets

#: tokens for which positions are written where an encoding has them for any length
AT_LEAST = 2048
#: by so much, the same bias differs when it is computed for another length
ROUNDING = 1e-5


class CannotHoldError(ValueError):
    """The reason why CTranslate2 has no place for these positions."""


def has_alibi(stack: Any) -> bool:
    """Whether this decoder has ALiBi's fixed slopes in all its layers, which CTranslate2 computes for any length."""
    return isinstance(stack.embed_positions, FixedSlopes) and not any(map(is_blind, encodings_of(stack)))


def encodings_of(stack: Any) -> list[PositionEncoding | None]:
    """The encoding of each layer; None in a layer of stock fairseq."""
    return [getattr(layer.self_attn, "position_encoding", None) for layer in layers_of(stack)]


def is_blind(encoding: PositionEncoding | None) -> bool:
    """Whether this layer sees the content alone."""
    return encoding is None or isinstance(encoding, NoPositions)


def put_positions(spec: Any, stack: Any, alibi: bool) -> list[torch.Tensor | None]:
    """Writes the positions of a stack into its spec. alibi: the spec has ALiBi already. Returns for each layer the
    order in which the dimensions of each head of q and k are to be written, None for their own order. Raises
    CannotHoldError if CTranslate2 has no place for them."""
    table_TE = input_table(stack)
    encodings = encodings_of(stack)
    if any(getattr(layer.self_attn, "window", None) is not None for layer in layers_of(stack)):
        raise CannotHoldError("its attention has a window (--attention-window), which export-ct2 does not write")
    own = [encoding for encoding in encodings if encoding is not None and encoding.per_layer]
    if len(own) > 1:
        raise CannotHoldError("each layer has a bias of its own, and CTranslate2 has one for all layers")
    orders = []
    for layer, encoding in zip(spec.layer, encodings):
        order = None
        if not alibi and not is_blind(encoding):
            layer.self_attention, order = attention_spec(encoding, stack)
        if encoding is not None and encoding.scale != encoding.dims.head_dim**-0.5:
            layer.self_attention.queries_scale = np.float32(encoding.scale)
        orders.append(order)
    positioned = [hasattr(layer.self_attention, name) for layer in spec.layer for name in KINDS]
    if table_TE is not None and any(positioned):
        raise CannotHoldError("positions join the input and the logits, and CTranslate2 has one of the two")
    if not alibi:
        # without a table, CTranslate2 adds sinusoids where the first layer has no positions
        embed_dim = stack.layers[0].embed_dim
        spec.position_encodings.encodings = numpy(torch.zeros(AT_LEAST, embed_dim) if table_TE is None else table_TE)
        if any(hasattr(spec.layer[0].self_attention, name) for name in KINDS):
            spec.position_encodings.encodings = OPTIONAL
    return orders


#: the attributes of an attention that has positions
KINDS = ("relative_attention_bias", "relative_position_keys", "rotary_dim")


def numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()


def input_table(stack: Any) -> torch.Tensor | None:
    """The summand of the embeddings of tokens 0, 1, ...; None where nothing is added."""
    positions, length = stack.embed_positions, stack.max_positions()
    if positions is None:
        return None
    ends = isinstance(positions, LearnedPositionalEmbedding) or getattr(positions, "hard_limit", None) is not None
    length = length if ends else max(length, AT_LEAST)
    with torch.no_grad():
        added = positions(torch.full((1, length), stack.padding_idx + 1))
    return added[0] if torch.is_tensor(added) else None


def attention_spec(encoding: Any, stack: Any) -> tuple[MultiHeadAttentionSpec, torch.Tensor | None]:
    """The spec of a self-attention with this encoding, and the order of the dimensions of a head."""
    length = max(stack.max_positions(), AT_LEAST)
    if isinstance(encoding, RoPE):
        return rotary(encoding)
    if isinstance(encoding, RelativeKeys):
        return relative_keys(encoding, length), None
    if type(encoding).terms is not PositionEncoding.terms:
        raise CannotHoldError("CTranslate2 has no such term in its attention")
    positions = encoding.stack if encoding.per_layer else stack.embed_positions
    if positions.evaluate(Positions.of(2, 2)) is None:
        return MultiHeadAttentionSpec(self_attention=True), None
    return distance_bias(positions, length), None


def distance_bias(positions: StackPart, length: int) -> MultiHeadAttentionSpec:
    """A bias of the distance alone. Each distance gets a bucket of its own, until all that follow have the same bias;
    these, or those from ``length`` on, share the last buckets."""
    short_HL = bias_of_offsets(positions, 2)
    bias_HL = bias_of_offsets(positions, length)
    if not torch.allclose(short_HL, bias_HL[:, length - 2 : length + 1], rtol=0, atol=ROUNDING):
        raise CannotHoldError("its bias depends on the length of the sequence")
    sides = [bias_HL[:, :length].flip(1)]
    if not positions.dims.causal:
        sides.append(bias_HL[:, length - 1 :])
    # distances 0, 1, ... of each side, [H, length]
    exact = max(distinct(side_HL) for side_HL in sides)
    buckets = [torch.cat([side_HL[:, :exact], side_HL[:, -1:].expand(-1, exact)], 1) for side_HL in sides]
    spec = MultiHeadAttentionSpec(self_attention=True, relative_attention_bias=True)
    spec.relative_attention_bias = numpy(torch.cat(buckets, 1).mT)
    spec.relative_attention_max_distance = np.int32(2 * exact)
    return spec


def bias_of_offsets(positions: StackPart, length: int) -> torch.Tensor:
    """The bias [H, L] of the offsets -(length - 1) .. length - 1. Raises CannotHoldError if it depends on more."""
    with torch.no_grad():
        bias = positions.evaluate(Positions.of(length, length))
    if not isinstance(bias, Bias) or bias.bias is not None or bias.reset is not None or bias.bias_row is None:
        raise CannotHoldError("its bias depends on more than the distance")
    return over_offsets(bias.bias_row, bias.rows, length, length)


def distinct(side_HL: torch.Tensor) -> int:
    """The number of first distances, at least 1, behind which all have one value."""
    differs_L = (side_HL != side_HL[:, -1:]).any(0)
    return max(1, int(differs_L.nonzero().max()) + 1) if differs_L.any() else 1


def relative_keys(encoding: RelativeKeys, length: int) -> MultiHeadAttentionSpec:
    """Shaw's vectors, which are added to the keys, and to the values: one table of each for all heads."""
    if encoding.tables > 1:
        raise CannotHoldError("each head has a table of its own (heads=each), and CTranslate2 has one for all heads")
    length = max(length, encoding.rows.count * encoding.dims.layer)
    terms = encoding.terms(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1), Positions.of(1, 1))
    tables = [
        None if table is None else over_offsets(table, encoding.rows, length, length)[0].detach()
        for table in (terms.A, terms.values)
    ]
    sides = [side for x in tables if x is not None for side in (x[:length].flip(0), x[length - 1 :])]
    k = max(distinct(side_LD.mT) for side_LD in sides)
    spec = MultiHeadAttentionSpec(self_attention=True, relative_position=True)
    spec.relative_position_keys, spec.relative_position_values = (
        OPTIONAL if x is None else numpy(x[length - 1 - k : length + k]) for x in tables
    )
    return spec


def rotary(encoding: RoPE) -> tuple[MultiHeadAttentionSpec, torch.Tensor | None]:
    """Rotation. CTranslate2 rotates the first dimensions of a head, by angles in a geometric series: pairs that rotate
    within the whole head are brought to the front."""
    base, scaling, factor, trained = encoding.frequency
    if scaling == "yarn":
        raise CannotHoldError("its angles (scaling=yarn) are no geometric series")
    pairs, half = encoding.pairs, encoding.span // 2
    order = None
    if pairs < half:
        front = torch.cat([torch.arange(pairs), half + torch.arange(pairs)])
        rest = torch.tensor([c for c in range(2 * half) if c not in front])
        order = torch.cat([front, rest])
    angle = frequencies(encoding.span, base, scaling, factor, trained)
    how: dict[str, Any] = {}
    if scaling == "interpolation":
        how = {"rotary_scaling_type": RotaryScalingType.Linear, "rotary_scaling_factor": factor}
        angle = angle * factor
    if pairs > 1:  # one pair rotates by 1, whatever the base is
        how["rotary_base"] = (1 / angle[1].item()) ** pairs
    spec = MultiHeadAttentionSpec(self_attention=True, rotary_dim=2 * pairs, rotary_interleave=False, **how)
    return spec, order
