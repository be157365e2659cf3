"""C++ files of this package, built by the machine's own compiler on first use and kept for the next time.

The compiler is $CXX, else c++. A library lies under $XDG_CACHE_HOME (~/.cache) in
fairseq_relpos/, named by a hash of the source, the command and the CPU, so that no CPU runs
what was built for another, with its length and digest beside it, because dlopen of a truncated library kills the
process. Where that folder cannot be written, or others may write to it, the library is built once a process.
A library that others could have written is built again.
The libraries know nothing of torch, so they serve every version of it.
FAIRSEQ_RELPOS_COMPILE=0 switches them off. Without a library the same is computed in Python,
slower; one line in the log says why.
"""

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)
#: a warning, once in each process
warn_once = functools.cache(logger.warning)

BASE = ["-O3", "-shared", "-fPIC"]
SECONDS = 120  # for one build
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Source:
    """files: the C++ file, then those that it includes. flags: tried in this order, because not every compiler
    supports its CPU or OpenMP. otherwise: what is done without the library, in words."""

    files: tuple[Path, ...]
    flags: tuple[tuple[str, ...], ...]
    otherwise: str

    @property
    def name(self) -> str:
        return self.files[0].stem


GATED = Source(
    (Path(__file__).with_name("gated.cpp"),),
    (("-march=native", "-fopenmp"), ("-march=native",), ("-fopenmp",), ()),
    "gates (m3) are computed in Python, several times slower",
)


@functools.cache
def library(source: Source = GATED) -> Any:
    """The loaded library, or None after one line in the log."""
    loaded, found = attempt(source)
    if loaded is None:
        logger.warning("%s: %s", source.otherwise, found)
    return loaded


def attempt(source: Source = GATED) -> tuple[ctypes.CDLL | None, str]:
    """Loads or builds the library: (library, its path or "built for this process"), or (None, the reason why
    there is none)."""
    if os.environ.get("FAIRSEQ_RELPOS_COMPILE") == "0":
        return None, "FAIRSEQ_RELPOS_COMPILE=0"
    try:
        compiler = shlex.split(os.environ.get("CXX") or "c++") or ["c++"]
    except ValueError as error:
        return None, f"CXX={os.environ['CXX']} is no command: {error}"
    if shutil.which(compiler[0]) is None:
        return None, f"no C++ compiler '{compiler[0]}' (install g++ or set CXX)"
    cached = cache_folder() / f"{source.name}-{fingerprint(compiler, source)}.so"
    shared, folder, keep = "", None, False
    try:
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shared = why_not_private(cached.parent)
        if not shared and is_whole(cached):
            with contextlib.suppress(OSError):  # it is built again
                return ctypes.CDLL(str(cached)), str(cached)
        if not shared:
            folder, keep = tempfile.mkdtemp(dir=cached.parent), True
    except OSError:  # the folder cannot be written
        pass
    if shared:
        warn_once(shared)
    folder = folder or tempfile.mkdtemp()
    try:
        built = Path(folder, f"{source.name}.so")
        build(compiler, built, source)
        if keep:
            move(built, cached)
            return ctypes.CDLL(str(cached)), str(cached)
        return ctypes.CDLL(str(built)), f"built for this process{shared and f': {shared}'}"
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"{shlex.join(compiler)} fails: {last_line(error)}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home, "fairseq_relpos")


def why_not_private(folder: Path) -> str:
    """Says why another user could have put a library into this folder, or returns ""."""
    if is_private(folder.stat()):
        return ""
    return (
        f"{folder} belongs to another user, or others may write to it: no compiled library in it is used (remove this "
        "folder, or set XDG_CACHE_HOME to a folder of your own)"
    )


def is_private(found: os.stat_result) -> bool:
    """Whether no other user than root may write this file or folder."""
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & OTHERS_WRITE


def seal_of(library: Path) -> Path:
    """The file beside a library that has its length and digest."""
    return library.with_suffix(".sha256")


def seal(library: Path) -> str:
    contents = library.read_bytes()
    return f"{len(contents)} {hashlib.sha256(contents).hexdigest()}\n"


def is_whole(library: Path) -> bool:
    """Whether it fits its seal, and no other user could have written either of them, not even before the folder
    became private."""
    try:
        private = all(is_private(file.lstat()) for file in (library, seal_of(library)))
        return private and seal_of(library).read_text() == seal(library)
    except (OSError, ValueError):
        return False


def move(built: Path, cached: Path) -> None:
    """Moves a library and its seal into place. Several processes may do so at once. If the machine or a process stops
    in between, the seal does not fit, and the library is built again."""
    seal_of(built).write_text(seal(built))
    for new, place in ((built, cached), (seal_of(built), seal_of(cached))):
        with open(new, "rb") as file:
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & ~OTHERS_WRITE)
            os.fsync(file.fileno())
        os.replace(new, place)


def fingerprint(compiler: list[str], source: Source = GATED) -> str:
    texts = [file.read_text() for file in source.files]
    parts = [*texts, *compiler, *BASE, str(source.flags), *cpu()]
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


def build(compiler: list[str], target: Path, source: Source = GATED) -> None:
    """Compiles with the first of the flags that the compiler accepts; raises the last error if it accepts none."""
    for number, flags in enumerate(source.flags, 1):
        command = [*compiler, *BASE, *flags, "-o", str(target), str(source.files[0])]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
            return
        except subprocess.CalledProcessError:
            if number == len(source.flags):
                raise


def last_line(error: BaseException) -> str:
    """The last line of the compiler's messages, or else the error itself."""
    text = getattr(error, "stderr", None) or ""
    lines = (text.decode(errors="replace") if isinstance(text, bytes) else text).strip().splitlines()
    return lines[-1] if lines else str(error)
