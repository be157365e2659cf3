"""The plugin through fairseq's own commands, on a tiny corpus."""

import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_data import error_line, fairseq, fairseq_ok, masked_lm


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The last checkpoint of a short training."""
    folder = tmp_path_factory.mktemp("trained")
    arguments = ("--arch", "roberta_tupe_r", "--required-batch-size-multiple", 1, "--max-update", 2)
    fairseq_ok("train", *masked_lm(data, folder, *arguments, "--disable-validation"))
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize(
    "arch, flags", [("roberta_t5", ()), ("roberta_tupe_r", ("--position-hparams", "cls_reset=paper"))]
)
def test_resuming_with_another_encoding_is_refused(data, trained, tmp_path, arch, flags):
    (tmp_path / "run").mkdir()
    copy = tmp_path / "run" / "checkpoint_last.pt"
    copy.write_bytes(trained.read_bytes())
    arguments = masked_lm(data, tmp_path / "run", "--arch", arch, "--max-update", 12, *flags)
    done = fairseq("train", *arguments)
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if "trained with" in line]
    assert len(lines) == 1 and "[pe:tupe_r|" in lines[0] and "Traceback" not in done.stdout
    assert copy.read_bytes() == trained.read_bytes(), "the refused run touched the checkpoint"


def test_wrong_flags_end_in_one_line_before_training(data, tmp_path):
    done = fairseq("train", *masked_lm(data, tmp_path, "--arch", "roberta_t5", "--position-hparams", "bucket=3"))
    assert "t5 has no bucket; it accepts" in error_line(done)
    assert not list(tmp_path.iterdir())


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
    for name in ("learned", "bert_ad", "tupe_r"):
        for batch, of_stock in zip(first_batches(data, f"roberta_{name}"), stock, strict=True):
            assert all(map(torch.equal, batch, of_stock)), name
