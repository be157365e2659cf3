"""How processes of fairseq's commands end, with the races at their end made wide on purpose.

    python tests/process_ends.py TRIALS.json

A trial is {"command": "train", "arguments": [...], "runs": 50, "ranks": 2, "signal": "SIGTERM",
"slow_batches": false}. Each rank is a fork that imports nothing, runs the command and ends as Python does.
For each trial a line of JSON is printed: exit codes and how often, the native threads that were alive at the
end, and the last lines of output. {run} in an argument is another number in each run. signal: to the first
rank in its second update. slow_batches: reading a batch takes most of a second in torch, without Python's
lock. In all of them the threads of gloo are late (LATE_MS).
"""

import atexit
import collections
import ctypes
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

#: milliseconds for which the end of Python keeps its lock, so that a thread that wants it is late
HOLD = 150
#: batches that are not slow, so that a training of three updates reads ahead as it ends
FAST = 3


def preload(folder):
    """The library that makes gloo's threads late, compiled."""
    library = Path(folder) / "late_threads.so"
    source = Path(__file__).parent / "training" / "late_threads.c"
    flags = f"-shared -fPIC -O1 -o {library} {source} -Wl,--no-as-needed -lstdc++ -ldl"
    subprocess.run([os.environ.get("CC", "cc"), *flags.split()], check=True)
    return library


def native_threads():
    """Names of the threads of this process, but for the first and Python's own."""
    python = {thread.native_id for thread in threading.enumerate()}
    names = []
    for task in os.listdir("/proc/self/task"):
        if int(task) not in python:
            names.append(Path("/proc/self/task", task, "comm").read_text().strip())
    return names


def main():
    """In the parent: makes the trials. In a rank: returns, so that Python ends as it does."""
    if "ENDS" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            late = {"LD_PRELOAD": str(preload(folder)), "LATE_MS": os.environ.get("LATE_MS", "50")}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env={**os.environ, **late, "ENDS": folder}).returncode)

    folder = Path(os.environ["ENDS"])
    atexit.register(note_the_end, folder, os.getpid())  # the first, so that it is called last
    import torch._dynamo  # noqa: F401 - as every optimizer does

    import fairseq_relpos.models  # noqa: F401  with fairseq, before the forks

    trials = json.loads(Path(sys.argv[1]).read_text())
    commands = {trial["command"]: importlib.import_module(f"fairseq_cli.{trial['command']}") for trial in trials}
    for number, trial in enumerate(trials):
        codes, output = collections.Counter(), folder / f"output.{number}"
        for run in range(trial["runs"]):
            ranks = []
            for rank in range(trial["ranks"]):
                process = os.fork()
                if process == 0:
                    join(f"{number}.{run}", rank, trial, output)
                    commands[trial["command"]].cli_main()
                    return
                ranks.append(process)
            codes.update(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks)
        threads = collections.Counter()
        for file in folder.glob("threads.*"):
            threads[file.read_text()] += 1
            file.unlink()
        printed = output.read_text(errors="replace")[-2000:]
        print(json.dumps({"codes": codes, "threads": threads, "printed": printed}), flush=True)


def note_the_end(folder, parent):
    if os.getpid() == parent:
        return
    Path(folder, f"threads.{os.getpid()}").write_text(" ".join(sorted(native_threads())))
    ctypes.PyDLL(None).usleep(HOLD * 1000)


def slow_batches():
    import torch
    from fairseq.data.iterators import BackgroundConsumer
    from fairseq.data.nested_dictionary_dataset import NestedDictionaryDataset

    collate, numbers, read = NestedDictionaryDataset.collater, torch.rand(1500, 1500), []

    def collater(self, samples):
        read.append(samples)
        if len(read) > FAST and isinstance(threading.current_thread(), BackgroundConsumer):
            until = time.monotonic() + 0.7
            while time.monotonic() < until:
                numbers @ numbers
        return collate(self, samples)

    NestedDictionaryDataset.collater = collater


def join(run, rank, trial, output):
    """In a fork: makes it a rank of a run of its own."""
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    logging.root.handlers[:] = []
    logging.basicConfig(stream=sys.stdout, level="INFO", format="%(levelname)s %(message)s")
    arguments = [str(argument).replace("{run}", run) for argument in trial["arguments"]]
    sys.argv = [f"fairseq-{trial['command']}", *arguments]
    if trial["ranks"] > 1:
        port = 20000 + (os.getppid() * 61 + zlib.crc32(run.encode())) % 10000
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        os.environ.update(WORLD_SIZE=str(trial["ranks"]), RANK=str(rank), LOCAL_RANK=str(rank))
    if trial.get("slow_batches"):
        slow_batches()
    if trial.get("signal") and rank == 0:
        signal_in_the_second_update(signal.Signals[trial["signal"]])


def signal_in_the_second_update(number):
    from fairseq.tasks import FairseqTask

    step = FairseqTask.optimizer_step

    def optimizer_step(self, optimizer, model, update_num):
        if update_num == 1:
            os.kill(os.getpid(), number)
        return step(self, optimizer, model, update_num)

    FairseqTask.optimizer_step = optimizer_step


if __name__ == "__main__":
    main()
