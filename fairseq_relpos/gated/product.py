"""out[.., t, s] = sum_d q[.., t, d] k[.., s, d] gate[.., s - t + T - 1, d]

No matrix product computes this sum. On a CPU, compiled code does (gated.cpp) where there is a
C++ compiler. Otherwise Python loops over queries, keys and diagonals.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from ..tensors import once_differentiable, plain
from . import compiled


def gated(q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, gate_HLD: torch.Tensor) -> torch.Tensor:
    """sum_d q_id k_jd gate_row(j-i),d, [B, H, T, S]. The gate is in the order of the offsets -(S-1) .. T-1, one
    table for all heads or one per head."""
    if q_BHTD.size(2) == 1:
        return (k_BHSD * (q_BHTD * gate_HLD)).sum(-1)[:, :, None]
    return GatedProduct.apply(q_BHTD, k_BHSD, gate_HLD)


class GatedProduct(torch.autograd.Function):
    """The autograd function of ``gated``. It keeps only its three inputs for backward."""

    @staticmethod
    def forward(ctx: Any, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, gate_HLD: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(q_BHTD, k_BHSD, gate_HLD)
        return form(q_BHTD, k_BHSD, gate_HLD).product(q_BHTD, k_BHSD, gate_HLD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHTS: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q_BHTD, k_BHSD, gate_HLD = ctx.saved_tensors
        return form(q_BHTD, k_BHSD, gate_HLD).gradients(q_BHTD, k_BHSD, gate_HLD, grad_BHTS)


def form(*tensors: torch.Tensor) -> "type[Compiled] | type[Looped]":
    """The implementation that serves these tensors."""
    if plain(*tensors) and all(x.device.type == "cpu" and x.dtype == tensors[0].dtype for x in tensors):
        if tensors[0].dtype in Compiled.NAMES and compiled.library() is not None:
            return Compiled
    return Looped


class Compiled:
    """Calls gated.cpp, which keeps tiles of pairs in registers. The result has the same bits for any number of
    threads."""

    NAMES = {torch.float32: "float", torch.float64: "double"}
    #: partial sums of the gate's gradient that threads make in parallel; further threads share d
    PARTS = 4

    @staticmethod
    def product(q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, gate_HLD: torch.Tensor) -> torch.Tensor:
        batch, heads, tgt_len, width = q_BHTD.shape
        src_len = k_BHSD.size(2)
        out = q_BHTD.new_empty(batch, heads, tgt_len, src_len)
        Compiled.call(
            "forward",
            q_BHTD.contiguous(),
            k_BHSD.contiguous(),
            gate_HLD.contiguous(),
            out,
            batch * heads,
            gate_HLD.size(0),
            tgt_len,
            src_len,
            width,
        )
        return out

    @staticmethod
    def gradients(
        q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, gate_HLD: torch.Tensor, grad_BHTS: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        width = q_BHTD.size(3)
        padding = 0, -width % (compiled.library().vector_bytes() // q_BHTD.dtype.itemsize)
        q, k, gate = (F.pad(x, padding).contiguous() for x in (q_BHTD, k_BHSD, gate_HLD))
        pairs, tables = q.size(0) * q.size(1), gate.size(0)
        # together no larger than q
        parts = max(1, min(Compiled.PARTS, q[..., 0].numel() // gate[..., 0].numel()))
        grad_q, grad_k = torch.zeros_like(q), torch.zeros_like(k)
        grad_gate = gate.new_zeros(parts, *gate.shape)
        Compiled.call(
            "backward",
            q,
            k,
            gate,
            grad_BHTS.contiguous(),
            grad_q,
            grad_k,
            grad_gate,
            pairs,
            tables,
            q.size(2),
            k.size(2),
            q.size(3),
            parts,
        )
        return grad_q[..., :width], grad_k[..., :width], grad_gate.sum(0)[..., :width]

    @staticmethod
    def call(name: str, *arguments: Any) -> None:
        function = getattr(compiled.library(), f"{name}_{Compiled.NAMES[arguments[0].dtype]}")
        function(
            *(
                ctypes.c_void_p(x.data_ptr()) if torch.is_tensor(x) else ctypes.c_int64(x)
                for x in (*arguments, torch.get_num_threads())
            )
        )


class Looped:
    """One query at a time: all keys times the gate's rows at its offsets, then a small matrix product. dk is
    computed as dq, with queries and keys exchanged. All pairs on one diagonal share a gate row, so its gradient
    is summed diagonal by diagonal. Sentences and heads with the same gate are computed together."""

    #: elements of one group: on a CPU, what its caches hold
    GROUP_ON_CPU, GROUP = 2**17, 2**24

    @staticmethod
    def product(q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, gate_HLD: torch.Tensor) -> torch.Tensor:
        out = q_BHTD.new_empty(*q_BHTD.shape[:3], k_BHSD.size(2))
        for table, group in Looped.groups(k_BHSD, gate_HLD):
            q, k, part = (x.flatten(0, 1)[group] for x in (q_BHTD, k_BHSD, out))
            # keys last: a product whose sums run along memory is slower
            k, gate = k.mT.contiguous(), gate_HLD[table].mT.contiguous()
            met = torch.empty_like(k)
            for t, columns in windows(*part.shape[1:]):
                torch.mul(k, gate[:, columns], out=met)
                part[:, t] = (q[:, t, None] @ met)[:, 0]
        return out

    @staticmethod
    def gradients(
        q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, gate_HLD: torch.Tensor, grad_BHTS: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        grad_q, grad_k = q_BHTD.new_empty(q_BHTD.shape), k_BHSD.new_empty(k_BHSD.shape)
        grad_gate = torch.zeros_like(gate_HLD)
        whole = q_BHTD, k_BHSD, grad_BHTS, grad_q, grad_k
        for table, group in Looped.groups(k_BHSD, gate_HLD):
            q, k, grad, dq, dk = (x.flatten(0, 1)[group] for x in whole)
            gate = gate_HLD[table]
            Looped.weigh(grad, k, gate, dq)
            Looped.weigh(grad.mT.contiguous(), q, gate.flip(0), dk)
            q, k = (x.transpose(0, 1).contiguous() for x in (q, k))
            for column, diagonal, queries, keys in diagonals(*grad.shape[1:]):
                along = grad.diagonal(diagonal, 1, 2).T.flatten()
                grad_gate[table, column] += along @ (q[queries] * k[keys]).flatten(0, 1)
        return grad_q, grad_k, grad_gate

    @staticmethod
    def weigh(weight_GTS: torch.Tensor, x_GSD: torch.Tensor, gate_LD: torch.Tensor, out_GTD: torch.Tensor) -> None:
        """out_t = sum_s weight_ts x_s gate_row(s-t)."""
        met = x_GSD.new_empty(x_GSD.shape)
        for t, columns in windows(*weight_GTS.shape[1:]):
            torch.mul(x_GSD, gate_LD[columns], out=met)
            out_GTD[:, t] = (weight_GTS[:, t, None] @ met)[:, 0]

    @staticmethod
    def groups(k_BHSD: torch.Tensor, gate_HLD: torch.Tensor) -> Iterator[tuple[int, slice]]:
        """The groups that are computed together: (table, slice of the flattened [B, H])."""
        batch, heads, src_len, width = k_BHSD.shape
        room = Looped.GROUP_ON_CPU if k_BHSD.device.type == "cpu" else Looped.GROUP
        tables = gate_HLD.size(0)
        step = tables * max(1, room // (src_len * width))
        for table in range(tables):
            for first in range(table, batch * heads, step):
                yield table, slice(first, first + step, tables)


def windows(tgt_len: int, src_len: int) -> Iterator[tuple[int, slice]]:
    """Each query with the range of its keys' offsets, in the order -(S-1) .. T-1."""
    for t in range(tgt_len):
        yield t, slice(tgt_len - 1 - t, tgt_len - 1 - t + src_len)


def diagonals(tgt_len: int, src_len: int) -> Iterator[tuple[int, int, slice, slice]]:
    """The offsets of a [T, S] matrix. For each: its place in -(S-1) .. T-1, its diagonal, and the queries and
    keys that are that far apart."""
    first_query = src_len - tgt_len
    for offset in range(1 - src_len, tgt_len):
        start, end = max(0, first_query + offset), min(src_len, src_len + offset)
        queries = slice(start - offset - first_query, end - offset - first_query)
        yield offset + src_len - 1, offset + first_query, queries, slice(start, end)
