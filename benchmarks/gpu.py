"""What can only be measured on a GPU: are the fused kernels right there, and are they fast?

    python benchmarks/gpu.py --json benchmarks/results/attention_gpu.json

First the kernels' tests, on the GPU; nothing is timed if one fails. Then one attention,
forward and backward with dropout, for every encoding and each backend that serves it: the
median time and the peak memory, as ratios to torch's scaled_dot_product_attention without
positions (what stock fairseq calls).
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from machine import machine
from tqdm import tqdm

from fairseq_relpos.backends import BACKENDS, Mask, select
from fairseq_relpos.encodings import ENCODINGS, Dims, build
from fairseq_relpos.positions import Positions

TESTS = Path(__file__).parents[1] / "tests/backends/test_triton.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=sorted(ENCODINGS))
    parser.add_argument("--backends", nargs="+", default=sorted(BACKENDS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512, 2048], metavar="T")
    parser.add_argument("--tokens", type=int, default=16384, help="of a batch, at every length")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU; on a CPU use benchmarks/attention.py")
    if pytest.main(["-q", str(TESTS)]):
        parser.exit(1, "gpu.py: the kernels' tests fail on this GPU: nothing was timed\n")
    rows = [row for length in args.lengths for row in measure(length, args)]
    for row in rows:
        print("T={length:<5} {encoding:16} {backend:8} {ratio:6.2f} x time {memory:6.2f} x memory".format(**row))
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k != "json"}
        gpu = torch.cuda.get_device_name()
        result = {"benchmark": "gpu", "machine": {**machine(), "gpu": gpu}, "settings": settings, "rows": rows}
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(length, args):
    dims = Dims(args.heads * args.head_dim, args.heads, length)
    shape = max(1, args.tokens // length), args.heads, length, args.head_dim
    q, k, v = (
        torch.randn(shape, device="cuda", dtype=getattr(torch, args.dtype), requires_grad=True) for _ in range(3)
    )
    stock = timed(lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=args.dropout), args)
    for name in tqdm(args.encodings, desc=f"T={length}", unit="encoding"):
        encoding = build(name, dims).cuda()
        for backend in args.backends:

            def attention(encoding=encoding, backend=backend):
                terms = encoding.terms(q, k, Positions.of(length, length, device="cuda"))
                return select(backend)(terms, v, Mask(), args.dropout, False)[0]

            terms = encoding.terms(q, k, Positions.of(length, length, device="cuda"))
            if BACKENDS[backend]().refuses(terms, need_weights=False) is not None:
                continue
            seconds, peak = timed(attention, args)
            yield {
                "length": length,
                "encoding": name,
                "backend": backend,
                "seconds": seconds,
                "ratio": seconds / stock[0],
                "peak_mib": peak / 2**20,
                "memory": peak / stock[1],
            }


def timed(attention, args):
    """Median seconds of forward and backward, and the bytes that they need at most. A form
    that does not fit into the GPU takes forever."""
    seconds = []
    try:
        for number in range(args.rounds + 3):
            torch.cuda.synchronize()
            if number == 3:  # kernels are compiled and memory is there
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            start = time.perf_counter()
            attention().float().sum().backward()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    except torch.cuda.OutOfMemoryError:
        return float("inf"), float("inf")
    return statistics.median(seconds[3:]), torch.cuda.max_memory_allocated() - before


if __name__ == "__main__":
    main()
