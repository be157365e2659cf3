"""Kills one small training again and again and compares its weights with an uninterrupted run.

    python benchmarks/kill_storm.py --kills 20 --json benchmarks/results/kill_storm.json
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

Each start of fairseq-train is killed with SIGKILL, the sooner or later by chance; every other one as
soon as a half-written checkpoint is seen. Then it is started once more and left alone. On a CPU in
float32 the weights have to be equal to the last bit; if not, the exit code is 1.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from machine import add_result, save
from prepare import generate

import fairseq_relpos
from fairseq_relpos.checkpoints.loading import load_checkpoint

USER_DIR = os.path.dirname(fairseq_relpos.__file__)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="binarised text for masked LM (default: generated)")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=5, help="updates")
    parser.add_argument("--encoding", default="tupe_r")
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    add_result(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = storm(args, Path(folder))
    print(json.dumps(row, indent=2))
    save("kill_storm", args, [row])
    return 0 if row["bitwise_equal"] else 1


def storm(args, folder):
    data = args.data or binarise(folder)
    chance = random.Random(args.seed)
    whole, killed = folder / "whole", folder / "killed"
    run(args, data, whole).wait_to_the_end()
    kills = []
    while len(kills) < args.kills:
        training = run(args, data, killed)
        kind = "while saving" if len(kills) % 2 else "at any moment"
        if not training.kill(kind, chance):
            shutil.rmtree(killed)  # it was done before it could be killed: once more from the start
            continue
        kills.append({"kind": kind, "updates_saved": updates_in(killed), **training.seen})
        print(f"kill {len(kills)}: {kills[-1]}", flush=True)
    run(args, data, killed).wait_to_the_end()
    weights = [load_checkpoint(place / "checkpoint_last.pt")["model"] for place in (whole, killed)]
    assert weights[0].keys() == weights[1].keys()
    difference = max((weights[0][k].double() - weights[1][k].double()).abs().max().item() for k in weights[0])
    return {
        "with_a_half_written_file": sum(kill["half_written"] for kill in kills),
        "largest_difference": difference,
        "bitwise_equal": all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0]),
        "each": kills,
    }


def binarise(folder):
    """fairseq-preprocess over generated text."""
    text = generate(folder / "text.txt", megabytes=1)
    return preprocess(folder, f"--only-source --nwordssrc 2000 --trainpref {text}")


def preprocess(folder, flags):
    command = [sys.executable, "-m", "fairseq_cli.preprocess", *flags.split(), "--destdir", folder / "data"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / "data"


def run(args, data, save_dir):
    flags = f"""
        {data} --user-dir {USER_DIR} --save-dir {save_dir} --cpu --seed 1
        --task masked_lm --criterion masked_lm --sample-break-mode none --tokens-per-sample 64 --max-positions 64
        --arch roberta_{args.encoding} --encoder-layers 2 --encoder-embed-dim 64 --encoder-ffn-embed-dim 128
        --encoder-attention-heads 4 --optimizer adam --lr 0.001 --batch-size 4 --num-workers 0
        --disable-validation --max-update {args.updates} --save-interval-updates {args.save_every}
        --keep-interval-updates 1 --no-epoch-checkpoints --no-progress-bar --log-interval 1000
    """
    return Training(flags.split(), save_dir, args.save_every)


class Training:
    def __init__(self, arguments, save_dir, save_every):
        self.save_dir, self.save_every = save_dir, save_every
        command = [sys.executable, "-m", "fairseq_cli.train", *arguments]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self.left_behind = self.half_written()  # by the kill before
        self.process = subprocess.Popen(command, text=True, **quiet)
        self.seen = {}

    def wait_to_the_end(self):
        _, errors = self.process.communicate()
        if self.process.returncode:
            sys.exit(f"kill_storm: error: fairseq-train ended with {self.process.returncode}: {errors[-500:]}")

    def kill(self, kind, chance):
        """False if the training was over first."""
        saves = chance.randrange(5)
        reached = self.updates_on_disk() + saves * self.save_every
        over = saves and self._wait(lambda: self.updates_on_disk() >= reached)
        if kind == "while saving":
            over = over or self._wait(lambda: self.half_written() - self.left_behind)
        else:
            # without a save to wait for: from the import of fairseq to the first updates
            over = over or self._wait_seconds(chance.uniform(0, 0.3 if saves else 6))
        if over:
            return False
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        self.seen = {"half_written": bool(self.half_written() - self.left_behind)}
        return True

    def half_written(self):
        """Names and times of the files that have no name of their own yet."""
        found = set()
        for path in self.save_dir.glob("*.part*"):
            with contextlib.suppress(FileNotFoundError):
                found.add((path.name, path.stat().st_mtime_ns))
        return found

    def updates_on_disk(self):
        names = (path.stem.split("_") for path in self.save_dir.glob("checkpoint_*_*.pt"))
        return max((int(name[-1]) for name in names), default=0)

    def _wait(self, condition):
        while not condition():
            if self.process.poll() is not None:
                self.wait_to_the_end()
                return True
            time.sleep(0.0005)
        return False

    def _wait_seconds(self, seconds):
        until = time.monotonic() + seconds
        return self._wait(lambda: time.monotonic() > until)


def updates_in(save_dir):
    last = save_dir / "checkpoint_last.pt"
    return load_checkpoint(last)["optimizer_history"][-1]["num_updates"] if last.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
