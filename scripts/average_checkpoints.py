#!/usr/bin/env python3
"""Average the weights of several checkpoints of one training.

    python scripts/average_checkpoints.py OUT CHECKPOINT...
    python scripts/average_checkpoints.py OUT --last 5 RUN      # the last by number of updates
    python scripts/average_checkpoints.py OUT --best 5 RUN      # of fairseq's --keep-best-checkpoints

Floating-point weights are averaged in float64; what counts or names something has to be equal.
OUT has the settings of the last checkpoint and no state of the optimizer.
"""

import argparse
import re
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fairseq_relpos  # noqa: E402
from fairseq_relpos.atomic_files import whole_file  # noqa: E402
from fairseq_relpos.checkpoints.loading import allow_fairseq_classes, load_checkpoint  # noqa: E402

KEPT_BY_UPDATES = re.compile(r"checkpoint_\d+_(\d+)\.pt")
KEPT_AS_BEST = re.compile(r"checkpoint\.best_(\w+)_(-?[\d.]+)\.pt")
LOWER_IS_BETTER = ("loss", "ppl")  # endings of names; of all other metrics higher is better


def last(run, count):
    found = {path: int(match[1]) for path, match in named(run, KEPT_BY_UPDATES)}
    enough(run, found, count, "checkpoint_EPOCH_UPDATES.pt", "--keep-interval-updates")
    return sorted(found, key=found.get)[-count:]


def best(run, count):
    found = {path: float(match[2]) for path, match in named(run, KEPT_AS_BEST)}
    enough(run, found, count, "checkpoint.best_METRIC_VALUE.pt", "--keep-best-checkpoints")
    metrics = {match[1] for _, match in named(run, KEPT_AS_BEST)}
    if len(metrics) != 1:
        raise ValueError(f"{run} holds the best by {' and by '.join(sorted(metrics))}: name the files")
    lower = metrics.pop().endswith(LOWER_IS_BETTER)
    return sorted(found, key=found.get, reverse=not lower)[:count]


def named(run, pattern):
    return [(path, match) for path in Path(run).glob("*.pt") if (match := pattern.fullmatch(path.name))]


def enough(run, found, count, names, flag):
    if len(found) < count:
        raise ValueError(
            f"{run} holds {len(found)} of the {count} checkpoints named {names}: ask for fewer, or "
            f"train with {flag} {count}"
        )


def average(paths):
    """The last checkpoint with averaged weights. One file is in memory at a time, and the sums."""
    sums, state, first = {}, None, paths[0]
    for path in paths:
        state = load_checkpoint(path)
        weights = state["model"]
        if not sums:
            sums = {key: widened(value) for key, value in weights.items()}
            continue
        refuse_another_model(sums, weights, first, path)
        for key, value in weights.items():
            if is_weight(key, value):
                sums[key] += value.double()
            elif not torch.equal(sums[key], value):
                raise ValueError(f"{key} differs between {first} and {path}: they are of two trainings")
    for key, value in state["model"].items():
        if is_weight(key, value):
            state["model"][key] = (sums[key] / len(paths)).to(value.dtype)
    state["last_optimizer_state"] = None
    return state


def is_weight(key, value):
    """A signature is text, one float a byte."""
    return value.is_floating_point() and not key.endswith("version")


def widened(value):
    return value.double() if value.is_floating_point() else value


def refuse_another_model(sums, weights, first, path):
    different = sorted(set(sums) ^ set(weights))
    different += [key for key in weights if key in sums and weights[key].shape != sums[key].shape]
    if different:
        raise ValueError(
            f"{first} and {path} are no checkpoints of one model: {different[0]} is not in both, or has another shape"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("paths", nargs="+", metavar="CHECKPOINT", help="files, or one folder of a run")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--last", type=int, metavar="N")
    choice.add_argument("--best", type=int, metavar="N")
    args = parser.parse_args()
    fairseq_relpos.register()
    allow_fairseq_classes()
    try:
        paths = args.paths
        choose, count = (last, args.last) if args.last is not None else (best, args.best)
        if count is not None:
            if count < 1 or len(paths) != 1:
                raise ValueError(f"--{choose.__name__} {count} {' '.join(paths)}: give a number from 1 and one folder")
            paths = choose(paths[0], count)
        folder = Path(args.out).parent
        if not folder.is_dir() or Path(args.out).is_dir():
            raise ValueError(f"{args.out}: give a file to write, in a folder that is there")
        state = average(paths)
        with whole_file(args.out) as part, open(part, "wb") as file:
            torch.save(state, file)
    except (OSError, ValueError) as error:
        sys.exit(f"average_checkpoints.py: error: {error}")
    print(f"{args.out}: average of {', '.join(Path(path).name for path in paths)}")


if __name__ == "__main__":
    main()
