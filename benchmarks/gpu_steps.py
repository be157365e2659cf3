"""Whole training steps on a GPU, of every encoding against stock fairseq, in one process.

    python benchmarks/gpu_steps.py --json steps.json
    python benchmarks/gpu_steps.py --models roberta_512 --encodings t5 shaw shaw:max_distance=16 --compile no yes
    python benchmarks/gpu_steps.py --tiny           # tiny models on a CPU, to see that it runs
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

The models: RoBERTa-base with 32 x 512 and with 64 x 128 tokens, and transformer_wmt_en_de with 128 x 64 in encoder and
decoder. As with fairseq's --bf16 and --fp16, the model is in half precision, and AdamW updates a copy in float32.
Stock and the encoding take turns; of each turn --queued steps are timed by CUDA events, without a pause between them,
and the median over turns is printed. Memory is the peak of a step beyond the model, its optimizer and the gradients of
the step before. --compile yes is with --torch-compile, which stock lacks: it is compared with stock as it is.

A file that --json names, from the same settings, GPU and commit, is resumed: what it has is not timed again.
After --minutes no encoding begins, and the exit status is 75 if some are left.
"""

import argparse
import logging
import sys
import time
from argparse import Namespace
from pathlib import Path

import torch
from memory import peak_memory_of_cuda
from result_file import Resumed
from torch.optim import AdamW
from train_step import MaskedLMStep, TranslationStep
from turns import median_ratio, queued_seconds

from fairseq_relpos.encodings import names_for

BASE = {"layers": 12, "dim": 768, "ffn": 3072, "heads": 12, "vocabulary": 50265}
WMT = {"layers": 6, "dim": 512, "ffn": 2048, "heads": 8, "vocabulary": 32768}
#: stock architecture, kind of step, sizes
MODELS = {
    "roberta_512": ("roberta", MaskedLMStep, {**BASE, "batch": 32, "length": 512}),
    "roberta_128": ("roberta", MaskedLMStep, {**BASE, "batch": 64, "length": 128}),
    "wmt": ("transformer_wmt_en_de", TranslationStep, {**WMT, "batch": 128, "length": 64}),
}
TINY = {"layers": 2, "dim": 16, "ffn": 16, "heads": 2, "vocabulary": 50, "batch": 2, "length": 8}
STOCK = "stock"
DROPOUT = 0.1


def main():
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    # what one stack can have, both can
    parser.add_argument("--encodings", nargs="+", default=names_for(causal=False), metavar="NAME[:OPTION=VALUE..]")
    parser.add_argument("--dtypes", nargs="+", choices=["bfloat16", "float16"], default=["bfloat16", "float16"])
    parser.add_argument("--compile", nargs="+", choices=["no", "yes"], help="default: both, with --tiny no")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--queued", type=int, default=5, help="steps of a turn")
    parser.add_argument("--minutes", type=float, default=60, help="after which no encoding begins")
    parser.add_argument("--tiny", action="store_true", help="tiny models on a CPU")
    parser.add_argument("--json", type=Path, help="write the results here, after each encoding")
    parser.add_argument("--note", help="what else ran on the machine")
    args = parser.parse_args()
    if not args.tiny and not torch.cuda.is_available():
        parser.error("torch sees no GPU: with --tiny it runs on a CPU; real steps there are train_step.py's")
    args.compile = args.compile or (["no"] if args.tiny else ["no", "yes"])
    logging.disable(logging.INFO)
    results = Resumed("gpu_steps", args, ("model", "dtype", "compile", "encoding"))
    cases = [
        (model, dtype, compiled, encoding)
        for model in args.models
        for dtype in args.dtypes
        for compiled in args.compile
        for encoding in args.encodings
    ]
    stock = None
    for case in results.in_time(results.left(cases), start):
        model, dtype, compiled, _ = case
        if stock is None or stock[0] != (model, dtype):
            stock = None  # its memory is needed
            stock = (model, dtype), Step(model, dtype, args)
        try:
            found = measured(Step(*case[:2], args, *case[2:]), stock[1], args)
        except Exception as error:  # the others are worth their time
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        results.add(case, found)
        if compiled == "yes":
            torch._dynamo.reset()
    results.show()
    failed = [row for row in results.rows if "error" in row]
    for row in failed:
        print("{model} {dtype} compile {compile} {encoding}: {error}".format(**row))
    if failed:
        sys.exit("gpu_steps.py: error: some rows failed, see above; the same command tries them again")


class Step:
    """One update of a model in half precision."""

    def __init__(self, model, dtype, args, compiled="no", encoding=STOCK):
        stock, kind, sizes = MODELS[model]
        sizes = TINY if args.tiny else sizes
        name, *hparams = encoding.split(":")
        arch = stock if encoding == STOCK else stock.replace("_", f"_{name}_", 1) if "_" in stock else f"{stock}_{name}"
        self.device = "cpu" if args.tiny else "cuda"
        settings = Namespace(
            **sizes, backend="auto", torch_compile=compiled == "yes", unpad=False, threads=1, padding=0.0, amp=False
        )
        self.step = kind(
            arch, DROPOUT, settings, hparams=" ".join(hparams), device=self.device, dtype=getattr(torch, dtype)
        )
        self.tokens = sizes["batch"] * sizes["length"]
        self.half = list(self.step.model.parameters())
        self.whole = [x.detach().float() for x in self.half]
        self.optimizer = AdamW(self.whole, lr=1e-4, fused=True)

    def __call__(self):
        self.step.model.zero_grad()  # to None
        self.step.loss().backward()
        for whole, half in zip(self.whole, self.half):
            whole.grad = None if half.grad is None else half.grad.float()
        torch.nn.utils.clip_grad_norm_(self.whole, 1.0)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.half, self.whole)


def measured(step, stock, args):
    """The entries of a row about the step."""
    steps, seconds = {"mine": step, STOCK: stock}, {"mine": [], STOCK: []}
    for each in steps.values():
        queued_seconds(each, 3, step.device)  # what is compiled, and what the optimizer keeps
    for _ in range(args.turns):
        for name, each in steps.items():
            seconds[name].append(queued_seconds(each, args.queued, step.device) / args.queued)
    mine = sorted(seconds["mine"])[len(seconds["mine"]) // 2]
    peaks = {name: peak_memory_of_cuda(each) if step.device == "cuda" else 0 for name, each in steps.items()}
    return {
        "milliseconds": 1000 * mine,
        "stock_milliseconds": 1000 * sorted(seconds[STOCK])[len(seconds[STOCK]) // 2],
        "ratio": median_ratio(seconds["mine"], seconds[STOCK]),
        "tokens_per_second": step.tokens / mine,
        "peak_mib": peaks["mine"] / 2**20,
        "memory": peaks["mine"] / peaks[STOCK] if peaks[STOCK] else 0.0,
    }


if __name__ == "__main__":
    main()
