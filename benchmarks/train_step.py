"""Time of one training step of roberta_NAME against stock fairseq's roberta of the same size.

    python benchmarks/train_step.py --archs roberta_learned roberta_t5 roberta_tupe_r
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

All models are stepped in turn, round after round, in one process, so that a noisy machine
slows all of them alike; the ratio of a round is taken within that round, and the median
over rounds is printed. A step is forward, masked-LM loss, backward, clipping, AdamW.
"""

import argparse
import json
import statistics
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from machine import machine
from tqdm import tqdm

import fairseq_relpos  # noqa: F401  registers the architectures

STOCK = "roberta"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archs", nargs="+", default=["roberta_learned", "roberta_tupe_r"])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    steps = {arch: TrainingStep(arch, args) for arch in [STOCK, *args.archs]}
    seconds = {arch: [] for arch in steps}
    for number in tqdm(range(args.rounds + 1), unit="round"):
        for arch, step in steps.items():
            elapsed = step()
            if number:  # the first one warms up
                seconds[arch].append(elapsed)
    report(seconds, args)


class TrainingStep:
    def __init__(self, arch, args):
        symbols = Dictionary()
        for word in range(args.vocabulary - 5):
            symbols.add_symbol(str(word))
        symbols.add_symbol("<mask>")
        settings = Namespace(
            arch=arch, encoder_layers=args.layers, encoder_embed_dim=args.dim,
            encoder_ffn_embed_dim=4 * args.dim, encoder_attention_heads=args.heads,
            max_positions=args.length, dropout=args.dropout, attention_dropout=args.dropout,
            encoder_layerdrop=0.0, quant_noise_pq=0, quant_noise_pq_block_size=8,
            quant_noise_scalar=0, attention_backend=args.backend,
        )
        ARCH_CONFIG_REGISTRY[arch](settings)
        torch.manual_seed(1)
        self.model = ARCH_MODEL_REGISTRY[arch].build_model(
            settings, SimpleNamespace(source_dictionary=symbols)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.tokens = torch.randint(5, args.vocabulary, (args.batch, args.length))
        self.tokens[:, 0] = symbols.bos()
        self.masked = torch.rand(args.batch, args.length) < 0.15

    def __call__(self):
        start = time.perf_counter()
        self.optimizer.zero_grad()
        logits = self.model(self.tokens, masked_tokens=self.masked)[0]
        F.cross_entropy(logits.float(), self.tokens[self.masked]).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return time.perf_counter() - start


def report(seconds, args):
    stock = seconds[STOCK]
    rows = []
    for arch, times in seconds.items():
        ratios = [mine / theirs for mine, theirs in zip(times, stock)]
        rows.append({
            "arch": arch,
            "seconds": statistics.median(times),
            "ratio": statistics.median(ratios),
            "quartiles": statistics.quantiles(ratios, n=4)[::2] if len(ratios) > 1 else [],
        })
    print(f"{args.layers} layers x {args.dim}, {args.heads} heads, {args.batch} x {args.length} "
          f"tokens, dropout {args.dropout}, backend {args.backend}, {args.threads} thread(s)")
    print("| architecture | step (s) | times stock | quartiles |\n|---|---|---|---|")
    for row in rows:
        between = " to ".join(f"{q:.2f}" for q in row["quartiles"])
        print(f"| {row['arch']} | {row['seconds']:.3f} | {row['ratio']:.3f} | {between} |")
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k != "json"}
        text = json.dumps({"benchmark": "train_step", "machine": machine(), "settings": settings, "rows": rows}, indent=2)
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
