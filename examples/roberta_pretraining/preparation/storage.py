"""Files of the steps, which get their names when they are whole."""

import itertools
import json
import shutil
from pathlib import Path

import numpy

from fairseq_relpos.atomic_files import whole_file


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_array(path, array):
    # a file object: numpy would add .npy to a name
    with whole_file(path) as part, open(part, "wb") as file:
        numpy.save(file, array)


def lines_of(path):
    """Yields the lines without their ends. Only \\n ends a line."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n")


def documents(path):
    """Yields the lines of each document; an empty line ends one."""
    for is_text, lines in itertools.groupby(lines_of(path), bool):
        if is_text:
            yield list(lines)


def remove(*folders):
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def remove_parts(folder):
    """Removes what killed processes have left."""
    for path in Path(folder).rglob("*.part*"):
        remove(path) if path.is_dir() else path.unlink(missing_ok=True)
