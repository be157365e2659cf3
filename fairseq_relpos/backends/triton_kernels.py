"""The normal form's logits, softmax and values in tiles that never leave the chip.

    e_ij = s [ ((q_i * gate_l).k_j) gain_l  (+ or x)  q_i.A_l  (+ or x)  k_j.C_l ]
           + bias_l + bias_ij,
    out_i = sum_j softmax(e_i)_j keep_ij v_j,       l = j - i + S - 1 the place of the offset

A tile of M queries and as many keys meets 2M - 1 offsets: ``q A^T`` over that band of rows is
a matrix product, of which query m needs the columns M - 1 - m onwards (``skewed``). A
gated q.k is no such product, and is summed dimension by dimension. Forward runs over the keys
of a tile of queries with the online softmax. Backward computes the tiles again from the rows'
maxima and sums:

- ``backward_queries``: dq, and d bias_l, d gain_l, d reset as one partial sum a program;
- ``backward_keys``: dk and dv;
- ``backward_bias``: d bias_ij, a tile of it a program, over all sentences;
- ``backward_tables``: dA, dC and d gate, a block of offsets a program, over sentences and queries.

Each result is written by one program, so equal inputs give equal bits.

Everything is accumulated in float32. The operands of a product keep the dtype of q and k
(of v for the values): a float32 table is cast to it for the product alone, and so is the
gradient that meets it; with product=True, where the gradient holds a product of the two
others, both are float32 instead. Dropout keeps (b, h, i, j) or not by Philox, from the seed
and these four numbers.
"""

from collections import namedtuple

import triton
import triton.language as tl

#: a tensor [B, H, N, D] by its strides; a stride of 0 repeats it
Rows = namedtuple("Rows", "pointer batch head row width")

#: the same for a matrix [B, H, T, S] that is added to the logits
Plane = namedtuple("Plane", "pointer batch head row")

#: one attention call but for q, k and v; absent terms are None. bias_row and gain [1|H, L] are
#: Rows of width 1; A, C Rows [1|H, L, D]; gate Rows [1|H, D, L]; extra a mask that is added;
#: padding_BS and cls_BS (of batch stride cls_batch) int8; reset [2, H]; product, causal and
#: precision (of a product in float32) are known to the compiler; dropout is the probability.
Call = namedtuple(
    "Call",
    "tgt_len src_len heads scale product causal precision bias_row gain bias extra padding_BS "
    "reset cls_BS cls_batch gate A C dropout seed",
)

# what Mask.additive puts at a hidden key: finite, so that a query without any key sees all
HIDDEN = tl.constexpr(-1.7014117331926443e38)


@triton.jit
def load_rows(x: "Rows", b: tl.tensor, h: tl.tensor, n: tl.tensor, length: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    """x[b, h, n, :], [N, WIDTH]; zeros where n or the column is not in x."""
    d = tl.arange(0, WIDTH)
    inside = ((n >= 0) & (n < length))[:, None] & (d < x.width)[None, :]
    at = b * x.batch + h * x.head + n[:, None] * x.row + d[None, :]
    return tl.load(x.pointer + at, mask=inside, other=0.0)


@triton.jit
def store_rows(
    x: "Rows", b: tl.tensor, h: tl.tensor, n: tl.tensor, length: tl.tensor, value: tl.tensor, WIDTH: tl.constexpr
) -> None:
    """Writes x[b, h, n, :], where n and the column are in x."""
    d = tl.arange(0, WIDTH)
    inside = (n < length)[:, None] & (d < x.width)[None, :]
    at = b * x.batch + h * x.head + n[:, None] * x.row + d[None, :]
    tl.store(x.pointer + at, value.to(x.pointer.dtype.element_ty), mask=inside)


@triton.jit
def skewed(wide: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """out[m, n] = wide[m, n - m + M - 1]: [M, 2M] -> [M, M]."""
    m, n = tl.arange(0, M)[:, None], tl.arange(0, M)[None, :]
    return tl.gather(wide, n - m + M - 1, 1)


@triton.jit
def unskewed(tile: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """wide[m, r] = tile[m, r + m - M + 1] or 0, the transpose of ``skewed``."""
    n = tl.arange(0, 2 * M)[None, :] + tl.arange(0, M)[:, None] - M + 1
    wide = tl.gather(tile, tl.minimum(tl.maximum(n, 0), M - 1), 1)
    return tl.where((n >= 0) & (n < M), wide, 0.0)


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
def band_of(call: "Call", t0: tl.tensor, s0: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """The offsets that queries t0 .. t0 + M - 1 and keys s0 .. s0 + M - 1 meet, in the order
    of the keys; one more at the end."""
    return s0 - t0 + call.tgt_len - M + tl.arange(0, 2 * M)


@triton.jit
def table_for_queries(
    call: "Call", h: tl.tensor, t0: tl.tensor, s0: tl.tensor, q: tl.tensor, M: tl.constexpr, D: tl.constexpr
) -> tl.tensor:
    """A over ``band_of``."""
    band = band_of(call, t0, s0, M)
    length = call.tgt_len + call.src_len - 1
    return load_rows(call.A, 0, h, band, length, D).to(q.dtype)


@triton.jit
def table_for_keys(
    call: "Call", h: tl.tensor, t0: tl.tensor, s0: tl.tensor, k: tl.tensor, M: tl.constexpr, D: tl.constexpr
) -> tl.tensor:
    """C over the same offsets in the order of the queries, which is the reverse order."""
    band = 2 * (s0 - t0 + call.tgt_len - 1) - band_of(call, t0, s0, M)
    length = call.tgt_len + call.src_len - 1
    return load_rows(call.C, 0, h, band, length, D).to(k.dtype)


@triton.jit
def is_inside(call: "Call", t: tl.tensor, s: tl.tensor) -> tl.tensor:
    """Whether query t and key s exist."""
    return (t < call.tgt_len) & (s >= 0) & (s < call.src_len)


@triton.jit
def load_column(x: "Rows", b: tl.tensor, h: tl.tensor, n: tl.tensor, length: tl.tensor, d: tl.tensor) -> tl.tensor:
    """x[b, h, n, d], of the shape of n, in float32."""
    at = b * x.batch + h * x.head + n * x.row + d
    return tl.load(x.pointer + at, mask=(n >= 0) & (n < length), other=0.0).to(tl.float32)


@triton.jit
def load_gate(call: "Call", h: tl.tensor, t: tl.tensor, s: tl.tensor, d: tl.tensor) -> tl.tensor:
    """gate[h, l, d], [M, N]; in memory the offsets are side by side."""
    at = h * call.gate.head + d * call.gate.row + (s - t + call.tgt_len - 1)
    return tl.load(call.gate.pointer + at, mask=is_inside(call, t, s), other=0.0).to(tl.float32)


@triton.jit
def gated(
    call: "Call", q: "Rows", k: "Rows", b: tl.tensor, h: tl.tensor, t: tl.tensor, s: tl.tensor, M: tl.constexpr
) -> tl.tensor:
    """(q_t * gate_l).k_s, [M, M], of queries t [M, 1] and keys s [1|M, M]."""
    total = tl.zeros([M, M], tl.float32)
    for d in range(0, q.width):
        product = load_column(q, b, h, t, call.tgt_len, d) * load_gate(call, h, t, s, d)
        total += product * load_column(k, b, h, s, call.src_len, d)
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
            product *= load_column(q, b, h, t, call.tgt_len, d)
        if OF != "k":
            product *= load_column(k, b, h, s, call.src_len, d)
        if OF != "gate":
            product *= load_gate(call, h, t, s, d)
        total_M = tl.sum(product, 1 if OF == "q" else 0)
        total += tl.where(columns == d, total_M[:, None], 0.0)
    return total


@triton.jit
def products(
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
    D: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """q.k, q.A and k.C, [M, M] each, of the tile whose q and k are q_MD and k_MD. An absent one is q.k, which
    is never read."""
    if call.gate is None:
        qk = dot(call, q_MD, tl.trans(k_MD))
    else:
        t, s = t0 + tl.arange(0, M)[:, None], s0 + tl.arange(0, M)[None, :]
        qk = gated(call, q, k, b, h, t, s, M)
    qa = qk
    kc = qk
    if call.A is not None:
        A_band = table_for_queries(call, h, t0, s0, q_MD, M, D)
        qa = skewed(dot(call, q_MD, tl.trans(A_band)), M)
    if call.C is not None:
        C_band = table_for_keys(call, h, t0, s0, k_MD, M, D)
        kc = tl.trans(skewed(dot(call, k_MD, tl.trans(C_band)), M))
    return qk, qa, kc


@triton.jit
def at_offset(call: "Call", values_L: "Rows", h: tl.tensor, t: tl.tensor, s: tl.tensor) -> tl.tensor:
    """values_L[h, l], [M, N]."""
    at = h * values_L.head + (s - t + call.tgt_len - 1) * values_L.row
    return tl.load(values_L.pointer + at, mask=is_inside(call, t, s), other=0.0).to(tl.float32)


@triton.jit
def at_pair(call: "Call", plane: "Plane", b: tl.tensor, h: tl.tensor, t: tl.tensor, s: tl.tensor) -> tl.tensor:
    """plane[b, h, t, s], [M, N]."""
    at = b * plane.batch + tl.cast(h, tl.int64) * plane.head + t * plane.row + s
    return tl.load(plane.pointer + at, mask=is_inside(call, t, s), other=0.0).to(tl.float32)


@triton.jit
def meets_cls(call: "Call", b: tl.tensor, t: tl.tensor, s: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Whether the query, and whether the key, is [CLS]: [M, 1] and [1|M, N]."""
    start = call.cls_BS + b * call.cls_batch
    query_slot = t + call.src_len - call.tgt_len
    query = tl.load(start + query_slot, mask=t < call.tgt_len, other=0) != 0
    key = tl.load(start + s, mask=(s >= 0) & (s < call.src_len), other=0) != 0
    return query, key


@triton.jit
def logits(
    call: "Call", b: tl.tensor, h: tl.tensor, t: tl.tensor, s: tl.tensor, qk: tl.tensor, qa: tl.tensor, kc: tl.tensor
) -> tl.tensor:
    """e, [M, N] in float32, of queries t [M, 1] and keys s [1|M, N], from their three products.
    Hidden keys are HIDDEN, places beyond the keys -inf."""
    x = qk
    if call.gain is not None:
        x = x * at_offset(call, call.gain, h, t, s)
    if call.A is not None:
        x = x * qa if call.product else x + qa
    if call.C is not None:
        x = x * kc if call.product else x + kc
    e = call.scale * x
    if call.bias_row is not None:
        e += at_offset(call, call.bias_row, h, t, s)
    if call.bias is not None:
        e += at_pair(call, call.bias, b, h, t, s)
    if call.reset is not None:
        query, key = meets_cls(call, b, t, s)
        from_cls = tl.load(call.reset + h).to(tl.float32)
        to_cls = tl.load(call.reset + call.heads + h).to(tl.float32)
        e = tl.where(key, call.scale * qk + to_cls, e)
        e = tl.where(query, call.scale * qk + from_cls, e)
    if call.extra is not None:
        e += at_pair(call, call.extra, b, h, t, s)
    inside = (s >= 0) & (s < call.src_len)
    if call.padding_BS is not None:
        padding = tl.load(call.padding_BS + b * call.src_len + s, mask=inside, other=0)
        e = tl.where(padding != 0, HIDDEN, e)
    if call.causal:
        e = tl.where(s > t + call.src_len - call.tgt_len, HIDDEN, e)
    return tl.where(inside, e, float("-inf"))


@triton.jit
def kept(call: "Call", b: tl.tensor, h: tl.tensor, t: tl.tensor, s: tl.tensor) -> tl.tensor:
    """What dropout multiplies the weights by, 0 or 1 / (1 - p), [M, N]."""
    zero = (t + s) * 0
    bits, _, _, _ = tl.philox(call.seed, zero + t, zero + s, zero + h, zero + b.to(tl.int32))
    keep = tl.uint_to_uniform_float(bits) >= call.dropout
    return tl.where(keep, 1 / (1 - call.dropout), 0.0)


@triton.jit
def row_statistics(
    call: "Call", peak: tl.tensor, total: tl.tensor, delta: tl.tensor, b: tl.tensor, h: tl.tensor, t: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Of queries t [M]: the maximum and the sum of exponentials of the logits, and
    delta = dout.out, [M, 1] each."""
    at = (b * call.heads + h) * call.tgt_len + t
    inside = t < call.tgt_len
    return (
        tl.load(peak + at, mask=inside, other=0.0)[:, None],
        tl.load(total + at, mask=inside, other=1.0)[:, None],
        tl.load(delta + at, mask=inside, other=0.0)[:, None],
    )


@triton.jit
def gradients(
    call: "Call",
    b: tl.tensor,
    h: tl.tensor,
    t: tl.tensor,
    s: tl.tensor,
    qk: tl.tensor,
    qa: tl.tensor,
    kc: tl.tensor,
    dout_v: tl.tensor,
    rows: "tuple",
) -> tuple:
    """From dout_i.v_j and the ``row_statistics``: the weights after dropout, d e, and the
    gradients of bias, gain, q.k, q.A and k.C, [M, N] in float32 each."""
    peak, total, delta = rows
    e = logits(call, b, h, t, s, qk, qa, kc)
    weight = tl.where(is_inside(call, t, s), tl.exp(e - peak) / total, 0.0)
    dropped = weight
    if call.dropout is not None:
        keep = kept(call, b, h, t, s)
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
        dqk = dx * at_offset(call, call.gain, h, t, s)
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
    """Where queries t0 .. t0 + M - 1 see no more keys. A padded query may have no key at all,
    and then sees every one, as the reference does: with padding nothing is left out."""
    end = call.src_len
    if call.causal:
        if call.padding_BS is None:
            end = tl.minimum(end, t0 + M + call.src_len - call.tgt_len)
    return end


@triton.jit
def first_query(call: "Call", s0: tl.tensor, M: tl.constexpr) -> tl.tensor:
    """The first block of queries that sees keys from s0 on."""
    first = 0
    if call.causal:
        if call.padding_BS is None:
            first = tl.maximum(s0 - (call.src_len - call.tgt_len), 0) // M * M
    return first


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
    q_MD = load_rows(q, b, h, t, call.tgt_len, D)
    peak_M = tl.full([M], float("-inf"), tl.float32)
    total_M = tl.zeros([M], tl.float32)
    out_MD = tl.zeros([M, DV], tl.float32)
    for s0 in range(0, end_of_keys(call, t0, M), M):
        s = s0 + tl.arange(0, M)
        k_MD = load_rows(k, b, h, s, call.src_len, D)
        v_MD = load_rows(v, b, h, s, call.src_len, DV)
        qk, qa, kc = products(call, q, k, b, h, t0, s0, q_MD, k_MD, M, D)
        e = logits(call, b, h, t[:, None], s[None, :], qk, qa, kc)
        new_peak_M = tl.maximum(peak_M, tl.max(e, 1))
        weight = tl.exp(e - new_peak_M[:, None])
        shrink_M = tl.exp(peak_M - new_peak_M)
        total_M = total_M * shrink_M + tl.sum(weight, 1)
        if call.dropout is not None:
            weight *= kept(call, b, h, t[:, None], s[None, :])
        out_MD = out_MD * shrink_M[:, None] + dot(call, weight.to(v_MD.dtype), v_MD)
        peak_M = new_peak_M
    store_rows(out, b, h, t, call.tgt_len, out_MD / total_M[:, None], DV)
    at = (b * call.heads + h) * call.tgt_len + t
    tl.store(peak + at, peak_M, mask=t < call.tgt_len)
    tl.store(total + at, total_M, mask=t < call.tgt_len)


@triton.jit
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
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
) -> None:
    """Program (block of queries, head, sentence): dq; where asked for, its share of d bias_l and
    d gain_l, a row of [B, blocks, H, L], and of d reset, a place of [2, B, blocks, H]."""
    block, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    t0 = block * M
    t = t0 + tl.arange(0, M)
    q_MD = load_rows(q, b, h, t, call.tgt_len, D)
    dout_MD = load_rows(dout, b, h, t, call.tgt_len, DV)
    rows = row_statistics(call, peak, total, delta, b, h, t)
    share = (b * tl.num_programs(0) + block) * call.heads + h
    dq_MD = tl.zeros([M, D], tl.float32)
    dbias_M = tl.zeros([M], tl.float32)
    dgain_M = tl.zeros([M], tl.float32)
    from_cls_M = tl.zeros([M], tl.float32)
    to_cls_M = tl.zeros([M], tl.float32)
    end = end_of_keys(call, t0, M)
    for s0 in range(0, end, M):
        s = s0 + tl.arange(0, M)
        k_MD = load_rows(k, b, h, s, call.src_len, D)
        v_MD = load_rows(v, b, h, s, call.src_len, DV)
        qk, qa, kc = products(call, q, k, b, h, t0, s0, q_MD, k_MD, M, D)
        _, de_, dbias_, dgain_, dqk, dqa, _ = gradients(
            call, b, h, t[:, None], s[None, :], qk, qa, kc, dot(call, dout_MD, tl.trans(v_MD)), rows
        )
        if call.gate is None:
            dq_MD += dot_gradient(call, dqk, k_MD)
        else:
            dq_MD += gated_gradient(call, dqk, q, k, b, h, t[:, None], s[None, :], "q", M, D)
        if call.A is not None:
            A_band = table_for_queries(call, h, t0, s0, q_MD, M, D)
            dq_MD += dot_gradient(call, unskewed(dqa, M), A_band)
        first = s0 - t0 + call.tgt_len - M
        if dbias is not None:
            dbias_M = store_offset_sums(call, dbias, share, first, dbias_M, dbias_, M)
        if dgain is not None:
            dgain_M = store_offset_sums(call, dgain, share, first, dgain_M, dgain_, M)
        if dreset is not None:
            query, key = meets_cls(call, b, t[:, None], s[None, :])
            from_cls_M += tl.sum(tl.where(query, de_, 0.0), 1)
            to_cls_M += tl.sum(tl.where(key & (query == 0), de_, 0.0), 1)
    store_rows(dq, b, h, t, call.tgt_len, dq_MD, D)
    # the offsets to the right of the last tile's middle
    first = tl.cdiv(end, M) * M - t0 + call.tgt_len - M
    if dbias is not None:
        store_offsets(call, dbias, share, first, dbias_M, M)
    if dgain is not None:
        store_offsets(call, dgain, share, first, dgain_M, M)
    if dreset is not None:
        tl.store(dreset + share, tl.sum(from_cls_M, 0))
        programs = tl.num_programs(0) * call.heads * tl.num_programs(2)
        tl.store(dreset + programs + share, tl.sum(to_cls_M, 0))


@triton.jit
def store_offsets(
    call: "Call", sums: tl.tensor, share: tl.tensor, first: tl.tensor, value: tl.tensor, M: tl.constexpr
) -> None:
    """Writes a program's sums of M offsets, from ``first``."""
    length = call.tgt_len + call.src_len - 1
    l = first + tl.arange(0, M)  # noqa: E741
    tl.store(sums + share * length + l, value, mask=(l >= 0) & (l < length))


@triton.jit
def store_offset_sums(
    call: "Call",
    sums: tl.tensor,
    share: tl.tensor,
    first: tl.tensor,
    carry: tl.tensor,
    tile: tl.tensor,
    M: tl.constexpr,
) -> tl.tensor:
    """Sum a tile along its diagonals. The left half of its 2M offsets is complete with what the
    tile before has carried over, and is stored; the right half is carried on."""
    half = tl.reshape(tl.sum(unskewed(tile, M), 0), [2, M])
    is_left = tl.arange(0, 2)[:, None] == 0
    store_offsets(call, sums, share, first, carry + tl.sum(tl.where(is_left, half, 0.0), 0), M)
    return tl.sum(tl.where(is_left, 0.0, half), 0)


@triton.jit
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
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
) -> None:
    """Program (block of keys, head, sentence): dk and dv."""
    s0, h, b = tl.program_id(0) * M, tl.program_id(1), tl.program_id(2).to(tl.int64)
    s = s0 + tl.arange(0, M)
    k_MD = load_rows(k, b, h, s, call.src_len, D)
    v_MD = load_rows(v, b, h, s, call.src_len, DV)
    dk_MD = tl.zeros([M, D], tl.float32)
    dv_MD = tl.zeros([M, DV], tl.float32)
    for t0 in range(first_query(call, s0, M), call.tgt_len, M):
        t = t0 + tl.arange(0, M)
        q_MD = load_rows(q, b, h, t, call.tgt_len, D)
        dout_MD = load_rows(dout, b, h, t, call.tgt_len, DV)
        rows = row_statistics(call, peak, total, delta, b, h, t)
        qk, qa, kc = products(call, q, k, b, h, t0, s0, q_MD, k_MD, M, D)
        dropped, _, _, _, dqk, _, dkc = gradients(
            call, b, h, t[:, None], s[None, :], qk, qa, kc, dot(call, dout_MD, tl.trans(v_MD)), rows
        )
        dv_MD += dot(call, tl.trans(dropped).to(dout_MD.dtype), dout_MD)
        if call.gate is None:
            dk_MD += dot_gradient(call, tl.trans(dqk), q_MD)
        else:
            dk_MD += gated_gradient(call, dqk, q, k, b, h, t[:, None], s[None, :], "k", M, D)
        if call.C is not None:
            C_band = table_for_keys(call, h, t0, s0, k_MD, M, D)
            dk_MD += dot_gradient(call, unskewed(tl.trans(dkc), M), C_band)
    store_rows(dk, b, h, s, call.src_len, dk_MD, D)
    store_rows(dv, b, h, s, call.src_len, dv_MD, DV)


@triton.jit
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
    blocks = tl.cdiv(call.src_len, M)
    t0, s0 = tl.program_id(0) // blocks * M, tl.program_id(0) % blocks * M
    h, own = tl.program_id(1), tl.program_id(2)
    t, s = t0 + tl.arange(0, M), s0 + tl.arange(0, M)
    sum_MM = tl.zeros([M, M], tl.float32)
    if s0 < end_of_keys(call, t0, M):
        for sentence in range(own * batch, own * batch + batch):
            b = tl.cast(sentence, tl.int64)
            q_MD = load_rows(q, b, h, t, call.tgt_len, D)
            k_MD = load_rows(k, b, h, s, call.src_len, D)
            v_MD = load_rows(v, b, h, s, call.src_len, DV)
            dout_MD = load_rows(dout, b, h, t, call.tgt_len, DV)
            rows = row_statistics(call, peak, total, delta, b, h, t)
            qk, qa, kc = products(call, q, k, b, h, t0, s0, q_MD, k_MD, M, D)
            _, _, dbias_, _, _, _, _ = gradients(
                call, b, h, t[:, None], s[None, :], qk, qa, kc, dot(call, dout_MD, tl.trans(v_MD)), rows
            )
            sum_MM += dbias_
    at = own.to(tl.int64) * dbias.batch + h.to(tl.int64) * dbias.head + t[:, None] * dbias.row + s[None, :]
    inside = is_inside(call, t[:, None], s[None, :])
    tl.store(dbias.pointer + at, sum_MM.to(dbias.pointer.dtype.element_ty), mask=inside)


@triton.jit
def backward_tables(
    q: "Rows",
    k: "Rows",
    v: "Rows",
    dout: "Rows",
    peak: tl.tensor,
    total: tl.tensor,
    delta: tl.tensor,
    dA: "Rows",
    dC: "Rows",
    dgate: "Rows",
    batch: tl.tensor,
    chunk: tl.tensor,
    call: "Call",
    M: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
) -> None:
    """Program (block of offsets, head, chunk of sentences): their rows of dA, dC and d gate.

    The tile's columns are offsets here, not keys. Its queries run backwards, from t0 + M - 1,
    so that the keys which one of them meets are again a skewed row of a band of 2M keys.
    """
    l0, h, part = tl.program_id(0) * M, tl.program_id(1), tl.program_id(2)
    length = call.tgt_len + call.src_len - 1
    l = l0 + tl.arange(0, M)  # noqa: E741
    dA_MD = tl.zeros([M, D], tl.float32)
    dC_MD = tl.zeros([M, D], tl.float32)
    dgate_MD = tl.zeros([M, D], tl.float32)
    # queries that meet a key at one of these offsets
    start = tl.maximum(call.tgt_len - l0 - M, 0) // M * M
    end = tl.minimum(call.tgt_len, length - l0)
    if call.causal:
        if call.padding_BS is None:
            end = tl.where(l0 < call.src_len, end, 0)
    for sentence in range(part * chunk, tl.minimum(part * chunk + chunk, batch)):
        b = tl.cast(sentence, tl.int64)
        for t0 in range(start, end, M):
            t = t0 + M - 1 - tl.arange(0, M)
            s0 = l0 + t0 - call.tgt_len + 1
            s = (l - call.tgt_len + 1)[None, :] + t[:, None]
            s_band = s0 + tl.arange(0, 2 * M)
            q_MD = load_rows(q, b, h, t, call.tgt_len, D)
            k_band = load_rows(k, b, h, s_band, call.src_len, D)
            if call.gate is None:
                qk = skewed(dot(call, q_MD, tl.trans(k_band)), M)
            else:
                qk = gated(call, q, k, b, h, t[:, None], s, M)
            qa = qk
            kc = qk
            if call.A is not None:
                A_MD = load_rows(call.A, 0, h, l, length, D).to(q_MD.dtype)
                qa = dot(call, q_MD, tl.trans(A_MD))
            if call.C is not None:
                C_MD = load_rows(call.C, 0, h, l, length, D).to(q_MD.dtype)
                k_back = load_rows(k, b, h, 2 * (s0 + M - 1) - s_band, call.src_len, D)
                kc = tl.trans(skewed(dot(call, C_MD, tl.trans(k_back)), M))
            v_band = load_rows(v, b, h, s_band, call.src_len, DV)
            dout_MD = load_rows(dout, b, h, t, call.tgt_len, DV)
            dout_v = skewed(dot(call, dout_MD, tl.trans(v_band)), M)
            rows = row_statistics(call, peak, total, delta, b, h, t)
            _, _, _, _, dqk, dqa, dkc = gradients(call, b, h, t[:, None], s, qk, qa, kc, dout_v, rows)
            if dA is not None:
                dA_MD += dot_gradient(call, tl.trans(dqa), q_MD)
            if dC is not None:
                dC_MD += dot_gradient(call, unskewed(tl.trans(dkc), M), k_back)
            if dgate is not None:
                dgate_MD += gated_gradient(call, dqk, q, k, b, h, t[:, None], s, "gate", M, D)
    if dA is not None:
        store_rows(dA, part, h, l, length, dA_MD, D)
    if dC is not None:
        store_rows(dC, part, h, l, length, dC_MD, D)
    if dgate is not None:
        store_rows(dgate, part, h, l, length, dgate_MD, D)
