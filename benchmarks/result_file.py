"""The JSON file of a benchmark: its rows, its settings, and the machine, the versions and the commit."""

import importlib.metadata
import json
import logging
import platform
import subprocess
import sys
import time
from pathlib import Path

import fairseq
import torch
from allocators import TUNED, in_words
from tqdm import tqdm

import fairseq_relpos
from fairseq_relpos.atomic_files import whole_file

ROOT = Path(__file__).resolve().parents[1]
#: exit status of a run that leaves something for the next one
STOPPED = 75


def commit():
    """Ends in -dirty if the code that is timed has changes; results, which are in the repository too, may have some."""

    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "fairseq_relpos", "benchmarks/*.py")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def machine():
    cpu = next(
        (line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "torch": torch.__version__,
        "fairseq": fairseq.__version__,
        "fairseq_relpos": fairseq_relpos.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "tuned_allocator": in_words(TUNED),
        "glibc": platform.libc_ver()[1],
    }


def add_result(parser):
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--json", type=Path, help="write the result here")


def save(benchmark, args, rows, libraries=(), **more):
    """Prints the table that report.py makes of the rows, and writes the file of --json, if it is given: rows, the
    settings of the command, machine, versions and commit. libraries: more of them whose versions count. more: other
    entries, or settings in place of those of ``args``."""
    given = {key: value for key, value in vars(args).items() if key != "json"}
    settings = {key: value for key, value in given.items() if value not in (None, "") and value is not False}
    about = {**machine(), **{name: importlib.metadata.version(name) for name in libraries}}
    result = {"benchmark": benchmark, "machine": about, "settings": settings, "rows": rows, **more}
    if args.json is not None:
        args.json.write_text(text_of(result))
    show(result)


def text_of(result):
    """JSON with a line for each row."""
    rows = ",\n".join(json.dumps(row, default=str) for row in result["rows"])
    about = json.dumps({**result, "rows": []}, indent=2, default=str)
    return about.replace('"rows": []', f'"rows": [\n{rows}\n]') + "\n"


def show(result):
    """Prints the table that report.py makes."""
    logging.disable(logging.INFO)
    import report  # with matplotlib, which the processes of a benchmark do not need

    title, lines = report.SECTIONS[result["benchmark"]](result["settings"], result["rows"])
    print("\n".join([title, "", *lines, *result.get("missing", "").splitlines()]))


class Resumed:
    """The rows of a benchmark on a GPU, written to args.json after each of them. If that file is from the same
    settings, machine and commit, and the code has no other changes, its rows are kept, but for those of an error. A
    case is a tuple, and ``names`` are those of its values in a row."""

    #: settings that change no row
    FREE = ("json", "minutes")

    def __init__(self, benchmark, args, names):
        self.names, self.minutes = names, args.minutes
        gpu = {} if args.tiny else {"gpu": torch.cuda.get_device_name()}
        settings = {k: v for k, v in vars(args).items() if k not in self.FREE and v is not None and v is not False}
        self.path, self.rows = args.json, []
        self.result = {"benchmark": benchmark, "machine": {**machine(), **gpu}, "settings": settings}
        if self.path is not None and self.path.exists():
            before = json.loads(self.path.read_text())
            rows = before.pop("rows")
            if self.result["machine"]["commit"].endswith("-dirty"):
                print(f"{self.path} is written anew: the code has changes that are in no commit")
            elif before == json.loads(json.dumps(self.result)):
                self.rows = [row for row in rows if "error" not in row]
                print(f"{self.path}: {len(self.rows)} rows are there already")
            else:
                print(f"{self.path} is of other settings, another machine or commit, and is written anew")

    def named(self, case):
        return dict(zip(self.names, case))

    def left(self, cases):
        """The cases without a row."""
        return [case for case in cases if not any(self.named(case).items() <= row.items() for row in self.rows)]

    def in_time(self, cases, start):
        """Yields the cases. After the minutes of the command it ends the program with exit status 75."""
        for number, case in enumerate(tqdm(cases, unit="encoding")):
            if time.monotonic() > start + 60 * self.minutes:
                print(f"{Path(sys.argv[0]).name}: {len(cases) - number} cases are left")
                sys.exit(STOPPED)
            yield case

    def show(self):
        show({**self.result, "rows": self.rows})

    def add(self, case, *rows):
        self.rows += ({**self.named(case), **row} for row in rows)
        if self.path is not None:
            with whole_file(self.path) as temporary:
                Path(temporary).write_text(text_of({**self.result, "rows": self.rows}))
