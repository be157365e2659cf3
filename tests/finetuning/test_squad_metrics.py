"""EM and F1 of SQuAD and CMRC 2018."""

import pytest

from fairseq_relpos.finetuning import squad_metrics


@pytest.mark.parametrize(
    "answer, normalised",
    [
        ("The U.S. army", "us army"),
        ("1,000 well-known\u2013 men", "1000 wellknown\u2013 men"),
        ("An  apple,\n a day", "apple day"),
        ("the", ""),
        ("“Theatre”", "“theatre”"),
    ],
)
def test_an_answer_is_normalised_as_the_official_scripts_do(answer, normalised):
    assert squad_metrics.normalise(answer) == normalised


def test_f1_counts_each_word_as_often_as_both_have_it():
    assert squad_metrics.f1("the cat cat sat", "a cat sat down") == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3))
    assert squad_metrics.f1("dog", "cat") == 0
    assert squad_metrics.f1("the", "a") == 0 and squad_metrics.exact("the", "a") == 1


def test_squad_1_takes_the_best_gold_answer_for_each_score():
    golds = {"q": ["Denver Broncos won", "Broncos"], "r": ["x"]}
    assert squad_metrics.squad_1({"q": "the Broncos", "r": "y"}, golds) == {"exact_match": 50.0, "f1": 50.0}


def test_a_question_without_a_prediction_is_an_error():
    with pytest.raises(ValueError, match="1 of 2 questions have no prediction, the first is r: predict all"):
        squad_metrics.squad_1({"q": "x"}, {"q": ["x"], "r": ["y"]})


def test_squad_2_scores_questions_with_and_without_an_answer():
    golds = {"a": ["red cat"], "b": [], "c": [], "d": ["the"]}
    scores = squad_metrics.squad_2({"a": "cat", "b": "", "c": "dog", "d": ""}, golds)
    assert scores == {
        "exact": 50.0,
        "f1": pytest.approx((2 / 3 + 2) / 4 * 100),
        "total": 4,
        "HasAns_exact": 50.0,  # of a and d, as evaluate-v2.0 has it: d has an answer, of which nothing is left
        "HasAns_f1": pytest.approx((2 / 3 + 1) / 2 * 100),
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    assert "NoAns_total" not in squad_metrics.squad_2({"a": "x"}, {"a": ["x"]})


def test_the_best_threshold_is_that_of_trying_all():
    golds = {"a": ["x"], "b": [], "c": ["y"], "d": [], "e": ["z"]}
    predictions = {"a": "x", "b": "n", "c": "y", "d": "n", "e": "wrong"}
    odds = {"a": -3.0, "b": 2.0, "c": 1.0, "d": -1.0, "e": 2.0}
    found = squad_metrics.best_thresholds(predictions, odds, golds)

    def at(threshold):
        given = {q: "" if odds[q] > threshold else predictions[q] for q in golds}
        return squad_metrics.squad_2(given, golds)["exact"]

    assert found["best_exact"] == at(found["best_exact_thresh"]) == max(map(at, [-4, -3, -1, 1, 2]))
    assert found["best_f1"] == 60.0 and found["best_f1_thresh"] == -3.0


def test_no_answer_at_all_may_be_best():
    golds = {"a": [], "b": []}
    found = squad_metrics.best_thresholds({"a": "n", "b": "n"}, {"a": 5.0, "b": 6.0}, golds)
    assert found["best_f1"] == 100.0 and found["best_f1_thresh"] < 5.0


def test_cmrc_counts_chinese_characters_and_whole_other_words():
    assert squad_metrics.cmrc_tokens("光荣和 ω-Force, 2018年！") == ["光", "荣", "和", "ωforce", ",", "2018", "年"]
    assert squad_metrics.cmrc_tokens("3.5公里, 1,000 元.") == ["3.5", "公", "里", ",", "1,000", "元", "."]
    assert squad_metrics.cmrc_exact("《战国无双》", "战国无双") == 1
    # the longest common run: 战国 of 4 and 3 tokens
    assert squad_metrics.cmrc_f1("战国无双", "大战国") == pytest.approx(2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3))
    assert squad_metrics.cmrc({"q": "战国"}, {"q": ["无", "战国"]}) == {"average": 100, "f1": 100, "exact_match": 100}
