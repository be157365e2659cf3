"""Fetches files from the network or from a folder.

    fetch(LIST, FOLDER, OFFLINE, [FILE...])      -> FOLDER/FILE, for every FILE

LIST: downloads.txt of a recipe. OFFLINE: a folder that has the files or their archives, plain, .xz or .gz; empty: the
network. A file that FOLDER has already is kept, unless OFFLINE has another one, or LIST another digest. All addresses
are tried before the first text is downloaded, so that a dead link is known within seconds. Lines of LIST with the same
files are mirrors: the first that answers is used.
"""

import contextlib
import filecmp
import gzip
import os
import shutil
import sys
import tarfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

from messages import fail

sys.path.append(str(Path(__file__).resolve().parents[2]))  # a machine that only fetches may have no plugin installed
from fairseq_relpos.atomic_files import UNPACKING_ERRORS, digest_of, forms_of, opened, whole_file  # noqa: E402

SECONDS = 30  # that a server may take to answer
SACREBLEU = "sacrebleu:"  # in place of an address: a test set that sacreBLEU downloads
# some servers refuse the one that urllib has by itself
HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; fairseq_relpos)"}


@dataclass
class Source:
    provides: list
    archive: str
    digest: str
    addresses: list

    @property
    def hint(self):
        names = " and ".join(dict.fromkeys([*self.provides, *([self.archive] if self.archive != "-" else [])]))
        return f"get {names} elsewhere and give the folder with --offline FOLDER"


def read_list(path):
    sources = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            provides, archive, digest, *addresses = line.split()
            sources.append(Source(provides.split(","), archive, digest, addresses))
    return sources


def fetch(list_path, folder, offline, names, sha1=None):
    """``sha1``: the digests that the files themselves must have."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sources = {}  # by what they provide
    for source in read_list(list_path):
        sources.setdefault(tuple(source.provides), []).append(source)
    unknown = set(names).difference(*sources)
    if unknown:
        fail(f"{', '.join(sorted(unknown))}: not in {list_path}")
    digests = {one.archive: one.digest for of_files in sources.values() for one in of_files if one.digest != "-"}
    digests |= {name: f"sha1:{digest}" for name, digest in (sha1 or {}).items()}
    kept = {name for name in names if (folder / name).exists() and not other_digest(folder / name, digests.get(name))}
    wanted = [name for name in names if name not in kept or offline and name not in digests]
    given, needed = [], []
    for provides, alternatives in sources.items():
        missing = [name for name in wanted if name in provides]
        lying = [name for name in missing if offline and forms_of(Path(offline, name))]
        if offline and not lying and not any(Path(offline, source.archive).is_file() for source in alternatives):
            missing = [name for name in missing if name not in kept]
        given += lying
        if rest := [name for name in missing if name not in lying]:
            needed.append((alternatives, rest))
    archives = [located(alternatives, folder, offline) for alternatives, _ in needed]
    for name in given:
        copied(Path(offline), name, folder / name, digests.get(name))
    for (_, missing), (source, place) in zip(needed, archives):
        if place.startswith(SACREBLEU):
            sacrebleu_set(place.removeprefix(SACREBLEU), missing, folder, source)
            continue
        if not Path(place).exists():
            place = downloaded(source, place, folder)
        check_digest(place, source)
        for name in missing:
            extract(place, name, folder / name, digests.get(name))


def other_digest(path, digest):
    """Returns the digest of the file and the expected one; empty if they are the same, or none is expected."""
    if not digest:
        return ""
    kind, expected = digest.split(":")
    found = digest_of(kind, path)
    return "" if found == expected else f"{kind} {found}, not {expected}"


def refuse_another(path, name, source, digest):
    if other := other_digest(path, digest):
        fail(f"{name} of {source} has {other}: it is another text; get it elsewhere")


def sacrebleu_set(name, files, folder, source):
    """Makes the files of a test set that sacreBLEU downloads."""
    from sacrebleu.dataset import DATASETS

    try:
        paths = DATASETS[name].get_source_file("en-de"), DATASETS[name].get_reference_files("en-de")[0]
    except (Exception, SystemExit) as error:  # sacreBLEU ends the program where a download fails
        fail(f"sacreBLEU cannot download {name} ({error}); {source.hint}")
    for language, path in zip(("en", "de"), paths):
        for file in files:
            if file.endswith(f".{language}"):
                with open(path, "rb") as text:
                    write(text, folder / file)


def copied(offline, name, target, digest=None):
    """Copies the text itself, which lies in the folder."""
    path, *_ = forms_of(offline / name)
    if target.exists() and filecmp.cmp(path, target, shallow=False):
        return refuse_another(target, target.name, path, digest)
    with unpacking(path, "get it again"), opened(path) as file:
        write(file, target, path, digest)


@contextlib.contextmanager
def unpacking(path, remedy):
    try:
        yield
    except (*UNPACKING_ERRORS, tarfile.TarError, zipfile.BadZipFile) as error:
        fail(f"{path} cannot be unpacked ({error}): {remedy}")


def write(file, target, source=None, digest=None, expected_bytes=None):
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as part:
        with open(part, "wb") as out:
            shutil.copyfileobj(file, out)
        found = os.path.getsize(part)
        if expected_bytes is not None and found != int(expected_bytes):
            raise OSError(f"{found:,} of {int(expected_bytes):,} bytes came")
        refuse_another(part, target.name, source, digest)
        if target.exists() and filecmp.cmp(part, target, shallow=False):
            shutil.copystat(target, part)  # what was made from it remains newer


def located(alternatives, folder, offline):
    """Returns the archive on this machine, or else the first address that answers."""
    for place in [*([Path(offline)] if offline else []), folder]:
        for source in alternatives:
            if source.archive != "-" and (place / source.archive).is_file():
                return source, str(place / source.archive)
    archives = [source.archive for source in alternatives if source.archive != "-"]
    if offline:
        fail(
            f"--offline {offline}: neither {' and '.join(alternatives[0].provides)} (also .xz, .gz) nor "
            f"{' nor '.join(archives) or 'another form of them'} is in it"
        )
    reasons = []
    for source in alternatives:
        for address in source.addresses:
            if address.startswith(SACREBLEU):
                return source, address
            request = urllib.request.Request(address, method="HEAD", headers=HEADERS)
            try:
                with urllib.request.urlopen(request, timeout=SECONDS):
                    return source, address
            except (OSError, ValueError) as error:  # URLError is an OSError
                reasons.append(f"{address} ({getattr(error, 'reason', error)})")
    fail(f"{' or '.join(archives)}: no address answers: {'; '.join(reasons)}; {alternatives[0].hint}")


def downloaded(source, address, folder):
    print(f"downloading {address}")
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=HEADERS), timeout=SECONDS) as answer:
            write(answer, folder / source.archive, expected_bytes=answer.headers.get("Content-Length"))
    except OSError as error:
        others = ", ".join(other for other in source.addresses if other != address) or "none"
        fail(f"{address} broke off ({error}); other addresses: {others}; run again, or {source.hint}")
    return str(folder / source.archive)


def check_digest(path, source):
    if source.digest == "-":
        print(f"{path}: unchecked, no digest of it is known; its sha256 is {digest_of('sha256', path)}")
        return
    if other := other_digest(path, source.digest):
        fail(f"{path} has {other}: remove it and run again, or {source.hint}")


def extract(archive, name, target, digest):
    if os.path.basename(archive) == name:
        return  # it was downloaded to its place
    with unpacking(archive, "remove it and run again"):
        if archive.endswith((".tgz", ".tar.gz", ".tar.bz2", ".tar")):
            with tarfile.open(archive) as tar:
                for member in tar:
                    if os.path.basename(member.name) in (name, f"{name}.gz") and member.isfile():
                        file = tar.extractfile(member)
                        write(gzip.open(file) if member.name.endswith(".gz") else file, target, archive, digest)
                        return
            fail(f"{archive} has no {name} in it")
        if archive.endswith(".zip"):
            with zipfile.ZipFile(archive) as packed:
                found = [m for m in packed.namelist() if f"/{m}".endswith(f"/{name}") and "__MACOSX" not in m]
                if not found:
                    fail(f"{archive} has no {name} in it")
                with packed.open(min(found, key=len)) as file:
                    write(file, target, archive, digest)
            return
        with gzip.open(archive, "rb") as file:
            write(file, target, archive, digest)
