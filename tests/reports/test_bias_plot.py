from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from refusals import assert_refused
from small_models import dictionary, language_model, roberta, stack_of, transformer

from fairseq_relpos.biases import position_biases
from fairseq_relpos.checkpoints.starting_point import save
from fairseq_relpos.cli import main
from fairseq_relpos.reports import bias_plot, figures


def biases(arch, length=9, **settings):
    return position_biases(stack_of(roberta(arch, **settings)), length)


def test_a_shared_bias_is_one_map_a_head_and_constant_along_diagonals():
    found = biases("roberta_t5")
    assert list(found) == [""]
    bias_HTS = found[""]
    assert bias_HTS.shape == (3, 9, 9)
    torch.testing.assert_close(bias_HTS[:, 1:, 1:], bias_HTS[:, :-1, :-1])
    assert bias_HTS.std() > 0


def test_the_bias_is_what_attention_adds():
    stack = stack_of(roberta("roberta_tupe_r"))
    (bias_HTS,) = position_biases(stack, 9).values()
    seen = []
    attention = stack.layers[0].self_attn
    terms = attention.position_encoding.terms

    def record(*args):
        seen.append(terms(*args))
        return seen[-1]

    attention.position_encoding.terms = record
    stack.eval()(torch.tensor([[0, 5, 6, 7, 8, 9, 10, 11, 2]]))
    torch.testing.assert_close(seen[0].dense_bias()[0], bias_HTS)


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


def test_an_encoding_without_a_bias_is_named(tmp_path, monkeypatch):
    model = roberta("roberta_learned")
    settings = Namespace(model=model.args)
    monkeypatch.setattr(bias_plot, "load_positions", lambda *_: (model, settings, 7))
    with pytest.raises(ValueError, match="learned has no position bias"):
        bias_plot.run(Namespace(checkpoint="x.pt", data=None, stack=None, length=None, output=tmp_path / "b.png"))


def sequence_encoder(arch):
    args = Namespace(encoder_embed_dim=24, encoder_attention_heads=3, max_source_positions=32)
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=dictionary(), channels=2, num_labels=5)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    model.args = args
    return model


def adaptive(arch):
    cutoffs = {"adaptive_softmax_cutoff": "20,30", "adaptive_input_cutoff": "20,30"}
    return language_model(arch, adaptive_input=True, criterion="adaptive_loss", **cutoffs)


def fewer_words_to_predict(arch):
    task = SimpleNamespace(source_dictionary=dictionary(40), target_dictionary=dictionary(20))
    return language_model(arch, task=task)


@pytest.mark.parametrize(
    "build, arch, task",
    [
        (roberta, "roberta_t5", "masked_lm"),
        (transformer, "transformer_t5", "translation"),
        (adaptive, "transformer_lm_t5", "language_modeling"),
        (fewer_words_to_predict, "transformer_lm_t5", "language_modeling"),
        (sequence_encoder, "sequence_encoder_t5", "sequence_labels"),
    ],
)
def test_a_checkpoint_alone_is_enough(build, arch, task, tmp_path, monkeypatch, capsys):
    model = build(arch)
    args = Namespace(**{**vars(model.args), "arch": arch, "_name": arch})
    settings = convert_namespace_to_omegaconf(
        Namespace(**{"criterion": "cross_entropy", **vars(args)}, task=task, data="no/such/folder")
    )
    save(tmp_path / "start.pt", settings, args, model)
    titles = []
    monkeypatch.setattr(figures, "save", lambda figure, path: titles.append(figure.get_suptitle()) or path)
    assert main(["plot", "bias", str(tmp_path / "start.pt"), "--length", "9"]) == 0
    stack = model.encoder if hasattr(model, "encoder") else model.decoder
    expected = position_biases(getattr(stack, "sentence_encoder", stack), 9)[""]
    assert f"3 heads x 9 x 9 tokens, {expected.min():.2f} to {expected.max():.2f}" in capsys.readouterr().out
    # nothing has been learned: the encoding was put into trained weights
    assert titles == ["Position bias of t5 as it starts, before any update"]

    state = torch.load(tmp_path / "start.pt", weights_only=False)
    state["optimizer_history"][-1]["num_updates"] = 1200
    torch.save(state, tmp_path / "later.pt")
    assert main(["plot", "bias", str(tmp_path / "later.pt"), "--length", "9"]) == 0
    assert titles[1:] == ["Position bias of t5 after 1,200 updates"]


def test_a_picture_that_needs_data_names_its_own_flag(tmp_path, capsys):
    model = roberta("roberta_t5", task="masked_lm", criterion="masked_lm", data="no/such/folder")
    args = Namespace(**{**vars(model.args), "_name": "roberta_t5"})
    save(tmp_path / "a.pt", convert_namespace_to_omegaconf(args), args, model)
    command = ["plot", "attention", tmp_path / "a.pt", "--text", "w1", "--output", tmp_path / "a.png"]
    assert_refused(command, ["no/such/folder", "--data"], capsys, tmp_path)
