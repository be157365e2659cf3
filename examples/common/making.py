"""The settings of a recipe, and data that are made once: what the programs behind prepare.sh share."""

import itertools
import os
import shutil
from pathlib import Path

import corpus
from fetching import digest_of
from messages import fail, in_one_line, say
from stopping import locked

HERE = Path(os.environ["HERE"])  # the folder of the recipe
#: all that a vocabulary may consist of, beside dict.txt
VOCABULARY_FILES = ("spm.model", "encoder.json", "vocab.bpe", "tokenizer.json", "manifest.json")
SPLITS = ("train", "valid", "test")
#: what the data are made of
SOURCES = "sources.txt"
#: what is removed when data are made again: first sources.txt and the dictionary, which say that the rest is there, and
#: come last
MADE = (
    *(SOURCES, "dict*.txt", "counts.json"),
    *(f"{split}{end}" for split in SPLITS for end in ("*.bin", "*.idx", ".npz", ".json")),
)


def setting(name, *accepted):
    value = os.environ.get(name, "")
    if accepted and value not in accepted:
        fail(f"{name}={value}: give {' or '.join(accepted)}")
    return value


def number(name, kind=int, least=1):
    """Returns the number of a setting."""
    try:
        value = kind(setting(name))
    except ValueError:
        fail(f"{name}={setting(name)}: give a number")
    if value < least:
        fail(f"{name}={setting(name)}: give {least} or more")
    return value


def digest(*paths):
    """Returns one SHA-256 of all files."""
    return digest_of("sha256", *paths)


def described(split, path):
    return f"{digest(path)} {split} {Path(path).name}"


def folder_of(path):
    if not os.path.isdir(path):
        fail(f"--offline {path}: no such folder; give one with the files of {HERE}/downloads.txt")
    return path


def vocabulary_lines(folder, names=VOCABULARY_FILES):
    return [f"{digest(folder / name)} {name}" for name in names if (folder / name).exists()]


def readable(path):
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        fail(f"no readable file {path}: give text files")
    return Path(path)


def vocabulary_of(path):
    if not Path(path, "dict.txt").exists():
        fail(f"no dict.txt in {path}: give the folder of the pretraining's data with --vocabulary FOLDER")
    return Path(path)


def make(out, sources, build, vocabulary=None):
    """Makes the data in OUT, unless it has those of the same sources. build(work) leaves them in work/made. vocabulary:
    the folder of a given one, whose data would be removed."""
    if vocabulary and out.resolve() == vocabulary.resolve():
        fail("OUT is the folder of the vocabulary: give another one")
    out.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in sources)
    with locked(out), in_one_line(out):
        if any(out.glob("dict*.txt")):
            if (out / SOURCES).exists() and (out / SOURCES).read_text(encoding="utf-8") == text:
                return say(f"{out} is ready")
            say(f"the text or the vocabulary's settings have changed: {out} is made again")
        work = out / "work"
        shutil.rmtree(work, ignore_errors=True)
        (work / "made").mkdir(parents=True)
        try:
            build(work)
            (work / SOURCES).write_text(text, encoding="utf-8")
            names = put_in_place(work, out)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    splits = sorted({name.split(".")[0] for name in names if name.startswith(SPLITS)}, key=in_order)
    say(f"ready: {out} (splits {' '.join(splits)})")


def put_in_place(work, out):
    """Moves the new data to the place of the old ones. Returns their names."""
    made = sorted((work / "made").iterdir(), key=lambda path: path.name.startswith("dict"))
    for path in itertools.chain.from_iterable(out.glob(name) for name in (*MADE, *VOCABULARY_FILES)):
        path.unlink()
    if (work / "made" / "text").exists():
        shutil.rmtree(out / "text", ignore_errors=True)
    for path in [*made, work / SOURCES]:
        os.replace(path, out / path.name)
    return [path.name for path in made]


def numbered(kind, place):
    """test, test1, test2, ..."""
    return f"{kind}{place or ''}"


def in_order(split):
    """train, valid, valid1, ..., test, test1, ..."""
    kind = split.rstrip("0123456789")
    return SPLITS.index(kind), int(split[len(kind) :] or 0)


def binarise(work, *flags):
    """Runs fairseq-preprocess into work/made."""
    say("binarising")
    corpus.preprocess(work.parent / "preprocess.log", "--destdir", work / "bin", *flags)
    for path in (work / "bin").iterdir():
        if path.name != "preprocess.log":
            os.replace(path, work / "made" / path.name)
