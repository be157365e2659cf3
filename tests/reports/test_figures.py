"""Pictures as files."""

import re

import pytest

from fairseq_relpos.reports.figures import new_figure, picture_path, save


def drawn(path):
    figure, (panel,) = new_figure()
    panel.plot([0, 1, 4], label="a line")
    panel.legend()
    return save(figure, path).read_bytes()


@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_the_same_picture_is_the_same_file(ending, tmp_path):
    first, second = drawn(tmp_path / f"a{ending}"), drawn(tmp_path / f"another{ending}")
    assert first == second
    assert not re.search(rb"dc:date|\d\d:\d\d:\d\d|Software", first)
    assert sorted(x.name for x in tmp_path.iterdir()) == [f"a{ending}", f"another{ending}"]


@pytest.mark.parametrize("name", ["a.pdf", "a", "svg", "a.PNG.txt"])
def test_other_endings_are_refused(name):
    with pytest.raises(ValueError, match=f"--output {name}: pictures are written as .png or .svg"):
        picture_path(name)


def test_a_picture_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    before = drawn(path)
    figure, _ = new_figure()
    monkeypatch.setattr(figure, "savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(figure, path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
