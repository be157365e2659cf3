"""The scripts of a recipe, run in the folder of a test."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import preloaded

EXAMPLES = Path(__file__).parents[1] / "examples"
COMMON = EXAMPLES / "common"
FETCH = f"""import sys; sys.path.insert(0, "{COMMON}")
from fetching import fetch
list_path, folder, offline, *names = sys.argv[1:]
fetch(list_path, folder, offline, names)
"""


class Recipe:
    """Runs scripts of examples/NAME with the settings tiny.sh of a test's folder, its data and its runs."""

    def __init__(self, name: str, **environment: str):
        self.folder = EXAMPLES / name
        self.environment = {"SETTINGS": "tiny.sh", "DATA": "data", "RUNS": "runs", **environment}

    def __call__(
        self, place: Path, script: str, *arguments: Any, stdin: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["bash", str(self.folder / script), *map(str, arguments)],
            env={**preloaded.environment(), **self.environment, **environment},
            cwd=place,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )

    def succeeds(self, *arguments: Any, **environment: str) -> str:
        """The output of the script."""
        done = self(*arguments, **environment)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def fails(self, *arguments: Any, **environment: str) -> str:
        """The one line of its error."""
        return refused(self(*arguments, **environment))


def refused(done: subprocess.CompletedProcess) -> str:
    """The one line of an error."""
    assert done.returncode in (1, 2) and "Traceback" not in done.stdout, done.stdout
    return done.stdout.strip().splitlines()[-1]


def written(folder: Path) -> dict[Path, int]:
    """The files of a folder, and when they were written."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "lock")
    return {p.relative_to(folder): p.stat().st_mtime_ns for p in files}


def fetch(place: Path, *arguments: Any) -> subprocess.CompletedProcess:
    """Runs fetch of examples/common/fetching.py: LIST FOLDER OFFLINE FILE..."""
    return subprocess.run(
        [sys.executable, "-c", FETCH, *map(str, arguments)],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "SACREBLEU": str(place / "none")},
        timeout=600,
    )
