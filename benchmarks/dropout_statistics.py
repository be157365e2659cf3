"""Is the dropout mask of the triton kernels as good as independent coins?

    TRITON_INTERPRET=1 python benchmarks/dropout_statistics.py \\
        --json benchmarks/results/dropout_statistics.json

Draws the masks of several seeds, sentences and heads with the kernels' own function, in Triton's interpreter or
(without TRITON_INTERPRET) on a GPU, and looks for correlations that independent draws would not have: between two
queries and keys at every distance within a head (rows, columns, diagonals, anything between), at every distance
between neighbouring heads, sentences and seeds, and between the four pairs that share a random word. All numbers are
z-scores: under independence the mean is 0 and the standard deviation 1, and beside each largest one stands what is
exceeded once in a hundred times.
"""

import argparse
import os
from statistics import NormalDist

import numpy as np
import scipy.fft
import torch
import triton
import triton.language as tl
from result_file import add_result, save
from tqdm import tqdm

from fairseq_relpos.backends import triton_kernels as kernels

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def write_keeps(out, call, b, h, length, M: tl.constexpr):
    """Program (block of M queries, block of M keys): their part of the mask [length, length], as bytes."""
    t = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    s = tl.program_id(1) * M + tl.arange(0, M)[None, :]
    keep = kernels.keeps(call, tl.cast(b, tl.int64), tl.cast(h, tl.int32), t, s)
    tl.store(out + t * length + s, keep.to(tl.int8))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sentences", type=int, default=10)
    parser.add_argument("--heads", type=int, default=10)
    parser.add_argument("--length", type=int, default=1024, help="of the tile of queries and keys in each head")
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.1], metavar="P")
    add_result(parser)
    args = parser.parse_args()
    if not (INTERPRETED or torch.cuda.is_available()):
        parser.error("torch sees no GPU; set TRITON_INTERPRET=1 to run this on the CPU")
    rows = [row for p in args.dropout for row in measure(p, args)]
    save("dropout_statistics", args, rows)


def mask(seed, b, h, dropout, length):
    """1 where a weight is kept, [length, length]."""
    out = torch.empty(length, length, dtype=torch.int8, device="cpu" if INTERPRETED else "cuda")
    M = length if INTERPRETED else 64
    # of a call, only these two are read
    call = kernels.Call(**{**dict.fromkeys(kernels.Call._fields), "seed": seed, "dropout": dropout})
    write_keeps[length // M, length // M](out, call, b, h, length, M=M)
    return out.cpu().numpy()


def measure(p, args):
    """The rows of one dropout probability."""
    sums = Sums(p, args.length)
    before = {}
    tiles = [(n, b, h) for n in range(args.seeds) for b in range(args.sentences) for h in range(args.heads)]
    for n, b, h in tqdm(tiles, desc=f"p={p}", unit="tile"):
        wave = sums.add(mask(2 * n + 1, b, h, p, args.length))  # the backend's seeds are odd
        for name, key in (("heads", (n, b, h - 1)), ("sentences", (n, b - 1, h)), ("seeds", (n - 1, b, h))):
            if key in before:
                sums.add_pair(name, before[key], wave)
        before[n, b, h] = wave
        before.pop((n - 1, b, h), None)
    return sums.rows()


class Sums:
    """Sums over tiles [M, M]; distances go around the edge of a tile."""

    def __init__(self, p, M):
        self.p, self.M = p, M
        self.tiles = self.dropped = 0
        self.power = {"a head": 0}
        self.pairs = {"a head": 0}
        self.patterns = np.zeros(16)

    def add(self, keep):
        self.tiles += 1
        dropped = 1 - keep
        self.dropped += int(dropped.sum(dtype=np.int64))
        wave = scipy.fft.rfft2((dropped - np.float32(self.p)) / np.float32((self.p * (1 - self.p)) ** 0.5))
        self.power["a head"] = self.power["a head"] + (wave.real**2 + wave.imag**2)
        self.pairs["a head"] += 1
        # t and t + 8, s and s + 1 share a word
        groups = dropped.reshape(self.M // 16, 2, 8, self.M // 2, 2)
        codes = sum(groups[:, i, :, :, j].astype(np.int64) << (2 * i + j) for i in range(2) for j in range(2))
        self.patterns += np.bincount(codes.ravel(), minlength=16)
        return wave

    def add_pair(self, name, one, other):
        self.power[name] = self.power.get(name, 0) + one.conj() * other
        self.pairs[name] = self.pairs.get(name, 0) + 1

    def rows(self):
        draws = self.tiles * self.M**2
        mean = (self.dropped - self.p * draws) / (self.p * (1 - self.p) * draws) ** 0.5
        yield self.row(f"share of {draws / 1e6:,.0f} million dropped", np.array([mean]))
        for name, power in self.power.items():
            count = self.pairs[name] * self.M**2
            lags = scipy.fft.irfft2(power.astype(np.complex128), s=(self.M, self.M)) / count**0.5
            if name == "a head":
                lags[0, 0] = 0
                # a distance and its opposite are the same pairs
                lags = np.concatenate([lags[: self.M // 2].ravel()[1:], lags[self.M // 2, : self.M // 2]])
                yield self.row("keys up to 64 apart in a row", lags[:64])
            place = "within a head" if name == "a head" else f"between neighbouring {name}"
            yield self.row(f"every distance {place}", lags)
        expected = np.array([self.p ** bin(c).count("1") * (1 - self.p) ** (4 - bin(c).count("1")) for c in range(16)])
        groups = self.patterns.sum()
        z = (self.patterns - expected * groups) / (expected * (1 - expected) * groups) ** 0.5
        yield self.row("the 16 patterns of four pairs of one word", z)

    def row(self, what, z):
        """The largest of many z-scores, what independent ones exceed once in a hundred times, and their spread."""
        bound = NormalDist().inv_cdf(1 - (1 - 0.99 ** (1 / z.size)) / 2)
        return {
            "dropout": self.p,
            "what": what,
            "scores": z.size,
            "z": float(np.abs(z).max()),
            "bound": bound,
            "spread": float((z**2).mean() ** 0.5),
        }


if __name__ == "__main__":
    main()
