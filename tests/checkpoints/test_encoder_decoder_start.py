"""A new position encoding in a trained encoder-decoder model: from stock BART, and from pretraining to translation."""

import argparse
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from refusals import assert_refused
from small_models import moved, save, transformer, translation_batch

from fairseq_relpos.checkpoints.encoder_decoder import start_encoder_decoder
from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.checkpoints.starting_point import nameless_words
from fairseq_relpos.cli import main
from fairseq_relpos.encodings import ENCODINGS
from fairseq_relpos.models.transformer import RelPosTransformer

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "golden" / "bart_tiny"
TABLES = {"encoder.embed_positions.weight", "decoder.embed_positions.weight"}


def load(path, rows, **more):
    """The model of a checkpoint, built as fairseq's commands build it."""
    state = load_checkpoint(path)
    args = argparse.Namespace(**{**vars(state["cfg"]["model"]), **more})
    words = nameless_words(rows)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
    model.load_state_dict(state["model"], strict=True)
    return model.eval()


@torch.no_grad()
def outputs(model, batch="b0"):
    io = np.load(GOLDEN / "io.npz")
    source, previous = (torch.from_numpy(io[f"{batch}_{name}"]).long() for name in ("src_tokens", "prev_output_tokens"))
    real = previous.ne(1)
    real[:, 0] = True
    found = model(source, source.ne(1).sum(1), previous)[0]
    return found[real], torch.from_numpy(io[f"{batch}_logits"])[real]


def test_stock_bart_starts_bart_learned_with_its_outputs(tmp_path):
    done = start_encoder_decoder(GOLDEN / "checkpoint.pt", tmp_path / "out.pt", "bart_learned")
    assert not done.fresh and not done.left_out
    ours, theirs = load(tmp_path / "out.pt", 44), load(GOLDEN / "checkpoint.pt", 44, arch="bart_base")
    for batch in ("b0", "b1"):
        found, golden = outputs(ours, batch)
        torch.testing.assert_close(found, golden, atol=2e-5, rtol=0)
        assert torch.equal(found, outputs(theirs, batch)[0])


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_every_encoding_starts_from_stock_bart_with_a_list_of_what_was_kept(name, tmp_path):
    done = start_encoder_decoder(GOLDEN / "checkpoint.pt", tmp_path / "out.pt", f"bart_{name}", seed=3)
    model, source = load(tmp_path / "out.pt", 44), load_checkpoint(GOLDEN / "checkpoint.pt")["model"]
    assert set(done.kept) | set(done.fresh) == set(dict(model.named_parameters()))
    assert set(done.fresh) <= {key for key in model.state_dict() if "position" in key}
    for key, tensor in model.state_dict().items():
        if key not in done.fresh and not key.endswith("encoding_version"):
            assert torch.equal(tensor, source[key]), key
    left = {key for key in TABLES if key not in done.kept}
    assert set(done.left_out) == left and (left == TABLES) != bool(TABLES & set(done.kept))


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A bart_t5 that a denoising task has trained, and has a head."""
    path = tmp_path_factory.mktemp("pretrained") / "bart.pt"
    model = transformer("bart_t5", task="denoising", criterion="cross_entropy", data="elsewhere")
    model.register_classification_head("mood", num_classes=3)
    save(moved(model), path)
    return path, model


def test_a_translation_starts_from_a_pretrained_bart_without_its_mask(pretrained, tmp_path, capsys):
    path, bart = pretrained
    assert main(["warm-start", str(path), str(tmp_path / "out.pt"), "--arch", "transformer_t5"]) == 0
    printed = capsys.readouterr().out
    assert "encoder.embed_tokens.weight <mask> [1, 24]" in printed and "mood.dense.weight" in printed
    assert "initialised, seed 1: 0 numbers; tensors: 0" in printed
    batch = translation_batch()
    found = load(tmp_path / "out.pt", 44)(*batch)[0]
    torch.testing.assert_close(found, bart(*batch)[0][..., :-1], atol=1e-6, rtol=0)
    # the printed flags build the same model
    flags = shlex.split(printed.splitlines()[-1].removeprefix("train with: "))
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    parser.add_argument("--arch")
    parser.add_argument("--finetune-from-model")
    RelPosTransformer.add_args(parser)
    args = parser.parse_args(flags)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    words = nameless_words(44)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    again = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task).eval()
    again.load_state_dict(load_checkpoint(args.finetune_from_model)["model"], strict=True)
    assert torch.equal(again(*batch)[0], found)
    start_encoder_decoder(path, tmp_path / "kept.pt", "transformer_t5", keep_mask=True)
    assert torch.equal(load(tmp_path / "kept.pt", 45)(*batch)[0], bart(*batch)[0])


def test_a_copying_transformer_keeps_its_head_and_the_flags_say_so_also_of_a_path_with_a_space(tmp_path, capsys):
    settings = {"task": "translation", "criterion": "cross_entropy", "data": "x", "share_all_embeddings": True}
    model = transformer("transformer_t5", copy_from_source=True, **settings)
    save(model, tmp_path / "in.pt")
    assert main(["warm-start", str(tmp_path / "in.pt"), str(tmp_path / "o ut.pt"), "--arch", "transformer_alibi"]) == 0
    flags = shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("train with: "))
    assert "--copy-from-source" in flags and flags[-2:] == ["--finetune-from-model", str(tmp_path / "o ut.pt")]
    kept = load_checkpoint(tmp_path / "o ut.pt")["model"]
    assert kept["decoder.copy_head.gate.weight"].equal(model.decoder.copy_head.gate.weight)


def test_each_stack_keeps_the_tables_that_mean_the_same_in_it(pretrained, tmp_path):
    positions = {"position_encoding": "encoder=bert_r,decoder=shaw"}
    done = start_encoder_decoder(pretrained[0], tmp_path / "out.pt", "transformer_t5", positions)
    assert "encoder.embed_positions.b" in done.kept and "encoder.embed_positions.weight" in done.fresh
    assert {key.split(".")[0] for key in done.fresh if "position_encoding" in key} == {"decoder"}
    assert "decoder.embed_positions.b" in done.left_out
    # what serves decoders alone leaves the encoder as stock BART has it
    done = start_encoder_decoder(GOLDEN / "checkpoint.pt", tmp_path / "out.pt", "transformer_cope")
    assert "encoder.embed_positions.weight" in done.kept and done.args.encoder_learned_pos
    assert set(done.left_out) == {"decoder.embed_positions.weight"}


def test_a_transformer_starts_a_bart_if_it_is_built_like_one(tmp_path):
    like_bart = {"share_all_embeddings": True, "layernorm_embedding": True, "no_scale_embedding": True}
    model = transformer("transformer_rope", task="translation", criterion="cross_entropy", data="x", **like_bart)
    save(model, tmp_path / "in.pt")
    done = start_encoder_decoder(tmp_path / "in.pt", tmp_path / "out.pt", "bart_rope")
    assert not done.fresh and not done.left_out and done.args.activation_fn == "relu"
    save(transformer("transformer_rope", task="translation", criterion="cross_entropy", data="x"), tmp_path / "in.pt")
    with pytest.raises(ValueError, match="trained without layernorm_embedding, .* use --arch transformer_rope"):
        start_encoder_decoder(tmp_path / "in.pt", tmp_path / "new.pt", "bart_rope")
    assert not (tmp_path / "new.pt").exists()


@pytest.mark.parametrize(
    "words, what",
    [
        (["--arch", "bart_t5_large"], "encoder_layers 2, but bart_t5_large has 12: use --arch bart_t5, which takes"),
        (["--arch", "bart_t5", "--max-positions", "99"], "--max-positions and --extend are for roberta_NAME"),
        (["--arch", "bart_tfive"], "--arch bart_tfive: give roberta_NAME, electra_NAME, bart_NAME or transformer_NAME"),
        (["--arch", "transformer_lm_t5"], "--arch transformer_lm_t5: give roberta_NAME, "),
        (["--arch", "bart_t5", "--keep-mask"], "--keep-mask changes nothing for --arch bart_t5 from"),
        (["--arch", "roberta_t5"], "checkpoint.pt is no RoBERTa checkpoint: it has an encoder and a decoder"),
        (["--arch", "roberta_t5", "--keep-mask"], "--keep-mask is for bart_NAME and transformer_NAME"),
    ],
)
def test_what_cannot_be_is_one_line_and_writes_nothing(words, what, tmp_path, capsys):
    assert_refused(["warm-start", GOLDEN / "checkpoint.pt", tmp_path / "out.pt", *words], what, capsys, tmp_path)


def test_a_file_of_another_kind_of_model_is_named(tmp_path):
    torch.save({"model": {"encoder.sentence_encoder.embed_tokens.weight": torch.ones(5, 2)}}, tmp_path / "in.pt")
    with pytest.raises(ValueError, match="in.pt is no checkpoint of an encoder with a decoder: it has no "):
        start_encoder_decoder(tmp_path / "in.pt", tmp_path / "out.pt", "bart_t5")
