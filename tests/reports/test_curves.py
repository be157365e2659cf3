from itertools import combinations

import matplotlib.colors
import pytest

from fairseq_relpos.encodings import ENCODINGS
from fairseq_relpos.reports import curves, figures


def drawn(monkeypatch, tmp_path, by_panel):
    kept = []
    monkeypatch.setattr(curves, "save", lambda figure, path: kept.append(figure) or path)
    curves.plot(by_panel, tmp_path / "a.png", "updates", "loss")
    return kept[0]


def test_few_lines_share_a_panel_and_are_named_at_their_ends(monkeypatch, tmp_path):
    runs = {"t5": [{100: 5.0, 200: 3.0}, {100: 4.0, 200: 2.0}], "shaw": [{100: 5.0, 200: 2.49}]}
    figure = drawn(monkeypatch, tmp_path, {"wiki": runs, "books": runs})
    panel, other = figure.axes
    assert (panel.get_title(), other.get_title()) == ("wiki", "books")
    t5, shaw = panel.get_lines()
    assert list(t5.get_xdata()) == [100, 200] and list(t5.get_ydata()) == [4.5, 2.5]
    assert t5.get_color() == figures.colour_of("t5") and shaw.get_color() == figures.colour_of("shaw")
    (band,) = panel.collections  # one seed has none
    assert band.get_paths()[0].get_extents().y1 == 5.0 and band.get_paths()[0].get_extents().y0 == 2.0
    names = {text.get_text(): text.xy[1] for text in panel.texts}
    assert set(names) == {"t5", "shaw"} and abs(names["t5"] - names["shaw"]) > 0.1


def test_many_lines_have_a_panel_each(monkeypatch, tmp_path):
    names = sorted(ENCODINGS)[: curves.MOST_LINES + 2]
    figure = drawn(monkeypatch, tmp_path, {"wiki": {name: [{1: 2.0, 2: 1.0}] for name in names}})
    shown = [panel for panel in figure.axes if panel.get_visible()]
    assert [panel.get_title() for panel in shown] == names
    assert all(len(panel.get_lines()) == len(names) for panel in shown)


def test_the_first_point_is_left_out_of_a_loss_alone():
    bleu = {"news": {"t5": [{"0-8": 97.0, "9-12": 60.0, "13-": 57.0}]}}
    assert curves.visible(bleu)[1] > 97 > curves.visible(bleu, skip_first=True)[1]


def test_runs_without_a_common_point_are_refused(tmp_path):
    with pytest.raises(ValueError, match="never validated at the same number of updates"):
        curves.plot({"": {"t5": [{1: 1.0}, {2: 1.0}]}}, tmp_path / "a.png", "updates", "loss")


def test_every_encoding_has_a_colour_of_its_own():
    assert set(figures.COLOURS) == set(ENCODINGS)
    for (one, first), (other, second) in combinations(figures.COLOURS.items(), 2):
        apart = max(abs(a - b) for a, b in zip(*map(matplotlib.colors.to_rgb, (first, second))))
        assert apart > 0.05, (one, other)
    assert figures.colour_of("t5 (num_buckets=16)") == figures.colour_of("t5")
    # others have the same in every process
    assert figures.colour_of("encoder=t5") == "C4" and figures.colour_of("encoder=t5,decoder=alibi") == "C5"


@pytest.mark.parametrize("by_panel", [{"": {"t5": [{1: 1.0}]}}, {"": {"t5": [{1: 1.0, 2: 1.0, 3: 1.0}]}}])
def test_a_range_is_never_empty(by_panel):
    low, high = curves.visible(by_panel)
    assert low < 1.0 < high
