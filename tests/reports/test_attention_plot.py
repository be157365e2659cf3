"""Attention probabilities of a trained model on a text."""

from argparse import Namespace

import pytest
import torch
from refusals import assert_refused
from small_models import dictionary, roberta, save, stack_of, transformer

from fairseq_relpos.cli import main
from fairseq_relpos.reports import attention_plot
from fairseq_relpos.reports.attention_plot import attention_weights

TEXT = "w1 w2 <mask> w4 w1"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "dict.txt").write_text("".join(f"w{i} 1\n" for i in range(40)))
    return folder


@pytest.fixture(scope="module")
def checkpoint(data):
    save(roberta("roberta_tupe_r"), data / "checkpoint.pt", data=str(data), task="masked_lm", criterion="masked_lm")
    return str(data / "checkpoint.pt")


@pytest.mark.parametrize("arch", ["roberta_tupe_r", "roberta_m4m", "roberta_learned"])
def test_weights_are_those_of_the_forward_pass(arch):
    stack = stack_of(roberta(arch)).eval()
    ids = torch.tensor([[0, 5, 6, 7, 2]])
    before = stack(ids)["encoder_out"][0]
    weights = attention_weights(stack, ids)
    assert weights.shape == (3, 3, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 3, 5))
    x = stack.forward_embedding(ids)[0].transpose(0, 1)
    attention = stack.layers[0].self_attn
    first = attention(x, x, x, need_head_weights=True)[1]
    torch.testing.assert_close(weights[0], first[:, 0])
    assert torch.equal(stack(ids)["encoder_out"][0], before), "no hook is left behind"
    assert not attention._forward_hooks and not attention._forward_pre_hooks


def test_a_stack_of_stock_fairseq_beside_ours(monkeypatch, tmp_path, capsys):
    model = transformer("transformer_t5", position_stacks="decoder").eval()
    task = Namespace(source_dictionary=dictionary(), target_dictionary=dictionary())
    settings = Namespace(model=model.args, task=Namespace(data=str(tmp_path)))
    monkeypatch.setattr(attention_plot, "load_model", lambda *_: (model, settings, task))
    command = ["plot", "attention", "x.pt", "--text", "w1 w2", "--target", "w3 w4 w5", "--output", f"{tmp_path}/a.svg"]
    assert main([*command, "--stack", "decoder"]) == 0
    assert "decoder: 2 layers x 3 heads x 4 tokens" in capsys.readouterr().out
    assert main([*command, "--stack", "encoder"]) == 1
    assert "the encoder of x.pt is stock fairseq" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_a_text_becomes_a_picture(ending, checkpoint, tmp_path, capsys):
    path = tmp_path / f"attention{ending}"
    assert main(["plot", "attention", checkpoint, "--text", TEXT, "--output", str(path)]) == 0
    printed = capsys.readouterr().out
    # <s> and </s> around the five
    assert "encoder: 3 layers x 3 heads x 7 tokens" in printed and str(path) in printed
    assert path.stat().st_size > 10_000


def test_words_that_the_model_does_not_know_are_named(checkpoint, tmp_path, capsys):
    command = ["plot", "attention", checkpoint, "--text", "w1 cat $w2$", "--layers", "3", "--heads", "1,3"]
    assert main([*command, "--output", f"{tmp_path}/a.svg"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "not in the dictionary, read as <unk>: cat $w2$",
        "encoder: 1 layers x 2 heads x 5 tokens",
    ]


@pytest.mark.parametrize(
    "more, what",
    [
        (["--text", " "], "--text is empty"),
        (["--text", "the cat"], "nothing of it is in the dictionary, it begins with 'the'"),
        (["--text", "w1 " * 40], ["a sequence of 42 tokens, but ", " 32 absolute positions"]),
        (["--text", TEXT, "--stack", "decoder"], "--stack decoder: this model has no decoder"),
        (["--text", TEXT, "--layers", "4"], "--layers 4: numbers from 1 to 3"),
        (["--text", TEXT, "--heads", "one"], "--heads one: numbers from 1 to 3"),
        (["--text", TEXT, "--data", "absent"], "absent"),
        (["--text", TEXT, "--sentencepiece-model", "absent"], "absent is no SentencePiece model"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(more, what, checkpoint, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(["plot", "attention", checkpoint, *more], what, capsys)


def test_a_sentencepiece_model_beside_the_dictionary_is_used(checkpoint, data, tmp_path, capsys):
    sentencepiece = pytest.importorskip("sentencepiece")
    text = data / "text"
    text.write_text("\n".join(f"w{i % 40} w{i % 7}" for i in range(200)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "spm"), vocab_size=15, minloglevel=2
    )
    command = ["plot", "attention", checkpoint, "--text", "w1", "--output", str(tmp_path / "a.png")]
    assert main(command) == 0
    (tmp_path / "spm.model").rename(data / "spm.model")
    try:
        assert main(command) == 1, "the pieces are no words of this dictionary"
        assert "begins with '\u2581" in capsys.readouterr().err
    finally:
        (data / "spm.model").unlink()
