"""Results of single runs.

result.py write RUN                      # the logs in RUN -> RUN/result.json
result.py better PREFIX RATE...   # which of PREFIX-lrRATE did better on held-out data
"""

import json
import os
import sys
from pathlib import Path


def entries(log):
    """The JSON objects in a log of fairseq."""
    for line in Path(log).read_text().splitlines():
        start = line.find("{")
        try:
            yield json.loads(line[start:]) if start >= 0 else {}
        except ValueError:
            continue


def write(run):
    run = Path(run)
    valid = [(e["valid_accuracy"], e["epoch"]) for e in entries(run / "train.log") if "valid_accuracy" in e]
    test = [float(e["test_accuracy"]) for e in entries(run / "test.log") if "test_accuracy" in e]
    # of equal ones fairseq keeps the weights of the last
    best, epoch = max((float(accuracy), int(epoch)) for accuracy, epoch in valid)
    result = {"valid": best, "best_epoch": epoch, "epochs": max(int(epoch) for _, epoch in valid), "test": test[-1]}
    temporary = run / "result.json.tmp"
    temporary.write_text(json.dumps(result) + "\n")
    os.replace(temporary, run / "result.json")


def read(run):
    return json.loads(Path(run, "result.json").read_text())


def better(prefix, *rates):
    """The first of those that are equally good."""
    from fairseq_relpos.reports.learning_rates import choose

    return choose({rate: [read(f"{prefix}-lr{rate}")["valid"]] for rate in rates}, lower=False)


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    if action == "write":
        write(*arguments)
    else:
        print(better(*arguments))
