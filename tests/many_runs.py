"""Runs of fairseq-train, each in a fork of one process that has imported fairseq, and not the plugin.

    python tests/many_runs.py RUNS.json

RUNS.json: [{"arguments": [...], "environment": {...}}, ...]. Each run is printed as a line of JSON: its exit
code and what it printed. --user-dir among the arguments brings the plugin into that run alone.
"""

import json
import os
import sys
import tempfile

from fairseq_process import end_of


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
            os._exit(end_of("train", run["arguments"], log.fileno(), run.get("environment", {})))
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        log.seek(0)
        return {"code": code, "printed": log.read()}


if __name__ == "__main__":
    main(sys.argv[1])
