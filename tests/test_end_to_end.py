"""The plugin through fairseq's own commands, on a tiny corpus."""

import json

import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_data import USER_DIR, error_line, fairseq, fairseq_ok, masked_lm, torchrun

from fairseq_relpos.checkpoints.loading import load_checkpoint

KINDS = ["learned", "bert_ad", "tupe_r"]


def train(data, save_dir, arch, *more, **options):
    """fairseq-train with dropout on, so that random draws have to be the same too."""
    arguments = masked_lm(data, save_dir, "--arch", arch, "--dropout", 0.1, "--required-batch-size-multiple", 1, *more)
    return fairseq_ok("train", *arguments, **options)


def weights(checkpoint):
    return load_checkpoint(checkpoint)["model"]


def assert_same_weights(one, other, atol=0.0):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(one[key], other[key], atol=atol, rtol=0, msg=key)


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """Each kind trained for 8 updates without interruption, a checkpoint after 4."""
    folder = tmp_path_factory.mktemp("trained")
    for name in KINDS:
        flags = "--max-update 8 --save-interval-updates 4 --disable-validation"
        train(data, folder / name, f"roberta_{name}", *flags.split())
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_a_resumed_run_equals_an_uninterrupted_one(data, trained, tmp_path, name):
    (tmp_path / name).mkdir()
    half = trained / name / "checkpoint_1_4.pt"
    (tmp_path / name / "checkpoint_last.pt").write_bytes(half.read_bytes())
    train(data, tmp_path / name, f"roberta_{name}", "--max-update", 8, "--disable-validation")
    assert_same_weights(tmp_path / name / "checkpoint_last.pt", trained / name / "checkpoint_last.pt")


def validation_loss(data, checkpoint):
    log = fairseq_ok(
        *f"validate {data} --user-dir {USER_DIR} --task masked_lm --path {checkpoint} --cpu".split(),
        *"--batch-size 4 --required-batch-size-multiple 1 --log-format json --num-workers 0".split(),
    )
    *_, last = (line for line in log.splitlines() if '"valid_loss"' in line)
    return json.loads(last[last.index("{") :])["valid_loss"]


def test_validation_uses_the_same_masks_every_time(data, trained):
    checkpoint = trained / "tupe_r" / "checkpoint_last.pt"
    assert validation_loss(data, checkpoint) == validation_loss(data, checkpoint)


@pytest.mark.parametrize(
    "arch, flags", [("roberta_t5", ()), ("roberta_tupe_r", ("--position-hparams", "cls_reset=paper"))]
)
def test_resuming_with_another_encoding_is_refused(data, trained, tmp_path, arch, flags):
    (tmp_path / "run").mkdir()
    last = trained / "tupe_r" / "checkpoint_last.pt"
    copy = tmp_path / "run" / "checkpoint_last.pt"
    copy.write_bytes(last.read_bytes())
    arguments = masked_lm(data, tmp_path / "run", "--arch", arch, "--max-update", 12, *flags)
    done = fairseq("train", *arguments)
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if "trained with" in line]
    assert len(lines) == 1 and "[pe:tupe_r|" in lines[0] and "Traceback" not in done.stdout
    assert copy.read_bytes() == last.read_bytes(), "the refused run touched the checkpoint"


@pytest.mark.parametrize(
    "flags, what",
    [
        (("--arch", "roberta_t5", "--position-hparams", "bucket=3"), "t5 has no bucket; it accepts"),
        (("--arch", "roberta_tupe_a", "--tokens-per-sample", "64"), "--tokens-per-sample 64 exceeds"),
    ],
)
def test_wrong_flags_end_in_one_line_before_training(data, tmp_path, flags, what):
    done = fairseq("train", *masked_lm(data, tmp_path, *flags))
    assert what in error_line(done)
    assert not list(tmp_path.iterdir())


def test_two_ranks_with_checkpointed_activations_equal_one_rank_with_twice_the_batches(data, tmp_path):
    common = ("--max-update", 4, "--disable-validation", "--dropout", 0, "--checkpoint-activations")
    train(data, tmp_path / "one", "roberta_tupe_r", *common, "--update-freq", 2)
    train(data, tmp_path / "two", "roberta_tupe_r", *common, launcher=torchrun(2))
    assert_same_weights(tmp_path / "one" / "checkpoint_last.pt", tmp_path / "two" / "checkpoint_last.pt", atol=1e-6)


def first_batches(data, arch):
    parser = options.get_training_parser()
    arguments = masked_lm(data, "unused", "--arch", arch)
    args = options.parse_args_and_arch(parser, [str(a) for a in arguments])
    cfg = convert_namespace_to_omegaconf(args)
    torch.manual_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    task.build_model(cfg.model)
    batches = []
    for split in ("train", "valid"):
        task.load_dataset(split)
        iterator = task.get_batch_iterator(
            task.dataset(split), max_sentences=4, required_batch_size_multiple=1, seed=1
        ).next_epoch_itr(shuffle=split == "train")
        batches += [(b["net_input"]["src_tokens"], b["target"]) for _, b in zip(range(4), iterator)]
    return batches


def test_every_encoding_sees_the_same_data_in_the_same_order_with_the_same_masks(data):
    stock = first_batches(data, "roberta")
    assert any(target.ne(1).any() for _, target in stock)
    for name in KINDS:
        for batch, of_stock in zip(first_batches(data, f"roberta_{name}"), stock, strict=True):
            assert all(map(torch.equal, batch, of_stock)), name
