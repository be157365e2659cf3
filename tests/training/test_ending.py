"""Processes end as they should, also where a thread is late. process_ends.py makes the races wide."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq_data import masked_lm

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]


def trials(data, folder, runs=1):
    """Name -> what process_ends.py does."""
    model = [
        *f"--user-dir fairseq_relpos --path {folder}/one/checkpoint_last.pt --task masked_lm".split(),
        *"--cpu --batch-size 4 --required-batch-size-multiple 1".split(),
    ]

    def train(save_dir, *more, **trial):
        flags = "--arch roberta_t5 --max-update 3 --disable-validation".split()
        arguments = masked_lm(data, f"{folder}/{save_dir}", *flags, *more)
        return {"command": "train", "arguments": arguments, "runs": runs, "ranks": 2, **trial}

    return {
        "reading ahead": train("one", "--no-epoch-checkpoints", ranks=1, slow_batches=True),
        "training": train("{run}"),
        "SIGTERM": train("{run}", signal="SIGTERM"),
        "SIGUSR1": train("{run}", signal="SIGUSR1"),
        "SIGINT": train("{run}", signal="SIGINT"),
        "an error": train("{run}", "--arch", "roberta_learned", "--max-positions", 8),
        "validation": {"command": "validate", "arguments": [str(data), *model], "runs": runs, "ranks": 2},
    }


@pytest.fixture(scope="module")
def found(data, tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("ends")
    wanted = trials(data, folder)
    (folder / "trials.json").write_text(json.dumps(list(wanted.values())))
    done = subprocess.run(
        [sys.executable, TESTS / "process_ends.py", folder / "trials.json"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(wanted, map(json.loads, done.stdout.splitlines())))


CODES = {"SIGTERM": "75", "SIGUSR1": "75", "SIGINT": "75", "an error": "1"}


@pytest.mark.parametrize("name", trials("data", "folder"))
def test_it_ends_without_an_abort_and_without_threads_of_a_group(found, name):
    end = found[name]
    assert set(end["codes"]) == {CODES.get(name, "0")}, end["printed"]
    assert not [names for names in end["threads"] if "gloo" in names]
