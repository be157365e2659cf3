"""Ctrl-C, SIGTERM and SIGUSR1 at random moments of training, validation, saving and generation.

    python benchmarks/signal_storm.py --signals 20 --json benchmarks/results/signal_storm.json
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

A small translation model is trained, gets a signal again and again, and each time the same command resumes it. Nothing
may be lost: every exit code is one that the documentation names, a signal that fairseq-train has noted loses no update,
no half-written file stays, and at the end weights and validation losses are those of a run that was left alone, to the
last bit. Then translations are broken off and made again. If one of this does not hold, the exit code is 1.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from kill_storm import USER_DIR, preprocess, updates_in
from machine import add_result, save
from prepare import generate

from fairseq_relpos.checkpoints.loading import load_checkpoint

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
KINDS = ("at any moment", "in a validation", "while saving")
#: saved; interrupted with nothing to save; ended by a signal before fairseq-train listens
EXIT_CODES = {75, 130, -signal.SIGTERM, -signal.SIGUSR1, -signal.SIGINT}
SIZES = " ".join(
    f"--{stack}-layers 2 --{stack}-embed-dim 32 --{stack}-ffn-embed-dim 64 --{stack}-attention-heads 4"
    for stack in ("encoder", "decoder")
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=int, default=20, help="to the training")
    parser.add_argument("--generations", type=int, default=6, help="that get one, too")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    add_result(parser)
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell, and inherited
    with tempfile.TemporaryDirectory() as folder:
        row = storm(args, Path(folder))
    print(json.dumps(row, indent=2))
    save("signal_storm", args, [row])
    good = row["bitwise_equal"] and row["validations_equal"] and row["translations_equal"]
    return 0 if good and not row["updates_lost"] and not row["leftovers"] else 1


def storm(args, folder):
    data, chance = binarise(folder), random.Random(args.seed)
    whole, stopped = folder / "whole", folder / "stopped"
    alone = Command("train", training(args, data, whole), folder / "whole.log")
    alone.end_well()
    seen, leftovers, lost, printed = [], 0, 0, ""
    while len(seen) < args.signals:
        command = Command("train", training(args, data, stopped), folder / "stopped.log")
        kind, sent = KINDS[len(seen) % len(KINDS)], chance.choice(SIGNALS)
        if not command.reach(kind, chance, stopped):
            sys.exit(f"signal_storm: error: the training ended after {len(seen)} signals: give more --updates")
        code = command.end_by(sent)
        printed += command.printed()
        noted = re.search(r"after ([\d,]+) updates: checkpoint_last.pt is saved", command.printed())
        saved = updates_in(stopped)
        # Ctrl-C while Python still imports fairseq is Python's own to report
        traced = "Traceback" in command.printed() and not command.printed().startswith("Traceback")
        if (code == 75) != bool(noted) or traced:
            sys.exit(f"signal_storm: error: exit code {code} after {sent.name}:\n{command.printed()[-3000:]}")
        lost += int(noted[1].replace(",", "")) - saved if noted else 0
        leftovers += len(list(stopped.glob("*.part*"))) if stopped.exists() else 0
        seen.append({"signal": sent.name, "kind": kind, "exit_code": code, "updates_saved": saved})
        print(f"{len(seen)}: {seen[-1]}", flush=True)
    last = Command("train", training(args, data, stopped), folder / "stopped.log")
    last.end_well()
    weights = [load_checkpoint(place / "checkpoint_last.pt")["model"] for place in (whole, stopped)]
    return {
        "each": seen,
        "updates_lost": lost,
        "leftovers": leftovers,
        "bitwise_equal": all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0]),
        "validations_equal": validations(alone.printed()) == validations(printed + last.printed()),
        **generations(args, folder, data, whole / "checkpoint_last.pt", chance),
    }


def generations(args, folder, data, model, chance):
    """Broken off at random, and then left alone: the translations are the same."""
    flags = f"""
        {data} --user-dir {USER_DIR} --path {model} --cpu --gen-subset train --batch-size 16
        --required-batch-size-multiple 1
    """

    def translated(command):
        return sorted(line for line in command.printed().splitlines() if re.match(r"[SHDP]-\d", line))

    whole = Command("generate", flags, folder / "generate.log")
    whole.end_well()
    expected, codes = translated(whole), []
    for _ in range(args.generations):
        command = Command("generate", flags, folder / "generate.log")
        command.wait_for_text("H-", chance.uniform(0, 1))
        codes.append(command.end_by(chance.choice(SIGNALS)))
        # a process that a signal has ended on the spot says nothing; its loaders may
        if codes[-1] > 0 and "Traceback" in command.printed():
            sys.exit(f"signal_storm: error: a translation ended with {codes[-1]}:\n{command.printed()[-3000:]}")
    again = Command("generate", flags, folder / "generate.log")
    again.end_well()
    return {
        "translations_equal": translated(again) == expected,
        "translations": len(expected),
        "generation_codes": codes,
    }


def validations(printed):
    return sorted(set(re.findall(r"valid on 'valid' subset \| loss ([\d.]+) .*num_updates (\d+)", printed)))


def binarise(folder):
    text = generate(folder / "text", megabytes=1)
    lines = [line.split()[:12] for line in Path(text).read_text(encoding="utf-8").splitlines() if line]
    for split, chosen in {"train": lines[100:1100], "valid": lines[:100]}.items():
        (folder / f"{split}.a").write_text("".join(f"{' '.join(words)}\n" for words in chosen), encoding="utf-8")
        (folder / f"{split}.b").write_text("".join(f"{' '.join(words[::-1])}\n" for words in chosen), encoding="utf-8")
    flags = f"--source-lang a --target-lang b --nwordssrc 1000 --joined-dictionary --trainpref {folder}/train"
    return preprocess(folder, f"{flags} --validpref {folder}/valid")


def training(args, data, save_dir):
    return f"""
        {data} --user-dir {USER_DIR} --save-dir {save_dir} --cpu --seed 1 --arch transformer_tupe_r {SIZES}
        --share-all-embeddings --criterion cross_entropy --optimizer adam --lr 0.001 --max-tokens 256
        --required-batch-size-multiple 1 --max-update {args.updates} --validate-interval-updates 12
        --save-interval-updates 12 --keep-interval-updates 1 --no-epoch-checkpoints --num-workers 1
        --no-progress-bar --log-format simple --log-interval 1000
    """


class Command:
    """A fairseq command in a process group of its own, as a shell starts it."""

    def __init__(self, name, flags, log):
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"fairseq_cli.{name}", *flags.split()],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def printed(self):
        return self.log.read_text(errors="replace")

    def end_well(self):
        if self.process.wait():
            sys.exit(f"signal_storm: error: exit code {self.process.returncode}:\n{self.printed()[-3000:]}")

    def end_by(self, sent):
        """The exit code. Ctrl-C reaches the whole group, as from a terminal."""
        if sent == signal.SIGINT:
            os.killpg(self.process.pid, sent)
        else:
            self.process.send_signal(sent)
        code = self.process.wait()
        if code not in EXIT_CODES:
            sys.exit(f"signal_storm: error: exit code {code} after {sent.name}:\n{self.printed()[-3000:]}")
        return code

    def reach(self, kind, chance, save_dir):
        """False if the command ended first."""
        if kind == "while saving":
            begun = self._wait_until(lambda: "Start iterating over samples" in self.printed())
            return begun and self._wait_until(lambda: any(save_dir.glob("*.part*")))
        if kind == "in a validation":
            count = chance.randint(1, 2)
            found = self._wait_until(lambda: self.printed().count("begin validation") >= count)
            return found and self._wait_seconds(chance.uniform(0, 0.05))
        # from the import of fairseq to some updates
        return self._wait_seconds(chance.uniform(0, 10))

    def wait_for_text(self, text, seconds):
        self._wait_until(lambda: text in self.printed())
        self._wait_seconds(seconds)

    def _wait_seconds(self, seconds):
        until = time.monotonic() + seconds
        return self._wait_until(lambda: time.monotonic() > until)

    def _wait_until(self, condition):
        while not condition():
            if self.process.poll() is not None:
                return False
            time.sleep(0.0005)
        return True


if __name__ == "__main__":
    sys.exit(main())
