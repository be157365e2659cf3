"""The parts of public data that the results of text_classification and squad are about: how they are cut."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def evaluated(recipe, expression):
    """In a process of its own: both recipes have a parts.py."""
    code = f"import sys; sys.path.insert(0, {str(EXAMPLES / recipe)!r}); import parts; print(repr({expression}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return eval(done.stdout)


def test_a_line_of_trec_is_in_one_part_and_a_line_of_mr_in_its_fold_or_left_out():
    rows = [["0", "a"], ["1", "b"], ["2", "c"]]
    assert evaluated("text_classification", f"dict(parts.tables({rows}, {rows}, {{2}}, '790'))") == {
        "TREC/train.tsv": [["label", "sentence"], ["0", "a"], ["2", "c"]],
        "TREC/test.tsv": [["label", "sentence"], ["1", "b"]],
        "MR/all.tsv": [["fold", "label", "sentence"], ["7", "0", "a"], ["0", "2", "c"]],
    }
    listed = evaluated("text_classification", "parts.read_parts()")
    assert len(set(listed["TREC.train.all"])) == 327 and len("".join(listed["rt-polarity.all"])) == 10662


def article(title, paragraphs):
    return {"title": title, "paragraphs": [{"context": f"{title} {number}", "qas": []} for number in range(paragraphs)]}


def test_squad_is_cut_by_articles():
    train = [article(str(number), 100) for number in range(14)]
    tested = evaluated("squad", "parts.TESTED")
    xquad = [article(title, 5) for title in ["Oxygen", *reversed(tested)]]
    found = evaluated("squad", f"parts.parts({train}, {xquad})")
    assert [one["title"] for one in found["train"]] == [str(number) for number in range(10)]
    assert [(one["title"], len(one["paragraphs"])) for one in found["valid"]] == [("10", 100), ("11", 95)]
    assert [one["title"] for one in found["test"]] == tested and len(tested) == 22


@pytest.mark.parametrize("recipe", ["squad", "text_classification"])
def test_other_files_are_refused_in_one_line_and_no_part_is_written(tmp_path, recipe):
    (tmp_path / "train.json").write_text(json.dumps({"data": [article(str(number), 1) for number in range(12)]}))
    (tmp_path / "xquad.json").write_text(
        json.dumps({"data": [article(title, 1) for title in evaluated("squad", "parts.TESTED")]})
    )
    flags = ["--train", tmp_path / "train.json", "--xquad", tmp_path / "xquad.json"]
    if recipe == "text_classification":
        flags = ["--offline", tmp_path / "files"]
        (tmp_path / "files").mkdir()
        (tmp_path / "files/TREC.train.all").write_text("0 a\n" * 5452)
        (tmp_path / "files/rt-polarity.all").write_text("0 a\n" * 10662)
    command = [sys.executable, EXAMPLES / recipe / "parts.py", tmp_path / "out", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    expected = {"squad": "would not be that of RESULTS.md", "text_classification": "it is another text"}
    assert done.returncode == 1 and expected[recipe] in line
    assert not [path for path in (tmp_path / "out").rglob("*.*") if path.suffix in (".tsv", ".json")]
