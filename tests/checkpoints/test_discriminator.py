"""The discriminator of an ELECTRA as a RoBERTa, and an ELECTRA that starts from trained models."""

import shlex

import forked
import pytest
import torch
from fairseq_cli import train  # noqa: F401  forked runs find it imported
from fairseq_data import binarise, masked_lm
from loops import scale_up
from refusals import assert_refused
from small_models import loaded, roberta, sentences, trained

from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.cli import main
from fairseq_relpos.encodings import names_for

EMBEDDINGS = "encoder.sentence_encoder.embed_tokens.weight"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    trained("roberta_t5", folder / "roberta.pt")
    trained("electra_t5", folder / "electra.pt")
    return folder


def run(*arguments):
    return main([*map(str, arguments)])


@torch.no_grad()
@pytest.mark.parametrize("name", names_for(causal=False))
def test_an_exported_discriminator_is_a_roberta_with_the_same_outputs_to_the_last_bit(name, files, tmp_path, capsys):
    source = scale_up(roberta(f"electra_{name}", encoder_layers=1), 0.1).eval()
    state = torch.load(files / "electra.pt", weights_only=False)
    settings = {**state["cfg"], "model": source.args}
    source.args._name = source.args.arch
    torch.save({**state, "cfg": settings, "model": source.state_dict()}, tmp_path / "in.pt")
    assert run("export-discriminator", tmp_path / "in.pt", tmp_path / "out.pt") == 0
    assert f"--arch roberta_{name} " in capsys.readouterr().out.splitlines()[-1]
    state = load_checkpoint(str(tmp_path / "out.pt"))
    args = state["cfg"]["model"]
    assert (args.arch, state["cfg"]["criterion"]["_name"]) == (f"roberta_{name}", "masked_lm")
    assert not hasattr(args, "generator_size") and "last_optimizer_state" not in state
    model = roberta(**vars(args), seed=5).eval()
    model.load_state_dict(state["model"])
    expected = source.discriminator(sentences(), features_only=True)[0]
    assert model(sentences(), features_only=True)[0].equal(expected)
    # with a new head for masks
    assert state["model"]["encoder.lm_head.weight"].equal(state["model"][EMBEDDINGS])
    assert model(sentences())[0].shape[-1] == len(model.encoder.dictionary)


def test_fairseq_trains_an_exported_discriminator_on_with_the_flags_that_are_printed(tmp_path, capsys):
    data = binarise(tmp_path / "text", train=8, valid=8)
    flags = "--criterion electra --max-update 2 --no-epoch-checkpoints --generator-size 1/2 --position-layers first"
    forked.train(masked_lm(data, tmp_path / "run", *flags.split(), arch="electra_t5_small"), tmp_path / "log")
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    assert run("export-discriminator", checkpoint, tmp_path / "the out.pt") == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("train with: ")]
    flags = masked_lm(data, tmp_path / "next", "--max-update", 1, "--no-epoch-checkpoints")
    begin = flags.index("--arch")
    flags[begin : flags.index("--criterion")] = shlex.split(line.removeprefix("train with: "))
    assert "the out.pt (epoch 1 @ 0 updates)" in forked.train(flags, tmp_path / "log")


def test_another_encoding_keeps_both_parts_of_an_electra(tmp_path, capsys):
    source = trained("electra_t5", tmp_path / "in.pt", generator_size="2/3").state_dict()
    assert run("warm-start", tmp_path / "in.pt", tmp_path / "out.pt", "--arch", "electra_tupe_r") == 0
    out = capsys.readouterr().out
    assert "--arch electra_tupe_r " in out.splitlines()[-1] and "--generator-size 2/3" in out.splitlines()[-1]
    model = loaded(tmp_path / "out.pt").state_dict()
    common = {key for key in source if "position" not in key and not key.endswith("version")}
    assert all(model[key].equal(source[key]) for key in common) and {"score_tokens.project_out.weight"} < common
    assert all(model[f"{part}.encoder.sentence_encoder.embed_positions.p"].std() < 0.03 for part in PARTS)


PARTS = ("discriminator", "generator")


def test_both_parts_get_more_positions(tmp_path):
    source = trained("electra_tupe_r", tmp_path / "in.pt").state_dict()
    arguments = ["--arch", "electra_tupe_r", "--max-positions", 40]
    assert run("warm-start", tmp_path / "in.pt", tmp_path / "out.pt", *arguments) == 0
    model = loaded(tmp_path / "out.pt").state_dict()
    for part in PARTS:
        key = f"{part}.encoder.sentence_encoder.embed_positions.p"
        assert len(model[key]) == len(source[key]) + 8 and model[key][: len(source[key])].equal(source[key])


def test_a_roberta_becomes_the_discriminator_and_a_narrow_one_the_generator(tmp_path, capsys):
    wide = trained("roberta_t5", tmp_path / "wide.pt", head=True).state_dict()
    narrow = trained(
        "roberta_t5", tmp_path / "narrow.pt", encoder_embed_dim=16, encoder_attention_heads=2, encoder_ffn_embed_dim=32
    ).state_dict()
    arguments = ["--arch", "electra_t5", "--generator-size", "2/3"]
    assert run("warm-start", tmp_path / "wide.pt", tmp_path / "one.pt", *arguments) == 0
    arguments += ["--generator", tmp_path / "narrow.pt"]
    assert run("warm-start", tmp_path / "wide.pt", tmp_path / "both.pt", *arguments) == 0
    one, both = (loaded(tmp_path / name).state_dict() for name in ("one.pt", "both.pt"))
    for key, tensor in wide.items():
        if "lm_head" not in key and "classification_heads" not in key:
            assert one[f"discriminator.{key}"].equal(tensor) and both[f"discriminator.{key}"].equal(tensor)
    layers = [key for key in narrow if ".layers." in key or key.endswith("embed_positions.b")]
    assert len(layers) > 40 and all(both[f"generator.{key}"].equal(narrow[key]) for key in layers)
    assert not any(one[f"generator.{key}"].equal(narrow[key]) for key in layers if key.endswith("fc1.weight"))
    assert "left out" in capsys.readouterr().out


REFUSED = {
    "no discriminator": (
        "export-discriminator roberta.pt out.pt",
        "roberta.pt has no discriminator, so it is no ELECTRA",
    ),
    "no file": ("export-discriminator nothing.pt out.pt", "nothing.pt does not exist"),
    "itself": ("export-discriminator electra.pt electra.pt", "is the checkpoint to read, which is kept"),
    "to RoBERTa": ("warm-start electra.pt out.pt --arch roberta_t5", "first use `fairseq-relpos export-discriminator`"),
    "to transformers": ("export-hf electra.pt out", "first use `fairseq-relpos export-discriminator`"),
    "plot": ("plot bias electra.pt", "first use `fairseq-relpos export-discriminator`"),
    "size": ("warm-start roberta.pt out.pt --arch electra_t5_small", "use --arch electra_t5, which takes"),
    "share": ("warm-start roberta.pt out.pt --arch electra_t5 --generator-size 1/4", "--generator-size 1/4: the gen"),
    "generator": (
        "warm-start roberta.pt out.pt --arch electra_t5 --generator roberta.pt",
        "roberta.pt has 45 words and a width of 24, but the generator has 45 and 8",
    ),
    "flag of ELECTRA": (
        "warm-start roberta.pt out.pt --arch roberta_t5 --generator roberta.pt",
        "--generator is for --arch electra_NAME, not roberta_t5",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_one_line_and_writes_nothing(case, files, capsys, monkeypatch):
    arguments, message = REFUSED[case]
    monkeypatch.chdir(files)
    if "export-hf" in arguments:
        pytest.importorskip("transformers")
    assert_refused(arguments.split(), message, capsys)
