"""The pictures of the encodings' own functions."""

import pytest
import torch

from fairseq_relpos.cli import main
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.reports.encoding_plots import row_values


@pytest.mark.parametrize("kind", ["buckets", "prior-matrix", "distance", "curve"])
def test_each_kind_writes_its_picture(kind, tmp_path, capsys):
    what = ["at5"] if kind == "curve" else []
    path = tmp_path / "deep" / "picture.png"
    assert main(["plot", kind, *what, "--output", str(path)]) == 0
    assert path.stat().st_size < 400_000 and str(path) in capsys.readouterr().out


def test_a_curve_is_the_bias_that_attention_adds():
    encoding = build("t5", Dims(8, 2, 64), num_buckets=8, max_distance=20)
    values, label = row_values(encoding, encoding.stack, 30)
    assert values.shape == (2, 59) and "nats" in label
    offsets = torch.arange(-29, 30)
    assert torch.equal(values, encoding.stack.b[encoding.rows(offsets)].T)


def test_a_gain_has_a_curve_too():
    encoding = build("m1", Dims(8, 2, 64))
    values, label = row_values(encoding, encoding.stack, 10)
    assert "factor" in label and torch.equal(values[0, :9].flip(0), values[0, 10:])


@pytest.mark.parametrize("name", ["shaw", "tupe_r", "learned"])
def test_an_encoding_without_a_curve_is_named(name, tmp_path, capsys):
    assert main(["plot", "curve", name, "--output", str(tmp_path / "x.png")]) == 1
    assert f"{name} is no function of the relative position alone" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
