"""The recipe through its own scripts, sized for seconds; and the conventions of its figures on text counted by hand."""

import hashlib
import json
import math
import runpy
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "language_modeling"
COMMON = ROOT / "examples" / "common"


@pytest.fixture
def programs(monkeypatch):
    """The programs of the recipe in this process: name -> its functions."""
    monkeypatch.syspath_prepend(str(COMMON))
    monkeypatch.syspath_prepend(str(RECIPE))
    return lambda name: runpy.run_path(str(RECIPE / f"{name}.py"))


# --- the texts ---


class Server(BaseHTTPRequestHandler):
    """Of one archive; it refuses the User-Agent that urllib has by itself, as some servers do."""

    archive = b""

    def do_HEAD(self):
        refused = self.headers["User-Agent"].startswith("Python-urllib") or not self.path.endswith("/there.zip")
        self.send_response(403 if refused else 200)
        self.send_header("Content-Length", str(0 if refused else len(self.archive)))
        self.end_headers()
        return not refused

    def do_GET(self):
        if self.do_HEAD():
            self.wfile.write(self.archive)

    def log_message(self, *unused):
        pass


@pytest.fixture
def server(tmp_path):
    with zipfile.ZipFile(tmp_path / "packed", "w") as packed:
        packed.writestr("deep/wiki.test.tokens", "a <unk> \n")
    Server.archive = (tmp_path / "packed").read_bytes()
    found = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()


def test_the_first_archive_that_answers_is_taken_and_the_text_has_to_be_the_known_one(
    programs, server, tmp_path, capsys
):
    fetch = programs("fetch")["main"]
    (tmp_path / "texts.txt").write_text(
        f"wiki.test.tokens gone.zip - {server}/gone.zip\nwiki.test.tokens there.zip - {server}/there.zip\n"
    )
    digest = hashlib.sha1(b"a <unk> \n").hexdigest()
    (tmp_path / "texts.sha1").write_text(f"{digest}  wiki.test.tokens\n")
    fetch(tmp_path / "texts.txt", tmp_path / "out", "")
    assert (tmp_path / "out" / "wiki.test.tokens").read_text() == "a <unk> \n"
    assert f"downloading {server}/there.zip" in capsys.readouterr().out

    (tmp_path / "texts.sha1").write_text(f"{'0' * 40}  wiki.test.tokens\n")
    (tmp_path / "out" / "wiki.test.tokens").unlink()
    with pytest.raises(SystemExit, match=f"wiki.test.tokens of the archive has sha1 {digest}, not 000"):
        fetch(tmp_path / "texts.txt", tmp_path / "out", "")
    assert not (tmp_path / "out" / "wiki.test.tokens").exists()
    # a folder that has neither the text nor one of the archives
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="neither wiki.test.tokens .* nor gone.zip nor there.zip is in it"):
        fetch(tmp_path / "texts.txt", tmp_path / "new", str(tmp_path / "empty"))


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPE.glob("downloads/*.txt")))
def test_every_file_of_a_list_of_downloads_has_a_digest(name, monkeypatch):
    monkeypatch.syspath_prepend(str(COMMON))
    sources = runpy.run_path(str(COMMON / "fetching.py"))["read_list"](RECIPE / "downloads" / f"{name}.txt")
    lines = [line.split() for line in (RECIPE / "downloads" / f"{name}.sha1").read_text().splitlines()]
    for source in sources:
        assert source.provides == [file for _, file in lines]
        assert all(address.startswith("https://") for address in source.addresses)
    assert all(len(digest) == 40 for digest, _ in lines)


# --- counts and figures ---

TEXT = " = Title = \n\nthe  cat sat ,\n"  # 3 lines; 3 + 0 + 4 words; "= Title =", "" and "the cat sat ,"


def test_words_and_line_ends_are_counted_as_the_papers_do(programs, tmp_path, capsys):
    (tmp_path / "test.txt").write_text(TEXT)
    programs("corpus")["encode"]("words", "-", tmp_path, "test")
    counts = json.loads((tmp_path / "test.counts.json").read_text())
    assert counts == {"lines": 3, "tokens": 10, "words": 10, "bytes": None}
    assert (tmp_path / "test.units").read_text() == "= Title =\n\nthe cat sat ,\n"
    figures = programs("figures")
    # each token with probability 1/4
    assert figures["FIGURES"]["words"][1](10 * math.log(4), counts) == pytest.approx(4)


def test_bits_per_byte_are_of_the_text_whatever_the_pieces(programs, tmp_path, monkeypatch):
    corpus, figures = programs("corpus"), programs("figures")
    pieces = corpus["pieces"]
    (tmp_path / "train.txt").write_text("the cat sat on the mat , a title of cats\n" * 20)
    (tmp_path / "test.txt").write_text(f"{TEXT}snow: 雪\n")
    pieces.vocabulary(str(tmp_path / "train.txt"), str(tmp_path / "spm"), 285, "identity", "bytes")
    corpus["encode"]("pieces", str(tmp_path / "spm.model"), tmp_path, "test")
    counts = json.loads((tmp_path / "test.counts.json").read_text())
    units = (tmp_path / "test.units").read_text().splitlines()
    assert units[-1].endswith("<0xE9> <0x9B> <0xAA>")  # a character that the training text lacks
    assert counts["bytes"] == (9 + 1) + (0 + 1) + (13 + 1) + (6 + 3 + 1)
    assert counts["words"] == 10 + 3 and counts["lines"] == 4
    assert counts["tokens"] == sum(len(line.split()) + 1 for line in units)
    # one bit for each byte
    nats = counts["bytes"] * math.log(2)
    assert figures["FIGURES"]["pieces"][1](nats, counts) == pytest.approx(1)
    assert figures["perplexity_per_word"](nats, counts) == pytest.approx(2 ** (35 / 13))


def test_a_word_that_the_training_text_lacks_is_an_error_and_no_unk(programs, tmp_path):
    (tmp_path / "dict.txt").write_text("cat 3\nsat 2\n")
    (tmp_path / "test.units").write_text("cat <unk> sat\nthe cat\n")
    with pytest.raises(SystemExit, match="test, line 2: the word 'the' is not in the training text: set VOCABULARY"):
        programs("corpus")["closed"](tmp_path / "dict.txt", tmp_path, "test")


@pytest.mark.parametrize("text", ["128", "128/", "0/128", "64/640/400/1", "a/b"])
def test_an_evaluation_that_is_none_is_named(programs, text):
    with pytest.raises(SystemExit, match="is not TOKENS/MEMORY or TOKENS/MEMORY/CLAMP"):
        programs("score")["evaluation_of"](text)
