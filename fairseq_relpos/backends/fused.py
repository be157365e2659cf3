"""softmax(e + mask) V on a CPU in compiled code, tile by tile: fused.cpp.

A tile of the logits stays in the cache, so no tensor of their size is made, and backward makes
them again. Kept from forward to backward are the inputs, the output, two numbers a query and
the seed of the dropout mask. For one number of threads the result has the same bits each time.
"""

import ctypes
import functools
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from ..gated import compiled
from ..positions import Positions
from ..tensors import once_differentiable, outside_autocast, plain
from ..terms import Bias, Terms, by_offset, full_precision, runs
from .base import NO_VALUES, Backend, Mask
from .eager import Eager
from .lean import LEVELS
from .processor import has_avx512_but_is_not_intel, has_bf16_units

logger = logging.getLogger(__name__)

SOURCE = compiled.Source(
    (Path(__file__).with_name("fused.cpp"), compiled.GATED.files[0]),
    (("-march=native",), ()),
    "attention on the CPU is computed in Python (lean), slower",
)
#: the largest number of queries and of keys in a tile; keys come in steps of STEP
ROWS, COLUMNS, STEP = 128, 512, 32
#: the same with a gate, whose keys are transposed for each tile
GATED_ROWS, GATED_COLUMNS = 512, 256
#: what a narrow window leaves of them at least
SMALLEST = 128

#: multiplications from which a product is worth one of oneDNN's kernels
LARGE = 2**18
#: lengths for which oneDNN serves are multiples of this: torch keeps a kernel for each set of sizes and each thread
MULTIPLE = 32


class _Tensor(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), *((x, ctypes.c_int64) for x in ("sentence", "head", "row"))]


INPUTS = tuple("q k v A C A_runs C_runs gate gain bias_row bias reset cls keys extra out norm".split())
GRADIENTS = ("grad", "dq", "dk", "dv", "dA", "dC", "dgate", "dgain", "dbias_row", "dbias", "dreset", "dextra")
NUMBERS = tuple("B H T S D DV product causal skip window rows columns dropped seed threads large".split())
PAIRS = ("bias", "extra", "dbias", "dextra")
FUNCTIONS = {
    "gemm": "sgemm_",
    "brgemm": "_ZN2at6native7cpublas6brgemmEllllllbPKfS3_Pfb",
    "half_brgemm": "_ZN2at6native7cpublas6brgemmEllllllbPKN3c108BFloat16ES5_Pfb",
    "release": "_ZN2at6native7cpublas14brgemm_releaseEb",
    "parallel": "GOMP_parallel",
    "thread": "omp_get_thread_num",
    "team": "omp_get_num_threads",
}


class _Call(ctypes.Structure):
    """fused.cpp declares the same fields in the same order."""

    _fields_ = [
        *((name, _Tensor) for name in (*INPUTS, *GRADIENTS)),
        *((name, ctypes.c_int64) for name in NUMBERS),
        *((name, ctypes.c_double) for name in ("scale", "lowest")),
        *((name, ctypes.c_void_p) for name in FUNCTIONS),
    ]


@functools.cache
def functions() -> dict[str, int | None]:
    """The addresses of torch's own matrix products and of its OpenMP; None for what it does not bring."""
    torchs = ctypes.CDLL(torch._C.__file__)  # and what that is linked to
    found = {name: getattr(torchs, symbol, None) for name, symbol in FUNCTIONS.items()}
    return {name: ctypes.cast(x, ctypes.c_void_p).value if x is not None else None for name, x in found.items()}


@functools.cache
def faster_products() -> set[str]:
    """The products of oneDNN, which torch brings, that serve in place of its BLAS: of float32 on AMD processors with
    AVX-512, where MKL, the BLAS of torch's x86 builds, is slow; of bfloat16 on processors
    that have units for it."""
    at = {name: ctypes.c_void_p(x) for name, x in functions().items() if x is not None}
    library, found = compiled.library(SOURCE), set()
    if "brgemm" in at and has_avx512_but_is_not_intel() and library.multiplies(at["brgemm"]):
        found.add("brgemm")
    if {"half_brgemm", "release"} <= {*at} and has_bf16_units():
        if library.multiplies_halves(at["half_brgemm"], at["release"]):
            found.add("half_brgemm")
    return found


def products(half: bool, *lengths: int) -> dict[str, int | None]:
    """The functions of fused.cpp for one call with these lengths. half: products of bfloat16, where they are faster."""
    wanted = {"brgemm", "half_brgemm"} if half else {"brgemm"}
    onednn = torch.backends.mkldnn.enabled and all(length % MULTIPLE == 0 for length in lengths)
    used = wanted & faster_products() if onednn else set()
    return {name: x if name in used or "brgemm" not in name else None for name, x in functions().items()}


@functools.cache
def unavailable() -> str | None:
    """The reason why this machine has no compiled attention, or None."""
    if functions()["gemm"] is None:
        logger.warning(
            "the backend fused cannot run: this torch brings no matrix product sgemm_ (auto takes others, slower)"
        )
        return "torch brings no sgemm_ here"
    if functions()["parallel"] is None:
        logger.warning(
            "the backend fused runs on one thread: this torch brings no OpenMP that it knows (GOMP_parallel)"
        )
    if compiled.library(SOURCE) is None:
        return "it is not compiled here"
    return None


def compilable(x: torch.Tensor) -> bool:
    """Whether a tensor lies where this backend computes, in a type that float32 holds."""
    return x.device.type == "cpu" and x.dtype != torch.float64


class Fused(Backend):
    name = "fused"

    def refuses(self, terms: Terms, need_weights: bool, device: torch.device | None = None) -> str | None:
        if terms.values is not None:
            return NO_VALUES
        where = (device or terms.q_BHTD.device).type
        if where != "cpu":
            return f"it serves CPUs, and this call is on {where}"
        if terms.cls_BS is not None and terms.q_BHTD.size(2) > terms.k_BHSD.size(2):
            return "a reset at [CLS] with more queries than keys"
        if not plain(*terms.tensors().values()):
            return "tensors of a subclass, as where torch traces a model"
        if not all(compilable(x) for x in terms.tensors().values()):
            return "it computes in float32, which is less than float64"
        return unavailable()

    def prepare_bias(self, bias: Bias, pos: Positions) -> Bias:
        """Keeps it as it is: a tile reads its part of each tensor."""
        return bias

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        dropped = round(dropout_p * LEVELS)
        if 0 in v_BHSD.shape or 0 in terms.q_BHTD.shape:
            return Eager()(terms, v_BHSD, mask, dropout_p, need_weights)
        if dropped == LEVELS:
            v_BHSD, dropped = 0 * v_BHSD, 0
        dtype = v_BHSD.dtype
        half = terms.q_BHTD.dtype == terms.k_BHSD.dtype == dtype == torch.bfloat16
        with outside_autocast("cpu"):
            window = mask.window if terms.q_BHTD.size(2) <= terms.k_BHSD.size(2) else None
            if window is not None:
                mask = replace(mask, window=None)
            tables = by_run(terms)
            terms = replace(terms, q_BHTD=terms.q_BHTD.float(), k_BHSD=terms.k_BHSD.float(), A=None, C=None)
            tensors = arranged(by_offset(terms), tables, v_BHSD.float(), mask)
            options = {
                "product": terms.product,
                "causal": simply_causal(mask),
                # a query that sees no key at all would attend to all of them
                "skip": mask.only_causal(terms),
                "window": -1 if window is None else window,
                "dropped": dropped,
                "seed": int(torch.randint(2**62, ())) if dropped else 0,
                "scale": terms.scale,
            }
            out_BHTD = _Attention.apply(half, options, tuple(tensors), *tensors.values())
        return out_BHTD.to(dtype), None


def by_run(terms: Terms) -> dict[str, torch.Tensor]:
    """The tables A and C with one row for each run of offsets, and for each offset -(S-1) .. T-1 the number of its
    run."""
    lengths = terms.q_BHTD.size(2), terms.k_BHSD.size(2)
    found = {}
    for name, rows in (("A", terms.rows), ("C", terms.C_rows or terms.rows)):
        table = getattr(terms, name)
        if table is not None:
            row_R, run_L = runs(rows, *lengths)
            found[name] = full_precision(table)[:, row_R]
            found[f"{name}_runs"] = run_L.int()
    return found


def simply_causal(mask: Mask) -> bool:
    """Whether pads and a causal mask are all that is hidden, for which no tensor [T, S] is made."""
    return mask.causal and all(x is None for x in (mask.extra, mask.documents_BS, mask.window))


def arranged(terms: Terms, tables: dict[str, Any], v_BHSD: torch.Tensor, mask: Mask) -> dict[str, torch.Tensor]:
    """The call's tensors by the names of fused.cpp: the tables of ``by_run``, other terms after ``by_offset``, values
    and mask. Each last dimension is contiguous."""
    at = {"q": terms.q_BHTD, "k": terms.k_BHSD, "v": v_BHSD, **tables}
    at.update({name: x for name in ("gate", "gain", "bias_row", "bias") if (x := getattr(terms, name)) is not None})
    heads, lengths = v_BHSD.size(1), (terms.q_BHTD.size(2), terms.k_BHSD.size(2))
    if terms.gate is not None:
        if "gain" in at:  # a gain is a gate that is the same in every dimension
            at["gate"] = at["gate"] * at.pop("gain")[..., None]
        # whole vectors, which zeros do not change
        padding = 0, -at["q"].size(3) % compiled.library(SOURCE).lanes()
        at.update({name: F.pad(at[name], padding) for name in ("q", "k", "gate", "A", "C") if name in at})
    if terms.reset is not None:
        at["reset"] = terms.reset.mT
        if terms.cls_BS is not None:
            at["cls"] = terms.cls_BS
    if all(x is None for x in (mask.extra, mask.documents_BS, mask.window)):
        if mask.padding_BS is not None:
            keys = Mask(mask.padding_BS).additive(terms, torch.float32)
            assert keys is not None  # there are pads
            at["keys"] = keys[:, 0, 0]
    else:
        extra = mask.additive(terms, torch.float32)
        assert extra is not None  # documents, or a mask of the caller
        at["extra"] = extra[(None,) * (4 - extra.dim())]
    for name in ("bias", "extra"):
        # gradients are summed over sentences alone
        if name in at and at[name].requires_grad and torch.is_grad_enabled():
            at[name] = at[name].expand(-1, heads, *lengths)
        elif name in at:
            at[name] = at[name].expand(-1, -1, -1, lengths[1])
    if "gate" in at:
        at["gate"] = at["gate"].contiguous()
    return {name: in_rows(name, x) for name, x in at.items()}


def in_rows(name: str, x: torch.Tensor) -> torch.Tensor:
    """The tensor with a contiguous last dimension, and each row of a matrix in memory of its own."""
    overlap = x.dim() > 2 and name not in PAIRS and x.size(-2) > 1 and x.stride(-2) < x.size(-1)
    return x.contiguous() if overlap or x.stride(-1) != 1 else x


def described(name: str, x: torch.Tensor) -> _Tensor:
    """The tensor's address, and its strides, which are 0 where sentences, heads or queries share it."""
    if name.endswith(("bias_row", "gain", "reset")):  # [H, L] and [H, 2]; in backward [B, H, 2]
        x = x.unsqueeze(-2)
    elif name in ("keys", "cls"):
        x = x[:, None, None]
    elif name in ("A_runs", "C_runs"):
        x = x[None, None]
    if x.dim() == 3:
        x = x[None]
    sentence, head, row = (stride if size > 1 else 0 for size, stride in zip(x.shape[:3], x.stride()))
    return _Tensor(x.data_ptr(), sentence, head, row or (0 if name in PAIRS else x.size(-1)))


def run(what: str, half: bool, options: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Calls fused.cpp."""
    batch, heads, tgt_len, width = tensors["q"].shape
    src_len = tensors["k"].size(2)
    room = (GATED_ROWS, GATED_COLUMNS) if "gate" in tensors else (ROWS, COLUMNS)
    if options["window"] >= 0:  # larger tiles would be hidden for the most part
        room = tuple(min(size, max(SMALLEST, options["window"])) for size in room)
    rows, columns = tile(tgt_len, src_len, *room)
    threads = torch.get_num_threads() if functions()["parallel"] else 1
    call = _Call(
        B=batch,
        H=heads,
        T=tgt_len,
        S=src_len,
        D=width,
        DV=tensors["v"].size(3),
        rows=rows,
        columns=columns,
        threads=threads,
        large=LARGE,
        lowest=torch.finfo(torch.float32).min / 2,
        **options,
        **products(half, tgt_len, src_len),
        **{name: described(name, x) for name, x in tensors.items()},
    )
    if getattr(compiled.library(SOURCE), what)(ctypes.byref(call)):
        raise RuntimeError(
            "attention backend fused: oneDNN refused a product; torch.backends.mkldnn.enabled = False avoids it"
        )


def tile(tgt_len: int, src_len: int, rows: int, columns: int) -> tuple[int, int]:
    """Queries and keys of a tile: at most ``rows`` and ``columns``, about as many in each tile."""
    rows = -(-tgt_len // -(-tgt_len // rows))
    columns = -(-src_len // -(-src_len // columns))
    return rows, -(-columns // STEP) * STEP


def keep_mask(seed: int, shape: tuple[int, ...], dropout_p: float) -> torch.Tensor:
    """The dropout mask [B, H, T, S] of an attention call with this seed: 1 where a weight is kept. The kept
    weights are then divided by the keep probability."""
    out = torch.empty(shape)
    numbers = (shape[0] * shape[1], *shape[2:], round(dropout_p * LEVELS), seed)
    compiled.library(SOURCE).keep_mask(ctypes.c_void_p(out.data_ptr()), *map(ctypes.c_int64, numbers))
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, half, options, names, *inputs):
        tensors = dict(zip(names, inputs))
        q, v = tensors["q"], tensors["v"]
        # as the output projection reads it: [T, B, H, D] in memory
        out = v.new_empty(q.size(2), *q.shape[:2], v.size(3)).permute(1, 2, 0, 3)
        norm = q.new_empty(*q.shape[:3], 2)
        run("attend", half, options, {**tensors, "out": out, "norm": norm})
        ctx.half, ctx.options, ctx.names = half, options, names
        ctx.save_for_backward(out, norm, *inputs)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_BHTD):
        out, norm, *inputs = ctx.saved_tensors
        tensors = dict(zip(ctx.names, inputs))
        needed = dict(zip(ctx.names, ctx.needs_input_grad[3:]))
        if "gate" in tensors:
            needed["gate"] = True
        found = {}
        for name, x in tensors.items():
            if needed[name]:
                if name == "reset":
                    found[name] = x.new_empty(grad_BHTD.size(0), *x.shape)
                else:
                    found[name] = torch.empty_like(x) if name in "qkv" else x.new_zeros(x.shape)
        known = {**tensors, "out": out, "norm": norm, "grad": in_rows("grad", grad_BHTD)}
        run("differentiate", ctx.half, ctx.options, {**known, **{f"d{name}": x for name, x in found.items()}})
        if "reset" in found:
            found["reset"] = found["reset"].sum(0)
        return None, None, None, *(found.get(name) for name in ctx.names)
