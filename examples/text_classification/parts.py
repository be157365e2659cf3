"""The parts of TREC and MR that RESULTS.md is about, from the public files of downloads.txt:

    python parts.py FOLDER [--offline FILES]      -> FOLDER/TREC/{train,test}.tsv, FOLDER/MR/all.tsv

for prepare.sh --offline FOLDER. parts.txt lists the lines of TREC's training file that are the test part here, and the
fold of each line of MR; the tenth fold is left out. FILES: a folder that has the files already.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from fetching import digest_of, fetch
from messages import fail, in_one_line

from fairseq_relpos.atomic_files import whole_file

HERE = Path(__file__).resolve().parent
#: the folds of MR
KEPT = "012345678"


def read_parts():
    """Name of a file -> its items; of a table, its digest."""
    parts = {}
    for part in (HERE / "parts.txt").read_text(encoding="utf-8").split("\n\n")[1:]:
        name, *items = part.split()
        parts[name] = items
    return parts


def rows_of(path):
    """[label, sentence] of each line."""
    lines = path.read_bytes().decode("cp1252").splitlines()
    return [[label, " ".join(words.split())] for label, _, words in (line.partition(" ") for line in lines)]


def tables(trec, mr, test, folds):
    """The tables of the rows of both files. ``test``: numbers of lines, from 1; ``folds``: a digit for each line."""
    header = ["label", "sentence"]
    yield "TREC/train.tsv", [header, *(row for number, row in enumerate(trec, 1) if number not in test)]
    yield "TREC/test.tsv", [header, *(row for number, row in enumerate(trec, 1) if number in test)]
    kept = ([fold, *row] for fold, row in zip(folds, mr, strict=True) if fold in KEPT)
    yield "MR/all.tsv", [["fold", *header], *kept]


def main():
    parser = argparse.ArgumentParser(prog="parts.py")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--offline", metavar="FILES", default="")
    args = parser.parse_args()
    parts, files = read_parts(), args.folder / "downloads"
    names = ["TREC.train.all", "rt-polarity.all"]
    fetch(HERE / "downloads.txt", files, args.offline, names)
    trec, mr = (rows_of(files / name) for name in names)
    for name, rows in tables(trec, mr, set(map(int, parts[names[0]])), "".join(parts[names[1]])):
        target = args.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as part:
            Path(part).write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8", newline="\n")
            if digest_of("sha256", part) != parts[name][0]:
                fail(f"{name} would not be that of RESULTS.md: give other files than those in {files}")


if __name__ == "__main__":
    with in_one_line():
        main()
