"""Files that have their names when they are whole."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy

from fairseq_relpos.atomic_files import whole_file


def write_text(path, text):
    with whole_file(path) as part, open(part, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_json(path, value):
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_array(path, array):
    # a file object: numpy would add .npy to a name
    with whole_file(path) as part, open(part, "wb") as file:
        numpy.save(file, array)


def lines_of(path):
    """Without their ends. Only \\n ends a line."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n")


def sha256(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def copy(path, target):
    with whole_file(target) as part:
        shutil.copyfile(path, part)


def remove(*folders):
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def remove_parts(folder):
    """What killed processes have left."""
    for path in Path(folder).rglob("*.part*"):
        remove(path) if path.is_dir() else path.unlink(missing_ok=True)


def replace_folder(part, folder):
    remove(folder)
    os.replace(part, folder)
