"""The normal form of an attention logit, and its reference evaluation.

With r = row(j - i) a table row (C_r may have row numbers of its own),

    e_ij = s [ ((q_i * gate_r) . k_j) gain_r  (+ or x)  q_i . A_r  (+ or x)  k_j . C_r ]
           + bias_row_r + bias_ij,                       then, where asked, reset at [CLS];
    o_i  = sum_j softmax_j(e_ij) (v_j + values_r).

An encoding declares these terms; a backend computes softmax(e) V from them and knows
no encoding's name. Shapes: see positions.py.

Three steps lead from the terms to the logits: ``by_offset`` reads the tables at the offsets
in use, ``by_pair`` spreads the terms without query or key over [T, S], ``logits`` computes the
rest for each sentence. ``Terms.part`` slices sentences and heads at any of these steps.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from .gated.product import gated
from .rows import Clipped, Spread
from .tensors import once_differentiable, outside_autocast

logger = logging.getLogger(__name__)

Rows = Callable[[torch.Tensor], torch.Tensor]
Ends = tuple[int, int]

EVERY = slice(None)
# which axes of a tensor count sentences and heads, where these are not its first two
AXES = {
    "gate": (None, 0),
    "gain": (None, 0),
    "A": (None, 0),
    "C": (None, 0),
    "values": (None, 0),
    "bias_row": (None, 0),
    "reset": (None, 1),
    "cls_BS": (0, None),
}


@dataclass
class Bias:
    """The additive bias of the normal form. Layers can share it within one pass.

    rows: offset -> row of ``bias_row``. bias_row [H, R]: Toeplitz, one value a row.
    bias [1|B, H, T, S]. reset [2, H]: where the key is [CLS] the bias is reset[1], where
    the query is [CLS] it is reset[0] (queries win the corner). cls_BS marks [CLS] where
    it is not slot 0 of every sentence.

    Examples:
        >>> Bias(bias_row=torch.arange(5)[None]).dense(tgt_len=3, src_len=3).bias[0, 0]
        tensor([[2, 3, 4],
                [1, 2, 3],
                [0, 1, 2]])
    """

    rows: Rows | None = None
    bias_row: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    reset: torch.Tensor | None = None
    cls_BS: torch.Tensor | None = None

    def dense(self, tgt_len: int, src_len: int, first: int | None = None) -> "Bias":
        """The same bias as one tensor [1|B, H, T, S]. first: see ``Terms``."""
        total = self.bias
        if self.bias_row is not None:
            row_HTS = toeplitz(over_offsets(self.bias_row, self.rows, tgt_len, src_len), tgt_len)
            total = row_HTS[None] if total is None else total + row_HTS
        if self.reset is not None:
            if total is None:
                total = self.reset.new_zeros(1, self.reset.size(1), tgt_len, src_len)
            total = reset_at_cls(total, self.reset, self.cls_BS, first)
        return Bias(bias=total)

    def spread(self, tgt_len: int, src_len: int) -> "Bias":
        """The same bias with a copy of its row for each offset, which layers then need not read again."""
        if self.bias_row is None or self.rows is None:
            return self
        row_HL = over_offsets(self.bias_row, self.rows, tgt_len, src_len)
        return replace(self, rows=Spread(self.rows, tgt_len, src_len), bias_row=row_HL)

    def at_offsets(self, offset_BTS: torch.Tensor) -> "Bias":
        """The same bias with ``bias_row`` read at these offsets instead of j - i."""
        if self.bias_row is None:
            return self
        total = at_pairs(self.bias_row, rows_at(self.rows, offset_BTS))
        if self.bias is not None:
            total = total + self.bias
        return Bias(bias=total, reset=self.reset, cls_BS=self.cls_BS)


@dataclass
class Terms:
    """One attention call in the normal form. Absent terms are None.

    q_BHTD, k_BHSD: the final operands, unscaled (their D may exceed that of the values).
    rows, C_rows: offset -> row; C_rows defaults to rows. Without rows, tables are in the
    order of the offsets -(S-1) .. T-1 (R = L). gate [1|H, R, D], gain [1|H, R],
    A, C [1|H, R, D]; product: the three dot products are multiplied, not added. values [1|H, R, D]: added to the
    values, by ``rows``, or by the row of each pair in value_rows_BTS; see ``weighted_values``.
    bias_row, bias, reset, cls_BS: as in Bias, except that reset replaces everything but
    s q.k, content-dependent terms too. first: the slot of the first query, where the queries are not the
    last T of the S keys. ends: table -> how many of its rows, in the order of the offsets, are equal to the first
    one, and how many to the last one; a hint that saves products, set after ``by_offset``.

    Examples:
        >>> q_BHTD, k_BHSD = torch.randn(2, 1, 4, 9, 16)
        >>> terms = Terms(q_BHTD, k_BHSD, scale=0.25, bias_row=torch.randn(4, 17))
        >>> terms.is_additive_bias, terms.dense_bias().shape
        (True, torch.Size([1, 4, 9, 9]))
    """

    q_BHTD: torch.Tensor
    k_BHSD: torch.Tensor
    scale: float
    rows: Rows | None = None
    C_rows: Rows | None = None
    gate: torch.Tensor | None = None
    gain: torch.Tensor | None = None
    A: torch.Tensor | None = None
    C: torch.Tensor | None = None
    product: bool = False
    values: torch.Tensor | None = None
    value_rows_BTS: torch.Tensor | None = None
    bias_row: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    reset: torch.Tensor | None = None
    cls_BS: torch.Tensor | None = None
    first: int | None = None
    ends: dict[str, Ends] = field(default_factory=dict)

    @classmethod
    def with_bias(cls, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, scale: float, bias: Bias | None) -> "Terms":
        """Content s q.k plus an additive bias."""
        return cls(q_BHTD, k_BHSD, scale, **(vars(bias) if bias is not None else {}))

    @property
    def is_additive_bias(self) -> bool:
        """Whether positions enter as an additive bias alone: e_ij = s q.k + bias_ij. The bias itself may depend
        on the content."""
        return all(x is None for x in (self.gate, self.gain, self.A, self.C))

    def tensors(self) -> dict[str, Any]:
        """The terms that are present, name -> tensor."""
        return {name: x for name, x in vars(self).items() if torch.is_tensor(x)}

    def part(self, sentences: slice = EVERY, heads: slice = EVERY) -> "Terms":
        """The terms of these sentences and heads; shared tensors stay whole."""
        parts: dict[str, Any] = {name: part(name, x, sentences, heads) for name, x in self.tensors().items()}
        return replace(self, **parts)

    def of_queries(self, queries: slice) -> "Terms":
        """The terms of these queries, and every key. Takes the result of ``by_offset``."""
        lengths = self.q_BHTD.size(2), self.k_BHSD.size(2)
        parts: dict[str, Any] = {name: of_queries(name, x, queries, *lengths) for name, x in self.tensors().items()}
        cut = lengths[0] - queries.stop, queries.start
        ends = {name: (max(0, left - cut[0]), max(0, right - cut[1])) for name, (left, right) in self.ends.items()}
        return replace(self, first=lengths[1] - lengths[0] + queries.start, ends=ends, **parts)

    def dense_bias(self) -> torch.Tensor | None:
        """The whole additive bias as one [1|B, H, T, S] tensor."""
        tgt_len, src_len = self.q_BHTD.size(2), self.k_BHSD.size(2)
        part = Bias(self.rows, self.bias_row, self.bias, self.reset, self.cls_BS)
        return part.dense(tgt_len, src_len, self.first).bias

    def at_offsets(self, offset_BTS: torch.Tensor) -> "Terms":
        """The same terms with every table read at these offsets instead of j - i. Positions in the logits then are a
        bias [B, H, T, S] that is computed from the content."""
        moved = self._logits_at(offset_BTS)
        if self.values is None:
            return moved
        return replace(moved, values=self.values, value_rows_BTS=rows_at(self.rows, offset_BTS))

    def _logits_at(self, offset_BTS):
        tables = {name: x for name in ("gate", "gain", "A", "C", "bias_row") if (x := getattr(self, name)) is not None}
        if not tables:
            return self
        q, k, *wide = full_precision(self.q_BHTD, self.k_BHSD, *tables.values())
        tables = dict(zip(tables, wide))
        row_BTS = rows_at(self.rows, offset_BTS)
        with outside_autocast(q.device.type):
            biases = [] if self.bias is None else [self.bias]
            if "bias_row" in tables:
                biases.append(at_pairs(tables["bias_row"], row_BTS))
            dots = []
            if "A" in tables:
                dots.append(_query_rows_at(q, tables["A"], row_BTS))
            if "C" in tables:
                C_row_BTS = row_BTS if self.C_rows is None else self.C_rows(offset_BTS)
                dots.append(_query_rows_at(k, tables["C"], C_row_BTS.mT).mT)
            factors = self.product or "gate" in tables or "gain" in tables
            if not factors:
                return self._as_bias(sum(biases + [self.scale * dot for dot in dots]), self.scale)
            content = _gated_at(q, k, tables["gate"], row_BTS) if "gate" in tables else q @ k.mT
            if "gain" in tables:
                content = content * at_pairs(tables["gain"], row_BTS)
            for dot in dots:
                content = content * dot if self.product else content + dot
            e_BHTS = sum(biases, self.scale * content)
            if self.reset is None:
                # s q.k is no summand of it
                return self._as_bias(e_BHTS, 0.0)
            return self._as_bias(e_BHTS - self.scale * q @ k.mT, self.scale)

    def _as_bias(self, bias_BHTS, scale):
        return Terms(self.q_BHTD, self.k_BHSD, scale, bias=bias_BHTS, reset=self.reset, cls_BS=self.cls_BS)


def evaluate(terms: Terms) -> torch.Tensor:
    """The reference: logits e_BHTS before masking, in float32 at least, also under autocast.

    Examples:
        >>> q_BHTD, k_BHSD = torch.randn(2, 1, 4, 9, 16)
        >>> logits_BHTS = evaluate(Terms(q_BHTD, k_BHSD, scale=0.25))
        >>> torch.allclose(logits_BHTS, 0.25 * q_BHTD @ k_BHSD.mT, atol=1e-5)
        True
    """
    with outside_autocast(terms.q_BHTD.device.type):
        return logits(by_pair(by_offset(terms)))


def by_offset(t: Terms, offsets: range | None = None) -> Terms:
    """The terms with every table in full precision and in the order of the offsets (all, or these), so without row
    numbers. q and k do not change."""
    offsets = offsets or range(1 - t.k_BHSD.size(2), t.q_BHTD.size(2))
    lengths = offsets.stop, 1 - offsets.start
    rows = {"gate": t.rows, "gain": t.rows, "A": t.rows, "C": t.C_rows or t.rows}
    rows.update(values=t.rows, bias_row=t.rows)
    tables: dict[str, Any] = {
        name: over_offsets(full_precision(x), rows.get(name), *lengths)
        for name, x in t.tensors().items()
        if name not in ("q_BHTD", "k_BHSD")
    }
    return replace(t, rows=None, C_rows=None, **tables)


def by_pair(t: Terms) -> Terms:
    """The terms with gain over pairs, [1|H, T, S], and all biases summed in ``bias``, with the reset where
    positions are nothing but a bias. Takes the result of ``by_offset``."""
    tgt_len, src_len = t.q_BHTD.size(2), t.k_BHSD.size(2)
    gain = t.gain if t.gain is None or t.gate is not None else toeplitz(t.gain, tgt_len)
    if t.is_additive_bias:
        return replace(t, bias=t.dense_bias(), bias_row=None, reset=None, cls_BS=None)
    bias = Bias(bias_row=t.bias_row, bias=t.bias).dense(tgt_len, src_len).bias
    return replace(t, gain=gain, bias=bias, bias_row=None)


def logits(t: Terms) -> torch.Tensor:
    """The logits e_BHTS in float32 at least. Takes the result of ``by_pair``."""
    q, k = full_precision(t.q_BHTD), full_precision(t.k_BHSD)
    tgt_len, src_len = q.size(2), k.size(2)
    half = Half.of(t.q_BHTD, t.k_BHSD, scale=t.scale, wide_gradient=t.product)
    # a product of half precision is scaled afterwards: numbers that are made smaller before lose bits
    scaled = 1.0 if half is not None else t.scale
    scaled_q = scaled * q
    # in place wherever a new [B, H, T, S] tensor would be a pass over memory for nothing
    if t.gate is not None:
        # a gain is a gate that is the same in every dimension
        out = gated(t.scale * q, k, t.gate if t.gain is None else t.gate * t.gain[..., None])
    else:
        out = dot(scaled_q, k, half)
        if t.gain is not None:
            out = out * t.gain
    if t.product:
        unscaled = replace(half, scale=1.0) if half is not None else None
        if t.A is not None:
            out = out * _query_rows(q, t.A, src_len, unscaled, t.ends.get("A"))
        if t.C is not None:
            out = out * _key_rows(k, t.C, tgt_len, unscaled, t.ends.get("C"))
    else:
        if t.A is not None:
            out = out.add_(_query_rows(scaled_q, t.A, src_len, half, t.ends.get("A")))
        if t.C is not None:
            out = out.add_(_key_rows(k, scaled * t.C, tgt_len, half, t.ends.get("C")))
    if t.bias is not None:
        out = out.add_(t.bias)
    if t.reset is not None and t.cls_BS is not None:
        content = dot(scaled_q, k, half)
        out = content + reset_at_cls(out - content, t.reset, t.cls_BS, t.first)
    elif t.reset is not None:
        # [CLS] in slot 0: one column and one row are all that changes
        from_cls_H, to_cls_H = t.reset
        out[..., :1] = dot(scaled_q, k[:, :, :1], half) + to_cls_H[:, None, None]
        if first_slot(t.first, tgt_len, src_len) == 0:
            out[:, :, :1] = dot(scaled_q[:, :, :1], k, half) + from_cls_H[:, None, None]
    return out


def weighted_values(t: Terms, weights_BHTS: torch.Tensor) -> torch.Tensor:
    """sum_j w_ij values_row(j-i), [B, H, T, D] in float32 at least: the part of the output that comes from positions.
    No tensor [T, S, D] is made."""
    assert t.values is not None, "terms without values"
    weights_BHTS, values_HRD = full_precision(weights_BHTS, t.values)
    with outside_autocast(weights_BHTS.device.type):
        if t.value_rows_BTS is not None:
            rows_BHTS = t.value_rows_BTS[:, None].expand_as(weights_BHTS)
            by_row = weights_BHTS.new_zeros(*weights_BHTS.shape[:3], values_HRD.size(1))
            return by_table(by_row.scatter_add(-1, rows_BHTS, weights_BHTS), values_HRD)
        values_HLD = over_offsets(values_HRD, t.rows, *weights_BHTS.shape[2:])
        if weights_BHTS.size(2) == 1:  # a decoding step: offsets and keys are in the same order
            return by_table(weights_BHTS, values_HLD)
        return _RelativeSum.apply(weights_BHTS, values_HLD)


def part(name: str, x: torch.Tensor, sentences: slice = EVERY, heads: slice = EVERY) -> torch.Tensor:
    """Slice one term tensor to these sentences and heads; axes of size 1 (shared) stay whole."""
    for axis, chosen in zip(AXES.get(name, (0, 1)), (sentences, heads)):
        if axis is not None and chosen != EVERY and x.size(axis) > 1:
            x = x.narrow(axis, chosen.start, chosen.stop - chosen.start)
    return x


def of_queries(name: str, x: torch.Tensor, queries: slice, tgt_len: int, src_len: int) -> torch.Tensor:
    """Slice one term tensor, with its tables in the order of the offsets, to these of T queries; a view."""
    if name in ("q_BHTD", "bias", "hidden"):
        return x[:, :, queries] if x.size(2) > 1 else x
    if name in ("gate", "gain", "A", "C", "bias_row"):
        return x[:, tgt_len - queries.stop : tgt_len - queries.start + src_len - 1]
    return x


def first_slot(first: int | None, tgt_len: int, src_len: int) -> int:
    """The slot of the first query."""
    return src_len - tgt_len if first is None else first


def full_precision(x: torch.Tensor, *others: torch.Tensor) -> Any:
    """Casts to float32 at least, the package's one rule for all parts of a logit. Several tensors, which are to
    be multiplied, all get the widest of their types. Integers and masks keep their types."""
    tensors = (x, *others)
    dtype = torch.float32
    for tensor in tensors:
        if tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    wide = tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors)
    return wide if others else wide[0]


@dataclass(frozen=True)
class Half:
    """Matrix products of float32 tensors whose operands are rounded to half precision, which tensor cores multiply.
    Sums and results are float32, multiplied by ``scale``. wide_gradient: the gradient of a result, which may be
    too large for half precision, is not rounded, and multiplied in float32."""

    dtype: torch.dtype
    scale: float = 1.0
    wide_gradient: bool = False

    @classmethod
    def of(cls, *operands: torch.Tensor, **settings: Any) -> "Half | None":
        """For operands that are given in one half precision; None where they are not, where float32 is as fast, or
        torch cannot do this (before torch 2.8)."""
        dtype, device = operands[0].dtype, operands[0].device
        if dtype not in (torch.float16, torch.bfloat16) or any(x.dtype != dtype for x in operands):
            return None
        return cls(dtype, **settings) if pays(device) and sums_in_float32(dtype, device) else None

    def product(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """scale x @ y, [.., N, P]."""
        out = x.new_empty(*x.shape[:-1], y.size(-1), dtype=torch.float32)
        x, y = x.to(self.dtype), y.to(self.dtype)
        multiply_half(out.flatten(0, -3), x.flatten(0, -3), y.flatten(0, -3), self.scale)
        return out

    def gradient(self, gradient: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """scale gradient @ y, of the gradient of a result and an operand."""
        if self.wide_gradient:
            return self.scale * (gradient @ full_precision(y))
        return self.product(gradient, y)

    def rounded(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of a result in the precision in which it is multiplied."""
        return gradient if self.wide_gradient else gradient.to(self.dtype)


@cache
def pays(device: torch.device) -> bool:
    """Whether products of half precision may be faster here than those of float32. On an H100, whose float32 is
    several times faster than a V100's, attention with them took 0.74 to 1.69 times as long (docs/scaling.md)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) < (9, 0)


@cache
def sums_in_float32(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether torch multiplies matrices of this half precision into float32 on this GPU."""
    x = torch.ones(1, 8, 8, dtype=dtype, device=device)
    out = torch.full_like(x, torch.nan, dtype=torch.float32)
    try:
        multiply_half(out, x, x, 0.5)
    except torch.cuda.OutOfMemoryError:  # says nothing of the product
        raise
    except (TypeError, RuntimeError):  # an older torch or GPU
        reason = "has no others here"
    else:
        if bool((out == 4).all()):
            return True
        reason = "computes others wrongly here"
    logger.info("products of %s are computed in float32: torch %s %s", dtype, torch.__version__, reason)
    return False


def multiply_half(out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, scale: float) -> None:
    """out = scale x @ y, [N, .., ..] each: x and y in half precision, out in float32."""
    torch.baddbmm(out, x, y, out_dtype=torch.float32, beta=0, alpha=scale, out=out)


def dot(x: torch.Tensor, y: torch.Tensor, half: Half | None) -> torch.Tensor:
    """x @ y.mT; with ``half``, rounded and scaled as it says."""
    return x @ y.mT if half is None else _HalfProduct.apply(x, y, half)


class _HalfProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, half):
        x, y = x.to(half.dtype), y.to(half.dtype)
        ctx.save_for_backward(x, y)
        ctx.half = half
        return half.product(x, y.mT)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x, y), half = ctx.saved_tensors, ctx.half
        grad = half.rounded(grad)
        return half.gradient(grad, y), half.gradient(grad.mT, x), None


def over_offsets(table_HR: torch.Tensor, rows: Rows | None, tgt_len: int, src_len: int) -> torch.Tensor:
    """The table rows in the order of the offsets -(S-1) .. T-1: [H, R, ..] -> [H, L, ..]."""
    if rows is None:
        return table_HR
    if isinstance(rows, Spread) and tgt_len <= rows.tgt_len and src_len <= rows.src_len:
        return table_HR[:, rows.src_len - src_len : rows.src_len - 1 + tgt_len]
    if isinstance(rows, Clipped) and max(tgt_len, src_len) - 1 <= rows.k:  # nothing is clipped: neighbouring rows
        return table_HR[:, rows.k - src_len + 1 : rows.k + tgt_len]
    offset_L = torch.arange(1 - src_len, tgt_len, device=table_HR.device)
    return table_HR[:, rows(offset_L)]


def gradient_by_row(terms: Terms, name: str, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of a tensor of the terms. Copies of one row have their sum at the first of them, because a backend
    may give it to any of them."""
    if name != "bias_row" or not isinstance(terms.rows, Spread):
        return gradient
    offset_L = torch.arange(1 - terms.rows.src_len, terms.rows.tgt_len, device=gradient.device)
    return torch.zeros_like(gradient).index_add(1, terms.rows(offset_L), gradient)


def runs(rows: Rows | None, tgt_len: int, src_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The runs of neighbouring offsets that share a row: the row of each run, and for each offset -(S-1) .. T-1 the
    number of its run. Any row function has runs; at worst, each offset is one."""
    offset_L = torch.arange(1 - src_len, tgt_len)
    row_L = torch.arange(len(offset_L)) if rows is None else rows(offset_L)
    return row_L.unique_consecutive(return_inverse=True)


def ends_of_runs(rows: Rows, tgt_len: int, src_len: int) -> tuple[int, int]:
    """The last offset of the first run, and the first offset of the last one."""
    inner = rows.rows if isinstance(rows, Spread) else rows
    parameters = getattr(type(inner), "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:  # others may change
        return _known_ends_of_runs(rows, tgt_len, src_len)
    return _ends_of_runs(rows, tgt_len, src_len)


def _ends_of_runs(rows: Rows, tgt_len: int, src_len: int) -> tuple[int, int]:
    run_L = runs(rows, tgt_len, src_len)[1]
    return int((run_L == 0).sum()) - src_len, tgt_len - int((run_L == run_L[-1]).sum())


_known_ends_of_runs = lru_cache(maxsize=256)(_ends_of_runs)


def rows_at(rows: Rows | None, offset_BTS: torch.Tensor) -> torch.Tensor:
    if rows is None:
        raise ValueError("tables that are in the order of the offsets cannot be read at given positions: declare rows")
    return rows(offset_BTS)


def at_pairs(table_HR: torch.Tensor, row_BTS: torch.Tensor) -> torch.Tensor:
    """The table's value for each pair: [1|H, R] -> [B, 1|H, T, S]."""
    return F.embedding(row_BTS, table_HR.mT).movedim(-1, 1)


def _query_rows_at(q_BHTD, A_HRD, row_BTS):
    """q_i . A_row for the row of each pair, [B, H, T, S]."""
    at_rows = by_table(q_BHTD, A_HRD.mT)
    return at_rows.gather(-1, row_BTS[:, None].expand(len(q_BHTD), q_BHTD.size(1), -1, -1))


def _gated_at(q_BHTD, k_BHSD, gate_HRD, row_BTS):
    """sum_c q_c k_c gate_row,c. One query at a time, recomputed in backward, so that there is no tensor [T, S,
    D]."""

    def of_query(q_BHD, k_BHSD, gate_HRD, row_BS):
        gates_BHSD = gate_HRD[:, row_BS].transpose(0, 1)
        return ((k_BHSD * gates_BHSD) @ q_BHD[..., None])[..., 0]

    columns = [
        checkpoint(of_query, q_BHTD[:, :, t], k_BHSD, gate_HRD, row_BTS[:, t], use_reentrant=False)
        for t in range(q_BHTD.size(2))
    ]
    return torch.stack(columns, 2)


def toeplitz(values_L: torch.Tensor, tgt_len: int) -> torch.Tensor:
    """out[.., t, s] = values[.., s - t + T - 1]: one value per offset, spread over [T, S]."""
    return _Toeplitz.apply(values_L, tgt_len)


class _Toeplitz(torch.autograd.Function):
    """Toeplitz matrices as windows over the offsets. Backward sums along diagonals by skewed views of a few
    rows, which is several times faster than the scatter that indexing would do."""

    @staticmethod
    def forward(ctx, values_L, tgt_len):
        return _Toeplitz.spread(values_L, tgt_len)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_TS):
        return _Toeplitz.gather(grad_TS), None

    @staticmethod
    def spread(values_L, tgt_len):
        src_len = values_L.size(-1) - tgt_len + 1
        if tgt_len * 4 <= src_len:  # flip would put queries side by side in memory
            wide = values_L.unsqueeze(-2).expand(*values_L.shape[:-1], tgt_len, -1).contiguous()
            return skewed(wide, src_len)
        return values_L.unfold(-1, src_len, 1).flip(-2)

    @staticmethod
    def gather(grad_TS):
        tgt_len, src_len = grad_TS.shape[-2:]
        grad_L = grad_TS.new_zeros(*grad_TS.shape[:-2], tgt_len + src_len - 1)
        for rows, columns in row_blocks(tgt_len, src_len):
            block = rows.stop - rows.start
            wide = grad_TS.new_zeros(*grad_TS.shape[:-2], block, src_len + block - 1)
            skewed(wide, src_len).copy_(grad_TS[..., rows, :])
            grad_L[..., columns] += wide.sum(-2)
        return grad_L


BLOCK = 64  # queries that are worked on together


def row_blocks(tgt_len: int, src_len: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of rows of a [T, S] matrix, each with its range of offsets (in the order -(S-1) .. T-1)."""
    for first in range(0, tgt_len, BLOCK):
        last = min(first + BLOCK, tgt_len)
        yield slice(first, last), slice(tgt_len - last, tgt_len - first + src_len - 1)


def skewed(wide: torch.Tensor, src_len: int) -> torch.Tensor:
    """A view [.., b, S] of [.., b, S + b - 1] in which row r starts r columns further to the left."""
    block, width = wide.shape[-2:]
    shape, strides = (*wide.shape[:-1], src_len), (*wide.stride()[:-2], width - 1, 1)
    return wide.as_strided(shape, strides, wide.storage_offset() + block - 1)


def reset_at_cls(
    position_BHTS: torch.Tensor, reset_2H: torch.Tensor, cls_BS: torch.Tensor | None = None, first: int | None = None
) -> torch.Tensor:
    """Puts reset[1] into the columns whose key is [CLS], then reset[0] into the rows whose query is (TUPE Eq.
    10; the corner takes the query's value)."""
    tgt_len, src_len = position_BHTS.shape[-2:]
    from_cls_H, to_cls_H = reset_2H
    first = first_slot(first, tgt_len, src_len)
    if cls_BS is None:
        return _ResetFirst.apply(position_BHTS, reset_2H, first == 0)
    if first < 0:
        raise ValueError(f"a reset at [CLS] of {tgt_len} queries and {src_len} keys: it needs a key for each query")
    key_is_cls = cls_BS[:, None, None, :]
    query_is_cls = cls_BS[:, None, first : first + tgt_len, None]
    position_BHTS = torch.where(key_is_cls, to_cls_H[:, None, None], position_BHTS)
    return torch.where(query_is_cls, from_cls_H[:, None, None], position_BHTS)


class _ResetFirst(torch.autograd.Function):
    """The reset for [CLS] in slot 0, where one row and one column change. It copies once in each direction;
    masks over the whole tensor would copy several times."""

    @staticmethod
    def forward(ctx, position_BHTS, reset_2H, query_too):
        ctx.query_too = query_too
        from_cls_H, to_cls_H = reset_2H
        out = position_BHTS.clone()
        out[..., 0] = to_cls_H[:, None]
        if query_too:
            out[..., 0, :] = from_cls_H[:, None]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_BHTS):
        grad = grad_BHTS.clone()
        from_cls_H = grad.new_zeros(grad.size(1))
        if ctx.query_too:
            from_cls_H = grad[..., 0, :].sum((0, 2))
            grad[..., 0, :] = 0
        to_cls_H = grad[..., 0].sum((0, 2))
        grad[..., 0] = 0
        return grad, torch.stack([from_cls_H, to_cls_H]), None


def _query_rows(q_BHTD, A_HLD, src_len, half, ends):
    """q_i . A_row(j-i), [B, H, T, S]; half: as in ``dot``."""
    if q_BHTD.size(2) == 1:  # a decoding step: offsets and keys are in the same order
        return by_table(q_BHTD if half is None else half.scale * q_BHTD, A_HLD.mT)
    return _RelativeProduct.apply(q_BHTD, A_HLD, half, ends or (0, 0))


def _key_rows(k_BHSD, C_HLD, tgt_len, half, ends):
    """k_j . C_row(j-i): ``_query_rows`` with queries and keys, left and right exchanged."""
    if tgt_len == 1:
        return (k_BHSD * (C_HLD if half is None else half.scale * C_HLD)).sum(-1)[:, :, None]
    return _RelativeProduct.apply(k_BHSD, C_HLD.flip(1), half, (ends or (0, 0))[::-1]).mT


def by_table(
    x_BHTD: torch.Tensor,
    table_HDR: torch.Tensor,
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.matmul,
) -> torch.Tensor:
    """x @ table, for one table or one per head. torch.matmul would copy the table for each sentence of the
    batch."""
    batch, heads, length, _ = x_BHTD.shape
    out = product(stacked(x_BHTD, table_HDR.size(0)), table_HDR)
    if table_HDR.size(0) == 1:
        return out.view(batch, heads, length, out.size(-1))
    return out.view(heads, batch, length, out.size(-1)).transpose(0, 1)


def stacked(x_BHTD: torch.Tensor, tables: int) -> torch.Tensor:
    """Stacks all vectors that are multiplied by the same table: [1|H, .., D]."""
    if tables == 1:
        return x_BHTD.flatten(0, 2)[None]
    return x_BHTD.transpose(0, 1).flatten(1, 2)


class _RelativeProduct(torch.autograd.Function):
    """out[.., t, s] = x[.., t, :] . table[.., s - t + T - 1, :].

    A block of b rows needs S + b - 1 columns of the table: one matmul, then each row reads
    its S columns one further to the left, which is a view with another stride. Keys for which all rows of the block
    read equal rows at an end of the table get one product a query. Nothing but x and the table is kept for backward.
    """

    @staticmethod
    def forward(ctx, x_BHTD, table_HLD, half, ends):
        product, dtype = torch.matmul, x_BHTD.dtype
        if half is not None:
            x_BHTD, table_HLD, product = x_BHTD.to(half.dtype), table_HLD.to(half.dtype), half.product
        ctx.save_for_backward(x_BHTD, table_HLD)
        ctx.half, ctx.ends = half, ends
        return _RelativeProduct.product(x_BHTD, table_HLD, ends, product, dtype)

    @staticmethod
    def product(x_BHTD, table_HLD, ends=(0, 0), product=torch.matmul, dtype=None):
        tgt_len = x_BHTD.size(2)
        src_len = table_HLD.size(1) - tgt_len + 1
        out = x_BHTD.new_empty(*x_BHTD.shape[:3], src_len, dtype=dtype)
        if any(ends):
            far_BHT2 = by_table(x_BHTD, table_HLD[:, END_ROWS].mT, product)
        for rows, columns in row_blocks(tgt_len, src_len):
            near, columns = near_keys(rows, columns, src_len, ends, table_HLD.size(1))
            if near.start:
                out[:, :, rows, : near.start] = far_BHT2[:, :, rows, :1]
            if near.stop < src_len:
                out[:, :, rows, near.stop :] = far_BHT2[:, :, rows, 1:]
            if near.start < near.stop:
                wide = by_table(x_BHTD[:, :, rows], table_HLD[:, columns].mT, product)
                out[:, :, rows, near] = skewed(wide, near.stop - near.start)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_BHTS):
        (x_BHTD, table_HLD), half, ends = ctx.saved_tensors, ctx.half, ctx.ends
        tgt_len, src_len = grad_BHTS.shape[2:]
        grad_x, grad_table = torch.zeros_like(x_BHTD, dtype=grad_BHTS.dtype), grad_BHTS.new_zeros(table_HLD.shape)
        product = torch.matmul
        far_BHT2 = grad_BHTS.new_zeros(*grad_BHTS.shape[:3], 2)
        narrow_BHTS = grad_BHTS
        if half is not None:
            narrow_BHTS, product = half.rounded(grad_BHTS), half.gradient

        wide = narrow_BHTS.new_zeros(0)
        for rows, columns in row_blocks(tgt_len, src_len):
            near, columns = near_keys(rows, columns, src_len, ends, table_HLD.size(1))
            far_BHT2[:, :, rows, 0] = grad_BHTS[:, :, rows, : near.start].sum(-1)
            far_BHT2[:, :, rows, 1] = grad_BHTS[:, :, rows, near.stop :].sum(-1)
            if near.start == near.stop:
                continue
            x, table = x_BHTD[:, :, rows], table_HLD[:, columns]
            shape = (*x.shape[:3], table.size(1))
            if wide.shape != shape:  # what is not on the diagonals stays 0 in the next block
                wide = narrow_BHTS.new_zeros(shape)
            skewed(wide, near.stop - near.start).copy_(narrow_BHTS[:, :, rows, near])
            grad_x[:, :, rows] = by_table(wide, table, product)
            of_table, of_x = stacked(wide, table.size(0)).mT, stacked(x, table.size(0))
            if half is None:
                grad_table[:, columns].baddbmm_(of_table, of_x)
            else:
                grad_table[:, columns] += half.gradient(of_table, of_x)
        if any(ends):
            far_BHT2 = far_BHT2 if half is None else half.rounded(far_BHT2)
            table = table_HLD[:, END_ROWS]
            grad_x += by_table(far_BHT2, table, product)
            grad_table[:, END_ROWS] += product(stacked(far_BHT2, table.size(0)).mT, stacked(x_BHTD, table.size(0)))
        return grad_x, grad_table, None, None


class _RelativeSum(torch.autograd.Function):
    """out[.., t, :] = sum_s w[.., t, s] table[.., s - t + T - 1, :], block by block as in ``_RelativeProduct``, whose
    gradient of x this is."""

    @staticmethod
    def forward(ctx, w_BHTS, table_HLD):
        ctx.save_for_backward(w_BHTS, table_HLD)
        out_BHTD = w_BHTS.new_empty(*w_BHTS.shape[:3], table_HLD.size(2))
        for rows, columns, wide in _RelativeSum.blocks(w_BHTS):
            out_BHTD[:, :, rows] = by_table(wide, table_HLD[:, columns])
        return out_BHTD

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_BHTD):
        w_BHTS, table_HLD = ctx.saved_tensors
        grad_table = torch.zeros_like(table_HLD)
        for rows, columns, wide in _RelativeSum.blocks(w_BHTS):
            by_columns = stacked(wide, table_HLD.size(0)).mT
            grad_table[:, columns].baddbmm_(by_columns, stacked(grad_BHTD[:, :, rows], table_HLD.size(0)))
        return _RelativeProduct.product(grad_BHTD, table_HLD), grad_table

    @staticmethod
    def blocks(w_BHTS):
        """Blocks of queries with the table's rows that they read, and their weights of these rows."""
        for rows, columns in row_blocks(*w_BHTS.shape[2:]):
            wide = w_BHTS.new_zeros(*w_BHTS.shape[:2], rows.stop - rows.start, columns.stop - columns.start)
            skewed(wide, w_BHTS.size(3)).copy_(w_BHTS[:, :, rows])
            yield rows, columns, wide


END_ROWS = [0, -1]


def near_keys(rows: slice, columns: slice, src_len: int, ends: Ends, offsets: int) -> tuple[slice, slice]:
    """The keys of a block of rows before which all read the first row of a table with these equal ``ends``, and after
    which all read the last; and the columns of the table that these keys read."""
    block = rows.stop - rows.start
    first = min(max(0, ends[0] - columns.start - block + 1), src_len)
    last = max(first, min(src_len, offsets - ends[1] - columns.start))
    return slice(first, last), slice(columns.start + first, columns.start + last + block - 1)


__all__ = ["Bias", "Terms", "evaluate"]
