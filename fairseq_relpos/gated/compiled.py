"""gated.cpp, built by the machine's own C++ compiler on first use and kept for the next time.

The compiler is $CXX, else c++. The library lies under $XDG_CACHE_HOME (~/.cache) in
fairseq_relpos/, named by a hash of the source, the command and the CPU, so that no CPU runs
what was built for another; where that folder cannot be written, it is built once a process.
FAIRSEQ_RELPOS_COMPILE=0 switches it off. Without the library the same is computed in Python,
several times slower; one line in the log says why.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("gated.cpp")
BASE = ["-O3", "-shared", "-fPIC"]
#: tried in this order: not every compiler supports its CPU or OpenMP
FLAGS: tuple[list[str], ...] = (["-march=native", "-fopenmp"], ["-march=native"], ["-fopenmp"], [])
SECONDS = 120  # for one build


@functools.cache
def library() -> Any:
    """The loaded library, or None after one line in the log."""
    loaded, found = attempt()
    if loaded is None:
        logger.warning("gates (m3) are computed in Python, several times slower: %s", found)
    return loaded


def attempt() -> tuple[ctypes.CDLL | None, str]:
    """Loads or builds the library: (library, its path or "built for this process"), or (None, the reason why
    there is none)."""
    if os.environ.get("FAIRSEQ_RELPOS_COMPILE") == "0":
        return None, "FAIRSEQ_RELPOS_COMPILE=0"
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if shutil.which(compiler[0]) is None:
        return None, f"no C++ compiler '{compiler[0]}' (install g++ or set CXX)"
    cached = cache_folder() / f"gated-{fingerprint(compiler)}.so"
    try:
        # a file that was written only in part does not load
        return ctypes.CDLL(str(cached)), str(cached)
    except OSError:
        pass
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        folder, keep = tempfile.mkdtemp(dir=cached.parent), True
    except OSError:
        folder, keep = tempfile.mkdtemp(), False
    try:
        built = Path(folder, "gated.so")
        build(compiler, built)
        if keep:
            # several processes may get here at once: each moves a complete file into place
            os.replace(built, cached)
            return ctypes.CDLL(str(cached)), str(cached)
        return ctypes.CDLL(str(built)), "built for this process"
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"{shlex.join(compiler)} fails: {last_line(error)}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home, "fairseq_relpos")


def fingerprint(compiler: list[str]) -> str:
    parts = [SOURCE.read_text(), *compiler, *BASE, str(FLAGS), *cpu()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def cpu() -> list[str]:
    """The model and the instructions of this CPU, which tell it from other CPUs."""
    found = {platform.machine(), platform.processor()}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.split(":")[0].strip() in ("model name", "flags", "Features", "CPU part"):
                found.add(line)
    except OSError:
        pass
    return sorted(found)


def build(compiler: list[str], target: Path) -> None:
    """Compiles with the first of FLAGS that the compiler accepts; raises the last error if it accepts none."""
    for number, flags in enumerate(FLAGS, 1):
        command = [*compiler, *BASE, *flags, "-o", str(target), str(SOURCE)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
            return
        except subprocess.CalledProcessError:
            if number == len(FLAGS):
                raise


def last_line(error: BaseException) -> str:
    """The last line of the compiler's messages, or else the error itself."""
    lines = (getattr(error, "stderr", None) or "").strip().splitlines()
    return lines[-1] if lines else str(error)
