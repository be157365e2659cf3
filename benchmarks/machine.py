"""What a result was measured on."""

import platform
import subprocess

import fairseq
import torch

import fairseq_relpos


def machine():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.processor())
    return {
        "cpu": cpu, "torch": torch.__version__, "fairseq": fairseq.__version__,
        "fairseq_relpos": fairseq_relpos.__version__, "python": platform.python_version(),
        "commit": commit.stdout.strip(),
    }
