"""The progress of trainings that run side by side, a line for each, from the logs that they write:

python -m fairseq_relpos.reports.watch RUN... --until-exit PID...
"""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from .training_log import Run, read_run

POLL_SECONDS = 1
#: seconds between two lines of a run
LINE_SECONDS = 30


def run(folders: Sequence[Path], processes: Sequence[int]) -> None:
    shown = 0.0
    while True:
        # asked before the logs are read, so that their last lines are shown
        ended = not any(map(is_running, processes))
        if ended or time.monotonic() - shown >= LINE_SECONDS:
            shown = time.monotonic()
            for state in filter(None, map(read_if_begun, folders)):
                print(f"{progress(state)}{'' if ended else time_left(state)}", flush=True)
        if ended:
            return
        time.sleep(POLL_SECONDS)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def read_if_begun(folder: Path) -> Run | None:
    try:
        return read_run(folder)
    except ValueError:  # there is no log yet, or its first line is being written
        return None


def progress(run: Run) -> str:
    parts = [f"{run.name:>16} {run.updates:,} of {run.max_updates:,} updates"]
    if run.train:
        parts.append(f"training loss {run.train[run.updates]:.2f}")
    unit = " nats" if run.in_nats else ""
    parts += [f"{split} {by_update[max(by_update)]:.2f}{unit}" for split, by_update in run.losses.items()]
    return ", ".join(parts)


def time_left(run: Run) -> str:
    """Says how long the run will take if it keeps its pace; empty while that is not known."""
    left = run.max_updates - run.updates
    if not (left > 0 and run.updates_per_second):
        return ""
    seconds = left / run.updates_per_second
    return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="folder in which a train.log is written")
    parser.add_argument("--until-exit", nargs="+", metavar="PID", type=int, required=True, help="processes to wait for")
    given = parser.parse_args()
    run(given.runs, given.until_exit)
