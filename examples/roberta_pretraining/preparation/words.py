"""Lines -> the words that are too rare, which TUPE replaces by <unk>: all but the most frequent
21 % of the different words. Words are sorted on disk and merged; in memory are the kept ones."""

import heapq
from collections import Counter
from contextlib import ExitStack
from functools import lru_cache
from itertools import groupby

from fairseq_relpos.atomic_files import whole_file

from . import compat, duplicates, splits, storage

SHARE = 0.21
#: files that are merged at once
TOGETHER = 64


def count_words(work, block):
    """Writes the words of a block, in lower case, with their numbers, sorted."""
    gone = duplicates.of_block(work / "duplicates", block)
    found, number = Counter(), 0
    for document in splits.documents(work / "cleaned" / f"{block:06}.txt"):
        for line in document:
            if number not in gone:
                found.update(line.lower().split())
            number += 1
    storage.write_text(work / "words" / f"{block:06}.txt", "".join(f"{w} {n}\n" for w, n in sorted(found.items())))
    storage.write_json(work / "words" / f"{block:06}.json", {"words": sum(found.values())})
    return {"words": sum(found.values())}


def read_counts(file):
    for line in file:
        word, count = line.rsplit(" ", 1)
        yield word, int(count)


def merge(paths, out):
    with ExitStack() as stack, whole_file(out) as part:
        files = [stack.enter_context(open(path, encoding="utf-8", newline="\n")) for path in paths]
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            merged = heapq.merge(*map(read_counts, files))
            for word, group in groupby(merged, key=lambda pair: pair[0]):
                file.write(f"{word} {sum(count for _, count in group)}\n")


def choose_frequent(folder, share=SHARE):
    """Merges the counts of all blocks and writes the words that stay."""
    paths = sorted(folder.glob("[0-9]*.txt"))
    level = 0
    while len(paths) > 1 or level == 0:
        groups = [paths[i : i + TOGETHER] for i in range(0, len(paths), TOGETHER)]
        merged = [folder / f"merged-{level}-{number:06}" for number in range(len(groups))]
        for group, out in zip(groups, merged):
            merge(group, out)
        paths, level = merged, level + 1
    with open(paths[0], encoding="utf-8", newline="\n") as file:
        by_count = Counter(count for _, count in read_counts(file))
    wanted = int(share * sum(by_count.values()))
    threshold, above = smallest_count(by_count, wanted)
    ties = wanted - above  # of the words as rare as that the first in the alphabet stay
    kept = []
    with open(paths[0], encoding="utf-8", newline="\n") as file:
        for word, count in read_counts(file):
            if count > threshold:
                kept.append(word)
            elif count == threshold and ties:
                kept.append(word)
                ties -= 1
    storage.write_text(folder / "frequent", "".join(f"{word}\n" for word in kept))
    return {"different words": sum(by_count.values()), "words that stay": len(kept)}


def smallest_count(by_count, wanted):
    """(count, how many words have a higher one), so that these and some with it are as many as wanted."""
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
