import math

import pytest

from fairseq_relpos.reports import learning_rates
from fairseq_relpos.reports.training_log import Run


def run(encoding, seed, rate, *ends, nll=None):
    valid = {f"valid{i or ''}": {100: 9.0, 200: end} for i, end in enumerate(ends)}
    without = {"valid": {200: nll}} if nll else {}
    return Run(f"{encoding}{seed}", encoding, seed, learning_rate=rate, valid=valid, valid_nll=without)


def test_the_last_validation_counts_without_label_smoothing_if_it_is_known():
    assert learning_rates.figure_of(run("t5", 1, "1e-3", 3.0, 4.0)) == 3.5
    assert learning_rates.figure_of(run("t5", 1, "1e-3", 3.0, nll=2.0)) == 2.0
    with pytest.raises(ValueError, match="t51 has not been validated"):
        learning_rates.figure_of(run("t5", 1, "1e-3"))


def test_rates_of_one_seed_in_order_and_the_best_of_them():
    runs = [run("t5", 1, "2e-3", 3.0), run("t5", 1, "10e-4", 3.2), run("t5", 2, "4e-3", 1.0), run("m4", 1, "1", 5.0)]
    tried = learning_rates.tried(runs, 1)
    assert list(tried["t5"].items()) == [("10e-4", 3.2), ("2e-3", 3.0)] and tried["m4"] == {"1": 5.0}
    assert learning_rates.best(tried["t5"]) == "2e-3"
    assert learning_rates.best({"1": math.nan, "2": 9.0}) == "2"


def test_without_a_run_that_has_ended_there_is_no_choice(tmp_path):
    with pytest.raises(SystemExit, match="no run of t5 with seed 1 in .* has come to its end"):
        learning_rates.main(str(tmp_path), "t5", "1")
