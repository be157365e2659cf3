"""Runs of recipes, a line of a manifest each, in a process each; a sweep that was stopped resumes: docs/recipes.md.

    sweep.py run FOLDER MANIFEST [--jobs N]                    runs what is not done yet, N at a time
    sweep.py run FOLDER MANIFEST [--jobs N] --slurm [flags of sbatch]    the same as one job array
    sweep.py report FOLDER [--rule median|best]                FOLDER/RESULTS.md of what is there
    sweep.py product COLUMN="VALUE..." ...                     prints a manifest of all combinations
    sweep.py each N <MANIFEST                                  runs all lines, N at a time; keeps nothing
    sweep.py compare RECIPE DATA RUNS JOBS SEEDS RATES ENCODING...       compare.sh

It needs the standard library alone, but for its report.
"""

import argparse
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import queue
import re
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "examples" / "common"), str(ROOT)]

from messages import fail, in_one_line, script  # noqa: E402
from stopping import DIVERGED, STOPPED, in_parallel, lock, on_a_signal, supervise  # noqa: E402

from fairseq_relpos.atomic_files import write_json, write_text  # noqa: E402
from fairseq_relpos.command_line import Parser, positive  # noqa: E402
from fairseq_relpos.reports.learning_rates import best_of  # noqa: E402

#: columns that are words of run.sh, in this order; those in capitals are names of its environment
WORDS = ("action", "task", "encoding", "checkpoint")
SHORT = {"LEARNING_RATE": "lr", "SEED": "seed", "FOLD": "fold"}
SLURM = """#!/usr/bin/env bash
#SBATCH --job-name=sweep
#SBATCH --array=0-{last}%{jobs}
#SBATCH --requeue
#SBATCH --signal=B:USR1@180
#SBATCH --open-mode=append
#SBATCH --output={folder}/slurm.%a.txt
# A run that is stopped saves, and goes back into the queue.
cd {here} || exit 1
SCRIPT=sweep.py env -u SUPERVISED {python} {sweep} one {folder} "$SLURM_ARRAY_TASK_ID" &
trap 'kill -USR1 $!' USR1 TERM
code=0
wait $! || code=$?
while [ "$code" -gt 128 ] && kill -0 $! 2>/dev/null; do code=0; wait $! || code=$?; done # a signal ended the wait alone
[ "$code" -le 128 ] || {{ code=0; wait $! || code=$?; }} # it has ended meanwhile: its own code
[ "$code" != {stopped} ] || scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
exit "$code"
"""


def names_of_the_environment():
    """Those that a recipe reads from it."""
    text = (ROOT / "examples" / "common" / "recipe.sh").read_text(encoding="utf-8")
    return {"SETTINGS", *re.search(r'^FROM_ENVIRONMENT="([^"]*)"', text, re.MULTILINE)[1].split()}


@dataclass
class Line:
    """A run: the cells of its line by column, without those that are empty."""

    cells: dict[str, str]

    @property
    def run_sh(self):
        given = Path(self.cells["recipe"])
        return next((path for path in (ROOT / "examples" / given / "run.sh", given / "run.sh") if path.is_file()), None)

    @property
    def command(self):
        words = [self.cells[word] for word in WORDS if word in self.cells]
        return ["bash", str(self.run_sh), *words, *shlex.split(self.cells.get("flags", ""))]

    @property
    def environment(self):
        return {name: value for name, value in self.cells.items() if name.isupper()}

    @property
    def name(self):
        """The name of its folder. A path, which can be long, is shortened to its end and a digest."""
        parts = []
        for column, value in self.cells.items():
            if not re.fullmatch(r"[\w.+-]+", value):
                end = re.sub(r"[^\w.+-]+", "_", Path(value).name)[:40]
                value = f"{end}_{hashlib.sha256(value.encode()).hexdigest()[:8]}"
            parts.append(f"{SHORT.get(column, column)}{value}" if column.isupper() else value)
        return "-".join(parts)


#: columns whose value is one, even with spaces
WHOLE = ("SETTINGS", "DATA", "flags")


def product(*columns):
    """Prints a manifest with a line for each combination of the values of ``columns``, COLUMN="VALUE..."."""
    pairs = [column.split("=", 1) for column in columns]
    values = [[value] if name in WHOLE else value.split() for name, value in pairs]
    print("\t".join(name for name, _ in pairs))
    for cells in itertools.product(*values):
        print("\t".join(cell or "-" for cell in cells))


def settings_text(path):
    """The text of settings.sh, and of that of another recipe that it reads first; None: there is no such file."""
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    first = re.search(r'^\. "\$ROOT/(.*)"$', text, re.MULTILINE)
    return text + (ROOT / first[1]).read_text(encoding="utf-8") if first else text


def lines_of(text, where):
    """The runs of a manifest: tab-separated, a head with the columns, a run a line; lines with # say nothing. The head
    may come again, as in the manifests of several products, one after the other."""
    rows = [
        (number, [cell.strip() for cell in row.split("\t")])
        for number, row in enumerate(text.splitlines(), 1)
        if row.strip() and not row.startswith("#")
    ]
    if not rows:
        fail(f"{where} is empty: give a line with the columns, then a line for each run")
    head = rows[0][1]
    known = ["recipe", *WORDS, "flags", *sorted(names_of_the_environment())]
    for column in head:
        if column not in known or head.count(column) > 1:
            fail(f"{where} has the column {column!r} twice, or it is unknown: give of {' '.join(known)}, with tabs")
    found = []
    for number, cells in rows:
        if cells == head:
            continue
        if len(cells) > len(head):
            fail(f"{where}, line {number}: {len(cells)} cells under {len(head)} columns: put one tab between two")
        line = Line({column: cell for column, cell in zip(head, cells) if cell not in ("", "-")})
        if "recipe" not in line.cells or "action" not in line.cells:
            fail(f"{where}, line {number}: no recipe or no action: both are needed")
        if line.run_sh is None:
            recipes = sorted(path.parent.name for path in (ROOT / "examples").glob("*/run.sh"))
            fail(
                f"{where}, line {number}: no recipe {line.cells['recipe']}: give one of {' '.join(recipes)}, "
                "or a folder with a run.sh"
            )
        text = settings_text(line.run_sh.with_name("settings.sh"))
        for name in line.environment.keys() - {"SETTINGS", "RUNS"}:
            if text is not None and not re.search(rf"^{name}=|\s{name}=", text, re.MULTILINE):
                fail(f"{where}, line {number}: {line.cells['recipe']} has no setting {name}: leave its cell empty")
        found.append(line)
    return found


class Devices:
    """The GPUs of this machine, divided among the runs of one time. Each run would take the first ones, beside all the
    others."""

    def __init__(self, jobs):
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        if given is None:  # /dev/nvidia0, ..: torch, which could count them, is not needed here
            given = ",".join(map(str, range(len(list(Path("/dev").glob("nvidia[0-9]*"))))))
        gpus = [gpu for gpu in given.split(",") if gpu]
        self.shares = queue.SimpleQueue()
        for job in range(jobs):
            share = gpus[job * len(gpus) // jobs : (job + 1) * len(gpus) // jobs] or gpus[job % max(1, len(gpus)) :][:1]
            self.shares.put({"CUDA_VISIBLE_DEVICES": ",".join(share)} if share and jobs > 1 else {})

    @contextlib.contextmanager
    def share(self):
        """The environment variables that give a run its GPUs."""
        mine = self.shares.get()
        try:
            yield mine
        finally:
            self.shares.put(mine)


class Progress:
    """Says after each run how many are left and for how long."""

    def __init__(self, lines, done, jobs):
        self.lines, self.ended, self.jobs, self.failed, self.seconds = lines, done, jobs, 0, []
        self.lock = threading.Lock()

    def ended_one(self, line, code, seconds):
        with self.lock:  # print writes a line and its newline apart: another thread's line came between
            self.ended += 1
            self.failed += code != 0
            self.seconds.append(seconds)
            left = self.lines - self.ended
            # a run that had been done before takes a few seconds, and says nothing about the others
            worked = [one for one in self.seconds if one >= max(10, max(self.seconds) / 10)]
            failed = f", {self.failed} not to their end" if self.failed else ""
            about = (
                f", about {in_words(sum(worked) / len(worked) * left / min(self.jobs, left))} left"
                if left and worked
                else ""
            )
            print(f"{script()}: {self.ended} of {self.lines} runs have ended{failed}{about}", flush=True)


def in_words(seconds):
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def each(jobs, lines):
    """Every recipe itself looks whether a run is finished. Exit codes: stopping.in_parallel."""
    count = int(jobs) if jobs.isdecimal() else 1
    progress, devices = Progress(len(lines), 0, count), Devices(count)

    def one(line):
        begin = time.monotonic()
        with devices.share() as gpus:
            environment = {**os.environ, **line.environment, **gpus}
            code = subprocess.call(line.command, env=environment, stdin=subprocess.DEVNULL)
        if code != STOPPED:
            progress.ended_one(line, code, time.monotonic() - begin)
        return code

    return in_parallel(jobs, one, lines)


@dataclass
class Comparison:
    """The runs of compare.sh: docs/recipes.md, Comparisons."""

    recipe: str
    data: str
    runs: str
    jobs: str
    seeds: list[str]
    rates: list[str]
    encodings: list[str]

    def check(self):
        if not self.seeds:
            fail("SEEDS is empty: give one or several")
        if not Path(self.data).is_dir():
            fail(f"no data in {self.data}: run prepare.sh first, or set DATA")
        rates, given = " ".join(self.rates), os.environ.get("LEARNING_RATE")
        if self.rates and given:
            fail(f"LEARNING_RATE={given} changes nothing beside LEARNING_RATES={rates}: set LEARNING_RATES, or to none")
        try:
            numbers = [float(rate) for rate in self.rates]
        except ValueError:
            fail(f"LEARNING_RATES={rates}: give numbers")
        twice = [rate for rate, number in zip(self.rates, numbers) if numbers.count(number) > 1]
        if twice:
            fail(f"LEARNING_RATES={rates} has one number twice: {' '.join(twice)}")

    def run(self):
        """The first seed with every rate, the others with the best one of each encoding."""
        self.check()
        first, *others = self.seeds
        code = self.evaluate([(first, encoding, rate) for rate in self.rates or [""] for encoding in self.encodings])
        if code == STOPPED:
            return STOPPED
        failed = code != 0
        chosen = {}
        for encoding in self.encodings if others else []:
            try:
                chosen[encoding] = best_of(Path(self.runs), self.rates, encoding, first) if self.rates else ""
            except ValueError as error:
                print(f"{script()}: error: {error}", file=sys.stderr)
                failed = True
        code = self.evaluate([(seed, encoding, rate) for seed in others for encoding, rate in chosen.items()])
        if code == STOPPED:
            return STOPPED
        compared = {**os.environ, "COMPARED": " ".join(self.encodings)}
        reported = subprocess.call(["bash", f"{self.recipe}/run.sh", "report"], env=compared)
        if reported:
            return reported
        if failed or code:
            fail("not every run came to its end: see above")
        return 0

    def evaluate(self, planned):
        """``planned``: a seed, an encoding and a rate for each run. Each rate has a folder of its own."""
        lines = []
        for seed, encoding, rate in planned:
            cells = {"recipe": self.recipe, "action": "evaluate", "encoding": encoding, "SEED": seed}
            if rate:
                cells |= {"LEARNING_RATE": rate, "RUNS": f"{self.runs}/lr{rate}"}
            lines.append(Line(cells))
        return each(self.jobs, lines)


class Sweep:
    """FOLDER: manifest.tsv, and in runs/NAME of each line what run.sh writes, output.log and sweep.json, its end."""

    def __init__(self, folder):
        self.folder = Path(folder).absolute()

    def place(self, line):
        return self.folder / "runs" / line.name

    def end_of(self, line):
        path = self.place(line) / "sweep.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def is_done(self, line):
        """A run that has diverged would diverge again; one that failed for another reason is tried again."""
        return self.end_of(line).get("state") in ("done", "diverged")

    def lock(self, kind):
        """Locks the whole folder until this process ends: alone, or beside the others of a job array."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock_file = open(self.folder / "lock", "a")
        try:
            fcntl.flock(self.lock_file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"another sweep is running in {self.folder}: wait for its end, or give another folder")
        except OSError:
            print(f"{script()}: {self.folder} has no locks: see to it that nothing else works there", file=sys.stderr)

    def lines(self):
        path = self.folder / "manifest.tsv"
        if not path.exists():
            fail(f"no sweep in {self.folder}: sweep.py run {self.folder} MANIFEST first")
        return lines_of(path.read_text(encoding="utf-8"), path)

    def take(self, manifest):
        """Keeps the manifest. One that lacks a run of before is of another sweep."""
        try:
            text = Path(manifest).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fail(f"{manifest} cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'}): give a manifest")
        lines = lines_of(text, manifest)
        names = [line.name for line in lines]
        twice = next((name for name in names if names.count(name) > 1), None)
        if not lines or twice is not None:
            fail(f"{manifest} has {'no runs' if not lines else f'{twice} twice'}: give each run one line")
        self.lock(fcntl.LOCK_EX)
        if (self.folder / "manifest.tsv").exists():
            gone = {line.name for line in self.lines()} - set(names)
            if gone:
                fail(
                    f"{self.folder} has another sweep, of which {manifest} lacks {len(gone)} runs, as {min(gone)}: "
                    "give another folder, or a manifest with these runs and more"
                )
        write_text(self.folder / "manifest.tsv", text)
        return lines

    def run(self, manifest, jobs):
        lines = self.take(manifest)
        todo = [line for line in lines if not self.is_done(line)]
        print(f"{script()}: {len(lines)} runs, {len(lines) - len(todo)} of them done: {self.folder}", flush=True)
        progress = Progress(len(lines), len(lines) - len(todo), jobs)
        devices = Devices(jobs)

        def one(line):
            with devices.share() as gpus:
                return self.run_one(line, progress, gpus)

        code = in_parallel(str(jobs), one, todo)
        if code not in (0, STOPPED):
            print(
                f"{script()}: error: {progress.failed} of {len(lines)} runs have not come to their end: "
                f"sweep.py report {self.folder} names them; the same command tries them again",
                file=sys.stderr,
            )
        return code

    def run_one(self, line, progress=None, gpus=None, begin=lambda: None):
        """The exit code. A run that has diverged is a result; it is no failure of the sweep. begin: called before the
        run starts."""
        place = self.place(line)
        place.mkdir(parents=True, exist_ok=True)
        with open(place / "sweep.lock", "a") as file:
            # the run has it too: where only this process was killed, the run goes on, and is waited for
            lock(file.fileno(), place)
            if self.is_done(line):
                return 0
            # what the manifest does not say comes from the recipe's settings: the same at every start
            ours = {name: value for name, value in os.environ.items() if name not in names_of_the_environment()}
            ours |= {**line.environment, "RUNS": str(place), **(gpus or {})}
            start, output = time.monotonic(), place / "output.log"
            begin()
            with open(output, "ab") as printed:  # the task of a job array may be one that was stopped
                before = printed.tell()
                code = subprocess.call(
                    line.command,
                    env=ours,
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    pass_fds=[file.fileno()],
                )
            if code == STOPPED:
                return code
            end = {"state": "done", "seconds": round(time.monotonic() - start, 1), "cells": line.cells}
            if code:
                lines = output.read_bytes()[before:].decode("utf-8", "replace").strip().splitlines()
                end |= {
                    "state": "diverged" if code == DIVERGED else "failed",
                    "message": (lines or [f"exit code {code}"])[-1],
                }
                # one write: other threads print, too
                sys.stderr.write(f"{script()}: {line.name} has {end['state']}: {end['message']}\n")
            write_json(place / "sweep.json", end)
        failed = int(end["state"] == "failed")
        if progress is not None:
            progress.ended_one(line, failed, end["seconds"])
        return failed

    def submit(self, manifest, jobs, flags):
        lines = self.take(manifest)
        batch = self.folder / "array.sbatch"
        paths = {"folder": self.folder, "here": Path.cwd(), "python": sys.executable, "sweep": Path(__file__).resolve()}
        for path in paths.values():
            if re.search(r"\s", str(path)):
                fail(f"{path} has a space, which a line of #SBATCH cannot have: give another folder")
        write_text(batch, SLURM.format(last=len(lines) - 1, jobs=jobs, stopped=STOPPED, **paths))
        fcntl.flock(self.lock_file, fcntl.LOCK_UN)  # for the array, which may begin at once
        try:
            return subprocess.call(["sbatch", *flags, str(batch)])
        except FileNotFoundError:
            fail(f"there is no sbatch on this machine: {batch} is ready to be submitted where there is one")

    def one(self, number):
        """A task of the array. A signal ends its run, which saves, and is waited for."""
        self.lock(fcntl.LOCK_SH)
        return self.run_one(self.lines()[int(number)], begin=lambda: on_a_signal(lambda: None))

    def records(self):
        """Every line, and how its run ended: the input of fairseq_relpos.reports.sweeps."""
        return [
            {"name": line.name, "cells": line.cells, "place": self.place(line), **self.end_of(line)}
            for line in self.lines()
        ]

    def report(self, rule):
        from fairseq_relpos.reports import sweeps

        print(sweeps.write(self.folder, self.records(), rule))


def main(arguments):
    parser = Parser(prog="sweep.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="run|report", parser_class=Parser)
    run = commands.add_parser("run", help="runs what is not done yet")
    run.add_argument("folder")
    run.add_argument("manifest")
    run.add_argument("--jobs", type=positive, default=1, help="so many at a time")
    run.add_argument("--slurm", nargs=argparse.REMAINDER, metavar="FLAG", help="as one job array; flags of sbatch")
    report = commands.add_parser("report", help="the tables of all runs")
    report.add_argument("folder")
    report.add_argument("--rule", choices=["median", "best"], default="median", help="how the learning rate is chosen")
    one = commands.add_parser("one")
    one.add_argument("folder")
    one.add_argument("number")
    commands.add_parser("each").add_argument("jobs")
    commands.add_parser("product").add_argument("columns", nargs="+")
    compare = commands.add_parser("compare")
    for name in ("recipe", "data", "runs", "jobs", "seeds", "rates"):
        compare.add_argument(name)
    compare.add_argument("encodings", nargs="+")
    args = parser.parse_args(arguments)
    if args.command == "product":
        return product(*args.columns)
    if args.command == "each":
        return each(args.jobs, lines_of(sys.stdin.read(), "standard input"))
    if args.command == "compare":
        values = {**vars(args), "seeds": args.seeds.split(), "rates": args.rates.split()}
        values.pop("command")
        return Comparison(**values).run()
    sweep = Sweep(args.folder)
    if args.command == "report":
        return sweep.report(args.rule)
    try:
        with in_one_line(sweep.folder):
            if args.command == "one":
                return sweep.one(args.number)
            if args.slurm is not None:
                return sweep.submit(args.manifest, args.jobs, args.slurm)
            return sweep.run(args.manifest, args.jobs)
    except OSError as error:
        fail(f"{error.filename or sweep.folder}: {error.strerror}: give another folder, or mend it")


if __name__ == "__main__":
    os.environ.setdefault("SCRIPT", "sweep.py")
    if sys.argv[1:2] in (["run"], ["one"]) and not os.environ.get("SUPERVISED"):
        os.environ["SUPERVISED"] = "yes"  # signals reach all that it runs, and its end waits for theirs
        sys.exit(supervise(sys.executable, __file__, *sys.argv[1:]))
    sys.exit(main(sys.argv[1:]))
