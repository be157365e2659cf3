"""Time and peak memory of one attention, forward and backward, for every encoding.

    python benchmarks/attention.py --lengths 128 256 512 --json benchmarks/results/attention_cpu.json
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

From q, k, v to the gradients of q, k, v and of the encoding's parameters, float32. All
encodings take their step in turn, round after round, in one process; the ratio to
attention without positions (two matmuls and a softmax) is taken within a round. `naive`
is Shaw's term written with one [T, S, D] tensor. What layers share is computed anew in
every step here; in a model once per forward pass. Linux only (peak memory from /proc).
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch
from machine import machine
from tqdm import tqdm

from fairseq_relpos.backends import Mask, select
from fairseq_relpos.encodings import ENCODINGS, Dims, build
from fairseq_relpos.positions import Positions

PLAIN, NAIVE = "none (plain)", "naive [T,S,D]"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=sorted(ENCODINGS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 256, 512], metavar="T")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = [row for length in args.lengths for row in measure(length, args)]
    print(f"B={args.batch}, H={args.heads}, d={args.head_dim}, backend {args.backend}, "
          f"{args.threads} thread(s): times plain attention, and its peak memory")
    for row in rows:
        print(f"T={row['length']:<5} {row['encoding']:16} {row['ratio']:6.2f} {row['memory']:6.2f}")
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k != "json"}
        result = {"benchmark": "attention", "machine": machine(), "settings": settings, "rows": rows}
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(length, args):
    dims = Dims(args.heads * args.head_dim, args.heads, length)
    steps = {PLAIN: plain, NAIVE: Naive(dims)}
    steps.update({name: OneEncoding(name, dims, args.backend) for name in args.encodings})
    seconds = {name: [] for name in steps}
    for number in tqdm(range(args.rounds + 1), desc=f"T={length}", unit="round"):
        for name, step in steps.items():
            elapsed = timed(step, dims, length, args)
            if number:  # the first one warms up
                seconds[name].append(elapsed)
    memory = {name: peak_memory(step, dims, length, args) for name, step in steps.items()}
    for name in steps:
        ratios = [mine / theirs for mine, theirs in zip(seconds[name], seconds[PLAIN])]
        yield {
            "length": length, "encoding": name, "seconds": statistics.median(seconds[name]),
            "ratio": statistics.median(ratios), "peak_mib": memory[name] / 2**20,
            "memory": memory[name] / memory[PLAIN],
        }


def timed(step, dims, length, args):
    q, k, v = (torch.randn(args.batch, dims.num_heads, length, dims.head_dim, requires_grad=True)
               for _ in range(3))
    start = time.perf_counter()
    step(q, k, v).sum().backward()
    return time.perf_counter() - start


def peak_memory(step, dims, length, args):
    """Bytes that one step needs beyond what was there before, in a process of its own."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # start a new peak
        timed(step, dims, length, args)
        os.write(write_end, str(status("VmHWM") - before).encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        return int(pipe.read())


def status(field):
    line = next(x for x in open("/proc/self/status") if x.startswith(field))
    return int(line.split()[1]) * 1024


def plain(q, k, v):
    return ((q * q.size(-1) ** -0.5) @ k.mT).softmax(-1) @ v


class Naive:
    def __init__(self, dims):
        self.table = torch.randn(2 * dims.max_len - 1, dims.head_dim, requires_grad=True)

    def __call__(self, q, k, v):
        offset_TS = Positions.of(q.size(2), k.size(2)).offset_TS()
        a_TSD = self.table[offset_TS + q.size(2) - 1]
        q = q * q.size(-1) ** -0.5
        logits = q @ k.mT + torch.einsum("bhtd,tsd->bhts", q, a_TSD)
        return logits.softmax(-1) @ v


class OneEncoding:
    def __init__(self, name, dims, backend):
        self.encoding, self.backend = build(name, dims), select(backend)

    def __call__(self, q, k, v):
        terms = self.encoding.terms(q, k, Positions.of(q.size(2), k.size(2)))
        return self.backend(terms, v, Mask(), 0.0, False)[0]


if __name__ == "__main__":
    main()
