#!/usr/bin/env python3
"""Average the weights of several checkpoints of one training.

    python scripts/average_checkpoints.py OUT CHECKPOINT...
    python scripts/average_checkpoints.py OUT --last 5 RUN      # the last by number of updates

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


def last(run, count):
    matches = [(path, KEPT_BY_UPDATES.fullmatch(path.name)) for path in Path(run).glob("*.pt")]
    found = {path: int(match[1]) for path, match in matches if match}
    if len(found) < count:
        raise ValueError(
            f"{run} holds {len(found)} of the {count} checkpoints named checkpoint_EPOCH_UPDATES.pt: ask for fewer, or "
            f"train with --keep-interval-updates {count}"
        )
    return sorted(found, key=found.get)[-count:]


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
    parser.add_argument("--last", type=int, metavar="N")
    args = parser.parse_args()
    fairseq_relpos.register()
    allow_fairseq_classes()
    try:
        paths = args.paths
        if args.last is not None:
            if args.last < 1 or len(paths) != 1:
                raise ValueError(f"--last {args.last} {' '.join(paths)}: give a number from 1 and one folder")
            paths = last(paths[0], args.last)
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
