"""A new position encoding in a trained RoBERTa."""

import argparse
import re
import shlex
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq_data import USER_DIR, fairseq_ok
from refusals import assert_refused
from small_models import SIZES, loaded, roberta, sentences, stack_of, trained

from fairseq_relpos.checkpoints import warm_start as warm_start_module
from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.checkpoints.tupe import import_tupe
from fairseq_relpos.checkpoints.warm_start import warm_start
from fairseq_relpos.cli import main
from fairseq_relpos.cli.warm_start import train_flags
from fairseq_relpos.encodings import names_for
from fairseq_relpos.models.roberta import RelPosRoberta
from fairseq_relpos.signature import to_text

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "golden"
POSITIONS = "encoder.sentence_encoder.embed_positions."


def in_old_layout(path):
    """The same file as fairseq 0.8 wrote it: args, decoder., packed in_proj."""
    state = torch.load(path, weights_only=False)
    weights = {}
    for key, tensor in state["model"].items():
        key = key.replace("encoder.", "decoder.", 1).replace("layernorm_embedding", "emb_layer_norm")
        packed = re.match(r"(.*self_attn\.)q_proj\.(weight|bias)", key)
        if packed:
            parts = [state["model"][f"{packed[1]}{p}_proj.{packed[2]}".replace("decoder", "encoder", 1)] for p in "qkv"]
            weights[f"{packed[1]}in_proj_{packed[2]}"] = torch.cat(parts)
        elif not re.search(r"self_attn\.[kv]_proj", key) and not key.endswith("version"):
            weights[key] = tensor
    cfg = state.pop("cfg")
    torch.save({**state, "model": weights, "args": cfg["model"]}, path)


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    """Path and model of a stock fairseq RoBERTa."""
    path = str(tmp_path_factory.mktemp("stock") / "stock.pt")
    return path, trained("roberta", path)


@pytest.mark.parametrize("name", names_for(causal=False))
def test_every_encoding_starts_from_stock_fairseq(name, stock, tmp_path):
    path, source = stock
    done = warm_start(path, str(tmp_path / "out.pt"), f"roberta_{name}", seed=3)
    model = loaded(str(tmp_path / "out.pt"))
    own = {k for k in model.state_dict() if "position" in k}
    assert set(done.kept) | set(done.fresh) == set(dict(model.named_parameters()))
    assert set(done.fresh) <= own
    untrained = roberta(f"roberta_{name}", seed=3).state_dict()
    for key, tensor in model.state_dict().items():
        expected = untrained if key in done.fresh or key.endswith("encoding_version") else source.state_dict()
        assert torch.equal(tensor, expected[key]), key
    learned = POSITIONS + "weight"
    assert set(done.left_out) == (set() if learned in model.state_dict() else {learned})


def test_learned_positions_started_from_stock_give_stock_outputs(stock, tmp_path):
    path, source = stock
    warm_start(path, str(tmp_path / "out.pt"), "roberta_learned")
    with torch.no_grad():
        assert torch.equal(loaded(str(tmp_path / "out.pt"))(sentences())[0], source(sentences())[0])


def test_a_checkpoint_of_fairseq_0_8_gives_the_same(stock, tmp_path):
    path, _ = stock
    old = tmp_path / "old.pt"
    old.write_bytes(Path(path).read_bytes())
    in_old_layout(old)
    assert "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight" in load_checkpoint(old)["model"]
    from_new = warm_start(path, str(tmp_path / "new.pt"), "roberta_t5")
    from_old = warm_start(str(old), str(tmp_path / "out.pt"), "roberta_t5")
    assert (from_old.kept, from_old.fresh) == (from_new.kept, from_new.fresh)
    with torch.no_grad():
        expected = loaded(str(tmp_path / "new.pt"))(sentences())[0]
        assert torch.equal(loaded(str(tmp_path / "out.pt"))(sentences())[0], expected)


def test_a_checkpoint_is_read_once(stock, monkeypatch):
    read_files, load = [], torch.load
    monkeypatch.setattr(torch, "load", lambda path, **more: read_files.append(path) or load(path, **more))
    assert warm_start_module.read(stock[0])["cfg"].model.arch
    assert read_files == [stock[0]]


def test_what_two_encodings_share_is_kept_and_the_rest_named(tmp_path):
    source = trained("roberta_tupe_r", tmp_path / "in.pt")
    done = warm_start(str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), "roberta_bert_ad")
    model = loaded(str(tmp_path / "out.pt"))
    assert torch.equal(stack_of(model).embed_positions.u_q.weight, stack_of(source).embed_positions.u_q.weight)
    assert set(done.fresh) == {POSITIONS + "p"}
    n, dim = SIZES["max_positions"], SIZES["encoder_embed_dim"]
    assert done.left_out == {POSITIONS + "p": (n + 1, dim), POSITIONS + "b": (33, 3)}


@pytest.mark.parametrize(
    "one, other, positions",
    [
        ("shaw", "m3", {"position_hparams": "init=ones"}),
        ("shaw", "lfhc", {"position_hparams": "heads=shared"}),
        ("m4", "m4m", {}),
        ("transformer_xl", "gcdf", {}),
    ],
)
def test_a_table_of_another_method_is_as_new(one, other, positions, tmp_path):
    """Shapes and names agree, what they mean does not: lfhc's rows count i - j, shaw's j - i."""
    settings = {"position_hparams": "max_distance=31"} if one == "shaw" else {}
    source = trained(f"roberta_{one}", tmp_path / "in.pt", **settings)
    done = warm_start(str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), f"roberta_{other}", positions)
    shared = [
        key
        for key, p in source.named_parameters()
        if ("position_encoding" in key or "embed_positions" in key) and key in {**done.kept, **done.fresh}
    ]
    assert shared and set(shared) <= set(done.fresh) and not any("position" in key for key in done.kept)


def test_the_parameters_of_another_bias_of_dape_are_as_new(tmp_path):
    trained("roberta_dape", tmp_path / "in.pt")
    positions = {"position_hparams": "bias=kerple_power"}
    done = warm_start(str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), "roberta_dape", positions)
    assert {key.partition(".position_encoding.")[2] for key in done.fresh} == {"stack.r"}
    assert done.changed == ["bias=kerple_log -> kerple_power"]


@pytest.mark.parametrize(
    "one, other, kept, fresh",
    [
        ("learned", "bert_r", ["weight"], ["b"]),
        ("t5", "bert_r", ["b"], ["weight"]),
        ("bert_r", "t5", ["b"], []),
        ("m4m", "abs_m4m", [], ["weight"]),
    ],
)
def test_a_table_of_the_same_meaning_is_kept(one, other, kept, fresh, tmp_path):
    trained(f"roberta_{one}", tmp_path / "in.pt")
    done = warm_start(str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), f"roberta_{other}")
    assert set(done.fresh) == {POSITIONS + name for name in fresh}
    assert {POSITIONS + name for name in kept} <= set(done.kept)


@pytest.mark.parametrize(
    "flag, name", [("--no-layernorm-embedding", "layernorm_embedding"), ("--scale-embedding", "no_scale_embedding")]
)
def test_a_model_with_other_embeddings_trains_on(tmp_path, capsys, flag, name):
    trained("roberta_t5", tmp_path / "in.pt", **{name: False})
    assert main(["warm-start", str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), "--arch", "roberta_shaw"]) == 0
    assert flag in capsys.readouterr().out.splitlines()[-1]
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    RelPosRoberta.add_args(parser)
    assert getattr(parser.parse_args([flag]), name) is False
    assert not hasattr(parser.parse_args([]), name)


@pytest.mark.parametrize(
    "name, hparams, max_positions",
    [
        *((name, "", 48) for name in names_for(causal=False)),
        *((name, "per_layer=True", 48) for name in ("t5", "t5_nob", "at5", "at5_nob")),
        *((name, "", None) for name in ("t5", "at5", "kerple_log", "tupe_r")),
    ],
)
def test_the_same_encoding_keeps_everything(name, hparams, max_positions, tmp_path):
    source = trained(f"roberta_{name}", tmp_path / "in.pt", position_hparams=hparams)
    done = warm_start(tmp_path / "in.pt", tmp_path / "out.pt", f"roberta_{name}", max_positions=max_positions)
    assert not done.fresh and not done.left_out and not done.changed
    with torch.no_grad():
        assert torch.equal(loaded(str(tmp_path / "out.pt"))(sentences())[0], source(sentences())[0])


def test_settings_of_the_same_encoding_are_those_of_the_source_and_the_flags_say_what_a_training_does_not_adopt(
    tmp_path, capsys
):
    settings = {"position_hparams": "max_distance=64", "position_layers": "1,3", "attention_window": "8"}
    trained("roberta_t5", tmp_path / "in.pt", **settings)
    assert main(["warm-start", f"{tmp_path}/in.pt", f"{tmp_path}/out.pt", "--arch", "roberta_t5"]) == 0
    printed = capsys.readouterr().out
    assert '--position-layers "1,3" --attention-window "8"' in printed and "changed" not in printed
    assert "max_distance=64" in load_checkpoint(tmp_path / "out.pt")["cfg"]["model"].position_hparams


@pytest.mark.parametrize(
    "one, settings, other, max_positions, fresh",
    [
        ("t5", "max_distance=64", "bert_r", None, ["b", "weight"]),  # other distances in the same rows
        ("t5", "scale_bias=True", "bert_r", None, ["b", "weight"]),
        ("kerple_log", "per_layer=False", "kerple_power", None, ["r"]),  # one name, two functions
        # a row before that of position 0
        ("tupe_a", "", "tupe_a_tie_cls", None, ["p"]),
        ("tupe_a", "", "tupe_a_tie_cls", 33, ["p"]),
        ("tupe_a", "", "tupe_a_tie_cls", 48, ["p"]),
        ("bert_ad", "", "tupe_a", 48, ["p"]),
    ],
)
def test_rows_of_another_meaning_are_as_new(one, settings, other, max_positions, fresh, tmp_path):
    trained(f"roberta_{one}", tmp_path / "in.pt", position_hparams=settings)
    positions = {"position_hparams": "per_layer=False"} if other == "kerple_power" else {}
    done = warm_start(
        tmp_path / "in.pt", tmp_path / "out.pt", f"roberta_{other}", positions, max_positions=max_positions
    )
    assert set(done.fresh) == {POSITIONS + name for name in fresh} and not done.extended


def test_the_seed_decides_what_is_new_and_nothing_else(stock, tmp_path):
    before = torch.random.get_rng_state()
    models = []
    for seed in (1, 1, 2):
        warm_start(stock[0], str(tmp_path / "out.pt"), "roberta_tupe_r", seed=seed)
        models.append(load_checkpoint(str(tmp_path / "out.pt"))["model"])
    assert all(torch.equal(models[0][k], models[1][k]) for k in models[0])
    changed = {k for k in models[0] if not torch.equal(models[0][k], models[2][k])}
    assert changed == {POSITIONS + k for k in ("p", "b", "u_q.weight", "u_k.weight")}
    assert torch.equal(before, torch.random.get_rng_state())


def test_other_hyperparameters_take_over_the_table_get_their_own_signature_and_are_named(tmp_path, capsys):
    source = trained("roberta_t5", tmp_path / "in.pt", position_hparams="max_distance=64")
    command = ["warm-start", f"{tmp_path}/in.pt", f"{tmp_path}/out.pt", "--arch", "roberta_t5"]
    assert main([*command, "--position-hparams", "max_distance=32"]) == 0
    assert "trained with another value: max_distance=64 -> 32\n" in capsys.readouterr().out
    positions = stack_of(loaded(str(tmp_path / "out.pt"))).embed_positions
    assert torch.equal(positions.b, stack_of(source).embed_positions.b)
    assert "max_distance:32" in to_text(positions.encoding_version)


def test_a_changed_setting_without_weights_is_named_and_one_of_a_layer_without_positions_is_left_out(tmp_path):
    trained("roberta_rope", tmp_path / "in.pt", position_hparams="layer.3.base=50", position_layers="every.1")
    positions = {"position_hparams": "base=500", "position_layers": "1,2"}
    done = warm_start(tmp_path / "in.pt", tmp_path / "out.pt", "roberta_rope", positions)
    assert set(done.changed) == {"base=10000 -> 500", "layer.3.base=50 -> none", "layers=all -> 1,2"}
    trained("roberta_shaw", tmp_path / "shaw.pt")
    done = warm_start(tmp_path / "shaw.pt", tmp_path / "out.pt", "roberta_shaw", {"position_hparams": "values=True"})
    assert done.changed == ["values=False -> True"]


def test_settings_of_the_new_encoding_are_saved_and_those_of_the_old_forgotten(tmp_path):
    trained("roberta_t5", tmp_path / "in.pt", position_hparams="num_buckets=16", position_layers="first")
    positions = {"position_hparams": "max_distance=64"}
    warm_start(str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), "roberta_tupe_r", positions)
    state = load_checkpoint(str(tmp_path / "out.pt"))
    model = state["cfg"]["model"]
    assert (model.arch, model._name, model.position_encoding) == ("roberta_tupe_r",) * 2 + ("tupe_r",)
    assert "num_buckets=32 max_distance=64" in model.position_hparams and model.position_layers == "all"
    assert "pe:tupe_r|num_buckets:32|max_distance:64" in to_text(state["model"][POSITIONS + "encoding_version"])
    assert {k: getattr(model, k) for k in SIZES} == SIZES


def test_random_positions_belong_to_the_encoding(tmp_path):
    trained("roberta_t5", tmp_path / "in.pt", randomized_positions=64)  # more than the positions of tupe_r
    start = str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), "roberta_tupe_r"
    assert warm_start(*start).args.randomized_positions is None
    done = warm_start(*start, {"randomized_positions": 20})
    assert '--randomized-positions "20"' in " ".join(train_flags("out.pt", done.args, {"randomized_positions": 20}))


def test_the_other_encoding_of_position_encoding_flag_wins_over_the_name(stock, tmp_path):
    positions = {"position_encoding": "t5", "position_layers": "1,3"}
    done = warm_start(stock[0], str(tmp_path / "out.pt"), "roberta_tupe_r", positions)
    assert set(done.fresh) == {POSITIONS + "b"}


def test_classification_heads_are_kept(tmp_path):
    source = trained("roberta", tmp_path / "in.pt", head=True)
    done = warm_start(str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), "roberta_tupe_a")
    assert done.kept["classification_heads.mood.out_proj.weight"] == (3, 24)
    weights = load_checkpoint(str(tmp_path / "out.pt"))["model"]
    for key, tensor in source.classification_heads.state_dict().items():
        assert torch.equal(weights[f"classification_heads.{key}"], tensor)


def test_a_source_without_language_model_head_gets_a_new_one_on_its_own_embeddings(stock, tmp_path):
    state = torch.load(stock[0], weights_only=False)
    state["model"] = {k: v for k, v in state["model"].items() if "lm_head" not in k}
    torch.save(state, tmp_path / "in.pt")
    done = warm_start(str(tmp_path / "in.pt"), str(tmp_path / "out.pt"), "roberta_none")
    names = "bias", "dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias"
    assert set(done.fresh) == {f"encoder.lm_head.{name}" for name in names}
    embeddings = stock[1].state_dict()["encoder.sentence_encoder.embed_tokens.weight"]
    weights = load_checkpoint(str(tmp_path / "out.pt"))["model"]
    assert torch.equal(weights["encoder.lm_head.weight"], embeddings)
    assert torch.equal(weights["encoder.sentence_encoder.embed_tokens.weight"], embeddings)


def test_the_training_begins_anew(stock, tmp_path):
    warm_start(stock[0], str(tmp_path / "out.pt"), "roberta_t5")
    state = load_checkpoint(str(tmp_path / "out.pt"))
    assert "last_optimizer_state" not in state
    assert state["extra_state"] == {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
    assert state["optimizer_history"][-1]["num_updates"] == 0


def test_fairseq_trains_on_with_the_flags_that_are_printed(tmp_path, capsys):
    data = tmp_path / "data"
    shutil.copytree(GOLDEN / "tupe_databin", data)
    for kind in ("bin", "idx"):
        shutil.copy(data / f"valid.{kind}", data / f"train.{kind}")
    import_tupe(str(GOLDEN / "tupe_r_prenorm" / "checkpoint.pt"), str(data / "in.pt"), str(GOLDEN / "tupe_dict.txt"))
    out = tmp_path / "out.pt"
    arguments = ["--arch", "roberta_t5", "--position-hparams", "num_buckets=16 max_distance=40"]
    assert main(["warm-start", str(data / "in.pt"), str(out), *arguments]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("train with: ")]
    assert line == (
        "train with: --arch roberta_t5 --encoder-layers 3 --encoder-embed-dim 48 --encoder-ffn-embed-dim 96"
        " --encoder-attention-heads 4 --encoder-normalize-before --max-positions 40"
        f' --position-hparams "num_buckets=16 max_distance=40" --finetune-from-model {out}'
    )
    printed = fairseq_ok(
        *f"train {data} --user-dir {USER_DIR} --cpu --save-dir {tmp_path}/run --task masked_lm".split(),
        *"--criterion masked_lm --tokens-per-sample 40 --batch-size 8 --num-workers 0".split(),
        *"--required-batch-size-multiple 1 --optimizer adam --lr 0.01 --max-update 2".split(),
        *shlex.split(line.removeprefix("train with: ")),
    )
    assert "out.pt (epoch 1 @ 0 updates)" in printed
    saved = load_checkpoint(str(tmp_path / "run" / "checkpoint_last.pt"))
    assert saved["optimizer_history"][-1]["num_updates"] == 2
    assert saved["model"][POSITIONS + "b"].shape == (16, 4)


def test_the_listing_says_what_became_of_every_tensor(stock, tmp_path, capsys):
    assert main(["warm-start", stock[0], str(tmp_path / "out.pt"), "--arch", "roberta_tupe_r"]) == 0
    kept, fresh, left_out = re.split(r"^(?=initialised|left out)", capsys.readouterr().out, flags=re.M)
    assert re.match(r"kept from .*stock\.pt: [\d,]+ numbers; tensors: 56\n", kept)
    assert "  encoder.sentence_encoder.layers.*.fc1.weight [48, 24], 3 times\n" in kept
    assert fresh.startswith("initialised, seed 1: ") and "embed_positions.p [33, 24]\n" in fresh
    assert left_out.startswith("left out, no place for it in roberta_tupe_r: 816 numbers; tensors: 1\n")
    assert f"  {POSITIONS}weight [34, 24]\n" in left_out


def translation(path):
    state = {"args": Namespace(task="translation"), "model": {"encoder.embed_tokens.weight": torch.zeros(4, 4)}}
    torch.save({**state, "optimizer_history": [{"num_updates": 0, "lr_scheduler_state": {}}], "extra_state": {}}, path)


def no_settings(path, stock):
    state = torch.load(stock, weights_only=False)
    torch.save({**state, "cfg": None}, path)


BAD_SOURCES = {
    "missing": (lambda p, stock: None, "does not exist"),
    "no settings": (no_settings, "no settings"),
    "translation": (lambda p, stock: translation(p), "is no RoBERTa checkpoint"),
    "official TUPE": (
        lambda p, stock: p.write_bytes((GOLDEN / "tupe_r" / "checkpoint.pt").read_bytes()),
        "first use `fairseq-relpos import-tupe`",
    ),
}


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_a_bad_source_is_one_line_and_writes_nothing(case, stock, tmp_path, capsys):
    make, message = BAD_SOURCES[case]
    make(tmp_path / "in.pt", stock[0])
    command = ["warm-start", tmp_path / "in.pt", tmp_path / "out.pt", "--arch", "roberta_t5"]
    assert_refused(command, [message, str(tmp_path / "in.pt")], capsys, tmp_path)


BAD_FLAGS = {
    "unknown arch": ("--arch roberta_t6", ["--arch roberta_t6: give roberta_NAME", "fairseq-relpos list"]),
    "stock arch": ("--arch roberta_base", ["--arch roberta_base: give roberta_NAME"]),
    "another size": (
        "--arch roberta_t5_large",
        ["has encoder_layers 3", "but roberta_t5_large is encoder_layers 24", "use --arch roberta_t5,"],
    ),
    "unknown hyperparameter": ("--arch roberta_t5 --position-hparams size=3", ["no size", "num_buckets=32"]),
    "unknown encoding": ("--arch roberta_t5 --position-encoding t6", ["t6", "tupe_r"]),
    "layers": ("--arch roberta_t5 --position-layers 4", ["--position-layers", "1 to 3"]),
}


@pytest.mark.parametrize("case", BAD_FLAGS)
def test_bad_flags_are_one_line_and_write_nothing(case, stock, tmp_path, capsys):
    flags, messages = BAD_FLAGS[case]
    assert_refused(["warm-start", stock[0], tmp_path / "out.pt", *flags.split()], messages, capsys, tmp_path)
