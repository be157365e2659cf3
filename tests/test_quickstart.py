"""The cheap parts of scripts/quickstart.sh: its arguments and its text."""

import lzma
import runpy
import subprocess
from pathlib import Path

import pytest
import pythons

ROOT = Path(__file__).parents[1]
COLLECT = ROOT / "examples" / "quickstart" / "collect_text.py"


@pytest.fixture(scope="module")
def collect():
    return runpy.run_path(str(COLLECT))


def test_prose_is_kept_and_joined_and_the_rest_of_a_docstring_is_not(collect):
    docstring = """Opens the ``file`` that is named and returns
        an object of :class:`~io.File`, which has to be closed.

        Args:
            mode (str, optional): r or w, default r

        >>> open("x") is a file that can be read from now on.

        -----  ------  ---- table of all the values it takes.

        Short line.
        """
    assert list(collect["prose"](docstring)) == [
        "Opens the file that is named and returns an object of io.File, which has to be closed."
    ]


def test_modules_are_read_and_not_imported(collect, tmp_path):
    module = tmp_path / "module.py"
    module.write_text('"""Says\nthat this sentence is long enough to be kept."""\nraise SystemExit\n')
    assert list(collect["paragraphs_of"](module)) == ["Says that this sentence is long enough to be kept."]
    module.write_text('"""unfinished')
    assert list(collect["paragraphs_of"](module)) == []


def collected(folder, *files):
    return pythons.run(COLLECT, folder / "train.txt", folder / "valid.txt", *files)


def quickstart(folder, *arguments):
    command = ["bash", ROOT / "scripts" / "quickstart.sh", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_files_are_split_without_losing_a_paragraph(tmp_path):
    lines = [f"paragraph number {i}" for i in range(600)]
    (tmp_path / "one.txt").write_text("\n\n".join(lines[:300]))
    with lzma.open(tmp_path / "two.txt.xz", "wt") as file:
        file.write("\n".join(lines[300:]))
    done = collected(tmp_path, tmp_path / "one.txt", tmp_path / "two.txt.xz")
    assert done.returncode == 0, done.stderr
    train, valid = ((tmp_path / f"{split}.txt").read_text().split("\n") for split in ("train", "valid"))
    train, valid = set(train) - {""}, set(valid) - {""}
    assert train | valid == set(lines) and not train & valid
    assert 20 <= len(valid) <= 60


@pytest.mark.parametrize(
    "name, content", [("a.txt", b""), ("a.txt", b"one\n"), ("a.txt", b"\xff\xfe"), ("a.txt.xz", b"no xz")]
)
def test_text_that_cannot_be_used_is_one_line_and_nothing_is_written(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    done = collected(tmp_path, tmp_path / name)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert name in line
    assert not (tmp_path / "train.txt").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--text"], "--text without a file"),
        (["--text", "absent.txt"], "--text absent.txt: no such file"),
        (["--out"], "--out without a folder"),
        (["absent.txt"], "absent.txt is not understood; usage"),
    ],
)
def test_wrong_arguments_are_one_line_before_anything_is_installed(tmp_path, arguments, message):
    done = quickstart(tmp_path, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert message in line


def test_a_folder_made_from_other_text_is_not_mixed_with_this_one(tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("hello\n")
    (tmp_path / "out" / "text").mkdir(parents=True)
    (tmp_path / "out" / "text" / "source.txt").write_text("other.txt\n")
    done = quickstart(tmp_path, "--text", "mine.txt", "--out", "out")
    assert done.returncode == 1
    assert "was made from other.txt" in done.stderr
    # nor with what the file was before
    (tmp_path / "out" / "text" / "source.txt").write_text(f"{text}\n")
    done = quickstart(tmp_path, "--text", "mine.txt", "--out", "out")
    assert done.returncode == 1 and f"was made from {text}, not from {text} (cksum " in done.stderr
