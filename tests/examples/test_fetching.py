"""Downloads of the recipes: examples/common/fetching.py, and the lists of what they get."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from recipes import EXAMPLES, fetch, refused

DEAD = "http://127.0.0.1:9/a.tgz"


class Server(BaseHTTPRequestHandler):
    """A server of one archive. Like some servers it refuses the User-Agent of urllib; /cut breaks off."""

    archive = b""

    def do_HEAD(self):
        refused = self.headers["User-Agent"].startswith("Python-urllib") or self.path == "/gone"
        self.send_response(403 if refused else 200)
        self.send_header("Content-Length", str(0 if refused else len(self.archive)))
        self.end_headers()
        return not refused

    def do_GET(self):
        if self.do_HEAD():
            self.wfile.write(self.archive[: 40 if self.path == "/cut" else None])

    def log_message(self, *unused):
        pass


@pytest.fixture
def archive(tmp_path):
    """a.tgz of two texts."""
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        for language in ("en", "de"):
            (tmp_path / f"a.{language}").write_text(f"{language}\n")
            tar.add(tmp_path / f"a.{language}", f"deep/a.{language}")
            (tmp_path / f"a.{language}").unlink()
    return tmp_path / "a.tgz"


@pytest.fixture
def server(archive):
    Server.archive = archive.read_bytes()
    found = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()


def listed(folder, *sources):
    """sources: a digest and addresses in one text, mirrors one after the other."""
    lines = "".join(f"a.en,a.de a.tgz {source}\n" for source in sources)
    (folder / "list.txt").write_text(f"# comment\n{lines}")
    return folder / "list.txt"


def test_the_first_address_that_answers_is_taken_and_its_digest_compared(tmp_path, archive, server):
    digest = hashlib.sha1(archive.read_bytes()).hexdigest()
    done = fetch(tmp_path, listed(tmp_path, f"- {server}/gone", f"sha1:{digest} {DEAD} {server}/a"), "out", "", "a.de")
    assert done.returncode == 0 and f"downloading {server}/a\n" in done.stdout, done.stdout
    assert (tmp_path / "out" / "a.de").read_text() == "de\n"
    line = refused(fetch(tmp_path, listed(tmp_path, f"sha1:00 {server}/a"), "new", "", "a.en"))
    assert digest in line and "not 00" in line and not (tmp_path / "new" / "a.en").exists()
    printed = fetch(tmp_path, listed(tmp_path, f"- {server}/a"), "third", "", "a.en").stdout
    (unchecked,) = [found for found in printed.splitlines() if "unchecked" in found]
    assert "a.tgz" in unchecked and hashlib.sha256(archive.read_bytes()).hexdigest() in unchecked


def test_a_dead_link_is_known_before_anything_is_downloaded_and_the_mirrors_are_named(tmp_path):
    other = "http://127.0.0.1:9/mirror/a.tgz"
    line = refused(fetch(tmp_path, listed(tmp_path, f"- {DEAD} {other}"), "out", "", "a.en", "a.de"))
    assert DEAD in line and other in line and "--offline FOLDER" in line
    assert not list((tmp_path / "out").iterdir())


def test_what_breaks_off_or_is_cut_short_is_not_taken_for_whole(tmp_path, archive, server):
    line = refused(fetch(tmp_path, listed(tmp_path, f"- {server}/cut"), "out", "", "a.en"))
    assert "broke off (40 of " in line
    archive.write_bytes(Server.archive[:60])
    assert "a.tgz cannot be unpacked" in refused(fetch(tmp_path, listed(tmp_path, "-"), "out", tmp_path, "a.en"))
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"text " * 1000)[:-20])
    assert "a.en.gz cannot be unpacked" in refused(fetch(tmp_path, listed(tmp_path, "-"), "out", tmp_path, "a.en"))
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_or_a_cache_without_the_text_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    line = refused(fetch(tmp_path, listed(tmp_path, "-", "-"), "out", tmp_path / "empty", "a.en"))
    assert "neither a.en and a.de (also .xz, .gz) nor a.tgz nor a.tgz is in it" in line
    # a cache of sacreBLEU that no folder can be made in, so that no network is asked
    (tmp_path / "none").write_text("")
    (tmp_path / "list.txt").write_text("newstest2014.en,newstest2014.de - - sacrebleu:wmt14/full\n")
    line = refused(fetch(tmp_path, tmp_path / "list.txt", "out", "", "newstest2014.en"))
    assert "wmt14/full" in line and "--offline FOLDER" in line


def test_a_text_has_to_be_the_known_one_where_its_digest_is_listed(tmp_path, archive, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "common"))
    from fetching import fetch

    digest = hashlib.sha1(b"en\n").hexdigest()
    fetch(listed(tmp_path, "-"), tmp_path / "out", str(tmp_path), ["a.en"], sha1={"a.en": digest})
    (tmp_path / "out" / "a.en").unlink()
    with pytest.raises(SystemExit, match=f"a.en of .*a.tgz has sha1 {digest}, not 000"):
        fetch(tmp_path / "list.txt", tmp_path / "out", str(tmp_path), ["a.en"], sha1={"a.en": "0" * 40})
    assert not (tmp_path / "out" / "a.en").exists()


def test_another_file_than_the_listed_one_is_never_kept(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "common"))
    from fetching import fetch

    out, offline = tmp_path / "out", tmp_path / "offline"
    for folder in (out, offline):
        folder.mkdir()
        (folder / "a.json").write_text("error page")
    digest = hashlib.sha256(b"right").hexdigest()
    (tmp_path / "list.txt").write_text(f"a.json a.json sha256:{digest} {DEAD}\n")
    for given in ("", str(offline)):
        for _ in range(2):
            with pytest.raises(SystemExit, match=f"not {digest}"):
                fetch(tmp_path / "list.txt", out, given, ["a.json"])
    (offline / "a.json").write_text("right")
    fetch(tmp_path / "list.txt", out, str(offline), ["a.json"])
    assert (out / "a.json").read_text() == "right"
    # the same of files that are packed, and where the folder is given as itself: nothing is removed
    known = {"a.en": hashlib.sha1(b"en\n").hexdigest()}
    (out / "a.en").write_text("other")
    for given in (offline, out):
        with pytest.raises(SystemExit, match=f"not {known['a.en']}: it is another text"):
            (offline / "a.en").write_text("another")
            fetch(listed(tmp_path, "-"), out, str(given), ["a.en"], sha1=known)
        assert (out / "a.en").read_text() == "other"


def test_a_given_folder_comes_before_files_of_an_earlier_one(tmp_path, archive, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "common"))
    from fetching import fetch

    out, offline = tmp_path / "out", tmp_path / "offline"

    def fetched(*names):
        fetch(tmp_path / "list.txt", out, str(offline), ["a.en", "a.de"])
        return [(out / name).read_text() for name in names]

    out.mkdir()
    offline.mkdir()
    listed(tmp_path, "-", "-")
    (tmp_path / "list.txt").write_text((tmp_path / "list.txt").read_text().replace("a.tgz", "old.tgz", 1))
    (out / "old.tgz").write_text("stale")
    shutil.move(archive, offline)
    (out / "a.de").write_text("of a download\n")
    assert fetched("a.en", "a.de") == ["en\n", "de\n"]
    # texts beside the archive come first, and are copied again only if they have changed
    (offline / "a.en").write_text("new\n")
    assert fetched("a.en", "a.de") == ["new\n", "de\n"]
    times = [(out / name).stat().st_mtime_ns for name in ("a.en", "a.de")]
    assert fetched("a.en") == ["new\n"] and times == [(out / name).stat().st_mtime_ns for name in ("a.en", "a.de")]
    (offline / "a.en").write_text("newer\n")
    os.utime(offline / "a.en", (1, 1))
    os.utime(out / "a.en", (1, 1))  # a time says nothing
    assert fetched("a.en") == ["newer\n"]
    # half of a pair is refused, before the other half is copied
    (offline / "a.tgz").unlink()
    (out / "old.tgz").unlink()
    (offline / "a.en").write_text("newest\n")
    with pytest.raises(SystemExit, match="neither a.en and a.de"):
        fetched()
    assert (out / "a.en").read_text() == "newer\n"
    # what the given folder has nothing of remains
    (offline / "a.en").unlink()
    assert fetched("a.en", "a.de") == ["newer\n", "de\n"]


def entries(path):
    """The files that each line provides, its digest and addresses."""
    lines = [line.split() for line in path.read_text().splitlines() if line and line[0] != "#"]
    return [(names.split(","), digest, addresses) for names, _, digest, *addresses in lines]


def test_every_archive_of_glue_and_every_file_of_a_language_model_has_a_digest():
    found = entries(EXAMPLES / "glue" / "downloads.txt")
    assert len(found) == 11 and all(re.fullmatch("sha256:[0-9a-f]{64}", digest) for _, digest, _ in found)
    lists = sorted((EXAMPLES / "language_modeling" / "downloads").glob("*.txt"))
    assert len(lists) == 4
    for path in lists:
        digests = dict(reversed(line.split()) for line in path.with_suffix(".sha1").read_text().splitlines())
        assert all(len(digest) == 40 for digest in digests.values())
        for names, _, addresses in entries(path):
            assert names == list(digests) and all(address.startswith("https://") for address in addresses)


@pytest.mark.parametrize("recipe, settings", [("translation_wmt_en_de", "at5.sh"), ("roberta_pretraining", "large.sh")])
def test_every_text_of_the_settings_is_in_the_list(recipe, settings):
    folder = EXAMPLES / recipe
    provided = {name for names, _, _ in entries(folder / "downloads.txt") for name in names}
    names = "echo $TEXTS $TRAIN_TEXTS $VALID_TEXT $TEST_TEXTS"
    script = f"ROOT={EXAMPLES.parent}; cd {folder}; . ./settings.sh; {names}; . ./{settings}; {names}"
    printed = subprocess.check_output(["bash", "-c", script], text=True)
    for text in printed.split():
        assert text in provided or {f"{text}.en", f"{text}.de"} <= provided
