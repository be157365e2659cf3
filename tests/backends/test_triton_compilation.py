"""The fused kernels compile for sm80, the oldest GPU that they serve, and sm90: no GPU is needed."""

import os
import subprocess
import sys
from importlib.util import find_spec

import preloaded
import pytest

# not importorskip: how Triton is first imported decides whether this process interprets kernels
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed (pip install triton)")

# KiB of shared memory of a program: 99 on the smallest GPUs from sm80 on, 163 on an A100, 227 on an H100
PROGRAM = """
import sys
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from fairseq_relpos.backends import Mask, triton
from fairseq_relpos.rows import Clipped
from fairseq_relpos.terms import Terms, by_offset

capability, dtype, D, form, padded, causal, T, kib = sys.argv[1:]
triton.shared_memory = lambda device: float(kib)
D, T, dtype = int(D), int(T), getattr(torch, dtype)

class Driver:
    get_current_device = get_current_stream = lambda self, device=None: 0
    get_current_target = lambda self: GPUTarget("cuda", int(capability), 32)

driver.set_active(Driver())

class Compile(triton.Launch):
    def start(self, kernel, grid, arguments, constants):
        compiled = kernel.warmup(*arguments, grid=(1, 1, 1), **constants)
        print(kernel.fn.__name__, compiled.metadata.shared)

H, S, ROWS = 12, 512, Clipped(511)
q = torch.zeros(2, H, T, D, dtype=dtype)
k, v = (torch.zeros(2, H, S, D, dtype=dtype) for _ in range(2))
table = torch.zeros(1, ROWS.count, D)
row, bias, reset = (torch.zeros(shape) for shape in ((H, ROWS.count), (1, H, T, S), (2, H)))
forms = {
    "everything": dict(A=table, C=table, gain=row[:1], bias_row=row, bias=bias, reset=reset),
    "rows": dict(A=table, bias_row=row), "product": dict(A=table, C=table, product=True),
    "gate": dict(gate=table), "bias": dict(bias=bias), "bias_row": dict(bias_row=row),
}
terms = by_offset(Terms(q, k, 0.1, rows=ROWS, **forms[form]))
padding_BS = torch.zeros(2, S, dtype=torch.bool) if padded == "padded" else None
settings = triton.Settings.of(terms, v, Mask(padding_BS, causal=causal == "causal"), 0.1)
inputs = [q, k, v, *(getattr(terms, name) for name in triton.POSITIONS)]
out, peak, total = Compile(settings, *inputs).forward()
needed = [x is not None for x in inputs]
Compile(settings, *inputs).backward(out, peak, total, peak, needed)
"""
ALWAYS = {"forward", "backward_queries", "backward_keys"}


# each value of a column with some value of every other; the whole table is for no suite
@pytest.mark.parametrize(
    "capability, kib, dtype, width, form, padding, causal, queries",
    [
        (80, 99, "float16", 64, "everything", "padded", "causal", 512),
        (80, 99, "float32", 128, "everything", "padded", "full", 512),
        (80, 99, "float32", 128, "bias", "padded", "full", 512),
        (80, 99, "float32", 64, "product", "unpadded", "full", 512),
        (80, 99, "bfloat16", 128, "rows", "unpadded", "causal", 512),
        (80, 163, "bfloat16", 64, "gate", "padded", "full", 512),
        (80, 163, "float16", 64, "bias", "padded", "full", 1),
        (80, 163, "bfloat16", 64, "bias", "unpadded", "full", 512),
        (80, 163, "bfloat16", 64, "bias_row", "unpadded", "full", 512),
        (90, 227, "bfloat16", 64, "bias_row", "unpadded", "full", 512),
        (90, 227, "bfloat16", 64, "rows", "unpadded", "full", 512),
        (80, 163, "float16", 64, "rows", "unpadded", "full", 512),
        (80, 163, "float16", 64, "product", "padded", "full", 512),
    ],
)
def test_every_kernel_compiles_and_fits_into_shared_memory(
    tmp_path, capability, kib, dtype, width, form, padding, causal, queries
):
    environment = preloaded.environment(PYTHONPATH=os.pathsep.join(sys.path), TRITON_CACHE_DIR=str(tmp_path))
    environment.pop("TRITON_INTERPRET", None)
    arguments = [str(x) for x in (capability, dtype, width, form, padding, causal, queries, kib)]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    shared = dict(line.split() for line in done.stdout.splitlines())
    assert shared.keys() >= ALWAYS
    assert ("backward_bias" in shared) == (form in ("everything", "bias"))
    assert ("backward_tables" in shared) == (form not in ("bias", "bias_row"))
    assert all(int(size) <= kib * 1024 for size in shared.values()), shared
