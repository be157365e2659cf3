"""No command runs what is in a checkpoint, unless it is told to."""

import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq_data import binarise

from fairseq_relpos.checkpoints import loading
from fairseq_relpos.cli import main

ROOT = Path(__file__).parents[2]


class RunsCode:
    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('was_executed').touch()",)


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    monkeypatch.delenv(loading._TRUST, raising=False)
    monkeypatch.chdir(tmp_path)
    torch.save({"model": {}, "args": None, "extra": RunsCode()}, "hostile.pt")
    yield "hostile.pt"
    os.environ.pop(loading._TRUST, None)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return binarise(tmp_path_factory.mktemp("trust"))


@pytest.mark.parametrize("command", [
    ["import-tupe", "hostile.pt", "out.pt"],
    ["warm-start", "hostile.pt", "out.pt", "--arch", "roberta_t5"],
    ["order-gap", "hostile.pt", "DATA"],
    ["plot", "bias", "hostile.pt"],
    ["plot", "attention", "hostile.pt", "--text", "w1"],
])
def test_our_commands_do_not_run_what_is_in_a_file(hostile, data, command, capsys):
    assert main([str(data) if word == "DATA" else word for word in command]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "hostile.pt contains exec" in said and "--trust-checkpoint" in said
    assert os.listdir() == ["hostile.pt"]


FAIRSEQ = {
    "validate": ["--task", "masked_lm", "--path", "hostile.pt", "--batch-size", "2"],
    "eval_lm": ["--task", "language_modeling", "--path", "hostile.pt"],
    "generate": ["--task", "translation", "--path", "hostile.pt", "-s", "a", "-t", "b"],
    "interactive": ["--task", "translation", "--path", "hostile.pt", "-s", "a", "-t", "b"],
    "train": ["--restore-file", "hostile.pt", "--task", "masked_lm", "--arch", "roberta_t5", "--criterion",
              "masked_lm", "--encoder-layers", "1", "--encoder-embed-dim", "8", "--encoder-ffn-embed-dim",
              "8", "--encoder-attention-heads", "2", "--optimizer", "adam", "--lr", "1", "--batch-size", "2",
              "--save-dir", "save"],
}


@pytest.mark.parametrize("command", FAIRSEQ)
def test_fairseqs_commands_do_not_run_what_is_in_a_file(hostile, data, command, monkeypatch):
    import importlib

    for side in ("a", "b"):  # for translation
        Path(f"dict.{side}.txt").write_bytes((data / "dict.txt").read_bytes())
    folder = "." if "translation" in FAIRSEQ[command] else str(data)
    module = importlib.import_module(f"fairseq_cli.{command}")
    monkeypatch.setattr(sys, "argv", [f"fairseq-{command}", folder, "--cpu", "--user-dir",
                                      str(ROOT / "fairseq_relpos"), *FAIRSEQ[command]])
    with pytest.raises((SystemExit, ValueError), match="hostile.pt contains exec, which has no place"):
        module.cli_main()
    assert not os.path.exists("was_executed")


@pytest.mark.parametrize("settings", [
    {"args": Namespace(arch="fconv", encoder_layers="__import__('pathlib').Path('was_executed').touch()")},
    {"args": None, "cfg": {"model": Namespace(_name="transformer_lm", arch="transformer_lm", adaptive_softmax_cutoff=(
        "[open('was_executed', 'w')]"))}},
])  # fmt: skip
def test_code_in_a_setting_is_not_run(tmp_path, monkeypatch, settings):
    """fairseq evaluates some settings of the model that a file names."""
    from fairseq import checkpoint_utils

    monkeypatch.delenv(loading._TRUST, raising=False)
    monkeypatch.chdir(tmp_path)
    torch.save({"model": {}, **settings}, "hostile.pt")
    with pytest.raises(ValueError, match="hostile.pt has code in its setting .*--trust-checkpoint"):
        checkpoint_utils.load_model_ensemble_and_task(["hostile.pt"])
    with pytest.raises(ValueError, match="has code in its setting"):
        loading.load_checkpoint("hostile.pt")
    assert not os.path.exists("was_executed")


@pytest.mark.parametrize("text", ["[(512, 3)] * 20 + [(1024, 1)]", "(0.9, 0.98)", "/data (copy)/bin", "gelu", "1e-4",
                                  '{"beam": 4, "lenpen": 0.6}'])  # fmt: skip
def test_settings_that_are_no_code_are_read(text):
    loading.refuse_code_in_settings("x.pt", {"args": Namespace(a=[text]), "cfg": {"model": {"b": text}}})


def test_names_of_files_are_no_code():
    loading.refuse_code_in_settings("x.pt", {"cfg": {"checkpoint": {"save_dir": "runs/tupe(2)"}, "task": {"data": "wiki (1)"}}})


def test_a_file_that_is_trusted_is_read(hostile, caplog, capsys):
    assert main(["warm-start", hostile, "out.pt", "--arch", "roberta_t5", "--trust-checkpoint"]) == 1
    assert "is no RoBERTa checkpoint" in capsys.readouterr().err
    assert os.path.exists("was_executed") and "RUN while it is read" in caplog.text


def test_the_flag_is_taken_from_a_command_line(monkeypatch):
    monkeypatch.setenv(loading._TRUST, "")
    assert loading.take_trust_flag(["a", "--trust-checkpoint", "b"]) == ["a", "b"]
    monkeypatch.delenv(loading._TRUST)
    assert loading.take_trust_flag(["a"]) == ["a"] and loading._TRUST not in os.environ
