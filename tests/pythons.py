"""A Python of its own, which finds the package and has imported nothing before."""

import os
import subprocess
import sys
from pathlib import Path

import fairseq_relpos

ROOT = Path(fairseq_relpos.__file__).parents[1]


def run(*words, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def output(*words, **how):
    """Its output; it has to succeed."""
    done = run(*words, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
