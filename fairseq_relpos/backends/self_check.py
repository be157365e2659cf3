"""A check that kernels which a machine compiles for itself compute the right results there."""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from ..terms import Terms, gradient_by_row
from .base import Backend, Mask
from .lean import Lean
from .triton import FEW, Triton, near_offsets, padded, shared_memory, tiles, why_not_here

#: a dropout that drops nothing, and so has an expected result: 2^32 times this is 0 for the kernels
KEEPS_ALL = 1e-12
#: |x - y| / |y| that rounding stays far below and a wrong kernel does not
TOLERANCE, IN_HALF_PRECISION = 0.02, 0.1
#: clip distances of tables of ``calls``, by which kernels differ
CLIPPED = {"tables of few rows": 4, "tables of more rows": 40}


def difference(
    backend: Backend, reference: Backend, terms: Terms, v_BHSD: torch.Tensor, mask: Mask, dropout_p: float
) -> str | None:
    """Compares one call of ``backend`` with ``reference``: the output, and the gradient of everything that is
    learned. Returns the first difference or failure in words, or None. Dropout masks differ between the two, so the
    kernels of a call with dropout are compared while they drop nothing; under ``dropout_p`` their results only have
    to be finite. (Kernels without dropout would be compiled for nothing but this comparison.)"""
    try:
        with torch.random.fork_rng(devices=[]):  # the training's own numbers stay
            mine = outcome(backend, terms, v_BHSD, mask, KEEPS_ALL if dropout_p else 0.0)
            dropped = outcome(backend, terms, v_BHSD, mask, dropout_p) if dropout_p else {}
    except torch.cuda.OutOfMemoryError:  # says nothing of the kernels
        raise
    except Exception as error:  # a compiler's errors have no common class
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    for name, found in dropped.items():
        if not found.isfinite().all():
            return f"its {name} under dropout is not finite"
    for name, expected in outcome(reference, terms, v_BHSD, mask).items():
        tolerance = TOLERANCE if v_BHSD.dtype.itemsize > 2 else IN_HALF_PRECISION
        found, expected = mine[name].float(), expected.float()
        deviation = (found - expected).norm() / expected.norm().clamp(min=1e-12)
        if not deviation <= tolerance:  # NaN is no agreement
            return f"its {name} is off by {float(deviation):.2g} of itself"
    return None


def kind_of(terms: Terms, v_BHSD: torch.Tensor, mask: Mask, dropout_p: float) -> tuple:
    """A key that is equal for calls which the same kernels serve. Tiles are smaller where there are few keys, or many
    near tiles; whole tiles and far ones have kernels of their own, and Triton compiles once more for strides that are 1
    or multiples of 16."""
    wanted = torch.is_grad_enabled()
    present = frozenset((name, wanted and x.requires_grad, x.dtype, layout(x)) for name, x in terms.tensors().items())
    pairs = mask.extra is not None or mask.documents_BS is not None
    hidden = mask.padding_BS is not None, mask.causal, pairs, mask.window is not None
    _, heads, tgt_len, width = terms.q_BHTD.shape
    src_len, values = v_BHSD.shape[2:]
    tile = min(64, max(16, 1 << (src_len - 1).bit_length()))
    near = near_offsets(terms)
    rows = None if near is None else min(padded(len(near)), 2 * FEW)  # few ones are compiled by their number
    sizes = tuple(tiles(terms, v_BHSD, shared_memory(v_BHSD.device), near).values())
    # a gate lies in memory by offsets
    gate = None if terms.gate is None else as_compiled(tgt_len + src_len - 1)
    # whole tiles of 16, 32 and 64; queries without any key
    lengths = math.gcd(tgt_len, 64) // 16, math.gcd(src_len, 64) // 16, tgt_len <= src_len
    precision = torch.get_float32_matmul_precision()
    call = terms.product, hidden, tile, rows, sizes, gate, heads, lengths, precision, width, values, dropout_p > 0
    return present, v_BHSD.dtype, v_BHSD.device, layout(v_BHSD), call


def as_compiled(number: int) -> int:
    """1, 16 for a multiple of 16, or 0: Triton's kernels differ in nothing else that a number is."""
    return 1 if number == 1 else 16 if number % 16 == 0 else 0


def layout(x: torch.Tensor) -> tuple:
    """The properties of a tensor's address, sizes and strides for which Triton compiles a kernel of its own."""
    sizes = tuple(size == 1 for size in x.shape)
    return x.data_ptr() % 16 == 0, sizes, tuple(map(as_compiled, x.stride()))


def outcome(
    backend: Backend, terms: Terms, v_BHSD: torch.Tensor, mask: Mask, dropout_p: float = 0.0
) -> dict[str, torch.Tensor]:
    """The output and the gradients of one call, by name."""
    tensors = {**terms.tensors(), "v_BHSD": v_BHSD}
    wanted = torch.is_grad_enabled()  # views of a parameter say so in an evaluation, too
    leaves = {name: x.detach().requires_grad_(wanted and x.requires_grad) for name, x in tensors.items()}
    copy = replace(terms, **{name: x for name, x in leaves.items() if name != "v_BHSD"})
    # own hooks: activation checkpointing around this call would count what is saved here
    with torch.set_grad_enabled(wanted), torch.autograd.graph.saved_tensors_hooks(unchanged, unchanged):
        out, _ = backend(copy, leaves["v_BHSD"], mask, dropout_p, False)
        found = {"output": out.detach()}
        learned = {name: x for name, x in leaves.items() if x.requires_grad}
        if learned:
            # a gradient that differs from entry to entry; in half precision linspace is NaN from 2^17 on
            weights = torch.linspace(-1, 1, out.numel(), device=out.device).to(out.dtype)
            grads = torch.autograd.grad(out, list(learned.values()), weights.view(out.shape))
            found.update({f"gradient of {name}": gradient_by_row(terms, name, x) for name, x in zip(learned, grads)})
    return found


def unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


# --- all kernels, with terms of its own: `fairseq-relpos doctor --gpu` ---


def calls(
    device: torch.device, lengths: tuple[int, ...] = (256, 200), width: int = 64
) -> Iterator[tuple[str, Terms, torch.Tensor]]:
    """(in words, terms, values) of calls that use every kernel, in whole tiles and in others."""
    heads = 2
    dtypes = [torch.float32, torch.float16, *([torch.bfloat16] if device.type != "cpu" else [])]

    def learned(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, requires_grad=True)

    for length in lengths:
        offsets = 2 * length - 1
        vectors: dict[str, tuple[int, ...]] = {"A": (heads, offsets, width), "C": (1, offsets, width)}
        shapes: dict[str, dict[str, tuple[int, ...]]] = {
            "a bias by offset": {"bias_row": (heads, offsets)},
            "a dense bias and a reset": {"bias": (1, heads, length, length), "reset": (2, heads)},
            "query rows": {"A": vectors["A"]},
            "query and key rows": vectors,
            "their product": vectors,
            "a gate": {"gate": (1, offsets, width)},
        }
        for name, distance in CLIPPED.items():  # with tiles far from the diagonal
            table = (heads, 2 * distance + 1, width)
            shapes[name] = {"bias_row": table[:2], "A": table, "C": table}
        for name, terms in shapes.items():
            for dtype in dtypes:
                q, k, v = (learned(2, heads, length, width).detach().to(dtype).requires_grad_() for _ in range(3))
                found: dict[str, Any] = {key: learned(*shape) for key, shape in terms.items()}
                product = name == "their product"
                rows = clipped(CLIPPED[name]) if name in CLIPPED else None
                words = f"{name}, {str(dtype).removeprefix('torch.')}, {length} tokens"
                yield words, Terms(q, k, 0.1, rows=rows, product=product, **found), v


def clipped(k: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda offset: offset.clamp(-k, k) + k


def main(**sizes: Any) -> int:
    """Compares Triton's kernels with lean on this machine, in ``calls`` of these sizes. The last line says how it went,
    and the exit code: 0, they agree; 1, they do not; 2, they were not run."""

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reason = why_not_here(device)
    if reason is not None:
        print(f"not run: {reason}")
        return 2
    torch.manual_seed(0)
    count = 0
    for words, terms, v in calls(device, **sizes):
        print(words, flush=True)  # what a crash ends
        for dropout_p in (0.0, 0.1):  # each has kernels of its own
            found = difference(Triton(), Lean(), terms, v, Mask(causal=count % 2 == 1), dropout_p)
            if found is not None:
                print(f"{words}: {found}")
                return 1
        count += 1
    print(f"those of triton agree with lean in {count} kinds of calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
