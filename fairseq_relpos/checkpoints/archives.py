"""Safe unpacking of a model's archive, such as model.tar.gz."""

import contextlib
import hashlib
import lzma
import os
import platform
import tarfile
import tempfile
import zlib
from pathlib import Path

import torch

from ..atomic_files import digest_of

#: the environment variable that raises the limit, and the limit without it
VARIABLE, GIGABYTES = "FAIRSEQ_RELPOS_UNPACKED_GB", 20.0
#: what an empty file counts, because many of them fill a disk, too
SMALLEST = 2**16
#: the longest extended header, which tarfile reads into memory at once
LONGEST_HEADER = 2**20


def is_archive(place: str) -> bool:
    return "://" in place or os.path.isfile(place)


def unpacked(place: str) -> str:
    """Returns the folder with the contents of an archive, a file or an address, in torch.hub's own folder. It is
    unpacked once; the archive stays as it is. Raises ValueError, one line, for an archive with anything else than
    files and folders inside its own folder, and for one that is too large."""
    is_address = "://" in place
    name = hashlib.sha256(place.encode()).hexdigest() if is_address else digest_of("sha256", place)
    folder = Path(torch.hub.get_dir(), "fairseq_relpos", name[:16])
    if not folder.is_dir():
        if not hasattr(tarfile, "data_filter"):
            raise ValueError(
                f"this Python ({platform.python_version()}) cannot unpack an archive safely: "
                f"update it to 3.10.12, 3.11.4 or newer, or unpack {place} yourself and give the folder"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            archive = place
            if is_address:
                archive = os.path.join(work, "archive")
                torch.hub.download_url_to_file(place, archive)
            unpack(archive, os.path.join(work, "unpacked"), place)
            try:
                os.rename(os.path.join(work, "unpacked"), folder)
            except OSError:
                if not folder.is_dir():  # another process has unpacked it
                    raise
    inside = list(folder.iterdir())
    return str(inside[0] if len(inside) == 1 and inside[0].is_dir() else folder)


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf, encoding, errors):
        member = super().frombuf(buf, encoding, errors)
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()) and member.size > LONGEST_HEADER:
            raise tarfile.HeaderError(f"a header of {member.size:,} bytes")
        return member

    def _proc_sparse(self, *_):
        """tarfile reads the map of a sparse file into lists, of any length."""
        raise tarfile.HeaderError("it has a sparse file")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_sparse


def unpack(archive: str, folder: str, place: str) -> None:
    """place: the name of the archive for messages."""
    limit = gigabytes() * 1e9
    size = 0
    os.mkdir(folder)
    try:
        with tarfile.open(archive, tarinfo=_Member) as files:
            for member in files:
                if not (member.isreg() or member.isdir()):
                    raise tarfile.TarError(f"{member.name!r} in it is a link or a device")
                size += max(member.size, SMALLEST)
                if size > limit:
                    raise ValueError(
                        f"{place} has more than {limit / 1e9:g} GB in it: if you trust it, set {VARIABLE} to a higher "
                        "limit, or unpack it yourself and give the folder"
                    )
                files.extract(member, folder, filter="data")
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # an error of the file system
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{place} cannot be unpacked safely ({reason}): give the folder of a model, or a .tar.gz of one"
        ) from None


def gigabytes() -> float:
    given = os.environ.get(VARIABLE) or GIGABYTES
    with contextlib.suppress(ValueError):
        if float(given) > 0:
            return float(given)
    raise ValueError(f"{VARIABLE}={given}: a number above 0 is needed, such as {GIGABYTES:g}")
