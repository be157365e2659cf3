"""Time and peak memory of a self-attention module with positions, ours against other public code.

    pip install transformers x-transformers
    python benchmarks/public_code.py --lengths 512 --json benchmarks/results/public_code_cpu.json
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

From x [B, T, E] through the projections of q, k, v and the output to the gradients of x and of all
parameters, float32, each module as its package makes it in training. Each allocator (allocators.py) has one process,
in which everything takes its turn, round after round, in another order each time; the ratio to stock fairseq's
attention without positions and with the same dropout is taken within a round. Seconds are CPU time with one thread,
so that a busy machine counts for less. Linux with glibc only.

Of Hugging Face's modules, `transformers: deberta_v2` has no output projection of its own and gets one here, and
`transformers: wav2vec2_conformer` is Transformer-XL's attention.
"""

import argparse
import statistics
import sys

import torch
from allocators import add_allocators
from fairseq.modules import MultiheadAttention
from result_file import add_result, save
from torch import nn
from turns import Processes, clock_of, median_ratio

from fairseq_relpos.attention import RelPosMultiheadAttention
from fairseq_relpos.backends import select
from fairseq_relpos.encodings import ENCODINGS, Dims, build
from fairseq_relpos.positions import CurrentPass, Positions

# what fairseq installs of torchaudio may be a CUDA build, on which transformers would stumble
sys.modules.setdefault("torchaudio", None)
try:
    import transformers
    import x_transformers.x_transformers as x_transformers
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
    from transformers.models.t5.modeling_t5 import T5Attention
    from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
        Wav2Vec2ConformerRelPositionalEmbedding,
        Wav2Vec2ConformerSelfAttention,
    )
except ImportError as missing:
    sys.exit(f"public_code.py: {missing}; pip install transformers x-transformers")

STOCK = "fairseq, no positions"
OURS = ["t5", "alibi", "rope", "transformer_xl", "deberta"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=OURS, choices=sorted(ENCODINGS), help="ours")
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512], metavar="T")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    add_allocators(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    add_result(parser)
    args = parser.parse_args()
    with Processes(args.allocators) as processes:
        rows = [
            row
            for length in args.lengths
            for dropout in args.dropout
            for row in measure(processes, length, dropout, args)
        ]
    save("public_code", args, rows, ("transformers", "x-transformers"))


def measure(processes, length, dropout, args):
    given = modules_of, (length, dropout, args)
    seconds = processes.in_turns(*given, args.rounds, desc=f"T={length}, dropout {dropout}")
    memory = processes.memory(*given)
    for allocator, times in seconds.items():
        for name, mine in times.items():
            yield {
                "allocator": allocator,
                "length": length,
                "dropout": dropout,
                "encoding": name,
                "seconds": statistics.median(mine),
                "ratio": median_ratio(mine, times[STOCK]),
                "peak_mib": memory[name] / 2**20,
                "memory": memory[name] / memory[STOCK],
            }


def modules_of(length, dropout, args):
    """{name: step}"""
    torch.set_num_threads(args.threads)
    dims = Dims(args.heads * args.head_dim, args.heads, length)
    modules = {STOCK: Stock(dims, dropout)}
    modules.update((f"fairseq_relpos: {name}", Ours(name, dims, dropout)) for name in args.encodings)
    modules.update(public_modules(dims, dropout))
    x_BTE = torch.randn(args.batch, length, dims.embed_dim)
    return {name: Step(module, x_BTE, clock_of(args.threads)) for name, module in modules.items()}


class Step:
    """Forward and backward; returns its seconds."""

    def __init__(self, module, x_BTE, clock):
        self.module, self.x_BTE, self.clock = module, x_BTE, clock

    def __call__(self):
        x = self.x_BTE.clone().requires_grad_()
        start = self.clock()
        self.module(x).sum().backward()
        return self.clock() - start


class Stock(nn.Module):
    def __init__(self, dims, dropout):
        super().__init__()
        self.attention = MultiheadAttention(dims.embed_dim, dims.num_heads, dropout=dropout, self_attention=True)

    def forward(self, x_BTE):
        x = x_BTE.transpose(0, 1)
        return self.attention(x, x, x, need_weights=False)[0]


class Ours(Stock):
    def __init__(self, name, dims, dropout):
        super().__init__(dims, dropout)
        current_pass = CurrentPass()
        current_pass.positions = Positions.of(dims.max_len, dims.max_len)
        self.attention.__class__ = RelPosMultiheadAttention
        self.attention.attach(build(name, dims), select("auto"), current_pass, causal=False)


def public_modules(dims, dropout):
    for implementation in ("eager", "sdpa"):
        yield f"transformers: t5, {implementation}", T5(dims, dropout, implementation)
        yield f"transformers: wav2vec2_conformer, {implementation}", Conformer(dims, dropout, implementation)
    yield "transformers: deberta_v2", Deberta(dims, dropout)
    heads, scale = dims.num_heads, dims.head_dim**0.5
    for flash in (False, True):
        how = "flash" if flash else "eager"
        yield (
            f"x-transformers: t5, {how}",
            XTransformers(dims, dropout, flash, x_transformers.RelativePositionBias(scale=scale, heads=heads)),
        )
        yield (
            f"x-transformers: alibi, {how}",
            XTransformers(dims, dropout, flash, x_transformers.AlibiPositionalBias(heads=heads, total_heads=heads)),
        )


class T5(nn.Module):
    def __init__(self, dims, dropout, implementation):
        super().__init__()
        config = transformers.T5Config(
            d_model=dims.embed_dim,
            d_kv=dims.head_dim,
            num_heads=dims.num_heads,
            dropout_rate=dropout,
            attn_implementation=implementation,
        )
        self.attention = T5Attention(config, has_relative_attention_bias=True)

    def forward(self, x_BTE):
        return self.attention(x_BTE)[0]


class Conformer(nn.Module):
    def __init__(self, dims, dropout, implementation):
        super().__init__()
        config = transformers.Wav2Vec2ConformerConfig(
            hidden_size=dims.embed_dim,
            num_attention_heads=dims.num_heads,
            attention_dropout=dropout,
            position_embeddings_type="relative",
            max_source_positions=dims.max_len,
            attn_implementation=implementation,
        )
        self.attention = Wav2Vec2ConformerSelfAttention(config)
        self.offsets = Wav2Vec2ConformerRelPositionalEmbedding(config)

    def forward(self, x_BTE):
        return self.attention(x_BTE, relative_position_embeddings=self.offsets(x_BTE))[0]


class Deberta(nn.Module):
    def __init__(self, dims, dropout):
        super().__init__()
        config = transformers.DebertaV2Config(
            hidden_size=dims.embed_dim,
            num_attention_heads=dims.num_heads,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=dropout,
            relative_attention=True,
            max_relative_positions=dims.max_len,
            pos_att_type=["c2p", "p2c"],
        )
        self.attention = DisentangledSelfAttention(config)
        self.out_proj = nn.Linear(dims.embed_dim, dims.embed_dim)
        self.offsets = nn.Parameter(torch.randn(2 * dims.max_len, dims.embed_dim))

    def forward(self, x_BTE):
        everything = torch.ones(1, 1, 1, x_BTE.size(1), dtype=torch.bool)
        return self.out_proj(self.attention(x_BTE, everything, rel_embeddings=self.offsets)[0])


class XTransformers(nn.Module):
    def __init__(self, dims, dropout, flash, positions):
        super().__init__()
        self.attention = x_transformers.Attention(
            dims.embed_dim, dim_head=dims.head_dim, heads=dims.num_heads, dropout=dropout, flash=flash
        )
        self.positions = positions

    def forward(self, x_BTE):
        out = self.attention(x_BTE, rel_pos=self.positions)
        return out[0] if isinstance(out, tuple) else out


if __name__ == "__main__":
    main()
