"""Results of single runs.

result.py write RUN                      # the logs in RUN -> RUN/result.json
result.py better PREFIX RATE...   # which of PREFIX-lrRATE did better on held-out data
"""

import json
import sys
from pathlib import Path

from fairseq_relpos.atomic_files import write_text
from fairseq_relpos.reports.learning_rates import choose
from fairseq_relpos.reports.training_log import entry_of


def write(run):
    logs = {name: Path(run, f"{name}.log").read_text(encoding="utf-8") for name in ("train", "test")}
    entries = {name: list(map(entry_of, text.splitlines())) for name, text in logs.items()}
    valid = [(float(e["valid_accuracy"]), int(e["epoch"])) for e in entries["train"] if "valid_accuracy" in e]
    test = [float(e["test_accuracy"]) for e in entries["test"] if "test_accuracy" in e]
    # of equal ones fairseq keeps the weights of the last
    best, epoch = max(valid)
    result = {"valid": best, "best_epoch": epoch, "epochs": max(epoch for _, epoch in valid), "test": test[-1]}
    write_text(Path(run, "result.json"), json.dumps(result) + "\n")


def read(run):
    return json.loads(Path(run, "result.json").read_text(encoding="utf-8"))


def better(prefix, *rates):
    """Returns the first of those that are equally good."""
    return choose({rate: [read(f"{prefix}-lr{rate}")["valid"]] for rate in rates}, lower=False)


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    if action == "write":
        write(*arguments)
    else:
        print(better(*arguments))
