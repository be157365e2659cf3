"""A block -> cleaned lines, tabs between their sentences, and a digest of each. It cleans as TUPE does,
with libraries that are still maintained.

A line is mended (UTF-8, spaces, punctuation, control characters), joined with the next where a sentence
goes on there, and kept if it is text.
"""

import hashlib
import re
import string
from collections import Counter
from functools import lru_cache

import numpy
from sacremoses import MosesPunctNormalizer

from fairseq_relpos.atomic_files import write_json, write_text

from . import sources, storage
from .sentences import split_sentences

SHORTEST, LONGEST = 50, 1_000_000  # characters
LETTERS = 50
LETTER_SHARE = 0.7
#: of backslashes (formulas) and of vertical bars (tables)
MARKUP_SHARE = 0.05
#: a line that ends so may go on in the next
PENDING = frozenset(string.ascii_letters + string.digits + ",")
NO_LETTERS = bytes(set(range(256)) - set(string.ascii_letters.encode()))

MANY_DOTS = re.compile(r"\.{4,}")
BULLET = re.compile(r" \*(?=\S)")

#: a cleaned line in a file of digests
DIGEST = numpy.dtype([("high", "<u8"), ("low", "<u8"), ("line", "<u4")])


def clean_block(folder, block):
    """Writes the block's documents, the digests of their lines, and what was counted, in this order."""
    counts = Counter()
    texts, digests = [], []
    for raw in sources.documents(block):
        counts["documents"] += 1
        counts["bytes"] += sum(map(len, raw)) + len(raw)
        lines = clean_document(raw, counts)
        if not lines:
            counts["documents without text"] += 1
            continue
        texts.append("\n".join(lines) + "\n")
        digests += [digest(line) for line in lines]
    counts["lines kept"] = len(digests)
    storage.write_array(folder / f"{block.number:06}.digests", digest_table(digests))
    write_text(folder / f"{block.number:06}.txt", "\n".join(texts))
    write_json(folder / f"{block.number:06}.json", counts)
    return counts


def digest(line):
    """16 bytes: two lines with one digest among 10^10 have a probability of 10^-19."""
    return hashlib.blake2b(line.encode(), digest_size=16).digest()


def digest_table(digests):
    halves = numpy.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)
    table = numpy.empty(len(halves), DIGEST)
    table["high"], table["low"], table["line"] = halves[:, 0], halves[:, 1], numpy.arange(len(halves))
    return table[numpy.lexsort((table["low"], table["high"]))]


def clean_document(raw, counts):
    counts["lines"] += len(raw)
    lines = (spaced(mend(line, counts)) for line in raw)
    # a document at once: forty expressions over each of many short lines take twice the time
    lines = punctuation().normalize("\n".join(lines)).split("\n")
    lines = [remove_control(line.strip(), counts) for line in lines]
    kept = []
    for line in join_broken([line for line in lines if line], counts):
        reason = unfit(line)
        if reason:
            counts[f"lines dropped: {reason}"] += 1
            continue
        kept.append("\t".join(split_sentences(line)))
    return kept


def mend(line, counts):
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        counts["lines that were not UTF-8, mended"] += 1
        return line.decode("utf-8", "ignore")


def spaced(line):
    """One blank between words, and what TUPE mends before Moses does."""
    line = " ".join(line.split())
    line = MANY_DOTS.sub("...", line).replace("<<", "«").replace(">>", "»")
    line = line.replace(",,", ",").replace(",.", ".")
    return " ".join(BULLET.sub(" ", line).split())


@lru_cache(1)
def punctuation():
    return MosesPunctNormalizer("en")


def remove_control(line, counts):
    if line.isprintable():
        return line
    found = punctuation().remove_control_chars(line)
    if found != line:
        counts["lines with control characters, removed"] += 1
    return found.strip()


def join_broken(lines, counts):
    """Lines, where one that ends in a word or a comma is joined with a next one that begins in
    lower case."""
    joined = lines[:1]
    for line in lines[1:]:
        if joined[-1][-1] in PENDING and line[0] in string.ascii_lowercase:
            joined[-1] += " " + line
            counts["lines joined with the one before"] += 1
        else:
            joined.append(line)
    return joined


def unfit(line):
    """Why a line is no text; None: it is."""
    length = len(line)
    if length < SHORTEST:
        return f"shorter than {SHORTEST} characters"
    if length > LONGEST:
        return f"longer than {LONGEST:,} characters"
    letters = len(line.encode().translate(None, NO_LETTERS))
    if letters < LETTERS or letters < LETTER_SHARE * length:
        return f"fewer than {LETTERS} letters, or less than {LETTER_SHARE:.0%}"
    if line.count("\\") > MARKUP_SHARE * length:
        return "a formula"
    if line[0] == "|" or line.count("|") > MARKUP_SHARE * length:
        return "a table"
    return None
