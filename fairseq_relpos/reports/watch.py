"""Progress bars for training runs that run side by side, from the logs that they write:

    python -m fairseq_relpos.reports.watch RUN... --until-exit PID...

fairseq's own bars, drawn by several processes, would write over each other.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from .losses import in_nats
from .training_log import LOG_NAME, Run, read_run

POLL_SECONDS = 1
#: seconds between two lines of a run, if there is no terminal that can show a bar
LINE_SECONDS = 30
#: the total of a bar until the log says the number of updates
UNKNOWN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", type=Path, help="run folder in which a train.log is being written"
    )
    parser.add_argument(
        "--until-exit", nargs="+", metavar="PID", type=int, required=True, help="stop when these processes have ended"
    )


def run(args: argparse.Namespace) -> None:
    show = Bars(args.runs) if sys.stderr.isatty() else Lines()
    while True:
        # asked before the logs are read, so that their last lines are shown
        ended = not any(is_running(pid) for pid in args.until_exit)
        for number, folder in enumerate(args.runs):
            state = read_if_begun(folder)
            if state is not None:
                show.update(number, state)
        show.flush(ended)
        if ended:
            break
        time.sleep(POLL_SECONDS)
    show.close()


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


class Bars:
    """The display in a terminal: one bar per run."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self.bars = [
            tqdm(
                total=UNKNOWN,
                position=i,
                desc=f"{folder.name:>16}",
                unit=" updates",
                leave=True,
                bar_format="{desc} {bar:24} {n_fmt}/{total_fmt} {elapsed}, {remaining} left {postfix}",
            )
            for i, folder in enumerate(runs)
        ]

    def update(self, number: int, run: Run) -> None:
        bar = self.bars[number]
        if bar.total == UNKNOWN:
            # a resumed run made these updates earlier: they do not count for the speed
            bar.initial = bar.n = run.updates
        bar.total = run.max_updates
        bar.set_postfix_str(losses(run), refresh=False)
        bar.update(run.updates - bar.n)
        bar.refresh()

    def flush(self, ended: bool) -> None:
        pass

    def close(self) -> None:
        for bar in self.bars:
            bar.close()


class Lines:
    """The display without a terminal: one line per run every LINE_SECONDS."""

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

    def close(self) -> None:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add_arguments(parser)
    run(parser.parse_args())
