"""The machine of a result, the time of steps beside one another, and the memory of one."""

import importlib.metadata
import json
import logging
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import fairseq
import torch
from fairseq.data import Dictionary
from tqdm import tqdm

import fairseq_relpos
from fairseq_relpos.atomic_files import whole_file

ROOT = Path(__file__).resolve().parents[1]
#: exit status of a run that leaves something for the next one
STOPPED = 75
#: as glibc is, or with the settings of the recipes
ALLOCATORS = ("tuned", "default")
TUNED = dict(
    line.split("=")
    for line in (ROOT / "examples/common/allocator.env").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)
#: memory of 16 KB and more comes from the system and goes back to it, so that the system can count it
COUNTED = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}
SETTINGS = {"tuned": TUNED, "default": {}, "counted": COUNTED}


def machine():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
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
        "commit": commit.stdout.strip(),
        "tuned_allocator": in_words(TUNED),
        "glibc": platform.libc_ver()[1],
    }


def in_words(settings):
    return " ".join(f"{name}={value}" for name, value in settings.items())


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
        args.json.write_text(json.dumps(result, indent=2, default=str) + "\n")
    show(result)


def show(result):
    """Prints the table that report.py makes."""
    logging.disable(logging.INFO)
    import report  # with matplotlib, which the processes of a benchmark do not need

    title, lines = report.SECTIONS[result["benchmark"]](result["settings"], result["rows"])
    print("\n".join([title, "", *lines, *result.get("missing", "").splitlines()]))


def add_allocators(parser):
    parser.add_argument(
        "--allocators",
        nargs="+",
        choices=ALLOCATORS,
        default=list(ALLOCATORS),
        help=f"of glibc: as it is, or tuned, with {in_words(TUNED)}",
    )


class Processes:
    """A process for each allocator, in which steps take their turns; and one that counts memory. glibc reads its
    settings when a process starts, so a new program is started for each, whatever the environment says of them."""

    def __init__(self, allocators):
        for name in allocators:
            print(f"allocator {name}: {in_words(SETTINGS[name]) or 'as glibc is'}")
        self.pools = {name: started(name) for name in allocators}
        self.counting = started("counted")
        try:
            for name, pool in self.pools.items():
                pool.submit(begin, name).result()
        except OSError as error:
            self.__exit__()
            sys.exit(f"{Path(sys.argv[0]).name}: error: {error}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pool in (*self.pools.values(), self.counting):
            pool.shutdown(cancel_futures=True)

    def in_turns(self, make_steps, args, rounds, desc=None):
        """{allocator: {name: its seconds in each round}}. make_steps(*args) returns {name: step}, and is called in each
        process; a step returns its seconds. In a round every process has its turn, and in it every step: what slows the
        machine down slows them all down. The order is another one in each round. One round before these warms up."""
        names = {name: pool.submit(prepare, make_steps, args).result() for name, pool in self.pools.items()}
        seconds = {name: {key: [] for key in keys} for name, keys in names.items()}
        orders = random.Random(1)
        for number in tqdm(range(rounds + 1), desc=desc, unit="round"):
            for name in shuffled(self.pools, orders):
                order = shuffled(names[name], orders)
                for key, elapsed in zip(order, self.pools[name].submit(one_round, order).result()):
                    if number:
                        seconds[name][key].append(elapsed)
        for pool in self.pools.values():
            pool.submit(forget).result()
        return seconds

    def memory(self, make_steps, args, peak=None):
        """{name: peak(step)}, by default the bytes that a step needs at most beyond what was there before, its outputs
        included. The process returns what it frees to the system, so memory of earlier steps does not hide any."""
        self.counting.submit(torch.set_num_threads, 1).result()  # OpenMP's threads do not survive the fork of a step
        self.counting.submit(prepare, make_steps, args).result()
        found = self.counting.submit(peaks, peak or peak_memory).result()
        self.counting.submit(forget).result()
        return found


def started(allocator):
    """A pool of one new process with this allocator."""
    before = dict(os.environ)
    for name in TUNED:
        os.environ.pop(name, None)
    os.environ.update(SETTINGS[allocator])
    try:
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        pool.submit(logging.disable, logging.INFO)  # with which its process starts
        return pool
    finally:
        os.environ.clear()
        os.environ.update(before)


def begin(allocator):
    """Raises OSError where the settings do nothing: with another C library, or glibc before 2.35."""
    fewest = min(faults_of_a_tensor() for _ in range(20))  # the first ones take their memory from the system
    if allocator == "tuned" and fewest > 1000:
        raise OSError(f"64 MB cost {fewest} page faults with the tuned allocator, which needs glibc 2.35 or newer")


def faults_of_a_tensor():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


#: the steps of this process
steps = {}


def prepare(make_steps, args):
    steps.update(make_steps(*args))
    return list(steps)


def one_round(order):
    return [steps[name]() for name in order]


def peaks(peak):
    return {name: peak(step) for name, step in steps.items()}


def forget():
    steps.clear()


def shuffled(names, orders):
    return orders.sample(list(names), len(names))


class LargeProduct:
    """A step that is one large matrix product: its speed is the most that this machine reaches."""

    #: rows and columns
    SIZES = {"cpu": 2048, "cuda": 8192}

    def __init__(self, clock, device="cpu", dtype=torch.float32, threads=1):
        size = self.SIZES[device]
        self.a, self.b = torch.randn(2, size, size, device=device, dtype=dtype)
        self.clock, self.threads = clock, threads

    @classmethod
    def flops(cls, device="cpu"):
        return 2 * cls.SIZES[device] ** 3

    def __call__(self):
        torch.set_num_threads(self.threads)
        start = self.clock()
        self.a @ self.b
        return self.clock() - start


class Resumed:
    """The rows of a benchmark on a GPU, written to args.json after each of them. If that file is from the same
    settings, machine and commit, its rows are kept, but for those of an error. A case is a tuple, and ``names`` are
    those of its values in a row."""

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
            if before == json.loads(json.dumps(self.result)):
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
                Path(temporary).write_text(json.dumps({**self.result, "rows": self.rows}, indent=2) + "\n")


def queued_seconds(step, times, device):
    """The seconds of so many steps that follow one another, the device's where it is a GPU: it need not wait for the
    host, nor the host for it."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(times):
            step()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def median_ratio(mine, theirs):
    return statistics.median(x / y for x, y in zip(mine, theirs))


def compared(mine, theirs):
    """The entries of a row about the ratio of two steps, whose seconds of each round these are."""
    ratios = [x / y for x, y in zip(mine, theirs)]
    quartiles = statistics.quantiles(ratios, n=4)[::2] if len(ratios) > 1 else []
    return {"ratio": statistics.median(ratios), "quartiles": quartiles}


def vocabulary(size, *more):
    """fairseq's dictionary with so many words, its four special symbols among them, and with ``more`` at the end."""
    words = Dictionary()
    for word in range(size - words.nspecial - len(more)):
        words.add_symbol(str(word))
    for word in more:
        words.add_symbol(word)
    return words


def peak_memory_of_cuda(step):
    """Bytes on the GPU that step() needs beyond what was there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def clock_of(threads):
    """CPU time with one thread, so that a busy machine counts for less."""
    return time.process_time if threads == 1 else time.perf_counter


def in_turns(steps, rounds, seconds_of, desc=None):
    """{name: its seconds in each round}. In a round every step has its turn, so that what slows the
    machine down slows them all down, in another order each time; one round before these warms up."""
    seconds = {name: [] for name in steps}
    orders = random.Random(1)
    for number in tqdm(range(rounds + 1), desc=desc, unit="round"):
        for name in shuffled(steps, orders):
            elapsed = seconds_of(steps[name])
            if number:
                seconds[name].append(elapsed)
    return seconds


def peak_memory(step):
    """Bytes that step() needs beyond what was there before, in a process of its own. A first step loads code and makes
    what is kept; its thread ends with the scratch memory that is kept for a thread."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        first = threading.Thread(target=step)
        first.start()
        first.join()
        LargeProduct(time.perf_counter)()  # BLAS keeps buffers for each thread, which are no step's
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # start a new peak
        step()
        os.write(write_end, str(status("VmHWM") - before).encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        return int(pipe.read())


def status(field):
    line = next(x for x in open("/proc/self/status") if x.startswith(field))
    return int(line.split()[1]) * 1024
