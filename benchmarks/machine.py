"""What a result was measured on, how long steps take beside one another, and how much memory one needs."""

import os
import platform
import subprocess
from pathlib import Path

import fairseq
import torch
from tqdm import tqdm

import fairseq_relpos


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
    }


def in_turns(steps, rounds, seconds_of, desc=None):
    """{name: its seconds in each round}. In a round every step has its turn, so that what slows the
    machine down slows them all down; one round before these warms up."""
    seconds = {name: [] for name in steps}
    for number in tqdm(range(rounds + 1), desc=desc, unit="round"):
        for name, step in steps.items():
            elapsed = seconds_of(step)
            if number:
                seconds[name].append(elapsed)
    return seconds


def peak_memory(step, *args):
    """Bytes that step(*args) needs beyond what was there before, in a process of its own."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # start a new peak
        step(*args)
        os.write(write_end, str(status("VmHWM") - before).encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        return int(pipe.read())


def status(field):
    line = next(x for x in open("/proc/self/status") if x.startswith(field))
    return int(line.split()[1]) * 1024
