"""Files -> blocks of whole documents, as bytes.

A file is plain text with an empty line between documents, or JSON lines with the key "text", as
WikiExtractor --json and CirrusSearch dumps have them; also .xz, .gz, .bz2, .zst. Only here does one process
read what all others wait for.
"""

import bz2
import codecs
import contextlib
import gzip
import io
import itertools
import json
import lzma
import zlib
from dataclasses import dataclass
from pathlib import Path

from messages import fail

#: bytes of text in a task: some seconds of work
BLOCK = 4 << 20
#: bytes; a longer document is taken apart, so that books in one file without empty lines are
#: several documents, and no block grows without limit
LONGEST_DOCUMENT = 4 << 20
#: bytes; what is longer is read as several lines, unless it is JSON
LONGEST_LINE = 16 << 20
#: errors of a packed file that is cut short or none
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)


@dataclass
class Block:
    number: int
    file: str
    is_json: bool
    text: bytes


def files_of(paths):
    """The files that are given, and those in the folders that are given, in order of their names."""
    files = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
            if not inside:
                fail(f"the folder {path} is empty: give text files")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            fail(f"no file {path}: give text files, plain or .xz, .gz, .bz2, .zst, or folders of them")
    for path in files:
        check_kind(path)
    return files


def check_kind(path):
    if ".xml" in path.suffixes:
        fail(f"{path} is a dump in XML: extract its text first, as README.md says, and give the folder")
    if path.suffix in (".zip", ".7z", ".parquet", ".tgz", ".tar") or ".tar" in path.suffixes:
        fail(f"{path}: {path.suffix} is not read: unpack it, and give text files or JSON lines")
    if not path.stat().st_size:
        fail(f"{path} is empty: give text")
    with contextlib.suppress(*UNREADABLE), open(path, "rb") as file:  # ``blocks`` names one that is cut short
        text = unpacked(file, path)
        lines = iter(lambda: text.readline(LONGEST_LINE), b"")
        if not any(line.strip() for line in lines):
            fail(f"{path} is empty: give text")


#: bytes of a .zst file that are read at a time
PACKED = 1 << 14
#: where a tar archive says what it is
TAR = slice(257, 262)


def unpacked(file, path):
    """A tar archive within would be read as text, its headers, too."""
    opened_file = opened(file, path)
    begin = b""
    while len(begin) < TAR.stop and (line := opened_file.readline(TAR.stop)):
        begin += line
    if begin[TAR] == b"ustar":
        fail(f"{path} is a tar archive, packed: unpack it (tar -xf {path}), and give the folder")
    file.seek(0)
    return opened(file, path)


def opened(file, path):
    if path.suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            fail(f"{path}: reading .zst needs `pip install zstandard`")
        return io.BufferedReader(Frames(file, zstandard))
    return {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, lambda f: f)(file)


class Frames(io.RawIOBase):
    """The text of a .zst file. zstandard's own reader takes a file that was cut short for a whole one."""

    def __init__(self, file, zstandard):
        self.parts, self.left = frames(file, zstandard), b""

    def readable(self):
        return True

    def readinto(self, buffer):
        self.left = self.left or next(self.parts, b"")
        size = min(len(buffer), len(self.left))
        buffer[:size], self.left = self.left[:size], self.left[size:]
        return size


def frames(file, zstandard):
    """Yields the text of each frame in parts, none of them empty."""
    packed = file.read(PACKED)
    while packed:
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            if not packed:
                raise EOFError("the last frame has no end")
            try:
                text = frame.decompress(packed)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            if text:
                yield text
            packed = frame.unused_data or file.read(PACKED)


def blocks(files, read=lambda size: None):
    """Every Block. ``read`` is told how many bytes of the files have been read since it was last told."""
    number = 0
    for path in files:
        with open(path, "rb") as file:
            told = 0
            try:
                for is_json, text in parts(unpacked(file, path)):
                    read(file.tell() - told)
                    told = file.tell()
                    yield Block(number, path.name, is_json, text)
                    number += 1
            except UNREADABLE as error:
                fail(f"{path} cannot be read to its end ({error}): is it cut short? get it again")


def parts(file):
    """(is_json, text) with whole documents in text. A document that is too long is ended at a line."""
    lines = iter(lambda: file.readline(LONGEST_LINE), b"")
    is_json = None
    block, size, of_document = [], 0, 0
    for line in lines:
        if is_json is None and line.strip():
            line = line.removeprefix(codecs.BOM_UTF8)
        if (is_json or is_json is None and line[:1] == b"{") and not line.endswith(b"\n"):
            line += file.readline()
        if is_json is None and line.strip():
            is_json = looks_like_json(line)
        if not is_json:
            of_document += len(line)
            if not line.strip():
                of_document = 0
            elif of_document > LONGEST_DOCUMENT and block:
                block.append(b"\n")
                of_document = len(line)
        starts_document = is_json or of_document in (0, len(line))
        if size >= BLOCK and starts_document:
            yield is_json, b"".join(block)
            block, size = [], 0
        block.append(line)
        size += len(line)
    if is_json is not None and block:
        yield is_json, b"".join(block)


def looks_like_json(line):
    if line[:1] != b"{":
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def documents(block):
    """The lines of each document."""
    return json_documents(block) if block.is_json else text_documents(block)


def text_documents(block):
    for is_text, lines in itertools.groupby(block.text.split(b"\n"), lambda line: bool(line.strip())):
        if is_text:
            yield list(lines)


def json_documents(block):
    objects = texts = 0
    for line in block.text.split(b"\n"):
        if not line.strip():
            continue
        try:
            found = json.loads(line.decode("utf-8", "surrogateescape"))
            if not isinstance(found, dict):
                raise ValueError("no object")
        except ValueError as error:
            fail(
                f"{block.file}: a line is not JSON ({error}): {line[:60]!r}...; give JSON lines with "
                '"text", or plain text'
            )
        objects += 1
        if isinstance(found.get("text"), str):
            texts += 1
            # half a surrogate pair, or a byte that is no UTF-8: mended where other bytes are
            yield found["text"].encode("utf-8", "surrogatepass").split(b"\n")
    # some may have none: every second line of CirrusSearch's dumps
    if objects and not texts:
        fail(
            f'{block.file}: none of {objects:,} JSON lines has "text", but {", ".join(sorted(found))}: '
            "give lines that have it"
        )
