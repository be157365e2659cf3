"""The normal form's logits, softmax and values in tiles that never leave the chip.

    e_ij = s [ ((q_i * gate_l).k_j) gain_l  (+ or x)  q_i.A_l  (+ or x)  k_j.C_l ]
           + bias_l + bias_ij,
    out_i = sum_j softmax(e_i)_j keep_ij v_j,       l = j - i + S - 1 the place of the offset

A tile of M queries and as many keys meets 2M - 1 offsets: ``q A^T`` over two blocks of M
offsets is two matrix products, and the logits are one of them or the other, each row turned by
its number (``turned``). The next tile of keys meets the second block and one more, so where a
program stays with its queries each block is multiplied once; so it is with C where a program
stays with its keys. A gated q.k is no such product, and is summed dimension by dimension. Forward
runs over the keys of a tile of queries with the online softmax. Backward computes the tiles again
from the rows' maxima and sums:

- ``backward_delta``: dout.out of each query, which the others read;
- ``backward_queries``: dq, and d bias_l, d gain_l, d reset as one partial sum a program;
- ``backward_keys``: dk and dv;
- ``backward_bias``: d bias_ij, a tile of it a program, over all sentences;
- ``backward_tables``: dA, dC and d gate, a block of offsets a program, over sentences and queries,
  or keys. The gradients of the logits by offset are those that ``backward_queries`` (for A and the
  gate) and ``backward_keys`` (for C) have left in memory, for some sentences and heads at a time.

Where clipped tables have one row for all offsets up to some place, and one from another on (``Near``), a tile that
meets no other offset is *far*: its bias and gain are one number, its q.A and k.C a vector, so it costs what a tile
without positions does. A program runs over its far tiles to the left (SIDE -1), those to the right (1) and the near
ones (0). Memory holds a table's rows at both ends and between them, and gradients by offset only of near tiles.
Where these rows are few, q A^T of all of them is multiplied once a program (k C^T where a program stays with its
keys), each offset reads its column, and the gradients by row stay in registers.

Each result is written by one program, so equal inputs give equal bits.

Everything is accumulated in float32. The operands of a product keep the dtype of q and k
(of v for the values): a float32 table is cast to it for the product alone, and so is the
gradient that meets it; with product=True, where the gradient holds a product of the two
others, both are float32 instead. Whether dropout keeps (b, h, i, j) is a hash of the seed and these
four numbers (``keeps``).
"""

from collections import namedtuple

import triton
import triton.language as tl

#: a tensor [B, H, N, D] by its strides; a stride of 0 repeats it
Rows = namedtuple("Rows", "pointer batch head row width")

#: values [1|H, N], of each head SHIFTS times, one further to the left each time, in rows of a pitch; before the first
#: and after the last value, these are repeated MARGIN times
Shifted = namedtuple("Shifted", "pointer head pitch")

#: a matrix [B, H, T, S] by its strides, that is added to the logits
Plane = namedtuple("Plane", "pointer batch head row")

#: which offsets a table has rows for, N of them from l = low on: those to the left have the first row, those to the
#: right the last one. Tiles with first <= (s0 - t0) / M < end meet others than these. All numbers are ``odd``
Near = namedtuple("Near", "low rows first end")

#: blocks [H, B, rows, columns, M, M] of some heads and sentences, one after the other in memory; the numbers are
#: ``odd``
Blocks = namedtuple("Blocks", "pointer batch rows columns")

#: one attention call but for q, k and v; absent terms are None. bias_row (divided by ln 2) and gain are
#: Shifted; A, C Rows [1|H, N, D]; gate Rows [1|H, D, L]; extra a mask that is added; near a Near, or None where every
#: tile is near and N = L; few, known to the compiler, N rounded up where all rows are multiplied at once, or None;
#: padding_BS and cls_BS (of batch stride cls_batch) int8; reset [2, H]; dropout is the probability.
#: window: how many slots away a key may be, ``odd``, or None; tiles that it hides are left out.
#: Known to the compiler: product; causal; skip, whether to leave out tiles that the causal mask hides;
#: precision, of a product in float32; sixteens, whether both lengths are multiples of 16; even, whether all tiles and
#: widths are full. Where not ``sixteens``, the lengths, cls_batch and the strides of a Plane are ``odd``.
Call = namedtuple(
    "Call",
    "tgt_len src_len heads scale product causal skip window precision sixteens bias_row gain bias extra padding_BS "
    "reset cls_BS cls_batch gate A C near few dropout seed even",
)

# what Mask.additive puts at a hidden key: finite, so that a query without any key sees all
HIDDEN = tl.constexpr(-1.7014117331926443e38)
# and outside the window
OUTSIDE = tl.constexpr(-3.4028234663852886e38)
# GPUs compute 2^x: logits are divided by ln 2 while they are made, where that costs nothing
LOG2_E = tl.constexpr(1.4426950408889634)
# float32 numbers that a thread loads at once
SHIFTS = tl.constexpr(4)
# offsets that a near tile meets beyond the rows of a table: at most twice the queries of a tile
MARGIN = tl.constexpr(128)


def odd(x: int) -> int:
    """4 x + 3. Triton compiles once more for a number that is 1 or a multiple of 16. A number that is different in
    each batch would cost a kernel for each of these; 3, 7, 11, ... have one kernel."""
    return 4 * x + 3


@triton.jit
def number(call: "Call", x: tl.tensor) -> tl.tensor:
    """A length or stride of the call. The compiler knows that it is a multiple of 16 where all of them are."""
    if call.sixteens:
        return x
    else:
        return x >> 2


@triton.jit
def tgt_len(call: "Call") -> tl.tensor:
    """The number of queries."""
    return number(call, call.tgt_len)


@triton.jit
def src_len(call: "Call") -> tl.tensor:
    """The number of keys."""
    return number(call, call.src_len)


@triton.jit
def load_rows(x: "Rows", b: tl.tensor, h: tl.tensor, n: tl.tensor, length: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    """x[b, h, n, :], [N, WIDTH]; zeros where n or the column is not in x."""
    d = tl.arange(0, WIDTH)
    inside = ((n >= 0) & (n < length))[:, None] & (d < x.width)[None, :]
    at = b * x.batch + h * x.head + n[:, None] * x.row + d[None, :]
    return tl.load(x.pointer + at, mask=inside, other=0.0)


@triton.jit
def load_tile(
    call: "Call", x: "Rows", b: tl.tensor, h: tl.tensor, n: tl.tensor, length: tl.tensor, WIDTH: tl.constexpr
) -> tl.tensor:
    """``load_rows`` of q, k, v or a gradient, which have every row and column where lengths are even."""
    if call.even:
        at = b * x.batch + h * x.head + n[:, None] * x.row + tl.arange(0, WIDTH)[None, :]
        return tl.load(x.pointer + at)
    else:
        return load_rows(x, b, h, n, length, WIDTH)


@triton.jit
def store_rows(
    x: "Rows", b: tl.tensor, h: tl.tensor, n: tl.tensor, length: tl.tensor, value: tl.tensor, WIDTH: tl.constexpr
) -> None:
    """Writes x[b, h, n, :], where n and the column are in x."""
    d = tl.arange(0, WIDTH)
    inside = ((n >= 0) & (n < length))[:, None] & (d < x.width)[None, :]
    at = b * x.batch + h * x.head + n[:, None] * x.row + d[None, :]
    tl.store(x.pointer + at, value.to(x.pointer.dtype.element_ty), mask=inside)


@triton.jit
def is_first(M: tl.constexpr) -> tl.tensor:
    """Whether row m of a tile meets column c of the first of two neighbouring blocks of M offsets."""
    return tl.arange(0, M)[None, :] + tl.arange(0, M)[:, None] >= M - 1


@triton.jit
def turned(first: tl.tensor, second: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """out[m, n] = [first, second][m, n - m + M - 1], [M, M] each."""
    m, n = tl.arange(0, M)[:, None], tl.arange(0, M)[None, :]
    return tl.gather(tl.where(is_first(M), first, second), (n - m + M - 1) & (M - 1), 1)


@triton.jit
def turned_back(tile: tl.tensor, M: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The transpose of ``turned``: what a tile adds to each of the two blocks."""
    m, c = tl.arange(0, M)[:, None], tl.arange(0, M)[None, :]
    back = tl.gather(tile, (c + m + 1) & (M - 1), 1)
    return tl.where(is_first(M), back, 0.0), tl.where(is_first(M), 0.0, back)


@triton.jit
def offset_sums(tile: tl.tensor, M: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The sums of a tile for each offset of the two blocks, [M] each."""
    mine, next_ = turned_back(tile, M)
    return tl.sum(mine, 0), tl.sum(next_, 0)


@triton.jit
def dot(call: "Call", x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """x . y in float32, with float32 operands at the call's precision."""
    return tl.dot(x, y, input_precision=call.precision)


@triton.jit
def dot_gradient(call: "Call", gradient: tl.tensor, y: tl.tensor) -> tl.tensor:
    """gradient . y, the gradient of a logit in float32."""
    if call.product:
        return dot(call, gradient, y.to(tl.float32))
    else:
        return dot(call, gradient.to(y.dtype), y)


@triton.jit
def rows_of(call: "Call") -> tl.tensor:
    """The number N of offsets that the tables have rows for."""
    if call.near is None:
        return tgt_len(call) + src_len(call) - 1
    else:
        return call.near.rows >> 2


@triton.jit
def row_at(call: "Call", l: tl.tensor) -> tl.tensor:  # noqa: E741
    """The row of a table for these offsets."""
    if call.near is None:
        return l
    else:
        return tl.minimum(tl.maximum(l - (call.near.low >> 2), 0), rows_of(call) - 1)


@triton.jit
def end_row(call: "Call", table: "Rows", h: tl.tensor, D: tl.constexpr, SIDE: tl.constexpr) -> tl.tensor:
    """The first (SIDE -1) or last (1) row of A or C, [D], in float32."""
    d = tl.arange(0, D)
    n = 0 if SIDE == -1 else rows_of(call) - 1
    at = table.pointer + h * table.head + n * table.row + d
    return tl.load(at, mask=d < table.width, other=0.0).to(tl.float32)


@triton.jit
def times_end(
    call: "Call", table: "Rows", h: tl.tensor, x_MD: tl.tensor, M: tl.constexpr, D: tl.constexpr, SIDE: tl.constexpr
) -> tl.tensor:
    """x times that row, [M]; zeros without a table."""
    if table is None:
        return tl.zeros([M], tl.float32)
    else:
        row_D = end_row(call, table, h, D, SIDE).to(x_MD.dtype).to(tl.float32)
        return tl.sum(x_MD.to(tl.float32) * row_D[None, :], 1)


@triton.jit
def near_keys(
    call: "Call", t0: tl.tensor, first: tl.tensor, end: tl.tensor, M: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """The beginning and end of the near tiles of queries t0 .., of keys from ``first`` up to ``end``."""
    if call.near is None:
        return first, end
    else:
        own, last = t0 // M, tl.cdiv(tl.maximum(end, 0), M)
        near = tl.minimum(tl.maximum(own + (call.near.first >> 2), first // M), last)
        far = tl.minimum(tl.maximum(own + (call.near.end >> 2), near), last)
        return near * M, far * M


@triton.jit
def near_queries(
    call: "Call", s0: tl.tensor, first: tl.tensor, end: tl.tensor, M: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """The same of keys s0 .. and queries."""
    if call.near is None:
        return first, end
    else:
        own, first = s0 // M, first // M
        last = tl.maximum(tl.cdiv(end, M), first)
        near = tl.minimum(tl.maximum(own - (call.near.end >> 2) + 1, first), last)
        far = tl.minimum(tl.maximum(own - (call.near.first >> 2) + 1, near), last)
        return near * M, far * M


@triton.jit
def by_query(
    call: "Call", h: tl.tensor, t0: tl.tensor, s0: tl.tensor, M: tl.constexpr, q: tl.tensor, D: tl.constexpr
) -> tl.tensor:
    """The first block of A that queries t0 .. and keys s0 .. meet; of keys s0 + M .. it is the second."""
    l = s0 - t0 + tgt_len(call) - M + tl.arange(0, M)  # noqa: E741
    return load_rows(call.A, 0, h, row_at(call, l), rows_of(call), D).to(q.dtype)


@triton.jit
def by_key(
    call: "Call", h: tl.tensor, t0: tl.tensor, s0: tl.tensor, M: tl.constexpr, k: tl.tensor, D: tl.constexpr
) -> tl.tensor:
    """The same of C, whose offsets run backwards; the second block is that of queries t0 + M .."""
    l = s0 - t0 + tgt_len(call) + M - 2 - tl.arange(0, M)  # noqa: E741
    return load_rows(call.C, 0, h, row_at(call, l), rows_of(call), D).to(k.dtype)


@triton.jit
def is_inside(call: "Call", t: tl.tensor, s: tl.tensor) -> tl.tensor:
    """Whether query t and key s exist."""
    return (t < tgt_len(call)) & (s >= 0) & (s < src_len(call))


@triton.jit
def load_column(x: "Rows", b: tl.tensor, h: tl.tensor, n: tl.tensor, length: tl.tensor, d: tl.tensor) -> tl.tensor:
    """x[b, h, n, d], of the shape of n, in float32."""
    at = b * x.batch + h * x.head + n * x.row + d
    return tl.load(x.pointer + at, mask=(n >= 0) & (n < length), other=0.0).to(tl.float32)


@triton.jit
def load_gate(call: "Call", h: tl.tensor, t: tl.tensor, s: tl.tensor, d: tl.tensor) -> tl.tensor:
    """gate[h, l, d], [M, N]; in memory the offsets are side by side."""
    at = h * call.gate.head + d * call.gate.row + (s - t + tgt_len(call) - 1)
    return tl.load(call.gate.pointer + at, mask=is_inside(call, t, s), other=0.0).to(tl.float32)


@triton.jit
def gated(
    call: "Call", q: "Rows", k: "Rows", b: tl.tensor, h: tl.tensor, t: tl.tensor, s: tl.tensor, M: tl.constexpr
) -> tl.tensor:
    """(q_t * gate_l).k_s, [M, M], of queries t [M, 1] and keys s [1|M, M]."""
    total = tl.zeros([M, M], tl.float32)
    for d in range(0, q.width):
        product = load_column(q, b, h, t, tgt_len(call), d) * load_gate(call, h, t, s, d)
        total += product * load_column(k, b, h, s, src_len(call), d)
    return total


@triton.jit
def gated_gradient(
    call: "Call",
    dqk: tl.tensor,
    q: "Rows",
    k: "Rows",
    b: tl.tensor,
    h: tl.tensor,
    t: tl.tensor,
    s: tl.tensor,
    OF: tl.constexpr,
    M: tl.constexpr,
    D: tl.constexpr,
) -> tl.tensor:
    """The gradient of q, k or the gate (OF) from that of ``gated``, [M, D]: in each dimension
    the other two factors, summed over the tile's keys or, for k and the gate, its queries."""
    columns = tl.arange(0, D)[None, :]
    total = tl.zeros([M, D], tl.float32)
    for d in range(0, q.width):
        product = dqk
        if OF != "q":
            product *= load_column(q, b, h, t, tgt_len(call), d)
        if OF != "k":
            product *= load_column(k, b, h, s, src_len(call), d)
        if OF != "gate":
            product *= load_gate(call, h, t, s, d)
        total_M = tl.sum(product, 1 if OF == "q" else 0)
        total += tl.where(columns == d, total_M[:, None], 0.0)
    return total


@triton.jit
def content(
    call: "Call",
    q: "Rows",
    k: "Rows",
    b: tl.tensor,
    h: tl.tensor,
    t0: tl.tensor,
    s0: tl.tensor,
    q_MD: tl.tensor,
    k_MD: tl.tensor,
    M: tl.constexpr,
) -> tl.tensor:
    """q.k, [M, M], of the tile whose q and k are q_MD and k_MD."""
    if call.gate is None:
        return dot(call, q_MD, tl.trans(k_MD))
    else:
        t, s = t0 + tl.arange(0, M)[:, None], s0 + tl.arange(0, M)[None, :]
        return gated(call, q, k, b, h, t, s, M)


@triton.jit
def times_query_rows(
    call: "Call", h: tl.tensor, t0: tl.tensor, s0: tl.tensor, q_MD: tl.tensor, M: tl.constexpr, D: tl.constexpr
) -> tl.tensor:
    """q times the block ``by_query``, [M, M], or times all rows where they are few; nothing of use without A."""
    if call.A is None:
        return q_MD
    elif call.few is None:
        return dot(call, q_MD, tl.trans(by_query(call, h, t0, s0, M, q_MD, D)))
    else:
        return dot(call, q_MD, tl.trans(few_rows(call, call.A, h, q_MD, D)))


@triton.jit
def times_key_rows(
    call: "Call", h: tl.tensor, t0: tl.tensor, s0: tl.tensor, k_MD: tl.tensor, M: tl.constexpr, D: tl.constexpr
) -> tl.tensor:
    """k times the block ``by_key``, [M, M], or times all rows where they are few; nothing of use without C."""
    if call.C is None:
        return k_MD
    elif call.few is None:
        return dot(call, k_MD, tl.trans(by_key(call, h, t0, s0, M, k_MD, D)))
    else:
        return dot(call, k_MD, tl.trans(few_rows(call, call.C, h, k_MD, D)))


@triton.jit
def next_query_rows(
    call: "Call",
    h: tl.tensor,
    t0: tl.tensor,
    s0: tl.tensor,
    q_MD: tl.tensor,
    first: tl.tensor,
    M: tl.constexpr,
    D: tl.constexpr,
) -> tl.tensor:
    """``times_query_rows`` of the next block after ``first``, which has all rows where they are few."""
    if call.few is None:
        return times_query_rows(call, h, t0, s0, q_MD, M, D)
    else:
        return first


@triton.jit
def next_key_rows(
    call: "Call",
    h: tl.tensor,
    t0: tl.tensor,
    s0: tl.tensor,
    k_MD: tl.tensor,
    first: tl.tensor,
    M: tl.constexpr,
    D: tl.constexpr,
) -> tl.tensor:
    """The same of ``times_key_rows``."""
    if call.few is None:
        return times_key_rows(call, h, t0, s0, k_MD, M, D)
    else:
        return first


@triton.jit
def query_part(
    call: "Call", t0: tl.tensor, s0: tl.tensor, first: tl.tensor, second: tl.tensor, qk: tl.tensor, M: tl.constexpr
) -> tl.tensor:
    """q.A, [M, M], from the products with the two blocks that the tile meets; without A something of its shape."""
    if call.A is None:
        return qk
    elif call.few is None:
        return turned(first, second, M)
    else:
        t, s = t0 + tl.arange(0, M)[:, None], s0 + tl.arange(0, M)[None, :]
        return tl.gather(first, row_at(call, s - t + tgt_len(call) - 1), 1)


@triton.jit
def key_part(
    call: "Call", t0: tl.tensor, s0: tl.tensor, first: tl.tensor, second: tl.tensor, qk: tl.tensor, M: tl.constexpr
) -> tl.tensor:
    """The same of k.C."""
    if call.C is None:
        return qk
    elif call.few is None:
        return tl.trans(turned(first, second, M))
    else:
        t, s = t0 + tl.arange(0, M)[None, :], s0 + tl.arange(0, M)[:, None]
        return tl.trans(tl.gather(first, row_at(call, s - t + tgt_len(call) - 1), 1))


@triton.jit
def few_rows(call: "Call", table: "Rows", h: tl.tensor, x: tl.tensor, D: tl.constexpr) -> tl.tensor:
    """All rows of A or C, [few, D], of the type of x."""
    return load_rows(table, 0, h, tl.arange(0, call.few), rows_of(call), D).to(x.dtype)


@triton.jit
def few_gradient(
    call: "Call", tile: tl.tensor, at_zero: tl.tensor, sums: "tuple", M: tl.constexpr, SIGN: tl.constexpr
) -> tuple:
    """Adds a tile's gradient of q.A (SIGN 1; of k.C -1, turned) to those by row (sums): [M, few] of the rows between
    the ends, and [M] of each end. at_zero: the row of column 0, of each line of the tile, before it is clipped."""
    sums_MR, left_M, right_M = sums
    last = rows_of(call) - 1
    row_MM = at_zero[:, None] + SIGN * tl.arange(0, M)[None, :]
    left_M += tl.sum(tl.where(row_MM <= 0, tile, 0.0), 1)
    right_M += tl.sum(tl.where(row_MM >= last, tile, 0.0), 1)
    r = tl.arange(0, call.few)[None, :]
    column_MR = SIGN * (r - at_zero[:, None])
    inside = (column_MR >= 0) & (column_MR < M) & (r > 0) & (r < last)
    sums_MR += tl.where(inside, tl.gather(tile, column_MR & (M - 1), 1), 0.0)
    return sums_MR, left_M, right_M


@triton.jit
def with_ends(call: "Call", sums: "tuple") -> tl.tensor:
    """The gradients by row, [M, few], from the three of ``few_gradient``."""
    sums_MR, left_M, right_M = sums
    r = tl.arange(0, call.few)[None, :]
    sums_MR += tl.where(r == 0, left_M[:, None], 0.0)
    return sums_MR + tl.where(r == rows_of(call) - 1, right_M[:, None], 0.0)


@triton.jit
def both_key_rows(
    call: "Call",
    h: tl.tensor,
    t0: tl.tensor,
    s0: tl.tensor,
    k_MD: tl.tensor,
    qk: tl.tensor,
    M: tl.constexpr,
    D: tl.constexpr,
) -> tl.tensor:
    """k.C where a program stays with its queries, and no product serves two tiles."""
    first = times_key_rows(call, h, t0, s0, k_MD, M, D)
    return key_part(call, t0, s0, first, next_key_rows(call, h, t0 + M, s0, k_MD, first, M, D), qk, M)


@triton.jit
def both_query_rows(
    call: "Call",
    h: tl.tensor,
    t0: tl.tensor,
    s0: tl.tensor,
    q_MD: tl.tensor,
    qk: tl.tensor,
    M: tl.constexpr,
    D: tl.constexpr,
) -> tl.tensor:
    """q.A where a program stays with its keys."""
    first = times_query_rows(call, h, t0, s0, q_MD, M, D)
    return query_part(call, t0, s0, first, next_query_rows(call, h, t0, s0 + M, q_MD, first, M, D), qk, M)


@triton.jit
def at_offset(
    call: "Call", values_N: "Shifted", h: tl.tensor, t0: tl.tensor, s0: tl.tensor, M: tl.constexpr, SIDE: tl.constexpr
) -> tl.tensor:
    """values_N[h, n], [M, M], of queries t0 .. and keys s0 ..; one number where the tile is far. A row begins at any
    offset. In one of the copies that is a multiple of SHIFTS, so that several values are loaded at once."""
    start = values_N.pointer + h * values_N.head
    if SIDE == -1:
        return tl.load(start)
    elif SIDE == 1:
        return tl.load(start + rows_of(call) - 1 + MARGIN)
    else:
        first = s0 - (t0 + tl.arange(0, M)) + tgt_len(call) - 1 + MARGIN
        if call.near is not None:
            first -= call.near.low >> 2
        copy = first & (SHIFTS - 1)
        row = tl.multiple_of(copy * values_N.pitch + (first - copy), SHIFTS)
        return tl.load(start + row[:, None] + tl.arange(0, M)[None, :])


@triton.jit
def at_pair(call: "Call", plane: "Plane", b: tl.tensor, h: tl.tensor, t: tl.tensor, s: tl.tensor) -> tl.tensor:
    """plane[b, h, t, s], [M, N]."""
    batch, head, row = number(call, plane.batch), number(call, plane.head), number(call, plane.row)
    at = plane.pointer + b * batch + tl.cast(h, tl.int64) * head + t * row + s
    if call.even:
        return tl.load(at).to(tl.float32)
    else:
        return tl.load(at, mask=is_inside(call, t, s), other=0.0).to(tl.float32)


@triton.jit
def meets_cls(call: "Call", b: tl.tensor, t: tl.tensor, s: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Whether the query, and whether the key, is [CLS]: [M, 1] and [1|M, N]."""
    start = call.cls_BS + b * number(call, call.cls_batch)
    query_slot = t + src_len(call) - tgt_len(call)
    query = tl.load(start + query_slot, mask=(query_slot >= 0) & (t < tgt_len(call)), other=0) != 0
    key = tl.load(start + s, mask=(s >= 0) & (s < src_len(call)), other=0) != 0
    return query, key


@triton.jit
def logits(
    call: "Call",
    b: tl.tensor,
    h: tl.tensor,
    t0: tl.tensor,
    s0: tl.tensor,
    qk: tl.tensor,
    qa: tl.tensor,
    kc: tl.tensor,
    M: tl.constexpr,
    SIDE: tl.constexpr,
) -> tl.tensor:
    """e / ln 2, [M, M] in float32, of queries t0 .. and keys s0 .., from their three products (qa [M, 1], kc [1, M]
    where far). Hidden keys are HIDDEN, places beyond the keys -inf."""
    scale = call.scale * LOG2_E
    t, s = t0 + tl.arange(0, M)[:, None], s0 + tl.arange(0, M)[None, :]
    x = qk
    if call.gain is not None:
        x = x * at_offset(call, call.gain, h, t0, s0, M, SIDE)
    if call.A is not None:
        x = x * qa if call.product else x + qa
    if call.C is not None:
        x = x * kc if call.product else x + kc
    e = scale * x
    if call.bias_row is not None:
        e += at_offset(call, call.bias_row, h, t0, s0, M, SIDE)
    if call.bias is not None:
        e += at_pair(call, call.bias, b, h, t, s) * LOG2_E
    if call.reset is not None:
        query, key = meets_cls(call, b, t, s)
        from_cls = tl.load(call.reset + h).to(tl.float32) * LOG2_E
        to_cls = tl.load(call.reset + call.heads + h).to(tl.float32) * LOG2_E
        e = tl.where(key, scale * qk + to_cls, e)
        e = tl.where(query, scale * qk + from_cls, e)
    if call.extra is not None:
        e += tl.maximum(at_pair(call, call.extra, b, h, t, s) * LOG2_E, HIDDEN)
    inside = (s >= 0) & (s < src_len(call))
    if call.padding_BS is not None:
        padding = tl.load(call.padding_BS + b * src_len(call) + s, mask=inside, other=0)
        e = tl.where(padding != 0, HIDDEN, e)
    if call.causal:
        e = tl.where(s > t + src_len(call) - tgt_len(call), HIDDEN, e)
    if call.window is not None:
        e = tl.where(tl.abs(s - t - (src_len(call) - tgt_len(call))) > (call.window >> 2), OUTSIDE, e)
    if not call.even:
        e = tl.where(inside, e, float("-inf"))
    return e


@triton.jit
def mixed(x: tl.tensor, first: tl.tensor, second: tl.tensor) -> tl.tensor:
    """A hash of x (uint32) under two keys. Under the same keys no two x have the same hash."""
    x = x * 0x9E3779B1 + first
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    return x ^ (x >> 15) ^ second


@triton.jit
def keeps(call: "Call", b: tl.tensor, h: tl.tensor, t: tl.tensor, s: tl.tensor) -> tl.tensor:
    """Whether dropout keeps the weights, [M, N], of queries t [M, 1] and keys s [1|M, N].

    Philox makes random words of the seed, sentence and head, once a program. Under these a hash makes a word of two
    queries, t and t + 8, and under that a word of these and two neighbouring keys. For each of the four pairs this
    is multiplied by a number of its own; the upper bits of the product decide. The four lie in one thread where a
    tile is a result of tensor cores, and the compiler sees that they share the word.
    """
    zero = b.to(tl.uint32) * 0
    k0, k1, k2, _ = tl.philox(call.seed, zero + b.to(tl.uint32), zero + h.to(tl.uint32), zero, zero)
    t, s = t.to(tl.uint32), s.to(tl.uint32)
    row = mixed(t & 0xFFFFFFF7, k0, k1) * 0xC2B2AE35
    row ^= row >> 16
    word = mixed(s & 0xFFFFFFFE, row, row * 0x27D4EB2F + k2)
    near = tl.where(s % 2 == 0, 0xC2B2AE35, 0x27D4EB2F)
    far = tl.where(s % 2 == 0, 0x165667B1, 0xD3A2646D)
    return word * tl.where(t & 8 == 0, near, far) >= tl.cast(call.dropout * 4294967296.0, tl.uint32)


@triton.jit
def row_statistics(
    call: "Call", peak: tl.tensor, total: tl.tensor, delta: tl.tensor, b: tl.tensor, h: tl.tensor, t: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """For queries t [M]: the maximum of ``logits``, one over the sum of their exponentials, and
    delta = dout.out, [M, 1] each."""
    at = (b * call.heads + h) * tgt_len(call) + t
    inside = t < tgt_len(call)
    return (
        tl.load(peak + at, mask=inside, other=0.0)[:, None],
        (1 / tl.load(total + at, mask=inside, other=1.0))[:, None],
        tl.load(delta + at, mask=inside, other=0.0)[:, None],
    )


@triton.jit
def gradients(
    call: "Call",
    b: tl.tensor,
    h: tl.tensor,
    t0: tl.tensor,
    s0: tl.tensor,
    qk: tl.tensor,
    qa: tl.tensor,
    kc: tl.tensor,
    dout_v: tl.tensor,
    rows: "tuple",
    M: tl.constexpr,
    SIDE: tl.constexpr,
) -> tuple:
    """From dout_i.v_j and the ``row_statistics``: the weights after dropout, d e, and the
    gradients of bias, gain, q.k, q.A and k.C, [M, M] in float32 each."""
    peak, share, delta = rows
    t, s = t0 + tl.arange(0, M)[:, None], s0 + tl.arange(0, M)[None, :]
    e = logits(call, b, h, t0, s0, qk, qa, kc, M, SIDE)
    weight = tl.exp2(e - peak) * share
    if not call.even:
        weight = tl.where(is_inside(call, t, s), weight, 0.0)
    dropped = weight
    if call.dropout is not None:
        keep = tl.where(keeps(call, b, h, t, s), 1 / (1 - call.dropout), 0.0)
        dropped = weight * keep
        dout_v = dout_v * keep
    de = weight * (dout_v - delta)

    dbias = de
    if call.reset is not None:
        query, key = meets_cls(call, b, t, s)
        dbias = tl.where(query | key, 0.0, de)
    dx = call.scale * dbias
    dqk = dx
    dgain = dx * qk
    dqa = dx
    dkc = dx
    if call.gain is not None:
        dqk = dx * at_offset(call, call.gain, h, t0, s0, M, SIDE)
    if call.product:
        dqa = dqk * qk
        dkc = dqk * qk
        if call.A is not None:
            dqk *= qa
            dgain *= qa
            dkc *= qa
        if call.C is not None:
            dqk *= kc
            dgain *= kc
            dqa *= kc
    if call.reset is not None:
        dqk = tl.where(query | key, call.scale * de, dqk)
    return dropped, de, dbias, dgain, dqk, dqa, dkc


@triton.jit
def end_of_keys(call: "Call", t0: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """The first key after those that queries t0 .. t0 + M - 1 see."""
    end = src_len(call)
    if call.skip:
        end = tl.minimum(end, t0 + M + src_len(call) - tgt_len(call))
    if call.window is not None:
        end = tl.minimum(end, t0 + M + src_len(call) - tgt_len(call) + (call.window >> 2))
    return end


@triton.jit
def first_key(call: "Call", t0: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """The first block of keys that queries from t0 on see."""
    first = 0
    if call.window is not None:
        first = tl.maximum(t0 + src_len(call) - tgt_len(call) - (call.window >> 2), 0) // M * M
    return first


@triton.jit
def first_query(call: "Call", s0: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """The first block of queries that sees keys from s0 on."""
    first = 0
    if call.window is not None:
        first = tl.maximum(s0 - (src_len(call) - tgt_len(call)) - (call.window >> 2), 0) // M * M
    if call.skip:
        first = tl.maximum(s0 - (src_len(call) - tgt_len(call)), 0) // M * M
    return first


@triton.jit
def end_of_queries(call: "Call", s0: tl.tensor, first: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """The end of the queries from ``first`` on that see keys s0 .. s0 + M - 1."""
    end = tgt_len(call)
    if call.window is not None:
        seen = s0 + M - (src_len(call) - tgt_len(call)) + (call.window >> 2)
        end = tl.maximum(tl.minimum(end, seen), first)
    return end


@triton.jit
def attend(
    call: "Call",
    q: "Rows",
    k: "Rows",
    v: "Rows",
    b: tl.tensor,
    h: tl.tensor,
    t0: tl.tensor,
    s0: tl.tensor,
    q_MD: tl.tensor,
    first: tl.tensor,
    state: "tuple",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    SIDE: tl.constexpr,
) -> tuple:
    """Adds keys s0 .. to the rows' maxima, sums and outputs (state). first: q times the first of the two blocks of A
    that a near tile meets, in the result the second; where far, q.A."""
    t, s = t0 + tl.arange(0, M), s0 + tl.arange(0, M)
    k_MD = load_tile(call, k, b, h, s, src_len(call), D)
    v_MD = load_tile(call, v, b, h, s, src_len(call), DV)
    qk = content(call, q, k, b, h, t0, s0, q_MD, k_MD, M)
    if SIDE == 0:
        second = next_query_rows(call, h, t0, s0 + M, q_MD, first, M, D)
        qa = query_part(call, t0, s0, first, second, qk, M)
        first = second
        kc = both_key_rows(call, h, t0, s0, k_MD, qk, M, D)
    else:
        qa = first[:, None]
        kc = times_end(call, call.C, h, k_MD, M, D, SIDE)[None, :]
    e = logits(call, b, h, t0, s0, qk, qa, kc, M, SIDE)
    peak_M, total_M, out_MD = state
    new_peak_M = tl.maximum(peak_M, tl.max(e, 1))
    weight = tl.exp2(e - new_peak_M[:, None])
    shrink_M = tl.exp2(peak_M - new_peak_M)
    total_M = total_M * shrink_M + tl.sum(weight, 1)
    if call.dropout is not None:
        # not the constant 0: LLVM would then round each weight by itself, and choose among the results
        weight = tl.where(keeps(call, b, h, t[:, None], s[None, :]), weight, 0 * call.dropout)
    out_MD = out_MD * shrink_M[:, None] + dot(call, weight.to(v_MD.dtype), v_MD)
    return first, (new_peak_M, total_M, out_MD)


@triton.jit
def forward(
    q: "Rows",
    k: "Rows",
    v: "Rows",
    out: "Rows",
    peak: tl.tensor,
    total: tl.tensor,
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
) -> None:
    """Program (block of queries, head, sentence): out, and the rows' maxima and sums."""
    t0, h, b = tl.program_id(0) * M, tl.program_id(1), tl.program_id(2).to(tl.int64)
    t = t0 + tl.arange(0, M)
    q_MD = load_tile(call, q, b, h, t, tgt_len(call), D)
    # not -inf, from which a tile of -inf alone would make NaN
    peak_M = tl.full([M], OUTSIDE, tl.float32)
    total_M = tl.zeros([M], tl.float32)
    state = (peak_M, total_M, tl.zeros([M, DV], tl.float32))
    begin, end = first_key(call, t0, M), end_of_keys(call, t0, M)
    near, far = near_keys(call, t0, begin, end, M)
    if call.near is not None:
        qa = times_end(call, call.A, h, q_MD, M, D, -1)
        for s0 in range(begin, near, M):
            _, state = attend(call, q, k, v, b, h, t0, s0, q_MD, qa, state, M, D, DV, -1)
    first = times_query_rows(call, h, t0, near, q_MD, M, D)
    for s0 in range(near, far, M):
        first, state = attend(call, q, k, v, b, h, t0, s0, q_MD, first, state, M, D, DV, 0)
    if call.near is not None:
        qa = times_end(call, call.A, h, q_MD, M, D, 1)
        for s0 in range(far, end, M):
            _, state = attend(call, q, k, v, b, h, t0, s0, q_MD, qa, state, M, D, DV, 1)
    peak_M, total_M, out_MD = state
    at = (b * call.heads + h) * tgt_len(call) + t
    tl.store(peak + at, peak_M, mask=t < tgt_len(call))
    tl.store(total + at, total_M, mask=t < tgt_len(call))
    if call.dropout is not None:
        total_M *= 1 - call.dropout
    store_rows(out, b, h, t, tgt_len(call), out_MD / total_M[:, None], DV)


@triton.jit(do_not_specialize=["length", "heads"])
def backward_delta(
    out: "Rows", dout: "Rows", delta: tl.tensor, length: tl.tensor, heads: tl.tensor, M: tl.constexpr, DV: tl.constexpr
) -> None:
    """Program (block of queries, head, sentence): delta = dout.out, [B, H, T]."""
    h, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * M + tl.arange(0, M)
    out_MD = load_rows(out, b, h, t, length, DV).to(tl.float32)
    dout_MD = load_rows(dout, b, h, t, length, DV).to(tl.float32)
    tl.store(delta + (b * heads + h) * length + t, tl.sum(out_MD * dout_MD, 1), mask=t < length)


@triton.jit
def far_queries(
    call: "Call",
    k: "Rows",
    v: "Rows",
    b: tl.tensor,
    h: tl.tensor,
    t0: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    q_MD: tl.tensor,
    dout_MD: tl.tensor,
    rows: "tuple",
    state: "tuple",
    resets: tl.constexpr,
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    SIDE: tl.constexpr,
) -> tuple:
    """``backward_queries`` over the far tiles of keys begin .. end: dq and the sums of the reset (state) with these,
    and the gradients of q.A, the bias and the gain, [M] each."""
    t = t0 + tl.arange(0, M)
    dq_MD, from_cls_M, to_cls_M = state
    qa = times_end(call, call.A, h, q_MD, M, D, SIDE)
    dqa_M = tl.zeros([M], tl.float32)
    dbias_M = tl.zeros([M], tl.float32)
    dgain_M = tl.zeros([M], tl.float32)
    for s0 in range(begin, end, M):
        s = s0 + tl.arange(0, M)
        k_MD = load_tile(call, k, b, h, s, src_len(call), D)
        v_MD = load_tile(call, v, b, h, s, src_len(call), DV)
        qk = dot(call, q_MD, tl.trans(k_MD))
        kc = times_end(call, call.C, h, k_MD, M, D, SIDE)
        _, de_, dbias_, dgain_, dqk, dqa, _ = gradients(
            call, b, h, t0, s0, qk, qa[:, None], kc[None, :], dot(call, dout_MD, tl.trans(v_MD)), rows, M, SIDE
        )
        dq_MD += dot_gradient(call, dqk, k_MD)
        dqa_M += tl.sum(dqa, 1)
        dbias_M += tl.sum(dbias_, 1)
        dgain_M += tl.sum(dgain_, 1)
        if resets:
            query, key = meets_cls(call, b, t[:, None], s[None, :])
            from_cls_M += tl.sum(tl.where(query, de_, 0.0), 1)
            to_cls_M += tl.sum(tl.where(key & (query == 0), de_, 0.0), 1)
    if call.A is not None and call.few is None:
        dq_MD += dqa_M[:, None] * end_row(call, call.A, h, D, SIDE)[None, :]
    return (dq_MD, from_cls_M, to_cls_M), dqa_M, dbias_M, dgain_M


@triton.jit(do_not_specialize=["h0", "b0", "batch"])
def backward_queries(
    q: "Rows",
    k: "Rows",
    v: "Rows",
    dout: "Rows",
    peak: tl.tensor,
    total: tl.tensor,
    delta: tl.tensor,
    dq: "Rows",
    dbias: tl.tensor,
    dgain: tl.tensor,
    dreset: tl.tensor,
    by_A: "Blocks",
    by_gate: "Blocks",
    ends_A: tl.tensor,
    h0: tl.tensor,
    b0: tl.tensor,
    batch: tl.tensor,
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
) -> None:
    """Program (block of queries, head - h0, sentence - b0): dq; where asked for, its share of d bias_l and
    d gain_l, a row of [B, blocks, H, N], and of d reset, a place of [2, B, blocks, H]; and the gradients
    of q.A and of the gated q.k by offset, those of q.A in far tiles summed to [heads, sentences, 2, T], or where rows
    are few, in all tiles to [heads, sentences, T, few]."""
    block, h, b = tl.program_id(0), h0 + tl.program_id(1), b0 + tl.program_id(2).to(tl.int64)
    t0 = block * M
    t = t0 + tl.arange(0, M)
    q_MD = load_tile(call, q, b, h, t, tgt_len(call), D)
    dout_MD = load_tile(call, dout, b, h, t, tgt_len(call), DV)
    rows = row_statistics(call, peak, total, delta, b, h, t)
    share = (b * tl.num_programs(0) + block) * call.heads + h  # where the program's sums are
    zero_M = tl.zeros([M], tl.float32)
    state = (tl.zeros([M, D], tl.float32), zero_M, zero_M)
    # of the first and the last row
    dbias_ends = (zero_M, zero_M)
    dgain_ends = (zero_M, zero_M)
    begin, end = first_key(call, t0, M), end_of_keys(call, t0, M)
    near, far = near_keys(call, t0, begin, end, M)
    if call.near is not None:
        resets: tl.constexpr = dreset is not None
        state, dqa_left, dbias_left, dgain_left = far_queries(
            call, k, v, b, h, t0, begin, near, q_MD, dout_MD, rows, state, resets, M, D, DV, -1
        )
        state, dqa_right, dbias_right, dgain_right = far_queries(
            call, k, v, b, h, t0, far, end, q_MD, dout_MD, rows, state, resets, M, D, DV, 1
        )
        if ends_A is not None and call.few is None:
            store_end(ends_A, tgt_len(call), t, dqa_left, 0)
            store_end(ends_A, tgt_len(call), t, dqa_right, 1)
        if call.few is not None:
            dqa_few = (tl.zeros([M, call.few], tl.float32), dqa_left, dqa_right)
    dq_MD, from_cls_M, to_cls_M = state
    dqa_first = tl.zeros([M, M], tl.float32)
    dqk_first = tl.zeros([M, M], tl.float32)
    dbias_first = zero_M
    dgain_first = zero_M
    qa_first = times_query_rows(call, h, t0, near, q_MD, M, D)
    for s0 in range(near, far, M):
        s = s0 + tl.arange(0, M)
        k_MD = load_tile(call, k, b, h, s, src_len(call), D)
        v_MD = load_tile(call, v, b, h, s, src_len(call), DV)
        qk = content(call, q, k, b, h, t0, s0, q_MD, k_MD, M)
        qa_second = next_query_rows(call, h, t0, s0 + M, q_MD, qa_first, M, D)
        qa = query_part(call, t0, s0, qa_first, qa_second, qk, M)
        qa_first = qa_second
        kc = both_key_rows(call, h, t0, s0, k_MD, qk, M, D)
        _, de_, dbias_, dgain_, dqk, dqa, _ = gradients(
            call, b, h, t0, s0, qk, qa, kc, dot(call, dout_MD, tl.trans(v_MD)), rows, M, 0
        )
        if call.gate is None:
            dq_MD += dot_gradient(call, dqk, k_MD)
        else:
            dq_MD += gated_gradient(call, dqk, q, k, b, h, t[:, None], s[None, :], "q", M, D)
        column = near_column(call, s0 - t0, s0, M)
        if call.A is not None and call.few is not None:
            at_zero = s0 - t + tgt_len(call) - 1 - (call.near.low >> 2)
            dqa_few = few_gradient(call, dqa, at_zero, dqa_few, M, 1)
        elif call.A is not None:
            mine, next_ = turned_back(dqa, M)
            mine += dqa_first
            dq_MD += dot_gradient(call, mine, by_query(call, h, t0, s0, M, q_MD, D))
            store_block(by_A, block, column, mine, M)
            dqa_first = next_
        if by_gate is not None:
            mine, next_ = turned_back(dqk, M)
            store_block(by_gate, block, column, dqk_first + mine, M)
            dqk_first = next_
        first = s0 - t0 + tgt_len(call) - M
        if dbias is not None:
            mine_M, next_M = offset_sums(dbias_, M)
            dbias_ends = store_offsets(call, dbias, share, first, dbias_first + mine_M, dbias_ends, M)
            dbias_first = next_M
        if dgain is not None:
            mine_M, next_M = offset_sums(dgain_, M)
            dgain_ends = store_offsets(call, dgain, share, first, dgain_first + mine_M, dgain_ends, M)
            dgain_first = next_M
        if dreset is not None:
            query, key = meets_cls(call, b, t[:, None], s[None, :])
            from_cls_M += tl.sum(tl.where(query, de_, 0.0), 1)
            to_cls_M += tl.sum(tl.where(key & (query == 0), de_, 0.0), 1)
    # the second block of the last tile
    last = tl.cdiv(tl.maximum(far, 0), M) * M
    column = near_column(call, last - t0, last, M)
    if call.A is not None and call.few is not None:
        by_row = with_ends(call, dqa_few)
        dq_MD += dot_gradient(call, by_row, few_rows(call, call.A, h, q_MD, D))
        store_few(call, ends_A, tgt_len(call), t, by_row)
    elif call.A is not None:
        dq_MD += dot_gradient(call, dqa_first, by_query(call, h, t0, last, M, q_MD, D))
        store_block(by_A, block, column, dqa_first, M)
    if by_gate is not None:
        store_block(by_gate, block, column, dqk_first, M)
    store_rows(dq, b, h, t, tgt_len(call), dq_MD, D)
    first = last - t0 + tgt_len(call) - M
    if dbias is not None:
        dbias_ends = store_offsets(call, dbias, share, first, dbias_first, dbias_ends, M)
        if call.near is not None:
            store_ends(call, dbias, share, dbias_ends, dbias_left, dbias_right)
    if dgain is not None:
        dgain_ends = store_offsets(call, dgain, share, first, dgain_first, dgain_ends, M)
        if call.near is not None:
            store_ends(call, dgain, share, dgain_ends, dgain_left, dgain_right)
    if dreset is not None:
        tl.store(dreset + share, tl.sum(from_cls_M, 0))
        programs = tl.num_programs(0) * call.heads * batch
        tl.store(dreset + programs + share, tl.sum(to_cls_M, 0))


@triton.jit
def store_offsets(
    call: "Call", sums: tl.tensor, share: tl.tensor, first: tl.tensor, value: tl.tensor, ends: "tuple", M: tl.constexpr
) -> tuple:
    """Writes a program's sums of M offsets, from ``first``. Where rows at the ends have several offsets, adds those
    to ``ends``."""
    rows = rows_of(call)
    n = first + tl.arange(0, M)
    if call.near is None:
        tl.store(sums + share * rows + n, value, mask=(n >= 0) & (n < rows))
        return ends
    else:
        n -= call.near.low >> 2
        tl.store(sums + share * rows + n, value, mask=(n > 0) & (n < rows - 1))
        left, right = ends
        return left + tl.where(n <= 0, value, 0.0), right + tl.where(n >= rows - 1, value, 0.0)


@triton.jit
def store_ends(
    call: "Call", sums: tl.tensor, share: tl.tensor, ends: "tuple", left_M: tl.tensor, right_M: tl.tensor
) -> None:
    """Writes a program's sums of the first and the last row, of near and of far tiles."""
    left, right = ends
    rows = rows_of(call)
    tl.store(sums + share * rows, tl.sum(left, 0) + tl.sum(left_M, 0))
    tl.store(sums + share * rows + rows - 1, tl.sum(right, 0) + tl.sum(right_M, 0))


@triton.jit
def store_end(ends: tl.tensor, length: tl.tensor, n: tl.tensor, value: tl.tensor, SIDE: tl.constexpr) -> None:
    """Writes a program's sums of far tiles to ends[h - h0, b - b0, SIDE, n]."""
    place = (tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)).to(tl.int64) * 2 + SIDE
    tl.store(ends + place * length + n, value, mask=n < length)


@triton.jit
def store_few(call: "Call", sums: tl.tensor, length: tl.tensor, n: tl.tensor, value: tl.tensor) -> None:
    """Writes a program's gradients by row to sums[h - h0, b - b0, n, few], if there is a place for them."""
    if sums is not None:
        place = (tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)).to(tl.int64) * length * call.few
        at = sums + place + n[:, None] * call.few + tl.arange(0, call.few)[None, :]
        tl.store(at, value.to(sums.dtype.element_ty), mask=(n < length)[:, None])


@triton.jit
def near_column(call: "Call", distance: tl.tensor, n0: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """The column of ``Blocks`` for keys s0 = n0 at this distance s0 - t0: the number of its block, or where only near
    tiles have a column, the number of its distance among theirs."""
    if call.near is None:
        return n0 // M
    else:
        return distance // M - (call.near.first >> 2)


@triton.jit
def store_block(blocks: "Blocks", row: tl.tensor, column: tl.tensor, value: tl.tensor, M: tl.constexpr) -> None:
    """Writes [M, M] as the block of this program's sentence and head, if there is a place for it."""
    if blocks is not None:
        tl.store(
            at_block(blocks, tl.program_id(1), tl.program_id(2), row, column, M),
            value.to(blocks.pointer.dtype.element_ty),
            mask=(column >= 0) & (column < blocks.columns >> 2),
        )


@triton.jit
def at_block(
    blocks: "Blocks", h: tl.tensor, b: tl.tensor, row: tl.tensor, column: tl.tensor, M: tl.constexpr
) -> tl.tensor:
    """Pointers to a block of the h-th head and b-th sentence that there is room for, [M, M]."""
    batch, rows, columns = blocks.batch >> 2, blocks.rows >> 2, blocks.columns >> 2
    place = ((h * batch + b).to(tl.int64) * rows + row) * columns + column
    return blocks.pointer + place * (M * M) + tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]


@triton.jit
def far_keys(
    call: "Call",
    q: "Rows",
    dout: "Rows",
    peak: tl.tensor,
    total: tl.tensor,
    delta: tl.tensor,
    b: tl.tensor,
    h: tl.tensor,
    s0: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    k_MD: tl.tensor,
    v_MD: tl.tensor,
    dk_MD: tl.tensor,
    dv_MD: tl.tensor,
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    SIDE: tl.constexpr,
) -> tuple:
    """``backward_keys`` over the far tiles of queries begin .. end: dk and dv with these, and the gradient of k.C,
    [M]."""
    kc = times_end(call, call.C, h, k_MD, M, D, SIDE)
    dkc_M = tl.zeros([M], tl.float32)
    for t0 in range(begin, end, M):
        t = t0 + tl.arange(0, M)
        q_MD = load_tile(call, q, b, h, t, tgt_len(call), D)
        dout_MD = load_tile(call, dout, b, h, t, tgt_len(call), DV)
        rows = row_statistics(call, peak, total, delta, b, h, t)
        qk = dot(call, q_MD, tl.trans(k_MD))
        qa = times_end(call, call.A, h, q_MD, M, D, SIDE)
        dropped, _, _, _, dqk, _, dkc = gradients(
            call, b, h, t0, s0, qk, qa[:, None], kc[None, :], dot(call, dout_MD, tl.trans(v_MD)), rows, M, SIDE
        )
        dv_MD += dot(call, tl.trans(dropped).to(dout_MD.dtype), dout_MD)
        dk_MD += dot_gradient(call, tl.trans(dqk), q_MD)
        dkc_M += tl.sum(dkc, 0)
    if call.C is not None and call.few is None:
        dk_MD += dkc_M[:, None] * end_row(call, call.C, h, D, SIDE)[None, :]
    return dk_MD, dv_MD, dkc_M


@triton.jit(do_not_specialize=["h0", "b0"])
def backward_keys(
    q: "Rows",
    k: "Rows",
    v: "Rows",
    dout: "Rows",
    peak: tl.tensor,
    total: tl.tensor,
    delta: tl.tensor,
    dk: "Rows",
    dv: "Rows",
    by_C: "Blocks",
    ends_C: tl.tensor,
    h0: tl.tensor,
    b0: tl.tensor,
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
) -> None:
    """Program (block of keys, head - h0, sentence - b0): dk and dv, and the gradient of k.C by offset, in far tiles
    summed to [heads, sentences, 2, S], or where rows are few, in all tiles to [heads, sentences, S, few]."""
    block, h, b = tl.program_id(0), h0 + tl.program_id(1), b0 + tl.program_id(2).to(tl.int64)
    s0 = block * M
    s = s0 + tl.arange(0, M)
    k_MD = load_tile(call, k, b, h, s, src_len(call), D)
    v_MD = load_tile(call, v, b, h, s, src_len(call), DV)
    dk_MD = tl.zeros([M, D], tl.float32)
    dv_MD = tl.zeros([M, DV], tl.float32)
    begin = first_query(call, s0, M)
    end = end_of_queries(call, s0, begin, M)
    near, far = near_queries(call, s0, begin, end, M)
    if call.near is not None:
        # keys to the right of the queries, then to their left
        dk_MD, dv_MD, dkc_right = far_keys(
            call, q, dout, peak, total, delta, b, h, s0, begin, near, k_MD, v_MD, dk_MD, dv_MD, M, D, DV, 1
        )
        dk_MD, dv_MD, dkc_left = far_keys(
            call, q, dout, peak, total, delta, b, h, s0, far, end, k_MD, v_MD, dk_MD, dv_MD, M, D, DV, -1
        )
        if ends_C is not None and call.few is None:
            store_end(ends_C, src_len(call), s, dkc_left, 0)
            store_end(ends_C, src_len(call), s, dkc_right, 1)
        if call.few is not None:
            dkc_few = (tl.zeros([M, call.few], tl.float32), dkc_left, dkc_right)
    dkc_first = tl.zeros([M, M], tl.float32)
    kc_first = times_key_rows(call, h, near, s0, k_MD, M, D)
    for t0 in range(near, far, M):
        t = t0 + tl.arange(0, M)
        q_MD = load_tile(call, q, b, h, t, tgt_len(call), D)
        dout_MD = load_tile(call, dout, b, h, t, tgt_len(call), DV)
        rows = row_statistics(call, peak, total, delta, b, h, t)
        qk = content(call, q, k, b, h, t0, s0, q_MD, k_MD, M)
        qa = both_query_rows(call, h, t0, s0, q_MD, qk, M, D)
        kc_second = next_key_rows(call, h, t0 + M, s0, k_MD, kc_first, M, D)
        kc = key_part(call, t0, s0, kc_first, kc_second, qk, M)
        kc_first = kc_second
        dropped, _, _, _, dqk, _, dkc = gradients(
            call, b, h, t0, s0, qk, qa, kc, dot(call, dout_MD, tl.trans(v_MD)), rows, M, 0
        )
        dv_MD += dot(call, tl.trans(dropped).to(dout_MD.dtype), dout_MD)
        if call.gate is None:
            dk_MD += dot_gradient(call, tl.trans(dqk), q_MD)
        else:
            dk_MD += gated_gradient(call, dqk, q, k, b, h, t[:, None], s[None, :], "k", M, D)
        if call.C is not None and call.few is not None:
            at_zero = s - t0 + tgt_len(call) - 1 - (call.near.low >> 2)
            dkc_few = few_gradient(call, tl.trans(dkc), at_zero, dkc_few, M, -1)
        elif call.C is not None:
            mine, next_ = turned_back(tl.trans(dkc), M)
            mine += dkc_first
            dk_MD += dot_gradient(call, mine, by_key(call, h, t0, s0, M, k_MD, D))
            store_block(by_C, block, near_row(call, s0 - t0, t0, M), mine, M)
            dkc_first = next_
    if call.C is not None and call.few is not None:
        by_row = with_ends(call, dkc_few)
        dk_MD += dot_gradient(call, by_row, few_rows(call, call.C, h, k_MD, D))
        store_few(call, ends_C, src_len(call), s, by_row)
    elif call.C is not None:
        # the second block of the last tile
        last = tl.cdiv(far, M) * M
        dk_MD += dot_gradient(call, dkc_first, by_key(call, h, last, s0, M, k_MD, D))
        store_block(by_C, block, near_row(call, s0 - last, last, M), dkc_first, M)
    store_rows(dk, b, h, s, src_len(call), dk_MD, D)
    store_rows(dv, b, h, s, src_len(call), dv_MD, DV)


@triton.jit
def near_row(call: "Call", distance: tl.tensor, n0: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """``near_column`` for queries t0 = n0, whose distances s0 - t0 run backwards."""
    if call.near is None:
        return n0 // M
    else:
        return (call.near.end >> 2) - 1 - distance // M


@triton.jit(do_not_specialize=["batch"])
def backward_bias(
    q: "Rows",
    k: "Rows",
    v: "Rows",
    dout: "Rows",
    peak: tl.tensor,
    total: tl.tensor,
    delta: tl.tensor,
    dbias: "Plane",
    batch: tl.tensor,
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
) -> None:
    """Program (tile of queries and keys, head, sentence of the bias): its tile of d bias_ij,
    over the batch that shares it (all sentences or one)."""
    blocks = tl.cdiv(src_len(call), M)
    t0, s0 = tl.program_id(0) // blocks * M, tl.program_id(0) % blocks * M
    h, own = tl.program_id(1), tl.program_id(2)
    t, s = t0 + tl.arange(0, M), s0 + tl.arange(0, M)
    sum_MM = tl.zeros([M, M], tl.float32)
    # keys that no query of the tile sees have no sentence: an empty range and not a branch around the loop, because
    # jump threading around barriers goes wrong (triton-lang/triton#11153)
    count = tl.where((s0 >= first_key(call, t0, M)) & (s0 < end_of_keys(call, t0, M)), batch, 0)
    for sentence in range(own * batch, own * batch + count):
        b = tl.cast(sentence, tl.int64)
        q_MD = load_tile(call, q, b, h, t, tgt_len(call), D)
        k_MD = load_tile(call, k, b, h, s, src_len(call), D)
        v_MD = load_tile(call, v, b, h, s, src_len(call), DV)
        dout_MD = load_tile(call, dout, b, h, t, tgt_len(call), DV)
        rows = row_statistics(call, peak, total, delta, b, h, t)
        qk = content(call, q, k, b, h, t0, s0, q_MD, k_MD, M)
        qa = both_query_rows(call, h, t0, s0, q_MD, qk, M, D)
        kc = both_key_rows(call, h, t0, s0, k_MD, qk, M, D)
        _, _, dbias_, _, _, _, _ = gradients(
            call, b, h, t0, s0, qk, qa, kc, dot(call, dout_MD, tl.trans(v_MD)), rows, M, 0
        )
        sum_MM += dbias_
    batch_, head, row = number(call, dbias.batch), number(call, dbias.head), number(call, dbias.row)
    at = own.to(tl.int64) * batch_ + h.to(tl.int64) * head + t[:, None] * row + s[None, :]
    inside = is_inside(call, t[:, None], s[None, :])
    tl.store(dbias.pointer + at, sum_MM.to(dbias.pointer.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["h0", "b0", "part0", "batch", "chunk"])
def backward_tables(
    x: "Rows",
    k: "Rows",
    blocks: "Blocks",
    out: "Rows",
    h0: tl.tensor,
    b0: tl.tensor,
    part0: tl.tensor,
    batch: tl.tensor,
    chunk: tl.tensor,
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    OF: tl.constexpr,
) -> None:
    """Program (block of offsets, head - h0, chunk of ``batch`` sentences): their rows of the gradient of A, C or
    the gate (OF), from ``blocks`` and x: q for A and the gate, k for C. Where only near tiles have blocks, the rows
    are those of the offsets that they meet."""
    h, part = h0 + tl.program_id(1), tl.program_id(2)
    # which blocks these offsets are: of query rows, column (l0 - T + M + t0) / M; of key rows, (s0 + T - 1 - l0) / M
    if OF == "C":
        l0 = (tgt_len(call) - 1) % M - M + tl.program_id(0) * M
        if call.near is not None:
            l0 = ((call.near.end >> 2) - 1 - tl.program_id(0)) * M + tgt_len(call) - 1
        l = l0 + M - 1 - tl.arange(0, M)  # noqa: E741
        rows, others = src_len(call), tgt_len(call)
        start = tl.maximum(l0 - tgt_len(call) + 1, 0)
        end = tl.minimum(rows, tl.cdiv(others, M) * M - tgt_len(call) + 2 + l0)
    else:
        l0 = tgt_len(call) % M - M + tl.program_id(0) * M
        if call.near is not None:
            l0 = ((call.near.first >> 2) - 1 + tl.program_id(0)) * M + tgt_len(call)
        l = l0 + tl.arange(0, M)  # noqa: E741
        rows, others = tgt_len(call), src_len(call)
        start = tl.maximum(tgt_len(call) - M - l0, 0)
        end = tl.minimum(rows, tl.cdiv(others, M) * M + tgt_len(call) - M - l0 + 1)
    if call.skip:
        end = tl.where(l0 < src_len(call), end, 0)
    if call.window is not None:  # other blocks were left out
        offset = l0 - (src_len(call) - 1)
        inside = (offset + M - 1 >= -(call.window >> 2)) & (offset <= (call.window >> 2))
        end = tl.where(inside, end, 0)
    sum_MD = tl.zeros([M, D], tl.float32)
    for local in range(part * chunk, tl.minimum(part * chunk + chunk, batch)):
        b = b0 + tl.cast(local, tl.int64)
        for n0 in range(start, end, M):
            n = n0 + tl.arange(0, M)
            if call.near is not None:
                column = tl.program_id(0)
            elif OF == "C":
                column = (n0 + tgt_len(call) - 1 - l0) // M
            else:
                column = (n0 + l0 - tgt_len(call) + M) // M
            tile = tl.load(at_block(blocks, tl.program_id(1), local, n0 // M, column, M))
            if OF == "gate":
                s = (l - tgt_len(call) + 1)[None, :] + n[:, None]
                sum_MD += gated_gradient(call, tile, x, k, b, h, n[:, None], s, "gate", M, D)
            else:
                sum_MD += dot_gradient(call, tl.trans(tile), load_tile(call, x, b, h, n, rows, D))
    length = rows_of(call)
    if call.near is not None:
        length = tl.num_programs(0) * M
        l -= ((call.near.first >> 2) - 1) * M + tgt_len(call)  # noqa: E741
        if OF == "C":
            l += 1  # noqa: E741
    store_rows(out, tl.cast(part0 + part, tl.int64), tl.program_id(1), l, length, sum_MD, D)


@triton.jit(do_not_specialize=["h0", "b0", "part0", "batch", "chunk"])
def backward_ends(
    x: "Rows",
    ends: tl.tensor,
    out: "Rows",
    h0: tl.tensor,
    b0: tl.tensor,
    part0: tl.tensor,
    batch: tl.tensor,
    chunk: tl.tensor,
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    OF: tl.constexpr,
) -> None:
    """Program (0, head - h0, chunk of ``batch`` sentences): the gradient of the first and the last row of A or C (OF)
    in far tiles, from x and what ``store_end`` has left of it."""
    h, part = h0 + tl.program_id(1), tl.program_id(2)
    length = src_len(call) if OF == "C" else tgt_len(call)
    left_MD = tl.zeros([M, D], tl.float32)
    right_MD = tl.zeros([M, D], tl.float32)
    for local in range(part * chunk, tl.minimum(part * chunk + chunk, batch)):
        start = ends + (tl.program_id(1) * batch + local).to(tl.int64) * 2 * length
        for n0 in range(0, length, M):
            n = n0 + tl.arange(0, M)
            x_MD = load_tile(call, x, b0 + tl.cast(local, tl.int64), h, n, length, D).to(tl.float32)
            left_MD += tl.load(start + n, mask=n < length, other=0.0)[:, None] * x_MD
            right_MD += tl.load(start + length + n, mask=n < length, other=0.0)[:, None] * x_MD
    d = tl.arange(0, D)
    at = out.pointer + tl.cast(part0 + part, tl.int64) * out.batch + tl.program_id(1) * out.head + d
    tl.store(at, tl.sum(left_MD, 0), mask=d < out.width)
    tl.store(at + out.row, tl.sum(right_MD, 0), mask=d < out.width)


@triton.jit(do_not_specialize=["h0", "b0", "part0", "batch", "chunk"])
def backward_rows(
    x: "Rows",
    by_row: tl.tensor,
    out: "Rows",
    h0: tl.tensor,
    b0: tl.tensor,
    part0: tl.tensor,
    batch: tl.tensor,
    chunk: tl.tensor,
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    OF: tl.constexpr,
) -> None:
    """Program (0, head - h0, chunk of ``batch`` sentences): the gradient of A or C (OF) whose rows are few, from x and
    what ``store_few`` has left of it."""
    h, part = h0 + tl.program_id(1), tl.program_id(2)
    length = src_len(call) if OF == "C" else tgt_len(call)
    r = tl.arange(0, call.few)
    sum_RD = tl.zeros([call.few, D], tl.float32)
    for local in range(part * chunk, tl.minimum(part * chunk + chunk, batch)):
        start = by_row + (tl.program_id(1) * batch + local).to(tl.int64) * length * call.few
        for n0 in range(0, length, M):
            n = n0 + tl.arange(0, M)
            at = start + n[None, :] * call.few + r[:, None]
            by_row_RM = tl.load(at, mask=(n < length)[None, :], other=0.0)
            x_MD = load_tile(call, x, b0 + tl.cast(local, tl.int64), h, n, length, D)
            sum_RD += dot_gradient(call, by_row_RM, x_MD)
    store_rows(out, tl.cast(part0 + part, tl.int64), tl.program_id(1), r, rows_of(call), sum_RD, D)
