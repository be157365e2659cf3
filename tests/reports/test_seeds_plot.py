"""The picture of one figure of every run: its order, and runs that are far above the others."""

import math

import pytest

from fairseq_relpos.reports import figures, seeds_plot


def test_runs_far_above_the_others_are_beyond_the_edge():
    assert seeds_plot.edge_of([5.0, 1.3, 1.0, 1.1]) == pytest.approx(1.3 + 0.05 * 0.3)
    # evenly spread, most of them far, one alone
    for runs in ([1.0, 2.0, 3.0, 4.0], [1.0, 5.0, 5.1, 5.2], [1.0, 1.1, 5.0, 5.1], [2.0]):
        assert seeds_plot.edge_of(runs) == math.inf


def test_the_lowest_mean_is_on_top_and_a_far_run_has_its_figure(tmp_path, monkeypatch):
    drawn = []
    save = figures.save
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure.axes[0]) or save(figure, path))
    values = {"t5": {1: 3.6, 2: 3.62}, "m4": {1: 3.5, 2: 3.51}, "learned": {1: 4.0, 2: 5.6}}
    path = seeds_plot.plot(values, tmp_path / "seeds.png", "loss (nats)")
    assert path.stat().st_size > 0
    (panel,) = drawn
    assert [label.get_text() for label in panel.get_yticklabels()] == ["learned", "t5", "m4"]  # from below
    assert [text.get_text() for text in panel.texts] == ["5.60"]
    dots = {round(float(x), 2) for line in panel.lines if line.get_marker() == "o" for x in line.get_xdata()}
    assert dots == {3.5, 3.51, 3.6, 3.62, 4.0}
