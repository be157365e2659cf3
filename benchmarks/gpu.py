"""What can only be measured on a GPU: are the fused kernels right there, and are they fast?

    python benchmarks/gpu.py --json benchmarks/results/attention_gpu.json
    python benchmarks/gpu.py --encodings t5 m4 --tiles 64,32,4,2 64,32,4,3 128,64,8,2   # which tiles are fastest?
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

First the kernels' tests, on the GPU; nothing is timed if one fails. Then one attention, forward and backward, for
every encoding and each backend that serves it: the median time and the peak memory, as ratios to torch's
scaled_dot_product_attention without positions and with the same dropout (what stock fairseq calls; on GPUs from sm80 on
that is FlashAttention 2). No encoding begins after --minutes; what that left out is named.
"""

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from machine import machine
from tqdm import tqdm

from fairseq_relpos.backends import BACKENDS, Mask, select, triton
from fairseq_relpos.encodings import ENCODINGS, Dims, build
from fairseq_relpos.positions import Positions

TESTS = Path(__file__).parents[1] / "tests/backends/test_triton.py"
#: the row without an encoding, with which all is compared
SDPA = "none (sdpa)"
NEVER = float("inf"), float("inf")
DEVICE = "cuda"


def main():
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=sorted(ENCODINGS))
    parser.add_argument("--backends", nargs="+", default=["triton", "sdpa", "lean", "eager"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 2048], metavar="T")
    parser.add_argument("--tokens", type=int, default=16384, help="of a batch, at every length")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0], metavar="P")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=8, help="after which no encoding begins, tests included")
    parser.add_argument(
        "--tiles",
        nargs="+",
        type=tiles,
        metavar="FORWARD,BACKWARD,WARPS,STAGES",
        help="time the kernels with each of these tiles (no tests, no other backend) instead of their own",
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU; on a CPU use benchmarks/attention.py")
    # most of the tests' time is the compiler's
    workers = ["-n", str(min(8, os.cpu_count()))] if find_spec("xdist") else []
    if not args.tiles and pytest.main(["-q", *workers, str(TESTS)]):
        parser.exit(1, "gpu.py: the kernels' tests fail on this GPU: nothing was timed\n")
    rows, left_out = [], 0
    cases = [(length, p, name) for p in args.dropout for length in args.lengths for name in [SDPA, *args.encodings]]
    baselines = {}
    if not args.tiles:
        compile_kernels([case for case in cases if case[2] != SDPA], args)
    for length, p, name in tqdm(cases, unit="encoding"):
        if time.monotonic() > start + 60 * args.minutes:
            left_out += 1
            continue
        for backend, (seconds, peak) in measure(name, length, p, args):
            stock = baselines.setdefault((length, p), (seconds, peak))
            row = {"length": length, "dropout": p, "encoding": name, "backend": backend, "seconds": seconds}
            rows.append({**row, "ratio": seconds / stock[0], "peak_mib": peak / 2**20, "memory": peak / stock[1]})
    for row in rows:
        print(
            "p={dropout:<4} T={length:<5} {encoding:16} {backend:18} {seconds:9.6f} s {ratio:6.2f} x time "
            "{memory:6.2f} x memory".format(**row)
        )
    if left_out:
        print(f"gpu.py: {left_out} of {len(cases)} encodings were not timed within {args.minutes:g} minutes")
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k != "json" and v is not None}
        gpu = torch.cuda.get_device_name()
        result = {"benchmark": "gpu", "machine": {**machine(), "gpu": gpu}, "settings": settings, "rows": rows}
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def compile_kernels(cases, args):
    """Calls the kernels of every case once, in processes side by side, because compiling takes longer than all else.
    Triton keeps on disk what they have compiled."""
    workers = max(1, min(12, (os.cpu_count() or 1) - 1))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        calls = [pool.submit(call_kernels, *case, args) for case in cases]
        for call in tqdm(as_completed(calls), "compile", len(calls), unit="encoding"):
            call.result()


def call_kernels(length, dropout, name, args):
    args.backends, args.rounds = ["triton"], 0
    for _ in measure(name, length, dropout, args):
        pass


def tiles(text):
    """FORWARD,BACKWARD,WARPS,STAGES as it was given, if it is that."""
    numbers = text.split(",")
    if len(numbers) != 4 or not all(number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(
            f"{text} is no FORWARD,BACKWARD,WARPS,STAGES: give four numbers, such as 64,32,4,3"
        )
    return text


@contextmanager
def with_tiles(text):
    """The kernels with these sizes of tiles, warps and stages of the pipeline, for which they have others."""
    forward, backward, warps, stages = map(int, text.split(","))
    sizes = [triton.Tile(size, warps, stages) for size in (forward, *[backward] * 3)]
    with mock.patch.object(triton, "tiles", lambda *arguments: dict(zip(triton.KERNELS, sizes))):
        yield


def measure(name, length, dropout, args):
    """(backend, ``timed``) for each that serves the encoding."""
    shape = max(1, args.tokens // length), args.heads, length, args.head_dim
    q, k, v = (
        torch.randn(shape, device=DEVICE, dtype=getattr(torch, args.dtype), requires_grad=True) for _ in range(3)
    )
    if name == SDPA:
        yield "-", timed(lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=dropout), args.rounds)
        return
    encoding = build(name, Dims(args.heads * args.head_dim, args.heads, length)).to(DEVICE)

    def attention(backend):
        terms = encoding.terms(q, k, Positions.of(length, length, device=DEVICE))
        return select(backend)(terms, v, Mask(), dropout, False)[0]

    terms = encoding.terms(q, k, Positions.of(length, length, device=DEVICE))
    for backend in ["triton"] if args.tiles else args.backends:
        if BACKENDS[backend]().refuses(terms, need_weights=False) is not None:
            continue
        if not args.tiles:
            yield backend, timed(lambda backend=backend: attention(backend), args.rounds)
        for text in args.tiles or ():
            with with_tiles(text):
                yield f"{backend} {text}", timed(lambda: attention("triton"), args.rounds)


def timed(attention, rounds):
    """Median seconds of forward and backward, and the bytes that they need at most. What does not fit into the GPU,
    or tiles that do not fit into its shared memory, take forever."""
    seconds = []
    try:
        for number in range(rounds + 3):
            torch.cuda.synchronize()
            if number == 3:  # kernels are compiled and memory is there
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            start = time.perf_counter()
            out = attention()
            if not number:
                gradient = torch.randn_like(out)
            out.backward(gradient)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    except torch.cuda.OutOfMemoryError:
        return NEVER
    except Exception as error:  # Triton's own class is only there with Triton
        if type(error).__name__ != "OutOfResources":
            raise
        return NEVER
    if not rounds:
        return NEVER
    return statistics.median(seconds[3:]), torch.cuda.max_memory_allocated() - before


if __name__ == "__main__":
    main()
