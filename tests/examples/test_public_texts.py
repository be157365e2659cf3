"""The public texts of roberta_small: the rules by which they are made. The texts themselves have digests."""

import subprocess
import sys
from pathlib import Path

FETCH = Path(__file__).resolve().parents[2] / "examples" / "roberta_small" / "fetch.py"
PRELUDE = f"import sys; sys.path.insert(0, {str(FETCH.parent)!r}); import fetch; "


def evaluated(expression):
    """In a process of its own: another recipe has a fetch.py, too."""
    code = PRELUDE + f"print(repr({expression}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return eval(done.stdout)


def test_articles_lose_markup_and_what_it_leaves_in_brackets():
    text = (
        "Bell &amp;amp; Co\n\nBell (; born 1900) () made  bells (, of tin).\n! style=|x\nhttps://a.org\nin &lt;br&gt;"
    )
    assert evaluated(f"list(fetch.article_lines({text!r}))") == ["Bell & Co", "Bell (born 1900) made bells (of tin)."]


def test_novels_get_one_paragraph_a_line():
    long = "a line that is as wide as all others, and no paragraph."
    lines = ["CHAPTER I", long, long, "ends here.", "Another begins with", long, "Short, but goes on", "and ends"]
    text = "\r\n".join([*lines, "", "New", "-"])
    assert evaluated(f"list(fetch.paragraphs({text!r}))") == [
        "CHAPTER I",
        f"{long} {long} ends here.",
        f"Another begins with {long} Short, but goes on and ends",
        "New -",
    ]


def test_lines_of_any_width_are_paragraphs():
    assert evaluated("list(fetch.paragraphs('Miss Brown\\nby\\n' + 'word ' * 60))") == [
        "Miss Brown",
        "by",
        ("word " * 60).strip(),
    ]


def test_every_text_is_made_of_files_that_are_listed():
    texts = evaluated("{name: items for name, (digest, items) in fetch.read_texts().items()}")
    files = evaluated("[source.archive for source in fetch.read_list(fetch.HERE / 'downloads.txt')]")
    assert {name: len(items) for name, items in texts.items()} == {
        "wiki.train.txt": 5128,
        "books.train.txt": 33,
        "books.valid.txt": 2,
        "wiki.valid.txt": 135,
        "wiki.valid1.txt": 67,
        "wiki.valid2.txt": 68,
    }
    novels = texts["books.train.txt"] + texts["books.valid.txt"]
    assert sorted(files) == sorted([f"{name}.txt" for name in novels] + [f"wiki_{number:02}" for number in range(64)])


def test_a_file_that_is_missing_or_another_is_named_and_nothing_is_written(tmp_path):
    def fetch():
        command = [sys.executable, FETCH, tmp_path / "out", "--offline", tmp_path / "files"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert not list(tmp_path.glob("out/*.txt"))
        return done.stderr

    (tmp_path / "files").mkdir()
    assert "wiki_00" in fetch()
    (tmp_path / "files" / "wiki_00").write_text("another")
    assert "wiki_01" in fetch()
