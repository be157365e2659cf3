"""Lines of pieces -> train.bin, train1.bin, ..., valid.bin. fairseq loads all of one split together, as
TUPE's five parts; each takes fairseq-preprocess a bounded memory and is a task of its own."""

import os
import shutil
import subprocess
from pathlib import Path

from . import storage
from .problem import Problem
from .vocabulary import DICTIONARY

#: blocks in a part, 128 MiB of raw text: fairseq-preprocess keeps some 50 bytes a line and 350 MB of itself
TOGETHER = 32


def parts(blocks):
    """Of each part: its name, and the split and the numbers of the blocks that become its files."""
    starts = range(0, blocks, TOGETHER)
    found = [
        [f"train{start // TOGETHER or ''}", [("train", range(start, min(start + TOGETHER, blocks)))]]
        for start in starts
    ]
    # a two hundredth of the text: no reason for another process
    found[0][1].append(("valid", range(blocks)))
    return found


def binarise(work, task):
    """Writes a .bin and an .idx for each split into work/binarised/NAME."""
    name, splits = task
    folder = work / "binarised" / f"{name}.part{os.getpid()}"
    storage.remove(folder)
    folder.mkdir()
    flags = []
    for split, blocks in splits:
        with open(folder / split, "wb") as file:
            for block in blocks:
                with open(work / "pieces" / f"{block:06}.{split}", "rb") as pieces:
                    shutil.copyfileobj(pieces, file)
        flags += [f"--{split}pref", folder / split]
    log = folder / "log"
    with open(log, "w") as file:
        done = subprocess.run(
            [
                "fairseq-preprocess",
                "--only-source",
                "--srcdict",
                work / DICTIONARY,
                *flags,
                "--destdir",
                folder / "bin",
                "--workers",
                "1",
            ],
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines() or ["it says nothing"]
        kept = work.parent / "preprocess.log"
        shutil.copy(log, kept)
        raise Problem(f"fairseq-preprocess failed: {lines[-1].strip()} (all of it in {kept})")
    result = folder / "result"
    result.mkdir()
    for split, _ in splits:
        for ending in ("bin", "idx"):
            os.replace(folder / "bin" / f"{split}.{ending}", result / f"{name if split == 'train' else split}.{ending}")
    storage.replace_folder(result, work / "binarised" / name)
    storage.remove(folder)
    storage.write_json(work / "binarised" / f"{name}.json", {"parts": 1})
    return {"parts": 1}


def files(work):
    return sorted(Path(work, "binarised").glob("train*/*"))
