import math
from argparse import Namespace

import pytest

from fairseq_relpos.reports import curves, loss_plot
from fairseq_relpos.reports.training_log import Run


def finished(encoding, seed, *points, split="valid"):
    by_update = {100 * (i + 1): loss for i, loss in enumerate(points)}
    return Run(f"{encoding}-{seed}", encoding, seed, train=by_update, valid={split: by_update})


def test_the_picture_is_a_small_png(tmp_path):
    runs = [finished("learned", 1, 5.0, 4.0), finished("t5", 1, 5.0, 3.5), finished("t5", 2, 5.0, 3.4)]
    path = loss_plot.plot(runs, tmp_path / "new" / "loss.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size < 200_000


def test_losses_are_without_label_smoothing(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(curves, "plot", lambda by_title, *_, **__: drawn.append(by_title))
    run = finished("t5", 1, 5.0, 4.0)
    run.valid_nll = {"valid": {100: 3.0, 200: 2.0}}
    loss_plot.plot([run], tmp_path / "loss.png")
    assert drawn == [{"valid": {"t5": [{100: 3.0, 200: 2.0}]}}]


def test_a_line_whose_runs_end_apart_is_named_where_it_ends(monkeypatch, tmp_path, capsys):
    runs = [finished("t5", 1, 5.0, 4.0, 3.0), finished("t5", 2, 5.0), finished("shaw", 1, 5.0, 3.5, 3.2)]
    runs = iter([*runs, finished("m4", 1, 5.0, 4.5, math.inf)])
    monkeypatch.setattr(loss_plot, "read_run", lambda path: next(runs))
    figures = []
    monkeypatch.setattr(curves, "save", lambda figure, path: figures.append(figure))
    loss_plot.run(Namespace(runs=[1, 2, 3, 4], output=tmp_path / "x.png"))
    assert "t5: its runs end at 100, 300 updates" in capsys.readouterr().out
    places = {text.get_text(): text.xy for text in figures[0].axes[0].texts}
    assert places == {"t5": (100, 5.0), "shaw": (1.01, 3.2), "m4": (200, 4.5)}
    with pytest.raises(ValueError, match="all runs have diverged"):
        loss_plot.plot([finished("t5", 1, math.nan, math.nan)], tmp_path / "x.png")


def test_runs_without_validation_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="none of the runs has been validated"):
        loss_plot.plot([Run("t5-1", "t5", 1)], tmp_path / "loss.png")


def test_the_command_needs_a_log(tmp_path):
    with pytest.raises(ValueError, match="no training log"):
        loss_plot.run(Namespace(runs=[tmp_path / "absent"], output="loss.png"))
