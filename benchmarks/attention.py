"""Time and memory of one attention, forward and backward, for every encoding and backend, against torch's fused
attention without positions.

    python benchmarks/attention.py --lengths 128 512 --json benchmarks/results/attention_cpu.json
    python benchmarks/attention.py --backends eager lean sdpa --dropout 0.1 --lengths 512 \\
        --encodings none t5 shaw m4 m4m
    python benchmarks/attention.py --encodings t5 shaw shaw:max_distance=16 deberta:max_distance=512:buckets=256
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

From q, k, v and the gradient of the output to the gradients of q, k, v and of the encoding's parameters,
float32. Each allocator (allocators.py) has one process, in which everything takes its step in turn, round after
round, in another order each time; a ratio is taken within a round. `sdpa` is torch's scaled_dot_product_attention
without positions, `plain` are two matrix products and a softmax; both have the same dropout as the encodings.
Parts that layers share are computed anew in every step. With --layers 12, a step is the attention of 12 layers,
which compute them once, as in a model; times are those of one layer, memory that of all. Seconds are CPU time
with one thread, so that a busy machine counts for less.

The limit of a row is what its exact matrix products take at the speed of one large product in the same rounds, over
the time of `sdpa`. Memory is the peak above inputs, output and gradients, in a process that returns all freed memory
to the system. Linux with glibc only.

The other rows without an encoding: `sdpa + mask` is `sdpa` with a mask [1, H, T, S] that is learned, `naive` is
Shaw's term written with one [T, S, D] tensor, `flex` is torch's FlexAttention with the bias of t5_nob.
"""

import argparse
import statistics
from dataclasses import replace

import torch
import torch.nn.functional as F
from allocators import add_allocators
from result_file import add_result, save
from torch.nn.attention.flex_attention import flex_attention
from turns import LargeProduct, Processes, clock_of, median_ratio

from fairseq_relpos.backends import BACKENDS, Mask, select
from fairseq_relpos.encodings import ENCODINGS, Dims, build, names_for
from fairseq_relpos.encodings.hparams import parse_hparams
from fairseq_relpos.positions import Positions

#: attention without positions, with which everything is compared
SDPA, PLAIN = ("sdpa", "-"), ("plain", "-")
PRODUCT = "one large product"

#: bytes of the naive form's tensor, of which it needs several
MOST = 2**31

#: matrix products [T, D] x [D, S] of attention, forward and backward, if backward computes the logits again: q k
#: and P v; q k, dP, dv, dq, dk
CONTENT = 7
#: of a table that meets queries, or keys: its logits; these again, and the gradients of both factors
TABLE = 4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=sorted(ENCODINGS), metavar="NAME[:OPTION=VALUE..]")
    parser.add_argument("--backends", nargs="+", default=["auto"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512], metavar="T")
    parser.add_argument("--layers", type=int, default=1, help="that share what they can")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    add_allocators(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", nargs="+", type=int, default=[1], help="several are compared with the first")
    add_result(parser)
    args = parser.parse_args()
    missing = Flex.missing()
    with Processes(args.allocators) as processes:
        rows = [
            row
            for length in args.lengths
            for dropout in args.dropout
            for row in measure(processes, length, dropout, args)
        ]
    save("attention", args, rows, missing=missing)


def measure(processes, length, dropout, args):
    steps = steps_of(length, dropout, args)
    pair = 2 * args.batch * args.heads * length * length * args.head_dim
    work = {key: step.products * pair for key, step in steps.items() if key[0] != PRODUCT}
    outside = {key: step.outside() for key, step in steps.items() if key[0] != PRODUCT}
    del steps
    what = f"T={length}, dropout {dropout}"
    seconds = processes.in_turns(steps_of, (length, dropout, args), args.rounds, desc=what)
    memory = processes.memory(steps_of, (length, dropout, args))
    for allocator, times in seconds.items():
        for key in work:
            name, backend, threads = key
            mine, sdpa, plain, first = (
                times[x] for x in (key, (*SDPA, threads), (*PLAIN, threads), (name, backend, args.threads[0]))
            )
            product = times[PRODUCT, "-", threads]
            yield {
                "allocator": allocator,
                "length": length,
                "dropout": dropout,
                "threads": threads,
                "encoding": name,
                "backend": backend,
                "seconds": statistics.median(mine),
                "ratio": median_ratio(mine, sdpa),
                "plain_ratio": median_ratio(mine, plain),
                "speedup": median_ratio(first, mine),
                "limit": work[key] / LargeProduct.flops() * median_ratio(product, sdpa),
                "gflops": LargeProduct.flops() / statistics.median(product) / 1e9,
                "scratch_mib": (memory[key] - outside[key]) / 2**20,
            }


def steps_of(length, dropout, args):
    """{(name, backend, threads): step}"""
    dims = Dims(args.heads * args.head_dim, args.heads, length)
    forms = {
        PLAIN: Plain(dropout),
        SDPA: Fused(dropout),
        ("sdpa + mask", "-"): Fused(dropout, torch.zeros(1, args.heads, length, length)),
    }
    if 4 * length * length * args.head_dim < MOST:
        forms["naive [T,S,D]", "-"] = Naive(dims, dropout)
    if not dropout and Flex(dims).serves():
        forms["flex", "-"] = Flex(dims)
    for name in args.encodings:
        for backend in args.backends:
            form = OneEncoding(name, dims, backend, dropout)
            if form.serves():
                forms[name, backend] = form
    clock = clock_of(max(args.threads))
    steps = {
        (*key, threads): Step(form, threads, clock, dims, args)
        for threads in args.threads
        for key, form in forms.items()
    }
    steps |= {(PRODUCT, "-", threads): LargeProduct(clock, threads) for threads in args.threads}
    return steps


class Step:
    """Forward and backward; returns its seconds."""

    def __init__(self, form, threads, clock, dims, args):
        self.form, self.threads, self.clock, self.layers = form, threads, clock, args.layers
        self.shape = args.batch, dims.num_heads, dims.max_len, dims.head_dim
        self.products = form.products()

    def __call__(self):
        torch.set_num_threads(self.threads)
        q, k, v = (torch.randn(self.shape, requires_grad=True) for _ in range(3))
        grad = torch.randn(self.shape)
        start = self.clock()
        torch.autograd.backward(self.form.layers(q, k, v, self.layers), [grad] * self.layers)
        seconds = self.clock() - start
        for parameter in self.form.parameters():
            parameter.grad = None  # what a step needs is not there before it
        return seconds / self.layers

    def outside(self):
        """Bytes of q, k, v, the outputs and the gradients of these four, and of those of the parameters."""
        return 4 * ((7 + self.layers) * torch.Size(self.shape).numel() + sum(x.numel() for x in self.form.parameters()))


class Form:
    """A way to compute attention."""

    def layers(self, q, k, v, number):
        return [self(q, k, v) for _ in range(number)]

    def parameters(self):
        return []

    def products(self):
        return CONTENT


class Plain(Form):
    def __init__(self, dropout):
        self.dropout = dropout

    def __call__(self, q, k, v):
        return F.dropout(((q * q.size(-1) ** -0.5) @ k.mT).softmax(-1), self.dropout) @ v


class Naive(Form):
    def __init__(self, dims, dropout):
        self.table = torch.randn(2 * dims.max_len - 1, dims.head_dim, requires_grad=True)
        self.dropout = dropout

    def __call__(self, q, k, v):
        offset_TS = Positions.of(q.size(2), k.size(2)).offset_TS()
        a_TSD = self.table[offset_TS + q.size(2) - 1]
        q = q * q.size(-1) ** -0.5
        logits = q @ k.mT + torch.einsum("bhtd,tsd->bhts", q, a_TSD)
        return F.dropout(logits.softmax(-1), self.dropout) @ v

    def parameters(self):
        return [self.table]

    def products(self):
        return CONTENT + TABLE


class Fused(Form):
    def __init__(self, dropout, bias=None):
        self.dropout, self.bias = dropout, bias
        if bias is not None:
            bias.requires_grad_()

    def __call__(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, self.bias, self.dropout)

    def parameters(self):
        return [] if self.bias is None else [self.bias]


class Flex(Form):
    def __init__(self, dims):
        self.table = torch.randn(dims.num_heads, 2 * dims.max_len - 1, requires_grad=True)

    def __call__(self, q, k, v):
        return flex_attention(q, k, v, lambda e, b, h, i, j: e + self.table[h, j - i + q.size(2) - 1])

    def parameters(self):
        return [self.table]

    def serves(self):
        return not self.missing()

    @classmethod
    def missing(cls):
        """Why torch's FlexAttention has no row, in one line."""
        q, k, v = (torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3))
        try:
            cls(Dims(16, 2, 4))(q, k, v).sum().backward()
        except NotImplementedError as error:
            return f"No row for FlexAttention, of which torch {torch.__version__} says: {error}"
        return ""


class OneEncoding(Form):
    def __init__(self, name, dims, backend, dropout):
        name, *hparams = name.split(":")
        dims = replace(dims, causal=name not in names_for(causal=False))
        self.encoding = build(name, dims, **parse_hparams(" ".join(hparams)))
        self.backend, self.dropout = select(backend), dropout
        self.dims, self.name = dims, backend

    def serves(self):
        """Whether the backend takes this encoding at all."""
        return self.name == "auto" or BACKENDS[self.name]().refuses(self.terms(2), False) is None

    def terms(self, length):
        q = torch.zeros(1, self.dims.num_heads, length, self.dims.head_dim)
        return self.encoding.terms(q, q, self.positions(q))

    def positions(self, k):
        """x, which gates read, is made of the keys."""
        return Positions.of(k.size(2), k.size(2), x=k.transpose(1, 2).flatten(2))

    def products(self):
        """A table of few different rows needs fewer of them. A gate is no matrix product."""
        length = self.dims.max_len
        terms = self.terms(length)
        if terms.gate is not None:
            return 0
        total = CONTENT
        for table, rows in ((terms.A, terms.rows), (terms.C, terms.C_rows or terms.rows)):
            if table is not None:
                offsets = torch.arange(1 - length, length)
                used = offsets.numel() if rows is None else rows(offsets).unique().numel()
                total += TABLE * min(1, used / length)
        return total

    def layers(self, q, k, v, number):
        pos = self.positions(k)
        pos.shared = self.encoding.shared(pos)
        return [self.backend(self.encoding.terms(q, k, pos), v, Mask(), self.dropout, False)[0] for _ in range(number)]

    def parameters(self):
        return list(self.encoding.parameters())


if __name__ == "__main__":
    main()
