"""Runs of fairseq-train, each in a fork of one process that has imported fairseq, and not the plugin.

    python tests/many_runs.py RUNS.json

RUNS.json: [{"arguments": [...], "environment": {...}}, ...]. Each run is printed as a line of JSON: its exit
code and what it printed. --user-dir among the arguments brings the plugin into that run alone.
"""

import json
import os
import sys
import tempfile
import traceback


def main(file):
    import fairseq_cli.train  # noqa: F401 - the forks need not
    import torch._dynamo  # noqa: F401 - as every optimizer does

    assert "fairseq_relpos" not in sys.modules
    with open(file) as runs:
        for run in json.load(runs):
            print(json.dumps(outcome(run)), flush=True)


def outcome(run):
    with tempfile.TemporaryFile("w+") as log:
        process = os.fork()
        if process == 0:
            os._exit(train(run, log.fileno()))
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        log.seek(0)
        return {"code": code, "printed": log.read()}


def train(run, output):
    import logging

    import fairseq_cli.train

    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False)
    logging.root.handlers[:] = []
    logging.basicConfig(stream=sys.stdout, level="INFO", format="%(levelname)s %(message)s")
    os.environ.update(run.get("environment", {}))
    sys.argv = ["fairseq-train", *run["arguments"]]
    try:
        fairseq_cli.train.cli_main()
        return 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code)
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    main(sys.argv[1])
