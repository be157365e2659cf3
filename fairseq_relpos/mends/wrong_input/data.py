"""Checks of the data that fairseq-preprocess wrote: whether they are complete, whole, and fit the dictionary."""

import os
import struct
from typing import Any

import numpy as np

from ..replace import replace


def count_the_words_of_a_dictionary() -> None:
    """Makes a dictionary remember how many words its file has, because some tasks add <mask>."""
    from fairseq.data import Dictionary

    @replace(Dictionary, "add_from_file", "damaged-data")
    def count(stock, self, file):
        stock(self, file)
        self._relpos_words_of_file = len(self)


def refuse_damaged_data() -> None:
    """Checks binarised data when they are loaded: both files are whole and belong together, and the dictionary has
    every id in them.

    Stock fails with an IndexError on a CPU if an id is beyond the dictionary; on a GPU the device stops, with no word
    about the data. The check of the ids is one more pass over a file that fairseq reads as a whole anyway: 0.4 s for
    2 GiB (10^9 tokens), beside 2.5 s of fairseq's own. So a wrong id is found before the first update, not after
    hours, when its batch is drawn.
    """
    from fairseq.data import indexed_dataset

    @replace(indexed_dataset, "make_dataset", "damaged-data")
    def check(stock, path, impl, fix_lua_indexing=False, dictionary=None):
        if impl not in ("raw", "fasta"):
            check_files(path)
        dataset = stock(path, impl, fix_lua_indexing, dictionary)
        if dataset is not None and dictionary is not None:
            check_ids(path, dataset, dictionary)
        return dataset


#: the first bytes of an index of --dataset-impl mmap, the default
MMAP = b"MMIDIDX\x00\x00"
#: those of lazy and cached, and of huffman
UNCHECKED = (b"TNTIDX\x00\x00", b"HUFFIDX\x00\x00")
AGAIN = "copy the data folder again, or make it again with fairseq-preprocess"


def check_files(path: str) -> None:
    """Raises ValueError, one line, if the .bin or the .idx file is damaged, or they do not belong together."""
    from fairseq.file_io import PathManager

    index, tokens = f"{path}.idx", f"{path}.bin"
    there = [PathManager.exists(index), PathManager.exists(tokens)]
    if not any(there):
        return  # fairseq has its own message for a split that does not exist
    if not all(there):
        here, gone = (index, tokens) if there[0] else (tokens, index)
        raise ValueError(f"{here} is there and {gone} is not: {AGAIN}")
    index, tokens = PathManager.get_local_path(index), PathManager.get_local_path(tokens)
    with open(tokens, "rb"), open(index, "rb") as file:  # raises an error if one of them may not be read
        start = file.read(26)
    if start.startswith(UNCHECKED):
        return
    if not start.startswith(MMAP):
        what = f"begins with {start[:9]!r}" if start else "is empty"
        raise ValueError(f"{index} {what} and is no index that fairseq-preprocess wrote: {AGAIN}")
    if len(start) < 26:
        raise _cut_short(index)
    _check_mmap(index, tokens, start)


def _cut_short(path, expected=None):
    size = os.path.getsize(path)
    of = f" of {expected:,}" if expected is not None else ""
    return ValueError(f"{path} is cut short or damaged ({size:,}{of} bytes): {AGAIN}")


def _need_size(path, expected):
    if os.path.getsize(path) != expected:
        raise _cut_short(path, expected)


def _type_of(index, code):
    from fairseq.data.indexed_dataset import _code_to_dtype

    if code not in _code_to_dtype:
        raise ValueError(f"{index} is damaged (no type of number has the code {code}): {AGAIN}")
    return np.dtype(_code_to_dtype[code])


def _check_mmap(index, tokens, start):
    """Checks --dataset-impl mmap: the index has sizes (int32) and begins (int64, in bytes), without gaps."""
    code, count = struct.unpack_from("<BQ", start, 17)
    width = _type_of(index, code).itemsize
    _need_size(index, 26 + 12 * count)
    end = 0
    if count:
        sizes = np.memmap(index, np.int32, "r", offset=26, shape=count)
        begins = np.memmap(index, np.int64, "r", offset=26 + 4 * count, shape=count)
        for first in range(0, count, 2**20):  # in parts, to need little memory
            part = slice(first, first + 2**20)
            ends = begins[part] + sizes[part].astype(np.int64) * width
            if begins[first] != end or sizes[part].min() < 0 or (begins[part][1:] != ends[:-1]).any():
                raise ValueError(f"{index} is damaged: its sentences are not one after the other; {AGAIN}")
            end = int(ends[-1])
    _check_tokens(index, tokens, count, end)


def _check_tokens(index, tokens, count, expected):
    size = os.path.getsize(tokens)
    if count == 0 and size == 0:
        raise ValueError(f"{tokens[:-4]} holds no sentences: the text that fairseq-preprocess was given is empty")
    if size < expected:
        raise _cut_short(tokens, expected)
    if size > expected:
        raise ValueError(
            f"{tokens} has {size:,} bytes and {index} is of one of {expected:,}: they are of two different "
            f"runs; {AGAIN}"
        )


def check_ids(path: str, dataset: Any, dictionary: Any) -> None:
    """Raises ValueError, one line, if the dictionary lacks an id of the data."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    if not isinstance(dataset, MMapIndexedDataset):
        return  # of a format that is not checked, or text that the dictionary itself turns into ids
    known = words = len(dictionary)
    read = getattr(dictionary, "_relpos_words_of_file", words)
    if words == read + 1 and dictionary[read] == "<mask>":
        known = read  # the task added <mask>, which no text has
    ids = dataset._bin_buffer_mmap.view(dataset._index.dtype)
    smallest, largest = int(ids.min()) if ids.dtype.kind == "i" else 0, int(ids.max())
    if smallest < 0 or largest >= known:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(
            f"{path}.bin holds the token id {wrong}, but the dictionary has {known} words, ids 0 to {known - 1}: "
            "the data was binarised with another dict.txt; give the folder as fairseq-preprocess "
            "wrote it, or binarise the text again with this dict.txt (--srcdict, --tgtdict)"
        )


INSTALLERS = (count_the_words_of_a_dictionary, refuse_damaged_data)
