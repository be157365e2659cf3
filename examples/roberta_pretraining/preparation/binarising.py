"""Lines of pieces -> train.bin, train1.bin, ..., valid.bin. fairseq loads all of one split together, as TUPE's five
parts. fairseq-preprocess needs a bounded memory for a part, and each part is a task of its own."""

import os
import shutil

import corpus

from fairseq_relpos.atomic_files import whole_folder, write_json

from . import storage
from .vocabulary import DICTIONARY

#: blocks in a part, 128 MiB of raw text: fairseq-preprocess keeps some 50 bytes a line and 350 MB of itself
TOGETHER = 32


def parts(blocks):
    """Returns for each part its name, and the split and the numbers of the blocks that become its files."""
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
    storage.remove(work / "binarised" / name)  # of a process that was killed before it said that this was done
    with whole_folder(work / "binarised" / name) as folder:
        flags = ["--only-source", "--srcdict", work / DICTIONARY, "--destdir", folder / "bin", "--workers", "1"]
        for split, blocks in splits:
            with open(folder / split, "wb") as file:
                for block in blocks:
                    with open(work / "pieces" / f"{block:06}.{split}", "rb") as pieces:
                        shutil.copyfileobj(pieces, file)
            flags += [f"--{split}pref", folder / split]
        log = work.parent / f"preprocess.{name}.log"
        corpus.preprocess(log, *flags)
        log.unlink()
        for split, _ in splits:
            for ending in ("bin", "idx"):
                target = f"{name if split == 'train' else split}.{ending}"
                os.replace(folder / "bin" / f"{split}.{ending}", folder / target)
            (folder / split).unlink()
        shutil.rmtree(folder / "bin")
    write_json(work / "binarised" / f"{name}.json", {"parts": 1})
    return {"parts": 1}


def files(work):
    return sorted((work / "binarised").glob("train*/*"))
