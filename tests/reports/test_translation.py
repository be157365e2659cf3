import math
import subprocess
import sys

import pytest

pytest.importorskip("sacrebleu")

from fairseq_relpos.reports import translation_report as report  # noqa: E402
from fairseq_relpos.reports import translation_scores  # noqa: E402
from fairseq_relpos.reports.markdown import with_deviation  # noqa: E402
from fairseq_relpos.reports.training_log import Run  # noqa: E402

REFERENCES = [
    "Der gut-gelaunte Hund sieht die Katze.",
    "Heute macht der Mann die Tür auf, weil er will.",
    "Die Frau gibt dem Kind das alte Buch.",
    "Das ist ein Satz mit 3,5 Wörtern (oder mehr).",
]
SOURCES = ["a", "b", "a b c d", "a b c d e"]
HYPOTHESES = [
    "Der gut-gelaunte Hund sah die Katze.",
    "heute macht der Mann die Tür auf, weil er will.",
    "Die Frau gibt dem Kind das Buch.",
    "Das ist ein Satz mit 3,5 Wörtern (oder weniger).",
]


def scored(hypotheses=HYPOTHESES, references=REFERENCES, **how):
    texts = [translation_scores.Text.of(lines, "de", **how) for lines in (hypotheses, references)]
    return {score.name: score for score in translation_scores.scores(*texts)}


def command(tmp_path, hypotheses, references, *flags):
    """The output of the sacrebleu command: the score and its signature."""
    for name, lines in (("ours", hypotheses), ("theirs", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = [tmp_path / "theirs", "-i", tmp_path / "ours"]
    command = [sys.executable, "-m", "sacrebleu", *files, "-w", "6", "-f", "text", *flags]
    printed = subprocess.check_output(command, text=True)
    signature, score = printed.strip().split(" = ", 1)
    return float(score.split()[0]), signature


def check_against_command(score, tmp_path, hypotheses, references, *flags):
    value, signature = command(tmp_path, hypotheses, references, *flags)
    assert math.isclose(score.value, value, abs_tol=1e-5)
    assert score.signature == signature


def test_bleu_and_chrf_are_those_of_the_sacrebleu_command(tmp_path):
    found = scored()
    check_against_command(found["BLEU"], tmp_path, HYPOTHESES, REFERENCES, "-m", "bleu")
    check_against_command(found["chrF"], tmp_path, HYPOTHESES, REFERENCES, "-m", "chrf")


def test_chinese_is_scored_with_the_tokeniser_of_the_sacrebleu_command(tmp_path):
    ours, theirs = ["今天天气很好，我们去公园。"], ["今天天气很好，我们去公园吧。"]
    found = translation_scores.scores(*(translation_scores.Text.of(lines, "zh") for lines in (ours, theirs)))
    check_against_command(found[0], tmp_path, ours, theirs, "-m", "bleu", "-l", "en-zh")
    assert found[0].value > 50
    assert translation_scores.by_length(ours, ours, theirs, "zh", [])[0].bleu == pytest.approx(found[0].value)


def test_a_tokeniser_that_is_not_installed_is_one_line():
    with pytest.raises(ValueError, match=r"sacreBLEU cannot take ja apart: .*pip install sacrebleu\[ja\]$"):
        translation_scores.bleu("ja")


def test_multi_bleu_is_unsmoothed_bleu_on_moses_tokens(tmp_path):
    tokens = [translation_scores.Text.of(lines, "de").tokens for lines in (HYPOTHESES, REFERENCES)]
    assert tokens[1][3] == "Das ist ein Satz mit 3,5 Wörtern ( oder mehr ) ."
    flags = ["--tokenize", "none", "--smooth-method", "none", "--force", "-m", "bleu"]
    found = scored()
    check_against_command(found["multi-bleu"], tmp_path, *tokens, *flags)
    check_against_command(found["multi-bleu -lc"], tmp_path, *tokens, *flags, "-lc")
    assert found["multi-bleu -lc"].value > found["multi-bleu"].value


def test_compounds_are_split_at_hyphens_on_both_sides(tmp_path):
    split = "Der gut ##AT##-##AT## gelaunte Hund - ja - sieht ."
    assert translation_scores.split_compounds(["Der gut-gelaunte Hund - ja - sieht ."]) == [split]
    # Moses tokens with hyphens split, as those of WMT17
    assert translation_scores.split_compounds(["Der gut @-@ gelaunte Hund - ja - sieht ."]) == [split]
    sides = [
        translation_scores.split_compounds(translation_scores.Text.of(lines, "de").tokens)
        for lines in (HYPOTHESES, REFERENCES)
    ]
    flags = ["--tokenize", "none", "--smooth-method", "none", "--force", "-m", "bleu"]
    check_against_command(scored()["compound-split"], tmp_path, *sides, *flags)
    assert scored()["compound-split"].value != scored()["multi-bleu"].value


def test_text_that_is_tokenised_is_joined_for_sacrebleu_and_left_alone_for_multi_bleu():
    tokens = translation_scores.Text.of(REFERENCES, "de").tokens
    text = translation_scores.Text.of(tokens, "de", tokenised=True)
    assert (text.raw, text.tokens) == (REFERENCES, tokens)


def test_sentences_that_equal_the_reference_are_counted():
    assert scored(REFERENCES[:3] + HYPOTHESES[3:])["exact"].value == 75


def test_translations_come_back_in_the_order_of_the_source():
    lines = ["S-1\ta", "H-1\t-0.5\tsecond", "H-1\t-0.9\tworse", "2 | H-0", "H-0\t-0.1\tfirst", "H-2\t-1\t"]
    assert translation_scores.best_hypotheses(lines, 3) == ["first", "second", ""]


def test_a_lost_sentence_is_an_error_that_names_its_line():
    with pytest.raises(ValueError, match="1 of 3 sentences have no translation, the first in line 2"):
        translation_scores.best_hypotheses(["H-0\t0\ta", "H-2\t0\tb"], 3)
    with pytest.raises(ValueError, match="2 translations of 1 sentences"):
        translation_scores.best_hypotheses(["H-0\t0\ta", "H-1\t0\tb"], 1)


def test_buckets_hold_every_sentence_once_and_have_its_own_score():
    sources = ["a", "a b", "a b c d", "a b c d e f"]
    buckets = translation_scores.by_length(sources, HYPOTHESES, REFERENCES, "de", [1, 4, 5])
    assert [(b.label, b.sentences) for b in buckets] == [("0-1", 1), ("2-4", 2), ("6+", 1)]
    assert buckets[1].bleu == pytest.approx(scored(HYPOTHESES[1:3], REFERENCES[1:3])["BLEU"].value)
    assert buckets[1].length_ratio == pytest.approx((12 + 8) / (12 + 9))


def test_a_mean_has_a_deviation_where_there_are_several_values():
    assert with_deviation([1.25], digits=1) == "1.2"
    assert with_deviation([1, 3]) == "2.000 ± 1.414"
    assert with_deviation([1, 3], digits=1, sign="+") == "+2.0 ± 1.4"


# --- tables and pictures ---


def evaluated(encoding, seed, hypotheses=HYPOTHESES):
    run = Run(
        f"{encoding}-seed{seed}",
        encoding,
        seed,
        parameters=1234,
        seconds=120,
        train={50: 3.0, 100: 2.0},
        valid_nll={"valid": {50: 3.5, 100: 2.5 + seed}},
        tokens_per_second={50: 100, 100: 300},
    )
    texts = [translation_scores.Text.of(lines, "de") for lines in (hypotheses, REFERENCES)]
    buckets = translation_scores.by_length(SOURCES, hypotheses, REFERENCES, "de", [1, 2])
    return report.Evaluated(run, {"news": translation_scores.scores(*texts)}, {"news": buckets})


@pytest.fixture(scope="module")
def runs():
    none = evaluated("none", 1), evaluated("none", 2, HYPOTHESES[:3] + REFERENCES[3:])
    return [*none, evaluated("t5", 1, REFERENCES), evaluated("m4", 2)]


def cells(table, encoding):
    return next(line.split(" | ") for line in table.splitlines() if line.startswith(f"| {encoding} "))


def test_scores_are_means_over_seeds(runs):
    table = report.scores_table(runs, "news")
    bleu = [run.score("news", "BLEU") for run in runs[:2]]
    assert cells(table, "none")[1:3] == ["1 2", with_deviation(bleu, digits=1)]
    assert cells(table, "t5")[1:3] == ["1", "100.0"]


def test_signatures_stand_by_the_names_of_their_scores(runs):
    found = report.signatures(runs)
    assert found["BLEU"][1].startswith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert found["exact"] == ["% of the sentences that equal the reference"]


def test_training_is_told_by_its_last_loss_and_median_speed(runs):
    none = cells(report.training_table([run.run for run in runs]), "none")
    assert none[1:] == ["1,234", "100", "4.000 ± 0.707", "200", "2 |"]


def test_lengths_are_a_table_and_pictures(runs, tmp_path):
    found = report.buckets_of(runs, "news")
    table = report.length_table(found)
    assert "| encoding | 0-1 words (2) | 3+ words (2) |" in table
    assert cells(table, "t5")[1] == "100.0 (1.00)"
    assert report.plot_lengths({"news": found}, tmp_path / "lengths.png").stat().st_size > 5000
