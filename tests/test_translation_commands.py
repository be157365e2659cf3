"""Translation through fairseq's own commands: what they print, and what they refuse."""

import re

import pytest
import torch
from fairseq_data import USER_DIR, binarise_translation, error_line, fairseq, fairseq_ok, translation

from fairseq_relpos.checkpoints.loading import load_checkpoint

ALL = ("--required-batch-size-multiple", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("translation")


@pytest.fixture(scope="module")
def data(folder):
    return binarise_translation(folder / "corpus")


@pytest.fixture(scope="module")
def checkpoints(folder, data):
    """t5 in both stacks; and tupe_a and m4m in bf16, recomputed and offloaded layers."""
    two = (
        "--position-encoding encoder=tupe_a,decoder=m4m --position-hparams encoder.cls=first --bf16 --store-ema"
        " --offload-activations --encoder-layerdrop 0.2 --max-update 10"
    )
    for name, flags in {"t5": "--max-update 30", "none": two}.items():
        arguments = translation(data, folder / name, *ALL, *flags.split(), arch=f"transformer_{name}")
        fairseq_ok("train", *arguments)
    return folder / "t5" / "checkpoint_last.pt", folder / "none" / "checkpoint_last.pt"


def generate(data, path, *more):
    flags = f"--user-dir {USER_DIR} --path {path} --cpu --beam 2 --num-workers 0 --batch-size 8"
    return fairseq("generate", data, *flags.split(), *more)


def interactive(data, path, given, *more, **environment):
    return fairseq(
        "interactive", data, "--user-dir", USER_DIR, "--path", path, "--cpu", *more, given=given, **environment
    )


def assert_one_line(done, *what):
    for part in ("fairseq_relpos: error: ", *what):
        assert part in error_line(done)


def test_the_checkpoint_holds_both_stacks_settings(checkpoints):
    saved = load_checkpoint(checkpoints[1])
    settings = saved["cfg"]["model"]
    assert settings.position_encoding == "encoder=tupe_a,decoder=m4m"
    assert "encoder.cls=first" in settings.position_hparams
    assert "decoder.max_distance=19" in settings.position_hparams
    assert all(value.isfinite().all() for value in saved["model"].values() if torch.is_tensor(value))


def test_generate_scores_every_sentence_also_of_an_ensemble(data, checkpoints, tmp_path):
    for path in (checkpoints[0], ":".join(map(str, checkpoints))):
        done = generate(data, path, *ALL, "--scoring", "sacrebleu", "--max-len-b", 30)
        assert done.returncode == 0, done.stdout
        assert len(re.findall(r"^H-", done.stdout, re.M)) == 11
        assert re.search(r"Generate test with beam=2: BLEU = \d", done.stdout)
    for kind, name in (("D", "system"), ("T", "reference")):
        lines = re.findall(rf"^{kind}-\d+\t(?:-?[\d.]+\t)?(.*)$", done.stdout, re.M)
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    score = fairseq_ok("score", "--sys", tmp_path / "system", "--ref", tmp_path / "reference")
    assert "BLEU4 = " in score


@pytest.mark.slow
def test_interactive_translates_and_refuses_what_is_not_utf8(data, checkpoints):
    done = interactive(data, checkpoints[0], b"w1 w2 w3\nw4 w5\n")
    assert done.returncode == 0 and len(re.findall(r"^H-[01]\t", done.stdout, re.M)) == 2
    for environment in ({}, {"LC_ALL": "C"}):
        done = interactive(data, checkpoints[0], b"w1 w2\nw3 \xff\xfe w4\n", **environment)
        assert_one_line(done, "the input is not UTF-8, in line")


def test_a_source_longer_than_the_positions_is_an_error_or_skipped_with_a_count(data, checkpoints):
    text = b"w1 w2\n" + b"w3 " * 30 + b"\n"
    flags = ("--buffer-size", 2)
    assert_one_line(interactive(data, checkpoints[1], text, *flags), "Size of sample #1 is invalid (=(31, 0))")
    done = interactive(data, checkpoints[1], text, *flags, "--skip-invalid-size-inputs-valid-test")
    assert done.returncode == 0 and "1 samples have invalid sizes and will be skipped" in done.stdout
    assert re.findall(r"^H-(\d)", done.stdout, re.M) == ["0"]


def test_a_checkpoint_of_more_layers_is_refused_and_nothing_written(data, checkpoints, tmp_path):
    resume = ["--restore-file", checkpoints[0], "--max-update", 40, "--decoder-layers", 1]
    done = fairseq("train", *translation(data, tmp_path / "run", *resume, arch="transformer_t5"))
    assert_one_line(done, "the checkpoint is not of this model: it has besides decoder.layers.1.")
    assert not list(tmp_path.glob("run/*.pt"))
