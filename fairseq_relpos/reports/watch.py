"""The progress of trainings that run side by side, a line for each, from the logs that they write:

python -m fairseq_relpos.reports.watch RUN... --until-exit PID...
"""

import argparse
import os
import time
from pathlib import Path

from .losses import in_nats
from .training_log import LOG_NAME, Run, read_run

POLL_SECONDS = 1
#: seconds between two lines of a run
LINE_SECONDS = 30


def run(args: argparse.Namespace) -> None:
    lines = Lines()
    while True:
        # asked before the logs are read, so that their last lines are shown
        ended = not any(is_running(pid) for pid in args.until_exit)
        for number, folder in enumerate(args.runs):
            state = read_if_begun(folder)
            if state is not None:
                lines.update(number, state)
        lines.flush(ended)
        if ended:
            break
        time.sleep(POLL_SECONDS)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def read_if_begun(folder: Path) -> Run | None:
    if not (folder / LOG_NAME).exists():
        return None
    try:
        return read_run(folder)
    except ValueError:
        return None  # the first line is being written


def losses(run: Run) -> str:
    parts = []
    if run.train:
        parts.append(f"loss {run.train[run.updates]:.2f}")
    for split, by_update in run.valid.items():
        unit = " nats" if in_nats([run]) else ""
        parts.append(f"{split} {by_update[max(by_update)]:.2f}{unit}")
    return ", ".join(parts)


class Lines:
    """A line for each run every LINE_SECONDS."""

    def __init__(self) -> None:
        self.states: dict[int, Run] = {}
        #: when a run was first seen to advance, and its updates then: before that, Python had to start, too
        self.begun: dict[int, tuple[float, int]] = {}
        self.last = 0.0

    def update(self, number: int, run: Run) -> None:
        if number in self.states and run.updates > self.states[number].updates:
            self.begun.setdefault(number, (time.monotonic(), run.updates))
        self.states[number] = run

    def left(self, number: int) -> str:
        """Says how long the run will take if it keeps its pace; empty while that is not known."""
        run = self.states[number]
        begun, before = self.begun.get(number, (0.0, run.updates))
        if not before < run.updates < run.max_updates:
            return ""
        seconds = (time.monotonic() - begun) / (run.updates - before) * (run.max_updates - run.updates)
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"

    def flush(self, ended: bool) -> None:
        if not ended and time.monotonic() - self.last < LINE_SECONDS:
            return
        self.last = time.monotonic()
        for number, run in self.states.items():
            left = "" if ended else self.left(number)
            print(f"{run.name:>16} {run.updates:,} of {run.max_updates:,} updates, {losses(run)}{left}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="folder in which a train.log is written")
    parser.add_argument("--until-exit", nargs="+", metavar="PID", type=int, required=True, help="processes to wait for")
    run(parser.parse_args())
