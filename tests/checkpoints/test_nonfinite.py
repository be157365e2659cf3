"""Models with NaN or infinity are refused by everything that exports or imports them."""

import shutil
from pathlib import Path

import pytest
import torch
from refusals import assert_refused
from small_models import language_model, save, trained, transformer

from fairseq_relpos.cli import main

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden"


def saved(model, path, task):
    save(model, path, task=task, criterion="cross_entropy", data="elsewhere", source_lang="en", target_lang="de")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    trained("roberta_t5", folder / "roberta.pt", encoder_layers=1)
    trained("electra_t5", folder / "electra.pt", encoder_layers=1)
    narrow = {"encoder_embed_dim": 8, "encoder_ffn_embed_dim": 16, "encoder_attention_heads": 1}
    trained("roberta_t5", folder / "narrow.pt", encoder_layers=1, **narrow)
    saved(language_model("transformer_lm_t5"), folder / "lm.pt", "language_modeling")
    saved(transformer("transformer_t5"), folder / "transformer.pt", "translation")
    shutil.copy(GOLDEN / "tupe_a" / "checkpoint.pt", folder / "tupe.pt")
    return folder


def spoiled(path, target, value, key=".fc1.bias"):
    """Writes the checkpoint with this value in its first such weight, whose name it returns."""
    state = torch.load(path, weights_only=False)
    name = next(name for name in state["model"] if name.endswith(key))
    state["model"][name].view(-1)[-1] = value
    torch.save(state, target)
    return name


COMMANDS = {
    "export-hf": ["roberta.pt lm.pt transformer.pt", "export-hf bad.pt out"],
    "export-discriminator": ["electra.pt", "export-discriminator bad.pt out.pt"],
    "warm-start": ["roberta.pt", "warm-start bad.pt out.pt --arch roberta_rope"],
    "warm-start of two stacks": ["transformer.pt", "warm-start bad.pt out.pt --arch transformer_rope"],
    "generator": ["narrow.pt", "warm-start roberta.pt out.pt --arch electra_t5 --generator bad.pt"],
    "import-tupe": ["tupe.pt", "import-tupe bad.pt out.pt"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_weight_that_is_not_finite_is_named_and_nothing_is_written(name, models, capsys, monkeypatch):
    monkeypatch.chdir(models)
    sources, command = COMMANDS[name]
    if name == "export-hf":
        pytest.importorskip("transformers", "5.4")
    for number, source in enumerate(sources.split()):
        weight = spoiled(source, "bad.pt", (float("nan"), float("-inf"))[number % 2])
        assert_refused(command.split(), [f"bad.pt: {weight} has", "not finite"], capsys)


def test_logits_that_are_not_finite_are_refused_with_the_largest_weight(models, capsys, monkeypatch):
    pytest.importorskip("transformers", "5.4")
    monkeypatch.chdir(models)
    for source in ("roberta.pt", "lm.pt", "transformer.pt"):
        spoiled(source, "bad.pt", 3e38, "layers.0.final_layer_norm.weight")
        assert_refused(["export-hf", "bad.pt", "out"], ["not finite", "final_layer_norm.weight"], capsys)


def test_a_folder_of_transformers_that_is_not_finite_is_not_imported(models, capsys, monkeypatch):
    pytest.importorskip("transformers", "5.4")
    from safetensors.torch import load_file, save_file

    monkeypatch.chdir(models)
    assert main(["export-hf", "roberta.pt", "exported"]) == 0
    path = "exported/model.safetensors"
    weights = load_file(path)
    weights["lm_head.dense.bias"][0] = float("inf")
    save_file(weights, path)
    assert_refused(["import-hf", "exported", "out"], ["exported: lm_head.dense.bias has", "not finite"], capsys)
