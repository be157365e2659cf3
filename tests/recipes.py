"""The scripts of a recipe, run in the folder of a test."""

import subprocess
from pathlib import Path
from typing import Any

import preloaded

EXAMPLES = Path(__file__).parents[1] / "examples"


class Recipe:
    """Runs scripts of examples/NAME with the settings tiny.sh of a test's folder, its data and its runs."""

    def __init__(self, name: str):
        self.folder = EXAMPLES / name

    def __call__(self, place: Path, script: str, *arguments: Any, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["bash", str(self.folder / script), *map(str, arguments)],
            env={**preloaded.environment(), "SETTINGS": "tiny.sh", "DATA": "data", "RUNS": "runs", **environment},
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )

    def succeeds(self, *arguments: Any, **environment: str) -> str:
        """What the script prints."""
        done = self(*arguments, **environment)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def fails(self, *arguments: Any, **environment: str) -> str:
        """The one line of its error."""
        done = self(*arguments, **environment)
        assert done.returncode == 1 and "Traceback" not in done.stdout
        return done.stdout.strip().splitlines()[-1]
