from argparse import Namespace

import pytest
import torch
from small_models import roberta, stack_of

from fairseq_relpos.reports import bias_plot


def biases(arch, length=9, **settings):
    return bias_plot.position_biases(stack_of(roberta(arch, **settings)), length)


def test_a_shared_bias_is_one_map_a_head_and_constant_along_diagonals():
    found = biases("roberta_t5")
    assert list(found) == [""]
    bias_HTS = found[""]
    assert bias_HTS.shape == (3, 9, 9)
    torch.testing.assert_close(bias_HTS[:, 1:, 1:], bias_HTS[:, :-1, :-1])
    assert bias_HTS.std() > 0


def test_the_bias_is_what_attention_adds():
    stack = stack_of(roberta("roberta_tupe_r"))
    (bias_HTS,) = bias_plot.position_biases(stack, 9).values()
    seen = []
    attention = stack.layers[0].self_attn
    terms = attention.position_encoding.terms

    def record(*args):
        seen.append(terms(*args))
        return seen[-1]

    attention.position_encoding.terms = record
    stack.eval()(torch.tensor([[0, 5, 6, 7, 8, 9, 10, 11, 2]]))
    torch.testing.assert_close(seen[0].dense_bias()[0], bias_HTS)


def test_layers_with_a_bias_of_their_own_have_a_row_each():
    found = biases("roberta_t5", position_hparams="per_layer=True")
    assert list(found) == ["layer 1", "layer 2", "layer 3"]
    assert not torch.equal(found["layer 1"], found["layer 2"])


@pytest.mark.parametrize("arch", ["roberta_none", "roberta_learned", "roberta_bert_ad"])
def test_encodings_without_a_bias_have_nothing_to_draw(arch):
    assert biases(arch) == {}


def test_more_positions_than_the_table_has_are_an_error():
    with pytest.raises(ValueError, match="33 tokens.*32 absolute positions"):
        biases("roberta_tupe_r", length=33)


def test_the_picture_is_a_small_png(tmp_path):
    found = biases("roberta_t5", position_hparams="per_layer=True")
    path = bias_plot.plot(found, "t5", tmp_path / "bias.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size < 200_000


@pytest.mark.parametrize("length, message", [(0, "--length 0"), (None, "learned has no position bias")])
def test_what_cannot_be_drawn_is_said_in_one_line(tmp_path, monkeypatch, length, message):
    model = roberta("roberta_learned")
    settings = Namespace(model=model.args)
    monkeypatch.setattr(bias_plot, "load_model", lambda *_: (model, settings, None))
    with pytest.raises(ValueError, match=message):
        bias_plot.run(Namespace(checkpoint="x.pt", data=None, stack=None, length=length,
                               output=tmp_path / "b.png"))
