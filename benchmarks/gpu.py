"""Measurements that need a GPU: are the fused kernels right there, and are they fast?

    python benchmarks/gpu.py --json attention.json
    python benchmarks/gpu.py --encodings t5 m4 --tiles 64,32,4,2 64,32,4,3 128,64,8,2   # which tiles are fastest?
    python benchmarks/gpu.py --encodings learned t5 shaw shaw:max_distance=16 --profile --json kernels.json
    python benchmarks/gpu.py --tiny     # tiny sizes on a CPU, to see that it runs
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

First the kernels' tests, on the GPU; nothing is timed if one fails. Then the attention of a pass of --layers layers,
forward and backward, for every encoding and each backend that serves it: the median time of a layer and the peak
memory, as ratios to torch's scaled_dot_product_attention without positions and with the same dropout (what stock
fairseq calls; on an H200 torch 2.11 starts cuDNN's kernels for it). Each layer has its own q, k and v; what layers
share is computed once a pass, as in a model. Passes follow one another without a pause, between CUDA events. --profile
adds to the JSON file the microseconds of each kernel in a layer, by torch's profiler.

A file that --json names, from the same settings, GPU and commit, is resumed: what it has is not timed again.
After --minutes no encoding begins, and the exit status is 75 if some are left.
"""

import argparse
import logging
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
from memory import peak_memory_of_cuda
from result_file import Resumed
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm
from turns import queued_seconds

from fairseq_relpos.backends import BACKENDS, Mask, names, select, triton
from fairseq_relpos.encodings import ENCODINGS, Dims, build, names_for
from fairseq_relpos.encodings.hparams import parse_hparams
from fairseq_relpos.positions import Positions

TESTS = Path(__file__).parents[1] / "tests/backends/test_triton.py"
#: the row without an encoding, with which all is compared
SDPA = "none (sdpa)"
NEVER = {"seconds": float("inf"), "peak": float("inf")}
#: seconds that the passes of one turn may take, if they are several
PATIENCE = 2
TINY = {"lengths": [16, 32], "tokens": 64, "heads": 2, "head_dim": 8, "rounds": 2, "layers": 2}


def main():
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=sorted(ENCODINGS), metavar="NAME[:OPTION=VALUE..]")
    parser.add_argument("--backends", nargs="+", choices=names(), default=["triton", "sdpa", "lean", "eager"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 2048], metavar="T")
    parser.add_argument("--tokens", type=int, default=16384, help="of a batch, at every length")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0], metavar="P")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--layers", type=int, default=12, help="of a pass, that share what they can")
    parser.add_argument("--rounds", type=int, default=5, help="passes of each of three turns")
    parser.add_argument("--minutes", type=float, default=8, help="after which no encoding begins, tests included")
    parser.add_argument("--no-tests", action="store_true", help="where they have passed before")
    parser.add_argument("--profile", action="store_true", help="also the time of each kernel")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes on a CPU")
    parser.add_argument(
        "--tiles",
        nargs="+",
        type=tiles,
        metavar="FORWARD,BACKWARD,WARPS,STAGES",
        help="time the kernels with each of these tiles (no tests, no other backend) instead of their own",
    )
    parser.add_argument("--json", type=Path, help="write the results here, after each encoding")
    parser.add_argument("--note", help="what else ran on the machine")
    args = parser.parse_args()
    if args.tiny:
        vars(args).update(TINY)
    elif not torch.cuda.is_available():
        parser.error("torch sees no GPU: with --tiny it runs on a CPU; real sizes there are attention.py's")
    # most of the tests' time is the compiler's
    workers = ["-n", str(min(8, os.cpu_count()))] if find_spec("xdist") else []
    skipped = args.tiles or args.no_tests or args.tiny
    if not skipped and pytest.main(["-q", *workers, str(TESTS)]):
        parser.exit(1, "gpu.py: the kernels' tests fail on this GPU: nothing was timed\n")
    logging.disable(logging.INFO)
    results = Resumed("gpu", args, ("length", "dropout", "encoding"))
    cases = [(length, p, name) for p in args.dropout for length in args.lengths for name in [SDPA, *args.encodings]]
    left = results.left(cases)
    baselines = {}
    if not args.tiles and not args.tiny:
        compile_kernels([case for case in left if case[2] != SDPA], args)
    for length, p, name in results.in_time(left, start):
        if (length, p) not in baselines:
            ((_, step),) = steps_of(SDPA, length, p, args)
            baselines[length, p] = timed(step, args)
        steps = steps_of(name, length, p, args)
        rows = [row(backend, timed(step, args), baselines[length, p]) for backend, step in steps]
        results.add((length, p, name), *rows)
    results.show()


def row(backend, found, stock):
    seconds, peak, *_ = found.values()
    numbers = {"seconds": seconds, "ratio": seconds / stock["seconds"], "peak_mib": peak / 2**20}
    kernels = {"kernels": found["kernels"]} if "kernels" in found else {}
    return {"backend": backend, **numbers, "memory": peak / max(stock["peak"], 1), **kernels}


def compile_kernels(cases, args):
    """Calls the kernels of every case once, in processes side by side, because compiling takes longer than all else.
    Triton keeps on disk what they have compiled."""
    workers = max(1, min(12, (os.cpu_count() or 1) - 1))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        calls = [pool.submit(call_kernels, *case, args) for case in cases]
        for call in tqdm(as_completed(calls), "compile", len(calls), unit="encoding"):
            call.result()


def call_kernels(length, dropout, name, args):
    args.backends, args.layers = ["triton"], 1
    for _, step in steps_of(name, length, dropout, args):
        step()


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


def steps_of(name, length, dropout, args):
    """(backend, a pass of its layers, forward and backward) for each that serves the encoding."""
    device = "cpu" if args.tiny else "cuda"
    shape = max(1, args.tokens // length), args.heads, length, args.head_dim
    inputs = torch.randn((args.layers, 3, *shape), device=device, dtype=getattr(torch, args.dtype))
    layers = [[x.clone().requires_grad_() for x in each] for each in inputs]
    gradient = torch.randn_like(inputs[0, 0])
    if name == SDPA:
        attend = [F.scaled_dot_product_attention] * args.layers
        yield "-", Pass(lambda: [f(*qkv, dropout_p=dropout) for f, qkv in zip(attend, layers)], layers, [], gradient)
        return
    short, *hparams = name.split(":")
    dims = Dims(args.heads * args.head_dim, args.heads, length, causal=short not in names_for(causal=False))
    encoding = build(short, dims, **parse_hparams(" ".join(hparams))).to(device)
    q, k, _ = layers[0]
    terms = terms_of(encoding, q, k, Positions.of(length, length, device=device))
    for backend in ["triton"] if args.tiles else args.backends:
        if backend != "auto" and BACKENDS[backend]().refuses(terms, need_weights=False) is not None:
            continue
        step = Pass(Layers(encoding, select(backend), layers, dropout), layers, [*encoding.parameters()], gradient)
        if not args.tiles:
            yield backend, step
        for text in args.tiles or ():
            with with_tiles(text):
                yield f"{backend} {text}", step


class Layers:
    """The outputs of layers that share what the stack part evaluates, as in a model."""

    def __init__(self, encoding, backend, layers, dropout):
        self.encoding, self.backend, self.layers, self.dropout = encoding, backend, layers, dropout
        encoding.stack.prepare_bias = backend.prepare_bias

    def __call__(self):
        length, device = self.layers[0][0].size(2), self.layers[0][0].device
        # where each layer has a stack part, none is shared
        positions = Positions.of if self.encoding.per_layer else self.encoding.stack.positions
        pos = positions(length, length, device=device)
        return [
            self.backend(terms_of(self.encoding, q, k, pos), v, Mask(), self.dropout, False)[0]
            for q, k, v in self.layers
        ]


def terms_of(encoding, q, k, pos):
    """Returns the terms of a layer. Gates read its input, for which the keys stand in."""
    with pos.in_layer(lambda: k.transpose(1, 2).flatten(2)):
        return encoding.terms(q, k, pos)


class Pass:
    """Forward and backward, with the gradients of q, k, v and of the encoding."""

    def __init__(self, forward, layers, parameters, gradient):
        self.forward, self.layers, self.gradient = forward, len(layers), gradient
        self.inputs = [x for qkv in layers for x in qkv] + parameters

    def __call__(self):
        outs = self.forward()
        torch.autograd.grad(outs, self.inputs, [self.gradient] * self.layers, allow_unused=True)


def timed(step, args):
    """Median seconds of a layer, and the bytes that a pass needs at most. Both are infinite if the pass does
    not fit into the GPU, or its tiles into shared memory."""
    device = "cpu" if args.tiny else "cuda"
    try:
        queued_seconds(step, 2, device)  # kernels are compiled and memory is there
        rounds = max(1, min(args.rounds, int(PATIENCE / queued_seconds(step, 1, device))))
        turns = [queued_seconds(step, rounds, device) / rounds for _ in range(3)]
        peak = 0 if args.tiny else peak_memory_of_cuda(step)
        found = {"seconds": statistics.median(turns) / step.layers, "peak": peak}
        return {**found, "kernels": kernels_of(step, device)} if args.profile else found
    except torch.cuda.OutOfMemoryError:
        return NEVER
    except Exception as error:  # Triton's own class is only there with Triton
        if type(error).__name__ != "OutOfResources":
            raise
        return NEVER


def kernels_of(step, device):
    """{kernel: microseconds} of a layer. The names of torch's kernels, which are types of C++, are cut."""
    with profile(activities=[ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]) as found:
        step()
        if device == "cuda":
            torch.cuda.synchronize()
    kernels = {}
    for event in found.key_averages():
        microseconds = getattr(event, f"self_{'device' if device == 'cuda' else 'cpu'}_time_total")
        if microseconds:
            name = event.key[:60]
            kernels[name] = kernels.get(name, 0.0) + microseconds / step.layers
    return kernels


if __name__ == "__main__":
    main()
