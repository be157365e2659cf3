"""Checkpoints that an older version has saved (tests/fixtures/checkpoints) load, compute the same, and go on."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq_data import USER_DIR, binarise, binarise_translation
from forked import train

from fairseq_relpos.checkpoints.loading import load_checkpoint

FILES = Path(__file__).parents[1] / "fixtures" / "checkpoints"

_spec = importlib.util.spec_from_file_location("make", FILES / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    return {False: binarise(folder / "corpus"), True: binarise_translation(folder / "pairs")}


def is_pair(name):
    return name.startswith("transformer_")


@pytest.mark.parametrize("name", make.RUNS)
def test_it_computes_what_it_computed(name, data):
    overrides = {"data": str(data[is_pair(name)])}
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(FILES / f"{name}.pt")], arg_overrides=overrides)
    expected = json.loads((FILES / f"{name}.json").read_text())
    torch.testing.assert_close(make.computed(model.float(), is_pair(name)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", make.RUNS)
def test_it_goes_on_as_if_nothing_had_changed(name, data, tmp_path):
    save_dir = tmp_path / "run"
    save_dir.mkdir()
    shutil.copy(FILES / f"{name}.pt", save_dir / "checkpoint_last.pt")
    train(make.command(name, data[is_pair(name)], save_dir, USER_DIR, "--max-update", 8), tmp_path / "log")
    found = load_checkpoint(save_dir / "checkpoint_last.pt")
    assert found["optimizer_history"][-1]["num_updates"] == 8
    expected = torch.load(FILES / f"{name}.after.pt", weights_only=True)
    assert found["model"].keys() == expected.keys()
    for key, weight in expected.items():
        # another machine rounds otherwise; half precision by 2^-11
        torch.testing.assert_close(found["model"][key].float(), weight.float(), rtol=2e-3, atol=2e-3, msg=key)


def test_the_older_version_is_the_one_that_saved_them(data):
    """The tests above would pass with files that today's version has made, too."""
    kept = load_checkpoint(FILES / "roberta_tupe_r.pt")
    assert "mends" not in kept["extra_state"]
