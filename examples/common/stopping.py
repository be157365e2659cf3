"""Ends the scripts of the recipes by signals: what runs is asked to save and end, the script waits for it, and its exit
code is 75, as that of fairseq-train is. By itself bash passes no signal on, and heeds none while a command runs.

    stopping.py supervise COMMAND...    COMMAND, a script; a signal is SIGTERM to all that it has started
    stopping.py recipe COMMAND...       the same for a script that needs torch and fairseq
    stopping.py lock FILE FOLDER        waits for the lock on the open file number FILE of the shell

It needs the standard library alone: scripts/quickstart.sh begins before there is a .venv.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from messages import fail, say, script

STOPPED = 75  # sysexits' "temporary failure"
DIVERGED = 76  # NaN or infinity: the same command would fail again
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
#: exit codes of a program that a signal has ended, in bash's numbers
ENDED_BY_A_SIGNAL = (0, *(128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)))


@contextlib.contextmanager
def locked(folder):
    """Waits until no other process works in the folder. Programs that are started inside keep the lock as well, also
    where this process is killed."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(Path(folder, "lock"), "a") as file:
        os.set_inheritable(file.fileno(), True)
        lock(file.fileno(), folder)
        yield


def lock(file, folder):
    """Waits for the lock that other processes have on an open file of the folder. It is kept while the file is open."""
    try:
        fcntl.flock(int(file), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"{folder} is in use by another process: waiting for it", sys.stderr)  # the caller may read stdout
        fcntl.flock(int(file), fcntl.LOCK_EX)
    except OSError:
        say(f"{folder} is on a file system without locks: make sure that nothing else works there", sys.stderr)


def on_a_signal(act):
    """Calls ``act``. A signal that is ignored stays ignored, as nohup wants it."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: act())


def stoppable(command, send, **more):
    """The exit code of ``command``; STOPPED where it ended because of a signal. Its process group is its own, so that
    Ctrl-C reaches it once: from here. ``send``: os.kill or os.killpg, which passes a signal on as SIGTERM."""
    child, came, early = None, False, False

    def pass_on():
        nonlocal came, early
        came, early = True, child is None
        if child is not None and child.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                send(child.pid, signal.SIGTERM)

    on_a_signal(pass_on)
    # close_fds: the lock of the run stays with the training, also where this process is killed
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, close_fds=False, **more)
    if early:
        pass_on()
    code = child.wait()
    code = 128 - code if code < 0 else code
    return STOPPED if came and code in ENDED_BY_A_SIGNAL else code


def supervise(*command):
    code = stoppable(command, os.killpg)
    if code == STOPPED:
        print(f"{script()}: stopped by a signal: the same command resumes it (exit code {STOPPED})", file=sys.stderr)
    return code


def need_fairseq():
    if not (find_spec("torch") and find_spec("fairseq")):
        fail("this python lacks torch or fairseq: activate your environment, or install them (README.md)")


def recipe(*command):
    need_fairseq()
    return supervise(*command)


def in_parallel(jobs, run, items):
    """Calls ``run`` with each of the items, so many at a time; it returns an exit code. Exit code 1 if one fails. When
    one was stopped no more are begun, and when all have ended it is STOPPED. A signal needs no passing on: supervise
    sends it to all."""
    if not jobs.isdecimal() or int(jobs) < 1:
        fail(f"JOBS={jobs}: give a number, 1 or more")
    came, codes = [], []
    on_a_signal(lambda: came.append(True))

    def one(item):
        if not came and STOPPED not in codes:
            codes.append(run(item))

    with ThreadPoolExecutor(int(jobs)) as pool:
        list(pool.map(one, items))
    return STOPPED if came or STOPPED in codes else int(any(codes))


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    actions = {"supervise": supervise, "recipe": recipe, "lock": lock}
    sys.exit(actions[action](*arguments))
