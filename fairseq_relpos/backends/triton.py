"""Fused kernels for NVIDIA GPUs from sm80 on: see triton_kernels.py."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch

from ..positions import Positions
from ..tensors import once_differentiable
from ..terms import Bias, Terms, by_offset, ends_of_runs
from .base import NO_VALUES, Backend, Mask
from .lean import Lean, groups

#: entries of a head that a program can hold
WIDEST = 128
#: the second and third dimension of a grid of CUDA
MOST_BLOCKS = 65535
#: the oldest version that was seen to compile the kernels
OLDEST = (3, 3)
#: the terms that have a gradient, after q, k and v
POSITIONS = ("bias_row", "gain", "bias", "A", "C", "gate", "reset")
#: those of them that are rows of a table
TABLES = ("A", "C", "gate")
#: programs that keep a large GPU busy, where their number is ours to choose
PROGRAMS = 512
#: rows of clipped tables that are multiplied at once
FEW = 64
#: how many offsets, above twice the near ones, there are at least where far tiles have loops of their own: those of
#: three tiles of 64
FAR_FROM = 192
#: bytes for the gradients of the logits by offset, of some sentences and heads at a time; of one at least
ROOM = 2**28


class Triton(Backend):
    """softmax(e + mask) V without a tensor [B, H, T, S] of logits, and with ``ROOM`` bytes of their gradient at a time.

    float32, float16 and bfloat16. Products accumulate in float32; a float32 table is cast to
    the dtype of q and k for its product with them. Float32 products run on tensor cores: in
    three parts, which is float32's accuracy, or in one (TF32) where
    torch.set_float32_matmul_precision allows it. Equal inputs and seed give equal bits,
    gradients too.
    """

    name = "triton"

    def refuses(self, terms: Terms, need_weights: bool, device: torch.device | None = None) -> str | None:
        if need_weights:
            return "its kernels make no attention weights"
        return why_not_here(device or terms.q_BHTD.device) or why_not_these(terms)

    def prepare_bias(self, bias: Bias, pos: Positions) -> Bias:
        """One dense tensor for all layers, but one value an offset where there is nothing else."""
        return Lean().prepare_bias(bias, pos).spread(pos.tgt_len, pos.src_len)

    @torch._disable_dynamo  # torch.compile cannot trace a launch
    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        reason = why_not_this_mask(terms, mask)
        if reason is not None:
            raise ValueError(f"attention backend {self.name}: {reason}; use auto, lean or eager")
        if dropout_p == 1:
            v_BHSD, dropout_p = 0 * v_BHSD, 0.0
        dtype = torch.promote_types(terms.q_BHTD.dtype, terms.k_BHSD.dtype)
        terms = replace(terms, q_BHTD=terms.q_BHTD.to(dtype), k_BHSD=terms.k_BHSD.to(dtype))
        near = near_offsets(terms)
        terms = by_offset(terms, near)
        out_BHTD = _Attention.apply(
            Settings.of(terms, v_BHSD, mask, dropout_p, near),
            terms.q_BHTD,
            terms.k_BHSD,
            v_BHSD,
            *(getattr(terms, name) for name in POSITIONS),
        )
        return out_BHTD, None


def why_not_here(device: torch.device) -> str | None:
    """Why the kernels do not run on this device; None if they do."""
    installed = triton_version()
    if installed is None:
        return "Triton is not installed"
    if installed < OLDEST:
        return "its kernels need Triton {}.{} or newer, this is {}.{}".format(*OLDEST, *installed)
    if device.type == "cpu":
        if os.environ.get("TRITON_INTERPRET") == "1":
            return None
        return "its kernels need a CUDA device (or TRITON_INTERPRET=1, to try them slowly)"
    if device.type != "cuda":
        return f"its kernels run on CUDA devices, not on {device.type}"
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return f"its kernels need compute capability 8.0 or more, this GPU has {major}.{minor}"
    return None


@cache
def triton_version() -> tuple[int, int] | None:
    """Major and minor version; None where Triton is not installed."""
    for name in ("triton", "pytorch-triton"):  # of releases, and of torch's nightly builds
        try:
            major, minor = version(name).split(".")[:2]
        except PackageNotFoundError:
            continue
        return int(major), int(minor)
    return None


def why_not_these(terms: Terms) -> str | None:
    """Why the kernels do not compute these terms; None if they do."""
    if terms.values is not None:
        return NO_VALUES
    if terms.gate is not None and terms.reset is not None:
        return "a gate on q.k and a reset at [CLS], which needs q.k without the gate as well"
    if terms.reset is not None and terms.q_BHTD.size(2) > terms.k_BHSD.size(2):
        return "a reset at [CLS] with more queries than keys"
    dtypes = {x.dtype for x in terms.tensors().values()}
    if torch.float64 in dtypes:
        return "its kernels compute in float32, these terms are float64"
    if torch.bfloat16 in dtypes and terms.q_BHTD.device.type == "cpu":
        return "Triton's interpreter cannot multiply bfloat16, a GPU can"
    if terms.q_BHTD.size(3) > WIDEST:
        return f"queries of {terms.q_BHTD.size(3)} entries, its kernels take {WIDEST}"
    if max(terms.q_BHTD.shape[:2]) > MOST_BLOCKS:
        return f"more than {MOST_BLOCKS:,} sentences or heads, which CUDA does not launch at once"
    if max(x.numel() for x in terms.tensors().values()) >= 2**31:
        return "a tensor of 2^31 numbers or more, its kernels count to less"
    return None


def why_not_this_mask(terms: Terms, mask: Mask) -> str | None:
    """Why the kernels do not compute with this mask; None if they do."""
    if mask.extra is not None and mask.extra.requires_grad and torch.is_grad_enabled():
        return "a mask that requires a gradient, its kernels make none"
    is_plane = mask.extra is not None or mask.documents_BS is not None
    if is_plane and terms.q_BHTD.size(2) * terms.k_BHSD.size(2) >= 2**31:
        return "a mask of 2^31 numbers or more, its kernels count to less"
    return None


@lru_cache(maxsize=64)
def shifted_rows(rows: int, margin: int, shifts: int, pitch: int, device: torch.device) -> torch.Tensor:
    """The row at each place of each copy of ``Shifted``, [shifts, pitch]: the ends are repeated."""
    places = torch.arange(pitch, device=device) + torch.arange(shifts, device=device)[:, None] - margin
    return places.clamp(0, rows - 1)


def near_offsets(terms: Terms) -> range | None:
    """The offsets j - i for which the kernels need rows: to the left of them each table has the first one's row, to
    the right the last one's. None where tiles that meet no other offset are too few to be worth it."""
    rows = {"gain": terms.rows, "A": terms.rows, "C": terms.C_rows or terms.rows, "bias_row": terms.rows}
    present = [name for name in rows if getattr(terms, name) is not None]
    used = [x for name in present if (x := rows[name]) is not None]
    if terms.gate is not None or terms.bias is not None or not present or len(used) < len(present):
        return None
    tgt_len, src_len = terms.q_BHTD.size(2), terms.k_BHSD.size(2)
    firsts, lasts = zip(*(ends_of_runs(x, tgt_len, src_len) for x in used))
    near = range(min(firsts), max(lasts) + 1)
    return near if near and 2 * len(near) + FAR_FROM < tgt_len + src_len else None


@dataclass(frozen=True)
class Settings:
    """The arguments of one call that have no gradient. padding_BS [B, S] and cls_BS [1|B, S] int8; tiles: those of each
    kernel; near: ``near_offsets``."""

    scale: float
    product: bool
    causal: bool
    skip: bool
    window: int | None
    padding_BS: torch.Tensor | None
    extra: torch.Tensor | None
    cls_BS: torch.Tensor | None
    dropout: float
    seed: int | None
    tiles: dict[str, "Tile"]
    near: range | None

    @classmethod
    def of(
        cls, terms: Terms, v_BHSD: torch.Tensor, mask: Mask, dropout_p: float, near: range | None = None
    ) -> "Settings":
        padding_BS, cls_BS = mask.padding_BS, terms.cls_BS
        no_more_queries = terms.q_BHTD.size(2) <= terms.k_BHSD.size(2)
        window = mask.window if no_more_queries else None
        if terms.reset is None:
            cls_BS = None
        elif cls_BS is None:  # slot 0
            cls_BS = torch.zeros(1, terms.k_BHSD.size(2), dtype=torch.int8, device=terms.k_BHSD.device)
            cls_BS[:, 0] = 1
        return cls(
            terms.scale,
            terms.product,
            mask.causal,
            # a query that sees no key at all attends to all of them, as in the reference: then nothing is left out
            mask.causal and no_more_queries and all(x is None for x in (padding_BS, mask.extra, mask.documents_BS)),
            window,
            None if padding_BS is None else padding_BS.expand(len(terms.q_BHTD), -1).to(torch.int8).contiguous(),
            # the kernels know no documents
            replace(mask, padding_BS=None, causal=False, window=None if no_more_queries else mask.window).additive(
                terms, torch.float32
            ),
            None if cls_BS is None else cls_BS.to(torch.int8).contiguous(),
            dropout_p,
            # from torch's CPU generator: manual_seed and checkpointing govern it. Odd: see triton_kernels.odd
            2 * int(torch.randint(2**61, ())) + 1 if dropout_p > 0 else None,
            tiles(terms, v_BHSD, shared_memory(v_BHSD.device), near),
            near,
        )


class _Attention(torch.autograd.Function):
    """The autograd function of one call. It keeps its inputs, the output and two numbers per query; backward
    computes the tiles again."""

    @staticmethod
    def forward(ctx, settings, *inputs):
        out, peak, total = Launch(settings, *inputs).forward()
        ctx.settings = settings
        ctx.save_for_backward(*inputs, out, peak, total)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        *inputs, out, peak, total = ctx.saved_tensors
        launch = Launch(ctx.settings, *inputs)
        return None, *launch.backward(grad_out, out, peak, total, ctx.needs_input_grad[1:])


class Launch:
    """The kernels' arguments for one call, and their launches. Tables and bias_row are in the
    order of the offsets, of all or of the near ones."""

    def __init__(self, settings, q, k, v, *positions):
        # Triton itself is imported with the first call
        from . import triton_kernels as kernels

        self.kernels = kernels
        self.inputs = dict(zip(("q", "k", "v", *POSITIONS), (q, k, v, *positions)))
        self.batch, self.heads, self.tgt_len, self.width = q.shape
        self.src_len, self.values = v.shape[2:]
        self.near = settings.near
        self.rows_of_tables = self.tgt_len + self.src_len - 1 if self.near is None else len(self.near)
        with_table = self.near is not None and any(self.inputs[name] is not None for name in TABLES)
        self.few = padded(self.rows_of_tables) if with_table and self.rows_of_tables <= FEW else None
        self.sixteens = self.tgt_len % 16 == 0 == self.src_len % 16
        exact = q.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
        padding_BS, cls_BS = settings.padding_BS, settings.cls_BS
        gate, reset = self.inputs["gate"], self.inputs["reset"]
        self.call = kernels.Call(
            tgt_len=self.number(self.tgt_len),
            src_len=self.number(self.src_len),
            heads=self.heads,
            scale=settings.scale,
            product=kernels.tl.constexpr(settings.product),
            causal=kernels.tl.constexpr(settings.causal),
            skip=kernels.tl.constexpr(settings.skip),
            window=None if settings.window is None else kernels.odd(settings.window),
            precision=kernels.tl.constexpr("tf32x3" if exact else "tf32"),
            sixteens=kernels.tl.constexpr(self.sixteens),
            bias_row=self.shifted("bias_row", kernels.LOG2_E.value),
            gain=self.shifted("gain"),
            bias=self.plane(self.inputs["bias"]),
            extra=self.plane(settings.extra),
            padding_BS=padding_BS,
            reset=None if reset is None else reset.contiguous(),
            cls_BS=cls_BS,
            cls_batch=self.number(0 if cls_BS is None or len(cls_BS) == 1 else self.src_len),
            gate=None if gate is None else self.rows(gate.mT.contiguous()[None]),
            A=self.table("A"),
            C=self.table("C"),
            near=None,  # this and the last depend on the tile
            few=None if self.few is None else kernels.tl.constexpr(self.few),
            dropout=settings.dropout if settings.dropout > 0 else None,
            seed=settings.seed,
            even=None,
        )
        self.tiles = {
            name: tile._replace(size=min(tile.size, padded(self.src_len))) for name, tile in settings.tiles.items()
        }

    def number(self, x: int) -> int:
        """A length, or a stride made of lengths, as the kernels read it."""
        return x if self.sixteens else self.kernels.odd(x)

    def is_even(self, tile: int) -> bool:
        """Whether every tile is full."""
        lengths = self.tgt_len % tile == 0 == self.src_len % tile
        return lengths and self.width == padded(self.width) and self.values == padded(self.values)

    def near_tiles(self, tile: "Tile") -> range:
        """The distances s0 - t0 of the tiles that meet near offsets."""
        assert self.near is not None
        shift, size = self.src_len - self.tgt_len, tile.size
        first, end = self.near[0] + shift + 1, self.near[-1] + shift + 2 * (size - 1)
        return range(first // size * size, end // size * size, size)

    def table(self, name: str) -> Any:
        """[1|H, N, D] as Rows."""
        x = self.inputs[name]
        return None if x is None else self.rows(x[None])

    def shifted(self, name: str, factor: float = 1.0) -> Any:
        """[1|H, N] as Shifted, in float32, times a factor."""
        x = self.inputs[name]
        if x is None:
            return None
        margin, shifts = self.kernels.MARGIN.value, self.kernels.SHIFTS.value
        pitch = -(-(self.rows_of_tables + 2 * margin) // 16) * 16
        copies = x.float()[:, shifted_rows(self.rows_of_tables, margin, shifts, pitch, x.device)]
        copies = copies * factor if factor != 1 else copies
        return self.kernels.Shifted(copies, copies.stride(0) if len(copies) > 1 else 0, pitch)

    def rows(self, x_BHND: torch.Tensor) -> Any:
        """A tensor [1|B, 1|H, N, D] as the kernels read it."""
        if x_BHND.stride(3) != 1:
            x_BHND = x_BHND.contiguous()
        batch, head, row, _ = x_BHND.stride()
        return self.kernels.Rows(
            x_BHND, batch if x_BHND.size(0) > 1 else 0, head if x_BHND.size(1) > 1 else 0, row, x_BHND.size(3)
        )

    def plane(self, x: torch.Tensor | None) -> Any:
        """A tensor that broadcasts to [B, H, T, S] as the kernels read it."""
        if x is None:
            return None
        if x.stride(-1) != 1:
            x = x.contiguous()
        shape = self.batch, self.heads, self.tgt_len, self.src_len
        return self.kernels.Plane(x, *map(self.number, x.expand(shape).stride()[:3]))

    def launch(self, name: str, tile: "Tile", grid: Sequence[int], *arguments: Any, **constants: Any) -> None:
        """Launches a kernel on the grid: blocks, heads, and sentences or parts of the batch."""
        call = self.call._replace(even=self.kernels.tl.constexpr(self.is_even(tile.size)))
        if self.near is not None:
            distances, low = self.near_tiles(tile), self.near[0] + self.src_len - 1
            numbers = low, self.rows_of_tables, distances.start // tile.size, distances.stop // tile.size
            call = call._replace(near=self.kernels.Near(*map(self.kernels.odd, numbers)))
        constants.update(M=tile.size, D=padded(self.width), DV=padded(self.values))
        constants.update(num_warps=tile.warps, num_stages=tile.stages)
        self.start(getattr(self.kernels, name), tuple(grid), (*arguments, call), constants)

    def start(self, kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
        """The one place where a kernel meets the GPU."""
        with torch.cuda.device_of(self.inputs["q"]):  # Triton launches on the current device
            kernel[grid](*arguments, **constants)

    def empty(self, *shape: int, like: torch.Tensor | None = None, zeros: bool = False) -> torch.Tensor:
        dtype = torch.float32 if like is None else like.dtype
        return (torch.zeros if zeros else torch.empty)(shape, dtype=dtype, device=self.inputs["q"].device)

    def empty_like(self, name: str) -> torch.Tensor:
        """An empty gradient of q, k or v with the layout in which ``rows`` reads that tensor."""
        x = self.inputs[name]
        return torch.empty_like(x if x.stride(3) == 1 else x.contiguous())

    def forward(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """out [B, H, T, D], and the maximum and the sum of exponentials of each row of logits."""
        q, k, v = (self.inputs[name] for name in "qkv")
        # laid out as attention goes on with it, [T, B, H, D]
        out = self.empty(self.tgt_len, self.batch, self.heads, self.values, like=v)
        out = out.permute(1, 2, 0, 3)
        peak, total = (self.empty(self.batch, self.heads, self.tgt_len) for _ in range(2))
        tile = self.tiles["forward"]
        grid = tile.count(self.tgt_len), self.heads, self.batch
        self.launch("forward", tile, grid, *map(self.rows, (q, k, v, out)), peak, total)
        return out, peak, total

    def backward(
        self,
        grad_out: torch.Tensor,
        out: torch.Tensor,
        peak: torch.Tensor,
        total: torch.Tensor,
        needed: tuple[bool, ...],
    ) -> list[torch.Tensor | None]:
        """The gradients of the inputs; None where not needed."""
        needs = {name for name, flag in zip(self.inputs, needed) if flag}
        if self.batch == 0:
            return [torch.zeros_like(x) if name in needs else None for name, x in self.inputs.items()]
        q, k, v = (self.inputs[name] for name in "qkv")
        q_rows, k_rows, v_rows, dout = map(self.rows, (q, k, v, grad_out))
        common = q_rows, k_rows, v_rows, dout, peak, total, self.delta(self.rows(out), dout)
        grads: dict[str, Any] = {name: self.empty_like(name) for name in "qkv"}
        sums = self.sums_of_queries(needs)
        tables = [name for name in TABLES if name in needs]
        groups = self.groups(tables)
        in_blocks = needs if self.few is None else set()
        blocks = {name: self.blocks_of(name, groups) if name in in_blocks else None for name in TABLES}
        ends = {name: self.ends_of(name, groups) if name in needs else None for name in ("A", "C")}
        parts = self.parts(groups, tables)
        grads.update({name: self.empty(self.heads, self.rows_of_tables, self.width) for name in tables})
        queries, keys = self.tiles["backward_queries"], self.tiles["backward_keys"]

        def for_queries(heads: slice, sentences: slice) -> None:
            results = self.rows(grads["q"]), *sums.values(), blocks["A"], blocks["gate"], ends["A"]
            grid = queries.count(self.tgt_len), length_of(heads), length_of(sentences)
            start = heads.start, sentences.start
            self.launch("backward_queries", queries, grid, *common, *results, *start, self.batch)

        def for_keys(heads: slice, sentences: slice) -> None:
            results = self.rows(grads["k"]), self.rows(grads["v"]), blocks["C"], ends["C"]
            grid = keys.count(self.src_len), length_of(heads), length_of(sentences)
            self.launch("backward_keys", keys, grid, *common, *results, heads.start, sentences.start)

        kernels = {}
        if needs & {"q", *sums, "A", "gate"}:
            kernels[for_queries] = bool(needs & {"A", "gate"})
        if needs & {"k", "v", "C"}:
            kernels[for_keys] = "C" in needs
        for kernel, leaves_blocks in kernels.items():
            if not leaves_blocks:
                kernel(slice(0, self.heads), slice(0, self.batch))
        for heads, sentence_groups in groups if tables else []:
            # of each part of the sentences, which are summed in their order
            shares = {
                name: self.empty(sum(parts), length_of(heads), self.rows_of_gradient(name), self.width)
                for name in tables
            }
            for number, sentences in enumerate(sentence_groups):
                for kernel, leaves_blocks in kernels.items():
                    if leaves_blocks:
                        kernel(heads, sentences)
                for name in tables:
                    tile, count = self.tile_of(name), length_of(sentences)
                    numbers = heads.start, sentences.start, sum(parts[:number]), count, -(-count // parts[number])
                    x, share = self.rows(k if name == "C" else q), shares[name]
                    grid = self.blocks_of_offsets(name), length_of(heads), parts[number]
                    if self.few is not None:
                        self.launch("backward_rows", tile, grid, x, ends[name], self.rows(share), *numbers, OF=name)
                        continue
                    inputs = x, self.rows(k), blocks[name]
                    self.launch("backward_tables", tile, grid, *inputs, self.rows(share), *numbers, OF=name)
                    if self.near is not None:
                        out = self.rows(share[:, :, -2:])
                        self.launch("backward_ends", tile, (1, *grid[1:]), x, ends[name], out, *numbers, OF=name)
            for name, share in shares.items():
                if self.near is None or self.few is not None:
                    torch.sum(share, 0, out=grads[name][heads])
                else:
                    grads[name][heads] = self.by_row(name, share.sum(0))
        if "bias" in needs:
            grads["bias"] = self.backward_bias(common)
        grads.update({name: x.sum((1, 2) if name == "reset" else (0, 1)) for name, x in sums.items() if x is not None})
        return [
            # heads may share a table, and it may be in half precision
            grads[name].sum_to_size(x.shape).to(x.dtype) if name in needs else None
            for name, x in self.inputs.items()
        ]

    def delta(self, out: Any, dout: Any) -> torch.Tensor:
        """dout.out of each query, [B, H, T], in one pass over memory."""
        delta, tile = self.empty(self.batch, self.heads, self.tgt_len), Tile(64)
        grid = tile.count(self.tgt_len), self.heads, self.batch
        arguments, constants = (out, dout, delta, self.tgt_len, self.heads), {"M": tile.size, "DV": padded(self.values)}
        self.start(self.kernels.backward_delta, grid, arguments, constants)
        return delta

    def sums_of_queries(self, needs: set[str]) -> dict[str, torch.Tensor | None]:
        """Room for what ``backward_queries`` sums beside the gradient of q: bias_row, gain and reset, of each of
        its programs."""
        blocks = self.tiles["backward_queries"].count(self.tgt_len)
        sums: dict[str, torch.Tensor | None] = dict.fromkeys(("bias_row", "gain", "reset"))
        for name in needs & {"bias_row", "gain"}:
            sums[name] = self.empty(self.batch, blocks, self.heads, self.rows_of_tables, zeros=True)
        if "reset" in needs:
            sums["reset"] = self.empty(2, self.batch, blocks, self.heads)
        return sums

    def tile_of(self, name: str) -> "Tile":
        """The tile of the kernel that leaves blocks for this table."""
        return self.tiles["backward_keys" if name == "C" else "backward_queries"]

    def block_shape(self, name: str) -> tuple[int, ...]:
        """The blocks of a head and a sentence by offset: of the queries for A and the gate, of the keys for C. Where
        rows are few, the gradients by row."""
        if self.few is not None:
            return self.src_len if name == "C" else self.tgt_len, self.few
        tile = self.tile_of(name)
        rows, others = tile.count(self.tgt_len), tile.count(self.src_len)
        if name == "C":
            rows, others = others, rows
        columns = others if self.near is None else len(self.near_tiles(tile))
        return rows, columns + 1, tile.size, tile.size

    def blocks_of_offsets(self, name: str) -> int:
        """How many blocks of offsets ``backward_tables`` makes rows of, or ``backward_rows``."""
        if self.few is not None:
            return 1
        tile = self.tile_of(name)
        return tile.count(self.rows_of_tables) + 1 if self.near is None else len(self.near_tiles(tile)) + 1

    def rows_of_gradient(self, name: str) -> int:
        """The rows that ``backward_tables`` and ``backward_ends`` make, or ``backward_rows``."""
        if self.near is None or self.few is not None:
            return self.rows_of_tables
        return self.blocks_of_offsets(name) * self.tile_of(name).size + 2

    def by_row(self, name: str, grad_HLD: torch.Tensor) -> torch.Tensor:
        """The gradient [H, N, D] of a table from these. Offsets beyond the near ones share the rows at the ends."""
        assert self.near is not None
        tile = self.tile_of(name)
        # the offset of the first row, as backward_tables has it
        first = self.near_tiles(tile).start - (self.src_len - self.tgt_len) + 1 - tile.size - (name == "C")
        left, right = self.near[0] - first, self.near[-1] - first
        near_HLD, ends_H2D = grad_HLD[:, :-2], grad_HLD[:, -2:]
        found = near_HLD[:, left : right + 1].clone()
        found[:, 0] += near_HLD[:, :left].sum(1) + ends_H2D[:, 0]
        found[:, -1] += near_HLD[:, right + 1 :].sum(1) + ends_H2D[:, 1]
        return found

    def block_dtype(self, name: str) -> torch.dtype:
        """The type of the gradient in a product (``dot_gradient``)."""
        return torch.float32 if name == "gate" or self.call.product else self.inputs["q"].dtype

    def groups(self, tables: Sequence[str]) -> list[tuple[slice, list[slice]]]:
        """Heads and sentences whose blocks fit into ``ROOM``, (heads, [sentences, ..]): a few heads of all
        sentences, or one head of a few."""
        needed = sum(math.prod(self.block_shape(name)) * self.block_dtype(name).itemsize for name in tables)
        pairs = max(1, ROOM // needed) if needed else self.batch * self.heads
        return [(chosen, groups(self.batch, pairs)) for chosen in groups(self.heads, max(1, pairs // self.batch))]

    def blocks_of(self, name: str, groups: list[tuple[slice, list[slice]]]) -> Any:
        """Room for the largest group."""
        heads = max(length_of(chosen) for chosen, _ in groups)
        batch = max(length_of(chosen) for chosen in groups[0][1])
        shape = self.block_shape(name)
        room = torch.empty((heads, batch, *shape), dtype=self.block_dtype(name), device=self.inputs["q"].device)
        return self.kernels.Blocks(room, *map(self.kernels.odd, (batch, *shape[:2])))

    def ends_of(self, name: str, groups: list[tuple[slice, list[slice]]]) -> torch.Tensor | None:
        """Room for the gradients of a table's first and last row in far tiles, of the largest group: one a query, or
        key. Where rows are few, for those of each row in all tiles."""
        if self.near is None:
            return None
        heads = max(length_of(chosen) for chosen, _ in groups)
        batch = max(length_of(chosen) for chosen in groups[0][1])
        if self.few is not None:
            shape, dtype = self.block_shape(name), self.block_dtype(name)
            return torch.empty((heads, batch, *shape), dtype=dtype, device=self.inputs["q"].device)
        return self.empty(heads, batch, 2, self.src_len if name == "C" else self.tgt_len)

    def parts(self, groups: list[tuple[slice, list[slice]]], tables: Sequence[str]) -> list[int]:
        """Into how many parts ``backward_tables`` cuts each group of sentences, so that the GPU is busy."""
        heads = max(length_of(chosen) for chosen, _ in groups)
        wanted = -(-PROGRAMS // (max(map(self.blocks_of_offsets, tables), default=1) * heads))
        return [min(length_of(chosen), wanted) for chosen in groups[0][1]]

    def backward_bias(self, common: tuple[Any, ...]) -> torch.Tensor:
        bias = self.inputs["bias"]
        owners = bias.size(0)
        # heads may share the bias: then these are summed
        grad = self.empty(owners, self.heads, self.tgt_len, self.src_len, like=bias)
        tile = self.tiles["backward_bias"]
        grid = tile.count(self.tgt_len) * tile.count(self.src_len), self.heads, owners
        self.launch("backward_bias", tile, grid, *common, self.plane(grad), self.batch // owners)
        return grad


def length_of(numbers: slice) -> int:
    """How many heads or sentences a slice of them has."""
    return numbers.stop - numbers.start


class Tile(NamedTuple):
    """The queries, and keys, of a tile, and what its kernel is compiled for."""

    size: int
    warps: int = 4
    stages: int = 2

    def count(self, length: int) -> int:
        """How many tiles that is."""
        return -(-length // self.size)


KERNELS = "forward", "backward_queries", "backward_keys", "backward_bias"

#: The tiles of each kernel for half precision with heads of at most 64 entries, by the KiB of shared memory that they
#: need. On an H100 (227 KiB) the fastest of 32, 64 and 128 queries, 4 and 8 warps, 2 and 3 stages, measured; but with
#: far tiles chosen by instructions and not timed (near tiles of 64 with key rows lack registers). On an A100 (163 KiB)
#: the largest that the compiler keeps in registers for sm80, not measured.
LARGE = {
    220: {
        "no table": (Tile(64, 4, 2), Tile(64, 4, 3), Tile(64, 4, 3), Tile(64, 4, 3)),
        "dense bias": (Tile(64, 4, 3),) * 4,
        "query rows": (Tile(64, 4, 3), Tile(32, 4, 3), Tile(64, 4, 2), Tile(32, 4, 3)),
        "query rows, with far tiles": (Tile(64, 4, 3), *(Tile(64, 4, 2),) * 3),
        "key rows": (Tile(32, 4, 3),) * 4,
        "key rows, most tiles far": (Tile(64, 4, 2),) * 4,
    },
    160: {
        "no table": (Tile(64, 4, 2), Tile(32, 4, 3), Tile(64, 4, 3), Tile(64, 4, 3)),
        "dense bias": (*(Tile(64, 4, 3),) * 3, Tile(64, 4, 4)),
        "query rows": (Tile(32, 4, 3),) * 4,
        "query rows, with far tiles": (Tile(32, 4, 3),) * 4,
        "key rows": (Tile(32, 4, 3),) * 4,
        "key rows, most tiles far": (Tile(32, 4, 3),) * 4,
    },
}


def tiles(terms: Terms, v_BHSD: torch.Tensor, shared_kib: float, near: range | None) -> dict[str, Tile]:
    """The tiles of each kernel; other than in ``LARGE``, what the compiler keeps in registers and 99 KiB for sm80."""
    half = terms.q_BHTD.dtype.itemsize == 2
    narrow = max(terms.q_BHTD.size(3), v_BHSD.size(3)) <= 64
    if half and narrow and terms.gate is None:
        for needed, large in LARGE.items():
            if shared_kib >= needed:
                return dict(zip(KERNELS, large[kind_of_terms(terms, near)]))
    if terms.A is not None or terms.C is not None:
        return dict.fromkeys(KERNELS, Tile(32 if half and narrow else 16))
    forward, backward = Tile(64 if half and terms.gate is None else 32), Tile(32 if half or narrow else 16)
    return {**dict.fromkeys(KERNELS, backward), "forward": forward}


def kind_of_terms(terms: Terms, near: range | None) -> str:
    """Which of ``LARGE``."""
    if terms.C is not None:
        # a quarter of the tiles of 64 queries is near
        mostly_far = near is not None and 4 * (len(near) + 2 * 64) <= terms.k_BHSD.size(2)
        return "key rows, most tiles far" if mostly_far else "key rows"
    if terms.A is not None:
        return "query rows" if near is None else "query rows, with far tiles"
    return "no table" if terms.bias is None else "dense bias"


@cache
def shared_memory(device: torch.device) -> float:
    """KiB of shared memory that a program can have."""
    if device.type != "cuda":
        return 0
    properties: Any = torch.cuda.get_device_properties(device)
    return properties.shared_memory_per_block_optin / 1024


def padded(size: int) -> int:
    """The next power of two, at least 16, which is the smallest size of a matrix product."""
    return max(16, 1 << (size - 1).bit_length())
