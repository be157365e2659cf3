"""Whether the bytes of a checkpoint are still those that were saved."""

import errno
import os
import zipfile
import zlib

import torch


def refuse_damage(path):
    """Raises ValueError, one line, if the file holds other bytes than torch.save wrote."""
    damage = what_is_damaged(path)
    if damage is not None:
        raise ValueError(f"{path} {damage}: copy or download it again")


def what_is_damaged(path):
    """Words for what is wrong with the bytes of a file that torch.save wrote; None: nothing is.

    The checksums that it holds are compared, which torch does not do when it reads.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(2)
    if start == b"\x80\x02":
        return None  # torch's format before 1.6 has no checksums
    damaged = None
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                archive.open(member).close()  # its name where it lies is that in the list
            checksums = {member.filename.partition("/")[2]: member.CRC for member in archive.infolist()}
        read = torch._C.PyTorchFileReader(os.fspath(path))  # for it may find other contents than Python does
        for name in read.get_all_records():
            if zlib.crc32(read.get_record(name)) != checksums[name]:
                damaged = name
    except MemoryError:
        raise
    except Exception as error:  # zipfile and torch raise many kinds
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the file system's trouble, not the file's
        return f"is cut short or damaged ({size:,} bytes)"
    return None if damaged is None else f"is damaged ({damaged} in it does not fit its checksum)"
