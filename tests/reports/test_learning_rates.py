import math

import pytest
from training_logs import log_of, valid

from fairseq_relpos.reports import learning_rates
from fairseq_relpos.reports.training_log import Run


def run(encoding, seed, *ends, nll=None):
    valid = {f"valid{i or ''}": {100: 9.0, 200: end} for i, end in enumerate(ends)}
    without = {"valid": {200: nll}} if nll else {}
    return Run(f"{encoding}{seed}", encoding, seed, valid=valid, valid_nll=without)


def test_the_last_validation_counts_without_label_smoothing_if_it_is_known():
    assert learning_rates.figure_of(run("t5", 1, 3.0, 4.0)) == 3.5
    assert learning_rates.figure_of(run("t5", 1, 3.0, nll=2.0)) == 2.0
    rising = Run("t51", "t5", 1, valid={"valid": {100: 3.0, 200: 3.25}})
    assert learning_rates.figure_of(rising) == 3.25
    with pytest.raises(ValueError, match="t51 has not been validated"):
        learning_rates.figure_of(run("t5", 1))


def log(folder, rate, *bits, trained=True):
    run = folder / f"lr{rate}/t5-seed1"
    run.mkdir(parents=True)
    log_of(run, *(valid(100 * number, value) for number, value in enumerate(bits, 1)), seed=1)
    end = run / ("trained" if trained else "diverged")
    end.write_text(f"'fairseq-train' 'd' '--user-dir' '.' '--lr' '{rate}'\n")


def test_the_best_rate_is_the_lowest_of_those_that_did_not_diverge(tmp_path):
    log(tmp_path, "1e-3", 6, 5)
    log(tmp_path, "2e-3", 6, 3, 4.5)  # better, but it rises in the end
    log(tmp_path, "4e-3", 6, math.nan)
    log(tmp_path, "8e-3", 6, trained=False)
    rates = ["1e-3", "2e-3", "4e-3", "8e-3"]
    tried = learning_rates.tried(tmp_path, rates, "t5", "1")
    assert tried == {"1e-3": pytest.approx(5 * math.log(2)), "2e-3": math.inf, "4e-3": math.inf, "8e-3": math.inf}
    assert learning_rates.best_of(tmp_path, rates, "t5", "1") == "1e-3"
    log(tmp_path, "2e-2")  # never validated
    for of, message in (
        ([*rates, "1e-2"], "t5, seed 1: no training with 1e-2 to its end yet"),
        (["2e-3", "4e-3"], "t5, seed 1: it has diverged with every rate: 2e-3, 4e-3"),
        (["2e-2"], "t5-seed1 has not been validated"),
    ):
        with pytest.raises(ValueError, match=message):
            learning_rates.best_of(tmp_path, of, "t5", "1")


def test_a_run_that_is_made_longer_has_no_figure_until_it_ends(tmp_path):
    log(tmp_path, "1e-3", 6, 5)
    begun, trained = (tmp_path / "lr1e-3" / "t5-seed1" / name for name in ("command", "trained"))
    begun.write_text("'fairseq-train' '--max-update' '9'\n")
    assert learning_rates.tried(tmp_path, ["1e-3"], "t5", "1") == {}
    trained.write_text(begun.read_text())
    assert list(learning_rates.tried(tmp_path, ["1e-3"], "t5", "1")) == ["1e-3"]
