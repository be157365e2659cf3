"""The machine and the versions that a report's numbers come from."""

import platform
from importlib.metadata import version
from pathlib import Path


def cpu_name() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


def versions(*packages: str) -> str:
    """Python 3.11.2, torch 2.13.0, ..."""
    named = [("Python", platform.python_version()), *((name, version(name)) for name in packages)]
    return ", ".join(" ".join(pair) for pair in named)
