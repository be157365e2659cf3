"""Archives that are given to ``from_pretrained``, as a file and as an address."""

import io
import os
import tarfile
import tempfile
import tracemalloc
from pathlib import Path

import pytest
import torch
from served import served

from fairseq_relpos.checkpoints import archives
from fairseq_relpos.models.roberta import RelPosRoberta

pytestmark = pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python refuses all archives")


def member(name, kind=tarfile.REGTYPE, linkname="", size=None, text=b"text"):
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, linkname
    found.size = size if size is not None else len(text) if kind == tarfile.REGTYPE else 0
    return found, io.BytesIO(text) if kind == tarfile.REGTYPE and size is None else None


#: archives of which each would write, link or read outside its folder; OUTSIDE is a folder there
HOSTILE = {
    "absolute": [("OUTSIDE/file",)],
    "parent": [("../../../../outside/file",)],
    "parent in the middle": [("model", tarfile.DIRTYPE), ("model/../../../../../outside/file",)],
    "parent folder": [("../../../../outside/folder", tarfile.DIRTYPE)],
    "through a link": [("model", tarfile.SYMTYPE, "OUTSIDE"), ("model/file",)],
    "through two links": [("a", tarfile.SYMTYPE, "."), ("a/b", tarfile.SYMTYPE, "../../../../outside"), ("b/file",)],
    "link to a file": [("model.pt", tarfile.SYMTYPE, "OUTSIDE/secret")],
    "hard link": [("model.pt", tarfile.LNKTYPE, "OUTSIDE/secret")],
    "device": [("model.pt", tarfile.CHRTYPE)],
    "pipe": [("model.pt", tarfile.FIFOTYPE)],
}


def pack(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for one in members:
            archive.addfile(*one)
    return path


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The folder of archives, the folder outside, and the address of the first."""
    hub = tmp_path / "hub"
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(hub))
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a" / "b" / "c"))  # where stock fairseq unpacks, as deep
    monkeypatch.setenv("no_proxy", "*")
    for name in ("given", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    with served(tmp_path / "given") as address:
        yield tmp_path / "given", tmp_path / "outside", address


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_writes_nothing_outside_its_folder_and_stays(name, places):
    given, outside, address = places
    members = [
        [part.replace("OUTSIDE", str(outside)) if isinstance(part, str) else part for part in one]
        for one in HOSTILE[name]
    ]
    archive = pack(given / "model.tar.gz", [member(*one) for one in members])
    contents = archive.read_bytes()
    for place in (str(archive), f"{address}/model.tar.gz"):
        with pytest.raises((ValueError, OSError)):
            RelPosRoberta.from_pretrained(place)
        assert archive.is_file() and archive.read_bytes() == contents
        assert os.listdir(outside) == ["secret"] and os.listdir(given) == ["model.tar.gz"]
    left = {path.name for path in (given.parent / "hub").rglob("*") if not path.is_dir() or path.is_symlink()}
    assert left <= {"file"}  # of an absolute path, within the folder of the archive


def sparse_headers(count):
    """The member of each format of sparse files, with a map of ``count`` parts."""
    pairs = "".join(f"{number}\n1\n" for number in range(count))
    text = f"{count}\n{pairs}".encode()
    version_10, _ = member("model.pt", size=len(text) + -len(text) % 512)
    version_10.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
    version_01, _ = member("model.pt")
    version_01.pax_headers = {"GNU.sparse.map": ",".join(["0,1"] * 1000)}
    version_00, _ = member("model.pt")
    version_00.pax_headers = {"GNU.sparse.size": "1", "GNU.sparse.offset": "0", "GNU.sparse.numbytes": "1"}
    old, _ = member("model.pt", tarfile.GNUTYPE_SPARSE)
    return {"1.0": (version_10, text), "0.1": (version_01, b"text"), "0.0": (version_00, b"text"), "old": (old, b"")}


@pytest.mark.parametrize("version", ["1.0", "0.1", "0.0", "old"])
def test_a_sparse_file_is_refused_without_reading_its_map(version, places):
    given, _, _ = places
    header, text = sparse_headers(100_000)[version]
    with tarfile.open(given / "model.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(header, io.BytesIO(text.ljust(header.size, b"\0")))
    tracemalloc.start()
    with pytest.raises(ValueError, match="model.tar.gz cannot be unpacked safely .*sparse") as error:
        archives.unpacked(str(given / "model.tar.gz"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000 and "\n" not in str(error.value)


def test_a_larger_archive_is_refused_and_the_line_says_how_to_raise_the_limit(places, monkeypatch):
    given, _, _ = places
    archive = pack(given / "model.tar.gz", [member("model/a"), member("model/model.pt", text=b"x" * 200_000)])
    with pytest.raises(ValueError, match=f"more than 0.0001 GB.*{archives.VARIABLE}"):
        monkeypatch.setenv(archives.VARIABLE, "0.0001")
        archives.unpacked(str(archive))
    assert not list((given.parent / "hub" / "fairseq_relpos").iterdir())
    monkeypatch.setenv(archives.VARIABLE, "0.001")
    folder = archives.unpacked(str(archive))
    assert sorted(os.listdir(folder)) == ["a", "model.pt"] and Path(folder).name == "model"
    assert archives.unpacked(str(archive)) == folder
    with pytest.raises(ValueError, match=f"{archives.VARIABLE}=much"):
        monkeypatch.setenv(archives.VARIABLE, "much")
        archives.unpack(str(archive), str(given / "folder"), str(archive))


def test_what_is_no_whole_archive_is_refused_without_reading_a_long_header(places):
    given, _, _ = places
    bad = {
        "none.tar.gz": b"no archive",
        "short.tar.gz": pack(given / "whole.tar.gz", [member("model.pt", text=os.urandom(9999))]).read_bytes()[:5000],
    }
    for name, contents in bad.items():
        (given / name).write_bytes(contents)
    header, _ = member("x", tarfile.XHDTYPE, size=50_000_000)
    with tarfile.open(given / "header.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(header)
        archive.fileobj.write(bytes(50_000_000))
    tracemalloc.start()
    for name in (*bad, "header.tar.gz"):
        with pytest.raises(ValueError, match=f"{name} cannot be unpacked safely") as error:
            archives.unpacked(str(given / name))
        assert "\n" not in str(error.value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
