"""fairseq-relpos score-questions, beside the programs whose definitions it has."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from refusals import assert_refused

from fairseq_relpos.cli import main
from fairseq_relpos.reports import question_scores

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "golden" / "question_scores.json").read_text("utf-8"))
OURS, THEIRS = GOLDEN["hypotheses"], GOLDEN["references"]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def named(*arguments):
    return {score.name: score.value for score in question_scores.scores(*arguments)}


def test_rouge_l_is_that_of_rouge_score_and_that_of_pycocoevalcap_each_under_its_name():
    for ours, theirs, one, other in zip(OURS, THEIRS, GOLDEN["rouge-score"], GOLDEN["pycocoevalcap"], strict=True):
        words = question_scores.rouge_words(ours), question_scores.rouge_words(theirs)
        assert question_scores.rouge_l(*words, beta=1) == pytest.approx(one, abs=1e-12)
        assert question_scores.rouge_l(ours.split(), theirs.split(), beta=1.2) == pytest.approx(other, abs=1e-12)
    found = named(OURS, THEIRS)
    for name in ("rouge-score", "pycocoevalcap"):
        assert found[f"ROUGE-L ({name})"] == pytest.approx(100 * sum(GOLDEN[name]) / len(OURS))


def test_bleu_is_that_of_pycocoevalcap_and_nltk():
    for theirs in GOLDEN["BLEU-4"].values():
        assert named(OURS, THEIRS)["BLEU-4"] == pytest.approx(100 * theirs, abs=1e-6)


@pytest.mark.skipif(
    not (shutil.which("java") and importlib.util.find_spec("pycocoevalcap")), reason="needs Java and pycocoevalcap"
)
def test_meteor_is_that_of_its_authors():
    assert named(OURS, THEIRS)["METEOR (1.5)"] == pytest.approx(100 * GOLDEN["METEOR 1.5"], abs=1e-6)


def test_meteor_comes_from_nltk_where_it_has_wordnet_and_from_nothing_otherwise(monkeypatch):
    nltk, scores = ModuleType("nltk.translate.meteor_score"), iter([0.5, 1.0])
    nltk.meteor_score = lambda references, hypothesis: next(scores)
    for name, module in (("nltk", ModuleType("nltk")), ("nltk.translate", ModuleType("t")), (nltk.__name__, nltk)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(question_scores.shutil, "which", lambda program: None)
    monkeypatch.setattr(question_scores.importlib.util, "find_spec", lambda name: name == "nltk" or None)
    (score,) = question_scores.meteor([["a"], ["b"]], [["a"], ["b"]])
    assert (score.name, score.value) == ("METEOR (nltk)", 75.0)

    def without_wordnet(references, hypothesis):
        raise LookupError

    nltk.meteor_score = without_wordnet
    assert question_scores.meteor([["a"]], [["b"]]) == []


def test_chinese_is_scored_by_characters_and_raw_text_by_sacrebleus_words(tmp_path, capsys):
    ours, theirs = write(tmp_path / "ours", ["谁 写了 这本书？"]), write(tmp_path / "theirs", ["这本书是谁写的？"])
    assert main(["score-questions", ours, theirs, "--tokens", "characters"]) == 0
    printed = capsys.readouterr().out
    # the longest common subsequence is 这本书？, 4 of 7 and 4 of 8 characters
    assert "ROUGE-L of characters, F1" in printed and f"{100 * 8 / 15:.2f}" in printed
    assert "ROUGE-L of characters, beta 1.2" in printed and "BLEU-4 of characters" in printed
    assert "METEOR: not computed; it is for words" in printed
    assert named(["Who won, then?"], ["Who won , then ?"], "13a")["ROUGE-L (pycocoevalcap)"] == 100
    assert named(["Who won ?"], ["who won ?"])["ROUGE-L (pycocoevalcap)"] < 100
    assert named(["Who won ?"], ["who won ?"], "spaces", True)["ROUGE-L (pycocoevalcap)"] == pytest.approx(100)


def test_the_command_prints_every_score_and_says_where_there_is_no_meteor(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(question_scores, "meteor", lambda ours, theirs: [])
    ours, theirs = write(tmp_path / "ours", [*OURS, ""]), write(tmp_path / "theirs", [*THEIRS, "why ?"])
    assert main(["score-questions", ours, theirs, "--json", str(tmp_path / "scores.json")]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "13 questions, tokens: spaces"
    assert "tok:none|smooth:none" in printed and printed.splitlines()[-1] == question_scores.NO_METEOR
    kept = json.loads((tmp_path / "scores.json").read_text())
    assert [score["name"] for score in kept] == ["BLEU-4", "ROUGE-L (rouge-score)", "ROUGE-L (pycocoevalcap)"]
    assert all(f"{score['value']:.2f}" in printed for score in kept)


@pytest.mark.parametrize(
    "ours, theirs, message",
    [
        (["a ?"] * 3, ["a ?"] * 4, "ours has 3 lines and "),
        ([], [], "theirs is empty"),
        (["a ?", "b ?"], ["a ?", "  "], "theirs, line 2 has no question"),
        (["a ?"], None, "No such file or directory"),
    ],
)
def test_files_that_cannot_be_compared_are_one_line(tmp_path, capsys, ours, theirs, message):
    paths = [write(tmp_path / "ours", ours), str(tmp_path / "theirs")]
    if theirs is not None:
        write(tmp_path / "theirs", theirs)
    command = ["score-questions", *paths, "--json", tmp_path / "scores.json"]
    assert_refused(command, ["fairseq-relpos score-questions: error: ", message], capsys, tmp_path)


def test_the_mark_with_which_windows_begins_a_text_is_no_word(tmp_path, capsys):
    ours, theirs = write(tmp_path / "ours", ["what is it ?"]), tmp_path / "theirs"
    theirs.write_bytes(b"\xef\xbb\xbfwhat is it ?\r\n")
    assert main(["score-questions", ours, str(theirs)]) == 0
    assert capsys.readouterr().out.count("100.00") == 3


def test_text_that_is_not_utf8_is_named(tmp_path, capsys):
    ours = write(tmp_path / "ours", ["a ?"])
    (tmp_path / "theirs").write_bytes(b"caf\xe9 ?\n")
    assert_refused(["score-questions", ours, tmp_path / "theirs"], "theirs is not UTF-8 (", capsys, tmp_path)
