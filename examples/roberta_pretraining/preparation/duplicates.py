"""Digests of all blocks -> for each block the lines that stand in an earlier place, too.

Digests lie sorted on disk; a part of their range is compared at a time, so that memory does not
grow with the text. The first of equal lines remains, in the order of the files.
"""

import numpy

from fairseq_relpos.atomic_files import write_json

from . import storage

#: digests that are in memory at once, about
TOGETHER = 1_000_000
PLACE = numpy.dtype([("block", "<u4"), ("line", "<u4")])


def ranges(digests):
    """Borders of the high halves, so that TOGETHER of so many digests lie between two of them."""
    count = -(-digests // TOGETHER)
    return [(number, number * 2**64 // count, (number + 1) * 2**64 // count - 1) for number in range(count)]


def find_duplicates(cleaned, folder, task):
    """Writes blocks and lines of the duplicates in one range, sorted."""
    number, first, last = task
    found, blocks = [], []
    for block, path in enumerate(sorted(cleaned.glob("*.digests"))):
        table = numpy.load(path)
        start = numpy.searchsorted(table["high"], numpy.uint64(first), "left")
        end = numpy.searchsorted(table["high"], numpy.uint64(last), "right")
        found.append(table[start:end].copy())
        blocks.append(numpy.full(end - start, block, "<u4"))
    table, blocks = numpy.concatenate(found), numpy.concatenate(blocks)
    order = numpy.lexsort((table["line"], blocks, table["low"], table["high"]))
    table, blocks = table[order], blocks[order]
    again = (table["high"][1:] == table["high"][:-1]) & (table["low"][1:] == table["low"][:-1])
    places = numpy.empty(int(again.sum()), PLACE)
    places["block"], places["line"] = blocks[1:][again], table["line"][1:][again]
    places.sort(order=("block", "line"))
    # two files: the first is searched where it lies
    storage.write_array(folder / f"{number:06}.lines", numpy.ascontiguousarray(places["line"]))
    storage.write_array(folder / f"{number:06}.blocks", numpy.ascontiguousarray(places["block"]))
    write_json(folder / f"{number:06}.json", {"duplicates": len(places)})
    return {"duplicates": len(places)}


def of_block(folder, block):
    """The numbers of the block's lines that are duplicates."""
    lines = set()
    for path in sorted(folder.glob("*.blocks")):
        blocks = numpy.load(path, mmap_mode="r")
        start, end = numpy.searchsorted(blocks, numpy.array([block, block + 1], "<u4"))
        if end > start:
            lines.update(numpy.load(path.with_suffix(".lines"), mmap_mode="r")[start:end].tolist())
    return lines
