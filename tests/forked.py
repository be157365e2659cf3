"""fairseq's commands in forked processes: they need no import, so that a run takes a second."""

import contextlib
import itertools
import os
import random
import socket
import time

import fairseq_process
import torch._dynamo  # noqa: F401  every optimizer imports it: more than a second in each forked process

import fairseq_relpos
from fairseq_relpos import mends
from fairseq_relpos.checkpoints.loading import load_checkpoint

fairseq_relpos.register()

PREFIX = "fairseq_relpos: error: "


class Run:
    """One rank of fairseq-train, or another command. ``printed()`` has stdout and stderr."""

    def __init__(self, arguments, log, before=None, command="train", **environment):
        """before: called in the process before the command."""
        self.log = log
        self.process = os.fork()
        if self.process == 0:
            os._exit(self.end_of(command, list(map(str, arguments)), before, environment))

    def end_of(self, command, arguments, before, environment):
        def prepare():
            mends.apply()  # once more: some commands have a main that is replaced after their import
            if before is not None:
                before()

        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        return fairseq_process.end_of(command, arguments, output, environment, prepare)

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


#: below those that the kernel gives to connections and to servers that ask for any, from 32768 on: what another test
#: opens takes none of them before it is used
PORTS = itertools.cycle(random.Random(os.getpid()).sample(range(10_000, 20_000), 10_000))


def free_port():
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def ranks(count, arguments, folder, before=None, start=None, port=None, **environment):
    """The Runs of ``count`` ranks on this machine. before: a function of the rank; start: the
    ranks to start, all by default; port: where they meet."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
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


def run(command, arguments, log, **options):
    """A command on one rank that has to succeed; what it printed."""
    process = Run(arguments, log, command=command, **options)
    assert process.wait() == 0, process.printed()
    return process.printed()


def train(arguments, log, **options):
    return run("train", arguments, log, **options)


def error_of(run, code=1):
    """The one line in which a command has ended."""
    assert run.wait() == code, run.printed()
    last = run.printed().splitlines()[-1]
    assert last.startswith(PREFIX) and "Traceback" not in run.printed(), run.printed()
    return last.removeprefix(PREFIX)


def weights(folder):
    """Those of the last checkpoint."""
    return load_checkpoint(folder / "checkpoint_last.pt")["model"]
