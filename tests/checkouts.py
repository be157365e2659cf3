"""The recipes in a checkout whose programs only note what they are called with."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: in the place of a program: notes its words
PROGRAM = """#!/usr/bin/env python3
import json, os, sys
if "--path" not in sys.argv:  # a training, no test of its model
    with open(os.environ["RAN"], "a") as file:
        file.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
"""
#: in the place of the package, which takes seconds to start: of all its commands the recipes need `show` here
PACKAGE = """import sys
assert sys.argv[1] == "show"
sys.exit("unknown position encoding 'nonsense'; known: t5" if sys.argv[2] == "nonsense" else 0)
"""


def make(folder):
    """The recipes in a checkout without data; stand-ins for fairseq's programs and for the package."""
    for name in ("examples", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.xz", "*.png", "__pycache__"))
    (folder / "fairseq_relpos").mkdir()
    (folder / "fairseq_relpos" / "__init__.py").touch()
    (folder / "fairseq_relpos" / "__main__.py").write_text(PACKAGE)
    reports = [f"reports/{name}.py" for name in ("learning_rates", "machine", "run_settings", "training_log")]
    for file in ("atomic_files.py", *reports, "finetuning/glue.py"):
        (folder / "fairseq_relpos" / file).parent.mkdir(exist_ok=True)
        (folder / "fairseq_relpos" / file).symlink_to(ROOT / "fairseq_relpos" / file)
    (folder / "programs").mkdir()
    for name in ("fairseq-train", "fairseq-validate", "launch"):
        (folder / "programs" / name).write_text(PROGRAM)
        (folder / "programs" / name).chmod(0o755)
    (folder / "scripts" / "launch_torchrun.sh").write_text('launch "$@"')
    return folder


def shell(checkout, command, cwd=None, **environment):
    path = f"{checkout / 'programs'}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name not in ("SEED", "RUNS", "DATA", "SETTINGS")}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd or checkout,
        env={**kept, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
