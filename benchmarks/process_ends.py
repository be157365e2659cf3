"""Counts commands that end with an abort because a thread is late, in many runs of each kind.

    python benchmarks/process_ends.py --runs 50 --json benchmarks/results/process_ends.json
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

The runs are those of tests/training/test_ending.py, and translations on two ranks. Exit code 1 if one ends with another
exit code than it should, or with a thread of a process group.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import add_result, save

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "training")]

from fairseq_data import binarise, binarise_translation, translation  # noqa: E402
from test_ending import CODES, trials  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50, help="of each kind")
    add_result(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(Path(folder), args.runs))
    save("process_ends", args, rows)
    return 0 if all(row["other"] == row["with_threads"] == 0 for row in rows) else 1


def measure(folder, runs):
    wanted = {**trials(binarise(folder / "text"), folder, runs), **translations(folder, runs)}
    (folder / "trials.json").write_text(json.dumps(list(wanted.values())))
    command = [sys.executable, TESTS / "process_ends.py", folder / "trials.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TESTS.parent) as process:
        for name, line in zip(wanted, process.stdout):
            found, expected = json.loads(line), CODES.get(name, "0")
            row = {
                "kind": name,
                "ranks": wanted[name]["ranks"],
                "processes": sum(found["codes"].values()),
                "expected": int(expected),
                "other": sum(count for code, count in found["codes"].items() if code != expected),
                "with_threads": sum(count for names, count in found["threads"].items() if "gloo" in names),
            }
            print(row if row["other"] == 0 else {**row, **found}, flush=True)
            yield row


def translations(folder, runs):
    """A model is made first, on one rank."""
    data = binarise_translation(folder / "translation")
    train = translation(
        data, folder / "model", "fairseq_relpos", "--max-update", 1, "--disable-validation", arch="transformer_t5"
    )
    model = f"{folder}/model/checkpoint_last.pt"
    generate = f"{data} --user-dir fairseq_relpos --path {model} --cpu --batch-size 4 --required-batch-size-multiple 1"
    return {
        "a translation model": {"command": "train", "arguments": train, "runs": 1, "ranks": 1},
        "generation": {"command": "generate", "arguments": generate.split(), "runs": runs, "ranks": 2},
    }


if __name__ == "__main__":
    sys.exit(main())
