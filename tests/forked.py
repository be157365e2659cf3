"""fairseq's commands in forked processes: they need no import, so that a run takes a second."""

import contextlib
import importlib
import logging
import os
import socket
import sys
import time
import traceback

import torch._dynamo  # noqa: F401  every optimizer imports it: more than a second in each forked process

import fairseq_relpos
from fairseq_relpos import mends

fairseq_relpos.register()


class Run:
    """One rank of fairseq-train, or another command. ``printed()`` has stdout and stderr."""

    def __init__(self, arguments, log, before=None, command="train", **environment):
        """before: called in the process before the command."""
        self.log = log
        self.process = os.fork()
        if self.process == 0:
            os._exit(_run(command, list(map(str, arguments)), log, before, environment))

    def printed(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait(self, seconds=600):
        """The exit code, or minus the signal that ended it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(self.process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        os.kill(self.process, 9)
        os.waitpid(self.process, 0)
        raise AssertionError(f"still running after {seconds} s:\n{self.printed()}")

    def wait_for(self, text, seconds=600):
        """Returns once ``text`` has been printed."""
        deadline = time.monotonic() + seconds
        while text not in self.printed():
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.01)


def _run(command, arguments, log, before, environment):
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False)
    logging.root.handlers[:] = []
    logging.basicConfig(stream=sys.stdout, level="INFO", format="%(levelname)s %(message)s")
    os.environ.update({name: str(value) for name, value in environment.items()})
    sys.argv = [f"fairseq-{command}", *arguments]
    try:
        module = importlib.import_module(f"fairseq_cli.{command}")
        mends.apply()  # once more: some commands have a main that is replaced after their import
        if before is not None:
            before()
        module.cli_main()
        return 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code)
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ranks(count, arguments, folder, before=None, start=None, **environment):
    """The Runs of ``count`` ranks on this machine. before: a function of the rank; start: the
    ranks to start, all by default."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    return [
        Run(
            arguments,
            folder / f"rank{rank}.log",
            before=None if before is None else (lambda rank=rank: before(rank)),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            WORLD_SIZE=count,
            RANK=rank,
            LOCAL_RANK=rank,
            **environment,
        )
        for rank in (range(count) if start is None else start)
    ]


def train(arguments, log, **options):
    """A training on one rank that has to succeed; what it printed."""
    run = Run(arguments, log, **options)
    assert run.wait() == 0, run.printed()
    return run.printed()
