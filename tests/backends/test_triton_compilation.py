"""The fused kernels compile for sm80, the oldest GPU that they serve: no GPU is needed."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

# not importorskip: how Triton is first imported decides whether this process interprets kernels
pytestmark = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed (pip install triton)"
)

#: shared memory of a program on the smallest GPUs from sm80 on
KIB = 99

PROGRAM = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from fairseq_relpos.backends import Mask, triton
from fairseq_relpos.rows import Clipped
from fairseq_relpos.terms import Terms, by_offset

class Driver:
    get_current_device = get_current_stream = lambda self, device=None: 0
    get_current_target = lambda self: GPUTarget("cuda", 80, 32)

driver.set_active(Driver())

class Compile(triton.Launch):
    def launch(self, kernel, programs, *arguments):
        compiled = kernel.warmup(*arguments, self.call, grid=(1, 1, 1), **self.constants)
        print(kernel.fn.__name__, compiled.metadata.shared)

H, T, ROWS = 12, 512, Clipped(511)
q, k, v = (torch.zeros(2, H, T, 64, dtype=torch.float16) for _ in range(3))
table = torch.zeros(1, ROWS.count, 64)
bias_row, bias, reset = (torch.zeros(shape) for shape in ((H, ROWS.count), (1, H, T, T), (2, H)))
terms = by_offset(Terms(q, k, 0.1, rows=ROWS, A=table, C=table, gain=bias_row[:1],
                        bias_row=bias_row, bias=bias, reset=reset))
padding_BS = torch.zeros(2, T, dtype=torch.bool)
settings = triton.Settings.of(terms, Mask(padding_BS, causal=True), 0.1)
inputs = [q, k, v, *(getattr(terms, name) for name in triton.POSITIONS)]
out, peak, total = Compile(settings, settings.tiles[0], *inputs).forward()
needed = [x is not None for x in inputs]
Compile(settings, settings.tiles[1], *inputs).backward(out, peak, total, peak, needed)
"""


def test_every_kernel_compiles_and_fits_into_shared_memory(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
                   "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          env=environment)
    assert done.returncode == 0, done.stderr
    shared = dict(line.split() for line in done.stdout.splitlines())
    assert list(shared) == ["forward", "backward_queries", "backward_keys", "backward_bias",
                            "backward_tables"]
    assert all(int(size) <= KIB * 1024 for size in shared.values()), shared
