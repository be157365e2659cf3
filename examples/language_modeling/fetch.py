"""The texts of a list of downloads, from the network or from a folder:

    python fetch.py LIST.txt FOLDER OFFLINE      -> FOLDER/FILE, for every FILE of LIST.txt

LIST.sha1 has the digest of every file: with another text no figure compares with a paper's.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from fetching import digest_of, fail, fetch
from full_disk import in_one_line


def main(list_path, folder, offline):
    sums = Path(list_path).with_suffix(".sha1")
    digests = dict(reversed(line.split()) for line in sums.read_text(encoding="utf-8").splitlines())
    new = [name for name in digests if not Path(folder, name).exists()]
    fetch(list_path, folder, offline, list(digests))
    for name in new:  # what was there has been looked at before
        found = digest_of(Path(folder, name), "sha1")
        if found != digests[name]:
            Path(folder, name).unlink()
            where = f"--offline {offline}" if offline else "the archive"
            fail(f"{name} of {where} has sha1 {found}, not {digests[name]}: it is another text; get it elsewhere")


if __name__ == "__main__":
    with in_one_line("fetch.py", sys.argv[2]):
        main(*sys.argv[1:])
