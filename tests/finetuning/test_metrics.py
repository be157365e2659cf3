"""Scores of fine-tuning are those of scikit-learn and scipy."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from fairseq_relpos.criterions.metrics import check_classes, check_names, score, scores

random = np.random.default_rng(3)
WANTED = random.integers(0, 3, 200)
FOUND = np.where(random.random(200) < 0.6, WANTED, random.integers(0, 3, 200))
NUMBERS = random.normal(size=(2, 50)).round(1)  # with ties


def test_scores_of_classes_equal_scikit_learn():
    assert score("accuracy", FOUND, WANTED) == sklearn_metrics.accuracy_score(WANTED, FOUND)
    assert score("mcc", FOUND, WANTED) == sklearn_metrics.matthews_corrcoef(WANTED, FOUND)
    each = sklearn_metrics.f1_score(WANTED, FOUND, average=None)
    assert [score(f"f1_{label}", FOUND, WANTED) for label in range(3)] == pytest.approx(list(each), abs=0)
    assert score("f1", FOUND, WANTED) == each[1]
    assert score("accuracy_f1", FOUND, WANTED) == (sklearn_metrics.accuracy_score(WANTED, FOUND) + each[1]) / 2


@pytest.mark.parametrize("metric", ["f1_2", "f1", "accuracy_f1", "mcc"])
def test_the_metric_that_chose_the_model_is_among_the_scores(metric):
    assert scores(FOUND, WANTED, False, 3, metric)[metric] == score(metric, FOUND, WANTED)
    assert set(scores(FOUND, WANTED, False, 3, metric)) == {"accuracy", "mcc", metric}
    assert set(scores(FOUND, WANTED, False, 3)) == {"accuracy", "mcc"}


def test_scores_of_numbers_equal_scipy():
    found, wanted = NUMBERS
    assert score("pearson", found, wanted) == stats.pearsonr(found, wanted)[0]
    assert score("spearman", found, wanted) == stats.spearmanr(found, wanted)[0]
    assert list(scores(found, wanted, regression=True)) == ["pearson", "spearman", "pearson_spearman"]


def test_equal_predictions_have_no_correlation_and_no_matthews_correlation():
    assert score("pearson", [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0
    assert score("spearman", [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0
    assert score("mcc", [1, 1, 1], [0, 1, 0]) == 0


@pytest.mark.parametrize(
    "found, message", [([1.0], "1 predictions for 2 examples"), ([1.0, float("nan")], "diverged. Try a smaller --lr")]
)
def test_predictions_that_cannot_be_scored_are_an_error(found, message):
    with pytest.raises(ValueError, match=message):
        score("pearson", found, [0.0, 1.0])


def test_a_metric_for_other_labels_is_an_error_that_names_those_there_are():
    check_names(["f1_2", "mcc"], regression=False)
    for name, regression in (("pearson", False), ("f1", True), ("bleu", False)):
        with pytest.raises(ValueError, match="give (accuracy|pearson), "):
            check_names([name], regression)


def test_a_class_that_there_is_not_is_an_error():
    check_classes(["f1_2", "f1", "accuracy"], 3)
    with pytest.raises(ValueError, match="'f1_3', but there are 3 classes: give f1_0 to f1_2"):
        check_classes(["f1_3"], 3)
