"""The machine and the versions that a report's numbers come from."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: what results depend on, as far as it is installed
PACKAGES = ("torch", "fairseq-fixed", "fairseq", "numpy", "sentencepiece", "sacrebleu", "sacremoses")


def describe() -> str:
    """Returns the processor, the GPUs, and the versions of Python and PACKAGES, in one line."""
    return f"{', '.join([cpu_name(), *gpu_names()])}; {versions()}"


def cpu_name() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


def gpu_names() -> list[str]:
    """Returns the names of the NVIDIA GPUs, as the driver gives them."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [line.split(":")[1].strip() for line in lines if line.startswith("Model:")]


def versions() -> str:
    """Returns Python 3.11.2, torch 2.13.0, ..."""
    named = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            named.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            pass
    return ", ".join(named)
