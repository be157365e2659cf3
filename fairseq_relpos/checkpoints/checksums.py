"""The check of a checkpoint's bytes against the checksums that torch.save wrote."""

import errno
import os
import zipfile
import zlib
from pathlib import Path

import torch


def refuse_damage(path: str | Path) -> None:
    """Raises ValueError, one line, if the file does not hold the bytes that torch.save wrote."""
    damage = what_is_damaged(path)
    if damage is not None:
        raise ValueError(f"{path} {damage}: copy or download it again")


def what_is_damaged(path: str | Path) -> str | None:
    """Says what is damaged in a file that torch.save wrote, or returns None. It compares the checksums in the file,
    which torch does not do when it reads."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(2)
    if start == b"\x80\x02":
        return None  # torch's format before 1.6 has no checksums
    damaged = None
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                archive.open(member).close()  # raises an error if the member's own name differs from the list's
            checksums = {member.filename.partition("/")[2]: member.CRC for member in archive.infolist()}
        read = torch._C.PyTorchFileReader(os.fspath(path))  # torch may find other contents than Python's zipfile
        for name in read.get_all_records():
            if zlib.crc32(read.get_record(name)) != checksums[name]:
                damaged = name
    except MemoryError:
        raise
    except Exception as error:  # zipfile and torch raise many kinds
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # an error of the file system, not of the file
        return f"is cut short or damaged ({size:,} bytes)"
    return None if damaged is None else f"is damaged ({damaged} in it does not fit its checksum)"
