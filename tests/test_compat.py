"""fairseq's own commands do on today's stack what they say."""

import argparse
import contextlib
import importlib.util
import io
import os
import re
import sys
import types
import zipfile
from pathlib import Path

import forked
import numpy as np
import pytest
import pythons
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import Dictionary, LanguagePairDataset, bucket_pad_length_dataset, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.logging.meters import AverageMeter
from fairseq.models.roberta import RobertaModel
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.trainer import Trainer
from fairseq_data import USER_DIR, fairseq_ok, masked_lm, torchrun

from fairseq_relpos import mends
from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.mends import messages, reading


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compat")


@pytest.fixture(scope="module")
def one_rank(folder, data):
    """Six updates on one rank, each of two batches, saved also after the fourth."""
    save_dir = folder / "one"
    more = ["--update-freq", 2, "--max-update", 6, "--save-interval-updates", 4]
    # not preloaded: also what imports print counts
    printed = fairseq_ok("train", *masked_lm(data, save_dir, *more), preload=False)
    return types.SimpleNamespace(
        printed=printed, after_4=save_dir / "checkpoint_1_4.pt", after_6=save_dir / "checkpoint_last.pt"
    )


@pytest.fixture(scope="module")
def in_bf16(folder, data):
    save_dir = folder / "bf16"
    more = ["--bf16", "--max-update", 2, "--required-batch-size-multiple", 1]
    printed = fairseq_ok("train", *masked_lm(data, save_dir, *more))
    return types.SimpleNamespace(printed=printed, checkpoint=save_dir / "checkpoint_last.pt")


def weights(checkpoint):
    return load_checkpoint(checkpoint)["model"]


def validate(checkpoint, data, **how):
    where = ["--user-dir", USER_DIR, "--path", checkpoint, "--cpu", "--log-format", "simple"]
    return fairseq_ok("validate", data, *where, "--task", "masked_lm", "--batch-size", 8, **how)


@pytest.fixture(scope="module")
def validated(data, one_rank):
    return validate(one_rank.after_6, data, preload=False)  # 24 sentences, three batches


def losses(printed):
    return re.findall(r"subset \| loss (\S+)", printed)


# Reading checkpoints


def test_from_pretrained_loads_a_checkpoint(data, one_rank):
    hub = RobertaModel.from_pretrained(
        str(one_rank.after_6.parent),
        one_rank.after_6.name,
        data_name_or_path=str(data),
        bpe=None,
        user_dir=str(USER_DIR),
    )
    features = hub.extract_features(torch.tensor([[0, 5, 6, 2]]))
    assert features.shape == (1, 4, 16)


SCORES = [np.float64(0.5), np.float32(0.5), np.int64(3), np.arange(3)]


def test_checkpoint_with_names_of_old_versions_is_read(tmp_path):
    meter = AverageMeter()
    meter.update(4.0)
    state = {"model": {}, "args": argparse.Namespace(arch="x"), "meter": meter, "s": SCORES}
    torch.save(state, tmp_path / "new.pt")
    new = zipfile.ZipFile(tmp_path / "new.pt")
    with new, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        for name in new.namelist():
            content = new.read(name).replace(b"fairseq.logging.meters", b"fairseq.meters")
            old.writestr(name, content.replace(b"numpy._core.", b"numpy.core."))
    # also an old file that a newer fairseq has written again
    for name in ("old.pt", "new.pt"):
        loaded = load_checkpoint(tmp_path / name)
        assert loaded["s"][:3] == SCORES[:3] and loaded["meter"].avg == 4.0 and loaded["args"].arch == "x"


class RunsCode:
    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('was_executed').touch()",)


def zip_bytes(state, **how):
    buffer = io.BytesIO()
    torch.save(state, buffer, **how)
    return buffer.getvalue()


GOOD = {"model": {"weight": torch.zeros(100)}, "args": argparse.Namespace(arch="x")}
LARGE = {"model": {str(i): torch.zeros(10_000) for i in range(30)}}
LEGACY = {"_use_new_zipfile_serialization": False}
BAD_FILES = {
    "truncated zip": (zip_bytes(GOOD)[:-300], "is cut short or damaged"),
    # torch's reader answers an early cut with an OSError without a file name
    "truncated early": (zip_bytes(LARGE)[:20_000], "is cut short or damaged"),
    "truncated legacy": (zip_bytes(GOOD, **LEGACY)[:-300], "is cut short or damaged"),
    "empty": (b"", "is cut short or damaged"),
    "text": (b"These are not the weights you are looking for.\n" * 9, "is no checkpoint"),
    "noise": (bytes(range(255, 0, -1)), "is no checkpoint"),
    "hostile zip": (zip_bytes({"model": RunsCode()}), "contains exec, which has no place"),
    "hostile legacy": (zip_bytes({"model": RunsCode()}, **LEGACY), "contains exec, which has no"),
    "unknown kind": (zip_bytes({"model": {}, "x": np.zeros(1, "M8[s]")}), "be read safely: Can on"),
    "a tensor": (zip_bytes(torch.zeros(3)), "is a torch file but no fairseq checkpoint"),
    "another dict": (zip_bytes({"weight": 1}), "is a torch file but no fairseq checkpoint"),
}
READERS = {
    "load_checkpoint": load_checkpoint,
    "fairseq": lambda path: checkpoint_utils.load_checkpoint_to_cpu(path),
    "fairseq's EMA": lambda path: checkpoint_utils.load_ema_from_checkpoint(path),
}


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")  # fairseq's EMA of a tensor
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_file_is_named_in_one_line_and_not_executed(kind, reader, tmp_path, monkeypatch):
    content, problem = BAD_FILES[kind]
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=problem) as error:
        READERS[reader](str(path))
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert os.listdir() == ["bad.pt"]


def test_weights_only_is_on_even_where_fairseq_switches_it_off(tmp_path):
    (tmp_path / "hostile.pt").write_bytes(BAD_FILES["hostile zip"][0])
    with reading._reading_of(tmp_path / "hostile.pt"), pytest.raises(Exception, match="exec"):
        torch.load(tmp_path / "hostile.pt", weights_only=False)


# Seen by the user of a command


def configuration(*arguments):
    messages.silence_meaningless_warnings()  # pytest shows them again in every test
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, list(arguments)))


@pytest.fixture(autouse=True)
def bare_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])  # fairseq's parsers look at it


def train_here(*arguments):
    """fairseq-train in this process, for what ends before anything is trained."""
    from fairseq_cli import train

    distributed_utils.call_main(configuration(*arguments), train.main)


def test_training_from_a_hostile_checkpoint_ends_in_one_line(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hostile.pt").write_bytes(BAD_FILES["hostile zip"][0])
    with pytest.raises(SystemExit, match="error: hostile.pt contains exec, which has no place"):
        train_here(*masked_lm(data, tmp_path / "save", "--restore-file", "hostile.pt"))
    assert sorted(os.listdir()) == ["hostile.pt", "save"] and os.listdir("save") == []


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_data_directory_without_dictionary_is_named(folder, tmp_path):
    with pytest.raises(SystemExit, match=f"error: .*{tmp_path / folder / 'dict.txt'}"):
        train_here(*masked_lm(tmp_path / folder, tmp_path / "save"))


@pytest.mark.parametrize(
    "content, problem",
    [
        ("schön 1\n".encode("latin-1"), "Incorrect encoding detected in"),
        (b"word\n", "Incorrect dictionary format"),
        (b"word 1\nword 1\n", "Duplicate word found when loading Dictionary: 'word'"),
    ],
)
def test_a_dictionary_that_cannot_be_read_is_one_line(content, problem, tmp_path):
    (tmp_path / "dict.txt").write_bytes(content)
    with pytest.raises(SystemExit, match=f"^fairseq_relpos: error: {problem}") as end:
        train_here(*masked_lm(tmp_path, tmp_path / "save"))
    assert "\n" not in end.value.code


def test_empty_corpus_is_named(data, tmp_path):
    from fairseq.data import indexed_dataset

    (tmp_path / "dict.txt").write_bytes((data / "dict.txt").read_bytes())
    empty = indexed_dataset.make_builder(str(tmp_path / "valid.bin"), "mmap", vocab_size=50)
    empty.finalize(str(tmp_path / "valid.idx"))
    with pytest.raises(SystemExit, match="valid holds no sentences: the text .* is empty"):
        train_here(*masked_lm(tmp_path, tmp_path / "save"))


def test_missing_data_is_one_line(data, tmp_path):
    (tmp_path / "dict.txt").write_bytes((data / "dict.txt").read_bytes())
    with pytest.raises(SystemExit, match="error: Dataset not found: valid"):
        train_here(*masked_lm(tmp_path, tmp_path / "save"))


def hides_the_reason(cfg):
    try:
        load_checkpoint(Path(__file__))
    except Exception:
        raise Exception("Cannot load model parameters from checkpoint")  # noqa: B904 - as fairseq does


def lacks_a_package(cfg):
    from fairseq.optim import shard

    shard._has_fairscale = False
    shard.shard_(None, None)


def has_no_kernels(cfg):
    raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nCompile with ...")


def fails_in_torch(cfg):
    torch.zeros(2).reshape(3)


def fails_elsewhere(cfg):
    raise ValueError("not ours")


@pytest.mark.parametrize(
    "main, error, said",
    [
        (hides_the_reason, SystemExit, "error: .*test_compat.py is no checkpoint"),
        (lacks_a_package, SystemExit, "^fairseq_relpos: error: Please install the fairscale package: pip install"),
        (has_no_kernels, SystemExit, "no kernels for this GPU: `fairseq-relpos doctor`"),
        # those of other packages keep their traceback
        (fails_in_torch, RuntimeError, "invalid for input of size"),
        (fails_elsewhere, ValueError, "not ours"),
    ],
)
def test_an_error_that_the_user_can_mend_is_one_line(main, error, said, data, tmp_path, monkeypatch):
    from fairseq.optim import shard

    monkeypatch.setattr(shard, "_has_fairscale", shard._has_fairscale)  # given back afterwards
    with pytest.raises(error, match=said):
        distributed_utils.call_main(configuration(*masked_lm(data, tmp_path)), main)


def test_training_and_validation_print_no_meaningless_warning(one_rank, validated):
    assert "Warning" not in one_rank.printed
    assert "Warning" not in validated


# Evaluation


def test_samples_that_validation_loses_are_reported_once(one_rank):
    assert one_rank.printed.count("LEFT OUT") == 1
    assert "4 of 24 samples are LEFT OUT of this evaluation" in one_rank.printed


def test_nothing_is_reported_where_nothing_is_lost(in_bf16, validated):
    assert "LEFT OUT" not in in_bf16.printed  # --required-batch-size-multiple 1
    assert "LEFT OUT" not in validated and len(losses(validated)) == 1  # batches of 8


def short_positions(data, save_dir, mode, *more):
    """Arguments of a training whose positions some lines of the corpus do not fit."""
    flags = f"--sample-break-mode {mode} --tokens-per-sample 10 --max-positions 10 --max-update 2"
    return masked_lm(data, save_dir, *flags.split(), "--required-batch-size-multiple", 1, *more)


def test_training_says_once_which_share_of_the_text_is_too_long_and_goes_on(data, tmp_path):
    lengths = [len(line.split()) + 2 for line in (data.parent / "train.txt").read_text().splitlines()]
    lost = [length for length in lengths if length > 10]
    more = ("--disable-validation", "--batch-size", 64, "--max-epoch", 2)
    printed = forked.train(short_positions(data, tmp_path / "eos", "eos", *more), tmp_path / "eos.log")
    (line,) = [line for line in printed.splitlines() if "LEFT OUT" in line]
    assert f"LEFT OUT: {len(lost)} of 64 samples are longer than the 10 positions of the model" in line
    assert f"{100 * sum(lost) / sum(lengths):.1f} % of the tokens; the longest has {max(lost)} tokens" in line
    assert "--sample-break-mode none cuts all text" in line and "done training" in printed
    printed = forked.train(short_positions(data, tmp_path / "none", "none", *more), tmp_path / "none.log")
    assert "LEFT OUT" not in printed


@pytest.mark.parametrize(
    "positions, ignore, what",
    [
        (
            10,
            False,
            r"Size of sample #\d+ is invalid \(=\d+\) since max_positions=10, skip .*; "
            "--sample-break-mode complete cuts no line; --sample-break-mode none cuts all",
        ),
        (
            2,
            True,
            r"(\d+) of \1 samples are longer than the 2 positions of the model, 100.0 % of the "
            "tokens; .*nothing would be left: --sample-break-mode complete cuts no line",
        ),
    ],
)
def test_samples_too_long_are_an_error_in_an_evaluation_and_where_none_is_left(data, positions, ignore, what):
    task = tasks.setup_task(configuration(*short_positions(data, "unused", "complete")).task)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    with pytest.raises(ValueError, match=what):
        task.filter_indices_by_size(dataset.ordered_indices(), dataset, positions, ignore)


def test_pairs_that_are_too_long_are_counted_by_their_longer_side(caplog):
    sides = [[4, 30, 5, 12], [4, 5, 6, 20]]
    given = [([torch.ones(n) for n in lengths], np.array(lengths, np.int32), Dictionary()) for lengths in sides]
    pairs = LanguagePairDataset(*given[0], *given[1])
    with pytest.raises(ValueError, match=r"sample #1 is invalid \(=\(30, 5\)\) .*'max_source_positions': L"):
        FairseqTask(None).filter_indices_by_size(np.arange(4), pairs, (16, 16))
    kept = FairseqTask(None).filter_indices_by_size(np.arange(4), pairs, (16, 16), True)
    assert list(kept) == [0, 2]
    assert (
        "LEFT OUT: 2 of 4 samples are longer than the (16, 16) positions of the model, 83.3 % of the "
        "tokens; the longest has 30 tokens; --max-source-positions and --max-target-positions"
    ) in caplog.text


@pytest.mark.parametrize(
    "kind, advice",
    [
        (LanguageModelingTask, "--max-target-positions of a training makes room .* \"{'max_target_positions': L}\""),
        (MaskedLMTask, "--max-positions of a training makes room"),
    ],
)
def test_the_flag_that_makes_room_is_one_of_the_model(kind, advice):
    task = kind.__new__(kind)
    task.cfg, task.datasets = argparse.Namespace(sample_break_mode="none"), {}
    pairs = LanguagePairDataset([torch.ones(30)], [30], Dictionary())
    with pytest.raises(ValueError, match=f"; {advice}"):
        task.filter_indices_by_size(np.arange(1), pairs, 16)


def test_a_long_line_of_interactive_is_left_out(caplog):
    """It is all that is read at once."""
    task = FairseqTask(None)
    line = LanguagePairDataset([torch.ones(30)], [30], Dictionary())
    for loaded in (False, True):
        task.datasets = {"test": line} if loaded else {}
        with pytest.raises(ValueError, match="nothing would be left") if loaded else contextlib.nullcontext():
            assert len(task.filter_indices_by_size(np.arange(1), line, (16, 16), True)) == 0
    assert "LEFT OUT: 1 of 1 samples are longer" in caplog.text


def test_a_set_that_would_be_lost_whole_is_an_error():
    sizes = np.full(5, 3)
    with pytest.raises(ValueError, match="5 of 5 samples are LEFT OUT: .*-multiple 1 to use all"):
        data_utils.batch_by_size(range(5), lambda i: sizes[i], max_sentences=8, required_batch_size_multiple=8)


# Number formats and data formats


def test_bf16_trains_on_the_cpu(in_bf16):
    assert "num_updates 2" in in_bf16.printed
    for weight in weights(in_bf16.checkpoint).values():  # fairseq stores them as float32
        torch.testing.assert_close(weight, weight.bfloat16().float(), rtol=0, atol=0)


@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
def test_bf16_means_a_tpu_only_if_one_is_asked_for(flag, data, tmp_path, monkeypatch):
    assert configuration(*masked_lm(data, tmp_path, flag)).common.tpu is False
    with pytest.raises(SystemExit, match="--tpu needs torch_xla"):
        configuration(*masked_lm(data, tmp_path, flag, "--tpu"))
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "torch_xla" or find_spec(name))
    assert configuration(*masked_lm(data, tmp_path, flag, "--tpu")).common.tpu is True


def test_lengths_are_bucketed():
    buckets = bucket_pad_length_dataset.get_buckets(np.array([3, 4, 5, 9, 14]), 2)
    assert buckets.tolist() == [5, 14]
    assert np.zeros(1, dtype=np.compat.long).dtype == np.int64


# Several processes


@pytest.mark.parametrize("sharding", ["none", "os"])
def test_two_ranks_equal_one_rank_with_two_batches_an_update(sharding, folder, data, one_rank):
    if sharding == "os":
        pytest.importorskip("fairscale")
    save_dir = folder / f"two-{sharding}"
    arguments = masked_lm(data, save_dir, "--zero-sharding", sharding)
    fairseq_ok("train", *arguments, "--max-update", 4, launcher=torchrun(2))
    torch.testing.assert_close(weights(save_dir / "checkpoint_last.pt"), weights(one_rank.after_4), rtol=0, atol=1e-6)
    resumed = fairseq_ok("train", *arguments, "--max-update", 6, launcher=torchrun(2))
    assert "@ 4 updates" in resumed
    torch.testing.assert_close(weights(save_dir / "checkpoint_last.pt"), weights(one_rank.after_6), rtol=0, atol=1e-6)


def test_validation_on_two_ranks_equals_one_rank(data, one_rank, validated):
    on_two = validate(one_rank.after_6, data, launcher=torchrun(2))  # one gets an empty batch
    assert losses(on_two) == losses(validated) * 2


@pytest.fixture
def as_launched(monkeypatch, data, tmp_path):
    """call_main in an environment of a launcher; returns the configuration it arrives at."""

    def launch(*flags, gpus=0, main=lambda cfg: None, **environment):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(distributed_utils, "distributed_main", lambda *arguments: None)
        for name, value in environment.items():
            monkeypatch.setenv(name, str(value))
        arguments = masked_lm(data, tmp_path, *flags)
        arguments.remove("--cpu")
        cfg = configuration(*arguments)
        distributed_utils.call_main(cfg, main)
        return cfg.distributed_training

    return launch


TORCHRUN = {"MASTER_ADDR": "node0", "MASTER_PORT": 29500}


@pytest.mark.parametrize("gpus, local_rank, device", [(1, 0, 0), (8, 3, 3), (1, 7, 0)])
def test_torchrun_with_one_gpu_per_node_joins_the_ranks(gpus, local_rank, device, as_launched):
    """A launcher that shows each process its own GPU alone: all have number 0."""
    settings = as_launched(gpus=gpus, WORLD_SIZE=12, RANK=9, LOCAL_RANK=local_rank, **TORCHRUN)
    assert settings.distributed_init_method == "env://" and settings.distributed_no_spawn
    assert (settings.distributed_world_size, settings.distributed_rank) == (12, 9)
    assert settings.device_id == device
    assert (settings.distributed_backend, settings.ddp_backend) == ("nccl", "pytorch_ddp")


def test_more_ranks_than_gpus_are_refused_and_a_single_rank_is_left_alone(as_launched):
    with pytest.raises(SystemExit, match="started more than 8 ranks on .*, which has 8 GPUs: start one rank"):
        as_launched(gpus=8, WORLD_SIZE=12, RANK=9, LOCAL_RANK=8, **TORCHRUN)
    settings = as_launched(gpus=1, WORLD_SIZE=1, RANK=0, LOCAL_RANK=0, **TORCHRUN)
    assert settings.distributed_init_method is None and settings.distributed_world_size == 1


@pytest.mark.parametrize("flag", [("--distributed-world-size", 1), ("--distributed-world-size=16",)])
def test_another_number_of_ranks_than_asked_for_is_refused(flag, as_launched):
    with pytest.raises(SystemExit, match="--distributed-world-size .* but the launcher started 2 ranks"):
        as_launched(*flag, gpus=1, WORLD_SIZE=2, RANK=1, LOCAL_RANK=0, **TORCHRUN)
    settings = as_launched("--distributed-world-size", 2, gpus=1)
    assert settings.distributed_world_size == 2


def test_an_address_of_your_own_may_stand_beside_a_launcher_that_counts_nodes(as_launched):
    own = "--distributed-world-size 16 --distributed-init-method tcp://node0:29500 --distributed-no-spawn".split()
    settings = as_launched(*own, "--distributed-rank", 8, gpus=8, WORLD_SIZE=2, RANK=1, **TORCHRUN)
    assert (settings.distributed_world_size, settings.distributed_rank) == (16, 8)


def test_commands_that_do_not_combine_their_ranks_are_left_alone(as_launched):
    def main(cfg):
        raise AssertionError("only its file name counts")

    main.__code__ = (lambda cfg: None).__code__.replace(co_filename="/somewhere/generate.py")
    settings = as_launched(main=main, WORLD_SIZE=2, RANK=1, LOCAL_RANK=1, **TORCHRUN)
    assert settings.distributed_world_size == 1


@pytest.mark.parametrize("how", [(), ("--distributed-init-method", "tcp://localhost:29500")])
def test_ranks_on_cpus_without_a_launcher_are_refused(how, as_launched):
    with pytest.raises(SystemExit, match="error: --distributed-world-size 2: .* use `torchrun"):
        as_launched("--distributed-world-size", 2, *how)


@pytest.mark.parametrize("backend", ["slowmo", "fully_sharded"])
def test_engines_that_need_gpus_are_refused_on_cpus(backend, as_launched):
    settings = {"WORLD_SIZE": 2, "RANK": 1, "LOCAL_RANK": 1, **TORCHRUN}
    with pytest.raises(SystemExit, match=f"--ddp-backend {backend} needs GPUs"):
        as_launched("--ddp-backend", backend, "--arch", "roberta", **settings)
    assert as_launched("--ddp-backend", backend, "--arch", "roberta", gpus=2, **settings).ddp_backend == backend


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_training_alone_in_each_rank_is_refused(variable, data, tmp_path, monkeypatch):
    cfg = configuration(*masked_lm(data, tmp_path))
    monkeypatch.setenv(variable, "4")
    with pytest.raises(ValueError, match="started 4 ranks .* --distributed-world-size 4"):
        Trainer(cfg, None, None, None)


def test_applying_twice_changes_nothing():
    before = distributed_utils.call_main, options.parse_args_and_arch, Trainer.__init__
    mends.apply()
    assert before == (distributed_utils.call_main, options.parse_args_and_arch, Trainer.__init__)


def test_importing_the_plugin_leaves_logging_as_it_was():
    program = (
        "import logging, sys\n"
        "before = (logging.getLogger().level, list(logging.getLogger().handlers))\n"
        "import fairseq_relpos\n"
        "fairseq_relpos.register()\n"
        "assert 'fairseq.tasks' in sys.modules\n"
        "assert before == (logging.getLogger().level, logging.getLogger().handlers)\n"
    )
    done = pythons.run("-c", program)
    assert done.returncode == 0 and "INFO" not in done.stderr, done.stderr


def test_each_epoch_is_logged_once(folder, data):
    log = folder / "once" / "train.log"
    log.parent.mkdir()
    more = ["--max-epoch", 3, "--max-update", 100, "--log-format", "json", "--log-file", log]
    fairseq_ok("train", *masked_lm(data, log.parent, *more))
    epochs = re.findall(r'"epoch": (\d), "train_loss"', log.read_text())
    assert epochs == ["1", "2", "3"]
