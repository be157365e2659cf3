"""Time and peak memory of one attention, forward and backward, for every encoding and backend.

    python benchmarks/attention.py --lengths 128 256 512 --json benchmarks/results/attention_cpu.json
    python benchmarks/attention.py --backends eager lean sdpa --dropout 0.1 --lengths 512 \\
        --encodings none t5 shaw m4 m4m
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

From q, k, v to the gradients of q, k, v and of the encoding's parameters, float32. Everything
takes its step in turn, round after round, in one process; the ratio to attention without
positions and dropout (two matmuls and a softmax) is taken within a round. What layers share is
computed anew in every step here; in a model once per forward pass. Seconds are CPU time with
one thread, so that a busy machine counts for less. Linux only (peak memory from /proc).

The other rows without an encoding: `sdpa` is torch's fused attention without positions,
`sdpa + mask` the same with a mask [1, H, T, S] that is learned, `naive` is Shaw's term written
with one [T, S, D] tensor, `fairseq` is stock MultiheadAttention between its input and output
projections, which count.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from machine import in_turns, machine, peak_memory

from fairseq_relpos.backends import BACKENDS, Mask, select
from fairseq_relpos.encodings import ENCODINGS, Dims, build, names_for
from fairseq_relpos.positions import Positions

PLAIN = "none (plain)"

#: bytes of the naive form's tensor, of which it needs several
MOST = 2**31


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=sorted(ENCODINGS))
    parser.add_argument("--backends", nargs="+", default=["eager"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 256, 512], metavar="T")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = [row for length in args.lengths for row in measure(length, args)]
    print(
        f"B={args.batch}, H={args.heads}, d={args.head_dim}, dropout {args.dropout}, "
        f"{args.threads} thread(s): times plain attention, and its peak memory"
    )
    for row in rows:
        print(f"T={row['length']:<5} {row['encoding']:16} {row['backend']:8} {row['ratio']:6.2f} {row['memory']:6.2f}")
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k != "json"}
        result = {"benchmark": "attention", "machine": machine(), "settings": settings, "rows": rows}
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(length, args):
    dims = Dims(args.heads * args.head_dim, args.heads, length)
    steps = {
        (PLAIN, "-"): plain,
        ("sdpa", "-"): Fused(args.dropout),
        ("sdpa + mask", "-"): Fused(args.dropout, torch.zeros(1, args.heads, length, length)),
        ("fairseq", "-"): Stock(dims, args.dropout),
    }
    if 4 * length * length * args.head_dim < MOST:
        steps["naive [T,S,D]", "-"] = Naive(dims)
    else:
        print(f"T={length}: no naive row, whose one tensor would be {4e-9 * length * length * args.head_dim:.0f} GB")
    for name in args.encodings:
        for backend in args.backends:
            step = OneEncoding(name, dims, backend, args.dropout)
            if step.served():
                steps[name, backend] = step
    seconds = in_turns(steps, args.rounds, lambda step: timed(step, dims, length, args), desc=f"T={length}")
    memory = {key: peak_memory(timed, step, dims, length, args) for key, step in steps.items()}
    baseline = PLAIN, "-"
    for name, backend in steps:
        mine = seconds[name, backend]
        ratios = [x / y for x, y in zip(mine, seconds[baseline])]
        peak = memory[name, backend]
        yield {
            "length": length,
            "encoding": name,
            "backend": backend,
            "seconds": statistics.median(mine),
            "ratio": statistics.median(ratios),
            "peak_mib": peak / 2**20,
            "memory": peak / memory[baseline],
        }


def timed(step, dims, length, args):
    q, k, v = (torch.randn(args.batch, dims.num_heads, length, dims.head_dim, requires_grad=True) for _ in range(3))
    clock = time.process_time if args.threads == 1 else time.perf_counter
    start = clock()
    step(q, k, v).sum().backward()
    return clock() - start


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


class Fused:
    def __init__(self, dropout, bias=None):
        self.dropout, self.bias = dropout, bias
        if bias is not None:
            bias.requires_grad_()

    def __call__(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, self.bias, self.dropout)


class Stock:
    """fairseq's own, on the values as its input [T, B, E]."""

    def __init__(self, dims, dropout):
        self.attention = MultiheadAttention(dims.embed_dim, dims.num_heads, dropout=dropout, self_attention=True)

    def __call__(self, q, k, v):
        x = v.permute(2, 0, 1, 3).flatten(2)
        return self.attention(x, x, x, need_weights=False)[0]


class OneEncoding:
    def __init__(self, name, dims, backend, dropout):
        dims = replace(dims, causal=name not in names_for(causal=False))
        self.encoding, self.backend, self.dropout = build(name, dims), select(backend), dropout
        self.dims, self.name = dims, backend

    def served(self):
        """Whether the backend takes this encoding at all."""
        q = torch.zeros(1, self.dims.num_heads, 2, self.dims.head_dim)
        terms = self.encoding.terms(q, q, Positions.of(2, 2))
        return self.name == "auto" or BACKENDS[self.name]().refuses(terms, False) is None

    def __call__(self, q, k, v):
        terms = self.encoding.terms(q, k, Positions.of(q.size(2), k.size(2)))
        return self.backend(terms, v, Mask(), self.dropout, False)[0]


if __name__ == "__main__":
    main()
