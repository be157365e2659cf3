"""Lines -> the words that are too rare, which TUPE replaces by <unk>: all but the most frequent 21 % of the different
words. Words are sorted on disk and merged there; only the kept ones are in memory."""

import os
import subprocess
from collections import Counter
from functools import lru_cache
from itertools import groupby

from fairseq_relpos.atomic_files import whole_file, write_json, write_text

from . import compat, duplicates, storage

SHARE = 0.21


def count_words(work, block):
    """Writes the words of a block, in lower case, with their numbers, sorted by their bytes."""
    gone = duplicates.of_block(work / "duplicates", block)
    found, number = Counter(), 0
    for document in storage.documents(work / "cleaned" / f"{block:06}.txt"):
        for line in document:
            if number not in gone:
                found.update(line.lower().split())
            number += 1
    write_text(work / "words" / f"{block:06}.txt", "".join(f"{w} {found[w]}\n" for w in sorted(found)))
    write_json(work / "words" / f"{block:06}.json", {"words": found.total()})
    return {"words": found.total()}


def read_counts(path):
    """Yields each word of a sorted file with the sum of its numbers."""
    pairs = (line.rsplit(" ", 1) for line in storage.lines_of(path))
    for word, group in groupby(pairs, key=lambda pair: pair[0]):
        yield word, sum(int(count) for _, count in group)


def merge(paths, out):
    """Merges sorted files. Their order by bytes is Python's order of text."""
    with whole_file(out) as part:
        names = "\0".join(map(str, paths))
        sort = ["sort", "--merge", "--field-separator= ", "--key=1,1", "--files0-from=-", f"--output={part}"]
        sort.append(f"--temporary-directory={os.path.dirname(out)}")
        subprocess.run(sort, input=names, text=True, check=True, env={**os.environ, "LC_ALL": "C"})


def choose_frequent(folder, share=SHARE):
    """Merges the counts of all blocks and writes the words that stay."""
    merged = folder / "merged"
    merge(sorted(folder.glob("[0-9]*.txt")), merged)
    by_count = Counter(count for _, count in read_counts(merged))
    wanted = int(share * by_count.total())
    threshold, above = smallest_count(by_count, wanted)
    ties = wanted - above  # of the words as rare as that the first in the alphabet stay
    kept = []
    for word, count in read_counts(merged):
        if count > threshold:
            kept.append(word)
        elif count == threshold and ties:
            kept.append(word)
            ties -= 1
    write_text(folder / "frequent", "".join(f"{word}\n" for word in kept))
    return {"different words": by_count.total(), "words that stay": len(kept)}


def smallest_count(by_count, wanted):
    """Returns a count, and how many words have a higher one, so that these and some with it are as many as wanted."""
    above = 0
    for count in sorted(by_count, reverse=True):
        if above + by_count[count] > wanted:
            return count, above
        above += by_count[count]
    return 0, above


@lru_cache(1)
def frequent(folder):
    return frozenset(storage.lines_of(folder / "frequent"))


def without_rare(line, kept, counts):
    sentences = [sentence.split() for sentence in line.split("\t")]
    counts["words that are too rare"] += sum(word.lower() not in kept for found in sentences for word in found)
    return "\t".join(
        " ".join(word if word.lower() in kept else compat.UNKNOWN for word in found) for found in sentences
    )
