"""The pictures of the encodings' own functions."""

from argparse import Namespace

import pytest
import torch
from refusals import assert_refused
from small_models import roberta

from fairseq_relpos.cli import main
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.reports import encoding_plots
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


@pytest.mark.parametrize("name", ["shaw", "tupe_r", "learned", "cope"])
def test_an_encoding_without_a_curve_is_named(name, tmp_path, capsys):
    what = f"{name} has no bias or factor of the relative position alone"
    assert_refused(["plot", "curve", name, "--output", tmp_path / "x.png"], what, capsys, tmp_path)


def drawn(monkeypatch, tmp_path, arch, **options):
    """The title of a trained model's curve, or the error."""
    model = roberta(arch, **options.pop("settings", {}))
    monkeypatch.setattr(encoding_plots, "load_positions", lambda *_: (model, Namespace(model=model.args), 7))
    titles = []
    monkeypatch.setattr(encoding_plots, "save", lambda figure, path: titles.append(figure.axes[0].get_title()))
    options.setdefault("reach", 6)
    given = {"what": "x.pt", "stack": None, "layer": None, "output": tmp_path / "x.png", **options}
    encoding_plots.plot_curve(Namespace(**given))
    return titles[0]


def test_a_curve_of_a_model_says_which_layer_it_is_of(monkeypatch, tmp_path):
    def title(*arguments, **options):
        return drawn(monkeypatch, tmp_path, *arguments, **options)

    assert title("roberta_t5") == "t5"  # one table for all layers
    assert title("roberta_m1") == "m1, layer 1"
    assert title("roberta_m1", settings={"position_layers": "2,3"}) == "m1, layer 2"
    assert title("roberta_m1", layer=3) == "m1, layer 3"
    assert title("roberta_t5", settings={"position_layers": "2"}, layer=2)
    with pytest.raises(ValueError, match="--layer 1: this layer has no positions; layers that have: 2, 3$"):
        title("roberta_t5", settings={"position_layers": "2,3"}, layer=1)
    with pytest.raises(ValueError, match="--layer 4: the layers are 1 to 3"):
        title("roberta_m1", layer=4)
    with pytest.raises(ValueError, match="bert_r has 32 absolute positions here: give --reach 31 or less"):
        title("roberta_bert_r", reach=32)


@pytest.mark.parametrize("causal", [False, True])
def test_a_curve_of_a_causal_stack_has_no_keys_to_the_right(causal, monkeypatch, tmp_path):
    monkeypatch.setattr(encoding_plots, "names_for", lambda causal: [] if is_causal else ["t5"])
    lines, is_causal = [], causal
    monkeypatch.setattr(encoding_plots, "save", lambda figure, path: lines.extend(figure.axes[0].lines))
    given = {"what": "t5", "position_hparams": "", "heads": 2, "seed": 1, "reach": 6, "output": tmp_path / "x.png"}
    encoding_plots.plot_curve(Namespace(**given))
    assert lines[0].get_xdata().tolist() == list(range(-6, 1 if causal else 7))
