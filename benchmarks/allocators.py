"""The settings of glibc's allocator, and a new process with each of them."""

import logging
import os
import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
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


def in_words(settings):
    return " ".join(f"{name}={value}" for name, value in settings.items())


def add_allocators(parser):
    parser.add_argument(
        "--allocators",
        nargs="+",
        choices=ALLOCATORS,
        default=list(ALLOCATORS),
        help=f"of glibc: as it is, or tuned, with {in_words(TUNED)}",
    )


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
