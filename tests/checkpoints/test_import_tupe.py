"""Official TUPE checkpoints, imported, against the outputs, losses and gradients of the official code."""

import argparse
import json
import shutil
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq_data import USER_DIR, fairseq_ok
from refusals import assert_refused
from small_models import roberta

from fairseq_relpos.checkpoints import starting_point
from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.checkpoints.tupe import import_tupe
from fairseq_relpos.cli import main
from fairseq_relpos.encodings import find, hyperparameters

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "golden"
DICT = str(GOLDEN / "tupe_dict.txt")
VARIANTS = ("tupe_a", "tupe_r", "tupe_r_prenorm", "tupe_r_cls")
TOLERANCE = 5e-5
LAYER = "decoder.sentence_encoder.layers.0."


def official(variant):
    return str(GOLDEN / variant / "checkpoint.pt")


@pytest.fixture(scope="module", params=VARIANTS)
def imported(request, tmp_path_factory):
    """A variant, imported and loaded by fairseq, with what the official code computed."""
    folder = tmp_path_factory.mktemp(request.param)
    report = import_tupe(official(request.param), str(folder / "out.pt"), DICT)
    for part in ("input0", "label"):  # where sentence_prediction looks
        (folder / part).mkdir()
        shutil.copy(folder / "dict.txt", folder / part)
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(folder / "out.pt")], {"data": str(folder)})
    return SimpleNamespace(
        name=request.param,
        report=report,
        folder=folder,
        model=model.eval(),
        cfg=cfg,
        task=task,
        io=np.load(GOLDEN / request.param / "io.npz"),
        meta=json.loads((GOLDEN / request.param / "meta.json").read_text()),
    )


def tokens(imported, batch):
    return torch.from_numpy(imported.io[f"b{batch}_tokens"]).long()


def assert_golden(found, expected):
    torch.testing.assert_close(found.detach(), torch.from_numpy(expected), atol=TOLERANCE, rtol=0)


def test_logits_and_inner_states_are_the_official_ones(imported):
    with torch.no_grad():
        logits, _ = imported.model(tokens(imported, 0))
        _, extra = imported.model(tokens(imported, 0), features_only=True, return_all_hiddens=True)
    assert_golden(logits[1:3], imported.io["b0_logits"])
    states_NBTE = torch.stack(extra["inner_states"]).transpose(1, 2)
    assert_golden(states_NBTE[:, 1:3], imported.io["b0_inner_states"])


def test_features_are_the_official_ones(imported):
    """Batch 0 is padded, 1 as long as the position table or without a pad, 2 (tupe_a and
    tupe_r) holds a sentence of one token."""
    for batch in (0, 1, 2) if imported.name in ("tupe_a", "tupe_r") else (0, 1):
        with torch.no_grad():
            features, _ = imported.model(tokens(imported, batch), features_only=True)
        expected = imported.io[f"b{batch}_features"]
        assert_golden(features[1:3] if batch == 0 else features, expected)


def test_the_bias_of_every_layer_is_the_official_one(imported):
    batch = tokens(imported, 0)
    with torch.no_grad():
        imported.model(batch)
        for layer in imported.model.encoder.sentence_encoder.layers:
            attention = layer.self_attn
            nothing_BHTD = torch.zeros(1, attention.num_heads, batch.size(1), attention.head_dim)
            positions = attention.current_pass.positions
            logits = attention.position_encoding.logits(nothing_BHTD, nothing_BHTD, positions)
            assert_golden(logits[0], imported.io["b0_attn_bias"])


def test_classification_logits_are_the_official_ones(imported):
    heads = list(imported.model.classification_heads)
    assert heads == (["sentence_classification_head"] if imported.name == "tupe_r_cls" else [])
    for head in heads:
        for batch in (0, 1):
            with torch.no_grad():
                logits, _ = imported.model(tokens(imported, batch), classification_head_name=head)
            assert_golden(logits, imported.io[f"b{batch}_cls_logits"])


def test_loss_and_gradients_are_the_official_ones(imported):
    loss = loss_in_nats(imported)
    assert abs(loss.item() - imported.meta["loss_sum_nats"]) < TOLERANCE * abs(loss.item())
    imported.model.zero_grad()
    loss.backward()
    found = defaultdict(float)
    for name, parameter in imported.model.named_parameters():
        if parameter.grad is not None:
            found[official_name(name)] += parameter.grad.double().pow(2).sum().item()
    expected = imported.meta["grad_l2"]
    assert set(found) == {name for name, norm in expected.items() if norm is not None}
    for name, squared in found.items():
        assert squared**0.5 == pytest.approx(expected[name], rel=TOLERANCE), name


def loss_in_nats(imported):
    target = torch.from_numpy(imported.io["b0_target"]).long()
    if imported.name == "tupe_r_cls":
        head = "sentence_classification_head"
        logits, _ = imported.model(tokens(imported, 0), classification_head_name=head)
        return F.cross_entropy(logits, target.view(-1), reduction="sum")
    masked = target.ne(1)
    logits, _ = imported.model(tokens(imported, 0), masked_tokens=masked)
    return F.cross_entropy(logits, target[masked], reduction="sum")


def official_name(name):
    """The official code's name of a parameter; q, k and v are one there."""
    for ours, theirs in (
        ("encoder.", "decoder."),
        (".sentence_decoder.", ".sentence_encoder."),
        ("embed_positions.p", "pos.weight"),
        ("embed_positions.b", "relative_attention_bias.weight"),
        ("embed_positions.layer_norm", "pos_ln"),
        ("embed_positions.u_q", "pos_q_linear"),
        ("embed_positions.u_k", "pos_k_linear"),
        ("layernorm_embedding", "emb_layer_norm"),
        (".sentence_encoder.layer_norm", ".sentence_encoder.emb_out_layer_norm"),
        *((f"{part}_proj.{kind}", f"in_proj_{kind}") for part in "qkv" for kind in ("weight", "bias")),
    ):
        name = name.replace(ours, theirs)
    return name


def test_the_dictionary_gives_stock_fairseq_the_official_ids(imported):
    symbols = json.loads((GOLDEN / "tupe_symbols.json").read_text())
    assert imported.report.dict_path == str(imported.folder / "dict.txt")
    assert imported.task.source_dictionary.symbols == symbols
    assert [symbols.index(s) for s in ("<file>", "<url>", "<mask>")] == [4, 6, 96]


def test_text_and_officially_binarised_data_agree(imported):
    data = GOLDEN / "tupe_databin"
    dictionary = imported.task.source_dictionary
    binarised = data_utils.load_indexed_dataset(str(data / "valid"), dictionary)
    lines = (data / "valid.txt").read_text().splitlines()
    assert len(binarised) == len(lines) > 10
    for line, ids in zip(lines, binarised):
        assert dictionary.encode_line(line, add_if_not_exist=False).tolist() == ids.tolist()


def test_settings_are_saved_complete(imported):
    model = imported.cfg.model
    name = "tupe_a" if imported.name == "tupe_a" else "tupe_r"
    assert (model.arch, model.position_encoding) == (f"roberta_{name}", name)
    assert set(model.position_hparams.split()) == {f"{k}={p.default}" for k, p in hyperparameters(find(name)).items()}
    assert (model.max_positions, model.pooler_dropout, model.layernorm_embedding) == (40, 0.1, True)
    assert imported.cfg.criterion._name == imported.cfg.task._name
    assert imported.cfg.task.shorten_method == ("truncate" if imported.name == "tupe_r_cls" else "none")
    assert not hasattr(model, "load_checkpoint_heads")


def test_officially_binarised_data_are_read_as_they_are(tmp_path):
    """With the official dict.txt beside them, in masked_lm and, labels too, in sentence_prediction."""
    symbols = json.loads((GOLDEN / "tupe_symbols.json").read_text())
    data = tmp_path / "data"
    for part in ("", "input0", "label"):
        shutil.copytree(GOLDEN / "tupe_databin", data / part, dirs_exist_ok=True)
        shutil.copy(DICT, data / part / "dict.txt")
    (data / "label" / "dict.txt").write_text("good 3\nbad 2\n")  # ids 7 and 8 in official data
    task = task_of("tupe_masked_lm", data)
    assert task.source_dictionary.symbols == symbols
    assert task.source_dictionary.nspecial == 7  # of which masked_lm draws no random word
    binarised = data_utils.load_indexed_dataset(str(data / "valid"), task.source_dictionary)
    first_line = (data / "valid.txt").read_text().splitlines()[0]
    assert task.source_dictionary.string(binarised[0]) == first_line
    sentences = task_of("tupe_sentence_prediction", data, num_classes=2)
    assert sentences.source_dictionary.symbols == symbols
    assert sentences.label_dictionary.index("good") - sentences.label_dictionary.nspecial == 0
    import_tupe(official("tupe_r"), str(tmp_path / "tupe.pt"), DICT)
    for kind in ("bin", "idx"):
        shutil.copy(data / f"valid.{kind}", data / f"train.{kind}")
    sizes = "--encoder-layers 3 --encoder-embed-dim 48 --encoder-ffn-embed-dim 96 --encoder-attention-heads 4"
    printed = fairseq_ok(
        *f"train {data} --user-dir {USER_DIR} --cpu --task tupe_masked_lm --criterion masked_lm".split(),
        *"--arch roberta_tupe_r".split(),
        *sizes.split(),
        *f"--tokens-per-sample 40 --batch-size 8 --num-workers 0 --restore-file {tmp_path}/tupe.pt".split(),
        *"--optimizer adam --lr 1e-4 --max-update 1 --no-save".split(),
    )
    assert "tupe.pt (epoch 1 @ 0 updates)" in printed and "valid on 'valid' subset | loss" in printed
    # the dictionary that import-tupe has written is the same to them
    shutil.copy(tmp_path / "dict.txt", data / "dict.txt")
    assert task_of("tupe_masked_lm", data).source_dictionary.symbols == symbols


def task_of(name, data, **settings):
    settings = vars(TASK_DATACLASS_REGISTRY[name](data=str(data), **settings))
    # what other parts of a command's settings say
    settings = {key: None if str(value).startswith("${") else value for key, value in settings.items()}
    return TASK_REGISTRY[name].setup_task(argparse.Namespace(**{**settings, "seed": 1}))


def changed(path, change):
    """The official tupe_r with ``change`` made to its dict, written to ``path``."""
    state = load_checkpoint(official("tupe_r"))
    del state["extra_state"]["train_meters"]  # these would be written under a newer module name
    change(state)
    torch.save(state, path)
    return str(path)


def test_a_missing_language_model_head_is_initialised_and_named(tmp_path, capsys):
    def drop_head(state):
        for key in [key for key in state["model"] if "lm_head" in key]:
            del state["model"][key]

    source = changed(tmp_path / "in.pt", drop_head)
    assert main(["import-tupe", source, str(tmp_path / "out.pt")]) == 0
    assert "initialised afresh: encoder.lm_head.bias encoder.lm_head.dense.weight" in capsys.readouterr().out
    model = load_checkpoint(str(tmp_path / "out.pt"))["model"]
    embedding = load_checkpoint(source)["model"]["decoder.sentence_encoder.embed_tokens.weight"]
    assert torch.equal(model["encoder.lm_head.weight"], embedding)
    assert torch.equal(model["encoder.sentence_encoder.embed_tokens.weight"], embedding)


def test_settings_that_are_not_the_usual_ones_survive(tmp_path):
    unusual = {"activation_fn": "relu", "dropout": 0.3, "mask_prob": 0.4, "seed": 7}
    source = changed(tmp_path / "in.pt", lambda state: vars(state["args"]).update(unusual))
    import_tupe(source, str(tmp_path / "out.pt"))
    cfg = load_checkpoint(str(tmp_path / "out.pt"))["cfg"]
    assert (cfg["model"].activation_fn, cfg["model"].dropout) == ("relu", 0.3)
    assert (cfg["task"]["mask_prob"], cfg["task"]["seed"]) == (0.4, 7)


def test_words_that_the_official_dictionary_counts_twice_keep_their_ids(tmp_path):
    lines = Path(DICT).read_text().splitlines()
    lines[10], lines[20] = "<unk> 3", lines[5]
    (tmp_path / "dict.txt").write_text("\n".join(lines) + "\n")
    shutil.copy(official("tupe_r"), tmp_path / "in.pt")
    (tmp_path / "new").mkdir()
    import_tupe(str(tmp_path / "in.pt"), str(tmp_path / "new" / "out.pt"))
    dictionary = starting_point.Dictionary.load(str(tmp_path / "new" / "dict.txt"))
    assert dictionary.symbols[7:] == [line.rsplit(" ", 1)[0] for line in lines]
    assert (dictionary.index("<unk>"), dictionary.unk()) == (17, 3)
    assert dictionary.index(lines[5].rsplit(" ", 1)[0]) == 27


def test_a_dictionary_beside_the_checkpoint_is_found_and_never_overwritten(tmp_path, capsys):
    shutil.copy(official("tupe_r"), tmp_path / "in.pt")
    shutil.copy(DICT, tmp_path / "dict.txt")
    command = ["import-tupe", tmp_path / "in.pt", tmp_path / "out.pt"]
    assert_refused(command, f"{tmp_path}/dict.txt is there already", capsys, tmp_path)
    (tmp_path / "new").mkdir()
    for _ in range(2):  # the second time it is there
        assert main(["import-tupe", str(tmp_path / "in.pt"), str(tmp_path / "new" / "out.pt")]) == 0
        assert f"{tmp_path}/new/dict.txt: use it" in capsys.readouterr().out


def stock_checkpoint(path):
    torch.save({"args": argparse.Namespace(), "model": roberta("roberta").state_dict()}, path)


def untie(state):
    state["model"]["decoder.lm_head.weight"] = torch.zeros(97, 48)


BAD_CHECKPOINTS = {
    "cut short": (lambda p: p.write_bytes(Path(official("tupe_r")).read_bytes()[:200_000]), "is cut short or damaged"),
    "missing": (lambda p: None, "does not exist"),
    "folder": (lambda p: p.mkdir(), "is a folder"),
    "stock": (stock_checkpoint, "is no checkpoint of the official TUPE code"),
    "no args": (lambda p: changed(p, lambda s: s.pop("args")), "not its args"),
    "no heads": (lambda p: changed(p, lambda s: delattr(s["args"], "encoder_attention_heads")), "how many heads"),
    "lacks a tensor": (lambda p: changed(p, lambda s: s["model"].pop(LAYER + "fc2.bias")), "layers.0.fc2.bias"),
    "has one more": (lambda p: changed(p, lambda s: s["model"].update(x=torch.zeros(1))), "['x'] besides"),
    "untied": (lambda p: changed(p, untie), "in the official code they are one"),
    "heads of another model": (
        lambda p: changed(p, lambda s: vars(s["args"]).update(encoder_attention_heads=6)),
        "contradicts itself",
    ),
}


@pytest.mark.parametrize("case", BAD_CHECKPOINTS)
def test_a_bad_checkpoint_is_one_line_and_writes_nothing(case, tmp_path, capsys):
    make, message = BAD_CHECKPOINTS[case]
    make(tmp_path / "in.pt")
    command = ["import-tupe", tmp_path / "in.pt", tmp_path / "out.pt", "--dict", DICT]
    assert_refused(command, [message, str(tmp_path / "in.pt")], capsys, tmp_path)


def test_the_dictionary_of_another_model_is_refused(tmp_path, capsys):
    (tmp_path / "dict.txt").write_text("a 1\nb 1\n")
    command = ["import-tupe", official("tupe_r"), tmp_path / "out.pt", "--dict", tmp_path / "dict.txt"]
    assert_refused(command, "make 10 ids, but", capsys, tmp_path)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    shutil.copy(official("tupe_r"), tmp_path / "in.pt")
    for out, message in (
        (tmp_path / "no" / "out.pt", f"there is no folder {tmp_path}/no"),
        (tmp_path, "is a folder"),
        (tmp_path / "in.pt", "is the checkpoint to read"),
    ):
        assert_refused(["import-tupe", tmp_path / "in.pt", out], message, capsys, tmp_path)


def test_half_precision_weights_keep_their_values(tmp_path):
    def halve(state):
        state["model"] = {k: v.half() for k, v in state["model"].items()}

    import_tupe(changed(tmp_path / "in.pt", halve), str(tmp_path / "out.pt"))
    weights = load_checkpoint(str(tmp_path / "out.pt"))["model"]
    expected = load_checkpoint(official("tupe_r"))["model"][LAYER + "fc1.weight"].half().float()
    assert torch.equal(weights["encoder.sentence_encoder.layers.0.fc1.weight"], expected)
