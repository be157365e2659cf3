from argparse import Namespace

import pytest

from fairseq_relpos.reports import losses
from fairseq_relpos.reports.training_log import Run


def finished(encoding, seed, *points, split="valid"):
    by_update = {100 * (i + 1): loss for i, loss in enumerate(points)}
    return Run(f"{encoding}-{seed}", encoding, seed, train=by_update, valid={split: by_update}, max_updates=300)


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_differences_are_paired_by_seed_and_not_of_the_means():
    runs = [
        finished("learned", 1, 5.0, 4.0),
        finished("learned", 2, 5.0, 3.0),
        finished("t5", 1, 5.0, 3.5),
        finished("t5", 3, 5.0, 1.0),
    ]
    head, _, learned, t5 = cells(losses.table(runs, "learned"))
    assert head == ["encoding", "seeds", "updates", "valid (nats)", "valid - learned"]
    assert learned == ["learned", "2", "200", "3.500 ± 0.707", "0"]
    assert t5 == ["t5", "2", "200", "2.250 ± 1.768", "-0.500"]


def test_a_difference_is_between_equal_numbers_of_updates():
    runs = [finished("learned", 1, 5.0, 4.0, 3.0), finished("t5", 1, 5.5, 4.25)]
    assert cells(losses.table(runs, "learned"))[3] == ["t5", "1", "200", "4.250", "+0.250"]


def test_a_run_that_was_never_validated_has_dashes():
    runs = [finished("learned", 1, 5.0), Run("t5-1", "t5", 1)]
    assert cells(losses.table(runs, "learned"))[3] == ["t5", "1", "-", "-", "-"]


def test_unknown_baseline_is_an_error_that_lists_the_runs():
    with pytest.raises(ValueError, match="--baseline shaw.*learned t5"):
        losses.table([finished("learned", 1, 5.0), finished("t5", 1, 5.0)], "shaw")


def test_the_picture_is_a_small_png(tmp_path):
    runs = [finished("learned", 1, 5.0, 4.0), finished("t5", 1, 5.0, 3.5), finished("t5", 2, 5.0, 3.4)]
    path = losses.plot(runs, tmp_path / "new" / "loss.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size < 200_000


def test_other_pictures_and_runs_without_validation_are_errors(tmp_path):
    with pytest.raises(ValueError, match="written as .png"):
        losses.plot([finished("learned", 1, 5.0)], tmp_path / "loss.pdf")
    with pytest.raises(ValueError, match="none of the runs has been validated"):
        losses.plot([Run("t5-1", "t5", 1)], tmp_path / "loss.png")


def test_the_command_needs_a_log(tmp_path):
    with pytest.raises(ValueError, match="no training log"):
        losses.run(Namespace(runs=[tmp_path / "absent"], baseline=None, output="loss.png"))
