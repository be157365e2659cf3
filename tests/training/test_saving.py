"""Checkpoints that are whole whatever happens, and runs that go on from them."""

import os
import random
import re
import resource
import signal
import time
import zipfile
from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.optim.fp16_optimizer import FP16Optimizer
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import (
    ReduceLROnPlateauLRSchedule,
    ReduceLROnPlateauLRScheduleConfig,
)
from fairseq.optim.sgd import SGD
from fairseq.trainer import Trainer
from fairseq_data import binarise, binarise_translation, masked_lm, translation
from forked import Run, error_of, ranks, train, weights

from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.mends import resuming, saving


def arguments(data, save_dir, *more):
    """Dropout on, so that a resumed run has to draw the same."""
    flags = "--arch roberta_tupe_r --dropout 0.1 --required-batch-size-multiple 1 --disable-validation"
    return masked_lm(data, save_dir, *flags.split(), *more)


def assert_bitwise_equal(one, other):
    torch.testing.assert_close(weights(one), weights(other), rtol=0, atol=0)


@pytest.fixture(scope="module")
def uninterrupted(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(arguments(data, folder, "--max-update", 20, "--no-epoch-checkpoints"), folder / "log")
    return folder


def test_loaders_of_their_own_draw_the_same_new_masks_in_every_epoch(data, uninterrupted, tmp_path):
    more = ("--max-update", 20, "--no-epoch-checkpoints", "--num-workers", 1)
    train(arguments(data, tmp_path, *more), tmp_path / "log")
    assert "epoch 002" in (tmp_path / "log").read_text()
    assert_bitwise_equal(uninterrupted, tmp_path)


def test_the_loss_scale_grows_as_if_the_run_had_not_stopped(data, tmp_path):
    more = ("--fp16", "--fp16-scale-window", 6, "--fp16-init-scale", 8192, "--no-epoch-checkpoints")
    train(arguments(data, tmp_path / "whole", *more, "--max-update", 16), tmp_path / "log")
    for end in (7, 16):
        train(arguments(data, tmp_path / "parts", *more, "--max-update", end), tmp_path / "log")
    assert_bitwise_equal(tmp_path / "whole", tmp_path / "parts")


def test_patience_goes_on(data, tmp_path):
    """Nothing is ever better than the first validation."""
    flags = "--arch roberta_t5 --lr 0 --patience 3 --validate-interval-updates 1"
    command = masked_lm(data, tmp_path / "run", *flags.split())
    train([*command, "--max-update", "2"], tmp_path / "log")
    printed = train([*command, "--max-update", "9"], tmp_path / "log")
    assert "early stop since valid performance hasn't improved for last 3 runs" in printed
    assert load_checkpoint(tmp_path / "run" / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 4


def test_the_patience_of_a_learning_rate_goes_on():
    def schedule():
        optimizer = SGD(Namespace(lr=[1.0], momentum=0.0, weight_decay=0.0), [torch.nn.Parameter(torch.ones(1))])
        settings = {"lr": [1.0], "lr_patience": 2, "lr_shrink": 0.5, "maximize_best_checkpoint_metric": False}
        return ReduceLROnPlateauLRSchedule(ReduceLROnPlateauLRScheduleConfig(**settings), optimizer)

    rates, state = [], schedule().state_dict()
    for epoch in range(4):
        resumed = schedule()
        resumed.load_state_dict(state)
        rates.append(resumed.step(epoch, 5.0))
        state = resumed.state_dict()
    assert rates == [1, 1, 1, 0.5]


def test_the_epoch_before_a_resume_counts_for_the_learning_rate(data, tmp_path):
    """Nothing is ever better than the first validation."""
    rate = "--lr-scheduler reduce_lr_on_plateau --lr-patience 0 --lr-shrink 0.5 --lr-threshold 1 --lr 1e-6"

    def rate_after(folder, *ends):
        for end in ends:
            flags = ("--arch", "roberta_t5", *rate.split(), "--max-epoch", end)
            train(masked_lm(data, tmp_path / folder, *flags), tmp_path / "log")
        state = load_checkpoint(tmp_path / folder / "checkpoint_last.pt")["last_optimizer_state"]
        return state["param_groups"][0]["lr"]

    assert rate_after("parts", 1, 2, 3, 4) == rate_after("whole", 4) < 1e-6


def test_patience_begins_anew_with_a_new_optimizer(data, tmp_path):
    flags = "--arch roberta_t5 --lr 0 --patience 3 --validate-interval-updates 1 --max-update 3"
    train(masked_lm(data, tmp_path / "one", *flags.split()), tmp_path / "log")
    more = ("--restore-file", tmp_path / "one" / "checkpoint_last.pt", "--reset-optimizer", "--reset-dataloader")
    printed = train(masked_lm(data, tmp_path / "two", *flags.split(), *more), tmp_path / "log")
    assert "early stop" not in printed


def test_an_average_begins_with_the_weights_of_a_checkpoint_without_one(data, tmp_path):
    more = ("--max-update", 2, "--no-epoch-checkpoints")
    train(arguments(data, tmp_path / "one", *more), tmp_path / "log")
    start = ("--finetune-from-model", tmp_path / "one" / "checkpoint_last.pt", "--store-ema", "--lr", 0)
    train(arguments(data, tmp_path / "two", *more, *start), tmp_path / "log")
    saved, begun = (load_checkpoint(tmp_path / folder / "checkpoint_last.pt") for folder in ("two", "one"))
    torch.testing.assert_close(saved["extra_state"]["ema"], begun["model"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["--bf16", "--fp16"])
def test_half_precision_goes_on_from_the_weights_that_it_had(data, tmp_path, precision):
    more = (precision, "--no-epoch-checkpoints", "--dropout", 0, "--attention-dropout", 0)
    train(arguments(data, tmp_path / "whole", *more, "--max-update", 8), tmp_path / "log")
    for end in (5, 8):
        train(arguments(data, tmp_path / "parts", *more, "--max-update", end), tmp_path / "log")
    assert_bitwise_equal(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_float32_weights_of_another_model_than_the_checkpoints_are_left_out(dtype, caplog):
    def optimizer(values):
        half = torch.nn.Parameter(values.to(dtype))
        full = [torch.nn.Parameter(half.detach().float())]
        found = FP16Optimizer.__new__(FP16Optimizer)
        vars(found).update(scaler=None, fp32_params=full, fp32_optimizer=SGD(Namespace(**settings), full))
        return found

    settings = {"lr": [1.0], "momentum": 0.0, "weight_decay": 0.0}
    full = torch.cat([torch.randn(500), 1e-7 * torch.randn(500)])
    trained, resumed, averaged = optimizer(full), optimizer(full), optimizer(full + 0.01)
    trained.fp32_params[0].data.copy_(full)
    for other in (resumed, averaged):
        other.load_state_dict(trained.state_dict())
    assert torch.equal(resumed.fp32_params[0], full)
    assert torch.equal(averaged.fp32_params[0], (full + 0.01).to(dtype).float())
    assert caplog.text.count("they are left out") == 1


def test_a_finished_run_makes_no_further_update(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 3)
    train(command, tmp_path / "log")
    before = (tmp_path / "run" / "checkpoint_last.pt").read_bytes()
    assert "so none is left to do" in train(command, tmp_path / "log")
    assert (tmp_path / "run" / "checkpoint_last.pt").read_bytes() == before


@pytest.mark.parametrize("more", [(), ("--update-ordered-indices-seed",)])
def test_a_translation_that_stopped_in_a_later_epoch_goes_on_with_the_same_batches(tmp_path, more):
    data = binarise_translation(tmp_path / "corpus")  # 8 batches an epoch

    def run(folder, end):
        flags = [*f"--max-update {end} --disable-validation --no-epoch-checkpoints".split(), *more]
        return train(translation(data, tmp_path / folder, *flags, arch="transformer_t5"), tmp_path / "log")

    assert "epoch 003" in run("whole", 23)
    run("parts", 19)
    assert "epoch 3 @ 19 updates" in run("parts", 23)
    assert_bitwise_equal(tmp_path / "whole", tmp_path / "parts")


# Writing


def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    saving.write(str(last), lambda file: file.write(b"whole"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # no file may be larger
    try:
        with pytest.raises(ValueError, match="cannot be saved: no room .*make room") as error:
            checkpoint_utils.torch_persistent_save({"x": torch.zeros(100_000)}, str(last))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    assert last.read_bytes() == b"whole" and os.listdir(tmp_path) == ["checkpoint_last.pt"]


def test_copies_are_whole_too(tmp_path):
    source, target = tmp_path / "a.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new" * 1000)
    target.write_bytes(b"old")
    before = os.stat(target).st_ino
    PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == source.read_bytes()
    assert os.stat(target).st_ino != before, "written over what was there"
    assert (tmp_path / "checkpoint_previous.pt").read_bytes() == b"old"


def test_two_processes_that_write_one_file_do_not_disturb_each_other(tmp_path):
    last = str(tmp_path / "checkpoint_last.pt")

    def while_another_writes(file):
        file.write(b"first")
        saving.write(last, lambda other: other.write(b"second"))

    saving.write(last, while_another_writes)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == b"first"
    assert (tmp_path / "checkpoint_previous.pt").read_bytes() == b"second"
    assert len(os.listdir(tmp_path)) == 2


def test_a_start_removes_what_killed_processes_left_and_nothing_that_one_is_writing(tmp_path, caplog):
    last, read_end = str(tmp_path / "checkpoint_last.pt"), os.pipe()

    def tell_and_wait(file):
        os.write(read_end[1], b"writing")
        time.sleep(60)

    children = []
    for _ in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            saving.write(last, tell_and_wait)
            os._exit(0)
        os.read(read_end[0], 7)
    (tmp_path / "notes.tmp").write_bytes(b"not ours")
    assert len(os.listdir(tmp_path)) == 3
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    checkpoint_utils.verify_checkpoint_directory(str(tmp_path))
    names = sorted(os.listdir(tmp_path))
    assert len(names) == 2 and names[1] == "notes.tmp" and f"{names[0]} is being written by another" in caplog.text
    os.kill(children[1], signal.SIGKILL)
    os.waitpid(children[1], 0)
    checkpoint_utils.verify_checkpoint_directory(str(tmp_path))
    assert os.listdir(tmp_path) == ["notes.tmp"]


@pytest.mark.parametrize("flag", ["--save-dir", "--log-file", "--tensorboard-logdir"])
def test_a_folder_that_cannot_be_written_ends_in_one_line(data, tmp_path, flag):
    (tmp_path / "file").write_text("")
    more = ("--max-update", 1, flag, tmp_path / "file" / "inside")
    run = Run(arguments(data, tmp_path / "run", *more), tmp_path / "log")
    assert "Not a directory" in error_of(run)


def test_the_predecessor_is_kept_only_where_no_numbered_checkpoint_serves(data, tmp_path):
    every = ("--max-update", 6, "--save-interval-updates", 2, "--no-epoch-checkpoints")
    train(arguments(data, tmp_path / "one", *every, "--keep-interval-updates", 1), tmp_path / "log")
    assert sorted(os.listdir(tmp_path / "one")) == ["checkpoint_1_6.pt", "checkpoint_last.pt", "checkpoint_previous.pt"]
    train(arguments(data, tmp_path / "all", *every), tmp_path / "log")
    names = [f"checkpoint_{which}.pt" for which in ("1_2", "1_4", "1_6", "last")]
    assert sorted(os.listdir(tmp_path / "all")) == names


# Reading


def test_a_checkpoint_of_another_model_cannot_be_gone_on_with(data, uninterrupted, tmp_path):
    (tmp_path / "run").mkdir()
    os.link(uninterrupted / "checkpoint_last.pt", tmp_path / "run" / "checkpoint_last.pt")
    run = Run(arguments(data, tmp_path / "run", "--max-update", 21, "--arch", "roberta_base"), tmp_path / "log")
    assert "the checkpoint is not of this model: it lacks" in error_of(run)


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:  # of a weight
        with zipfile.ZipFile(path) as archive:
            largest = max(archive.infolist(), key=lambda member: member.file_size)
            weights = archive.read(largest)
        content[content.index(weights) + len(weights) // 2] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["cut", "empty", "one bit"])
def test_a_damaged_last_checkpoint_is_replaced_by_the_one_before(data, uninterrupted, tmp_path, how):
    save_dir = tmp_path / "run"
    every = ("--save-interval-updates", 4, "--keep-interval-updates", 1, "--no-epoch-checkpoints")
    train(arguments(data, save_dir, *every, "--max-update", 12), tmp_path / "log")
    (save_dir / "checkpoint_1_12.pt").unlink()
    damage(save_dir / "checkpoint_last.pt", how)
    printed = train(arguments(data, save_dir, *every, "--max-update", 20), tmp_path / "log")
    assert "RESUMING FROM checkpoint_previous.pt INSTEAD" in printed and "@ 8 updates" in printed
    assert (save_dir / "checkpoint_last.pt.damaged").exists()
    assert_bitwise_equal(save_dir, uninterrupted)


@pytest.mark.slow
def test_a_list_of_contents_that_torch_cannot_read_is_damage(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    torch.save({"weights": torch.zeros(50), "more": torch.ones(3)}, path)
    whole = path.read_bytes()
    assert resuming.what_is_damaged(str(path)) is None
    begin, found = whole.index(b"PK\x01\x02"), 0
    for bit in range(8 * (len(whole) - begin)):
        flipped = bytearray(whole)
        flipped[begin + bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        if resuming.what_is_damaged(str(path)) is not None:
            found += 1
            continue
        try:
            torch.load(path)
        except Exception as error:
            raise AssertionError(bit) from error
    assert found > 100


def test_no_whole_checkpoint_at_all_is_an_error(tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes(b"PK half a file")
    with pytest.raises(ValueError, match="cut short .* and no other checkpoint .* is whole"):
        resuming.put_a_damaged_last_aside(str(tmp_path / "checkpoint_last.pt"))
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


@pytest.mark.parametrize("lost", ["damaged", "missing"])
def test_the_most_updates_count_and_not_the_date(tmp_path, lost):
    """The dates are those of a copy, oldest checkpoint last."""
    last = tmp_path / "checkpoint_last.pt"
    for date, updates in enumerate((20, 8, 4)):
        path = tmp_path / f"checkpoint_1_{updates}.pt"
        torch.save({"model": {}, "optimizer_history": [{"num_updates": updates}]}, path)
        os.utime(path, (date, date))
    if lost == "damaged":
        last.write_bytes(b"PK half a file")
    resuming.put_a_damaged_last_aside(str(last), is_expected=False)
    assert last.exists() == (lost == "damaged")
    resuming.put_a_damaged_last_aside(str(last))
    assert resuming.updates_of(str(last)) == 20
    assert (tmp_path / "checkpoint_last.pt.damaged").exists() == (lost == "damaged")


def test_an_average_is_not_resumed_from(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(b"PK half a file")
    for name, value in (("checkpoint_avg.pt", 1.0), ("checkpoint_best.pt", 2.0)):
        state = {"model": {"a": torch.tensor(value)}, "optimizer_history": [{"num_updates": 8}]}
        torch.save(state, tmp_path / name)
    torch.save({"model": {}}, tmp_path / "checkpoint_mine.pt")
    resuming.put_a_damaged_last_aside(str(last))
    assert load_checkpoint(last)["model"]["a"] == 2


@pytest.mark.parametrize("flag", ["continue_once", "finetune_from_model"])
def test_a_missing_last_checkpoint_is_replaced_only_in_the_run_that_began_with_the_same_file(tmp_path, flag):
    last, numbered = tmp_path / "checkpoint_last.pt", tmp_path / "checkpoint_1_4.pt"
    cfg = {"checkpoint": {flag: "/a/start.pt"}}
    torch.save({"model": {}, "optimizer_history": [{"num_updates": 4}], "cfg": cfg}, numbered)

    def prepare(start):
        given = Namespace(restore_file=last.name, no_last_checkpoints=False, **{flag: start})
        resuming.prepare(str(last), given, Namespace(cfg=Namespace(checkpoint=given), checkpoint_suffix=""))

    named = flag.replace("_", "-")
    with pytest.raises(ValueError, match=f"checkpoint_1_4.pt .* without --{named} /a/other.pt: copy it"):
        prepare("/a/other.pt")
    assert not last.exists()
    prepare("/a/start.pt")
    assert last.read_bytes() == numbered.read_bytes()


def stopping(update):
    """For a Run: ends it with exit code 75 after this update."""

    def before(*_):
        step = Trainer.train_step

        def train_step(self, *args, **kwargs):
            if self.get_num_updates() + 1 == update:
                os.kill(os.getpid(), signal.SIGUSR1)
            return step(self, *args, **kwargs)

        Trainer.train_step = train_step

    return before


@pytest.mark.parametrize("restart", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_a_restart_overwrites_nothing_where_the_command_names_another_start(data, tmp_path, restart):
    train(arguments(data, tmp_path / "one", "--max-update", 1), tmp_path / "log")
    start = ["--restore-file", tmp_path / "one/checkpoint_last.pt", "--reset-optimizer", "--reset-dataloader"]
    more = ["--reset-lr-scheduler", "--no-epoch-checkpoints", "--reset-meters"]
    command = arguments(data, tmp_path / "two", "--max-update", 4, *start, *more)
    begins = "one/checkpoint_last.pt (epoch 1 @ 0 updates)"
    # before anything is saved, a restart begins as the command says
    runs = ranks(2, command, tmp_path / "logs", before=stopping(2), **{restart: "1"})
    for run in runs:
        assert run.wait() == 75, run.printed()
    assert begins in runs[0].printed()

    def count(rank):  # each node counts by itself
        os.environ[restart] = str(rank)

    remedies = "without these flags .* --finetune-from-model .* --continue-once"
    for run in ranks(2, command, tmp_path / "logs", before=count):
        assert re.search(remedies, error_of(run))
    last = tmp_path / "two/checkpoint_last.pt"
    assert resuming.updates_of(str(last)) == 2
    # a start by hand and a command with other flags begin as they say; so does one beside a damaged file of any run
    assert begins in train(command[:-1], tmp_path / "log", **{restart: "1"})
    printed = train(command, tmp_path / "log", SLURM_JOB_ID="7")
    assert begins in printed and re.search("WARNING .* is refused.* --finetune-from-model .* --continue-once", printed)
    last.write_bytes(b"PK half a file")
    assert begins in train(command, tmp_path / "log", **{restart: "1"})
    # but not where the checkpoint before it is this command's
    last.rename(tmp_path / "two/checkpoint_1_4.pt")
    last.write_bytes(b"PK half a file")
    assert re.search(remedies, error_of(Run(command, tmp_path / "log", **{restart: "1"})))


def test_a_restart_resumes_where_the_command_names_its_own_checkpoint(data, tmp_path):
    command = arguments(data, tmp_path, "--max-update", 4, "--restore-file", tmp_path / "checkpoint_last.pt")
    run = Run(command, tmp_path / "log", before=stopping(3), SLURM_JOB_ID="7")
    assert run.wait() == 75 and "the same command resumes" in run.printed() and "is refused" not in run.printed()
    assert "(epoch 1 @ 3 updates)" in train(command, tmp_path / "log", SLURM_RESTART_COUNT="1")


@pytest.mark.parametrize("flag", ["--finetune-from-model", "--continue-once"])
def test_a_restart_resumes_what_has_begun_with_another_file(data, tmp_path, flag):
    train(arguments(data, tmp_path / "one", "--max-update", 1), tmp_path / "log")
    command = arguments(data, tmp_path / "two", "--max-update", 4, flag, tmp_path / "one/checkpoint_last.pt")
    run = Run(command, tmp_path / "log", before=stopping(3))
    assert run.wait() == 75 and "one/checkpoint_last.pt (epoch" in run.printed(), run.printed()
    printed = train(command, tmp_path / "log", SLURM_RESTART_COUNT="1")
    assert "two/checkpoint_last.pt (epoch 1 @ 3 updates)" in printed


def test_a_fine_tuning_resumes_without_the_file_that_it_started_from(data, tmp_path):
    """It has position hyperparameters that only that file has named."""
    flags = ["--arch", "roberta_t5", "--required-batch-size-multiple", 1, "--disable-validation"]
    hparams = ["--position-hparams", "num_buckets=16"]
    train(masked_lm(data, tmp_path / "one", *flags, *hparams, "--max-update", 1), tmp_path / "log")
    command = masked_lm(data, tmp_path / "two", *flags, "--finetune-from-model", tmp_path / "one/checkpoint_last.pt")
    train([*command, "--max-update", 2], tmp_path / "log")
    (tmp_path / "one").rename(tmp_path / "away")
    assert "@ 2 updates" in train([*command, "--max-update", 3], tmp_path / "log")


# Killed


def test_killed_while_saving_and_while_training_it_ends_with_the_same_weights(data, uninterrupted, tmp_path):
    """SIGKILL after half of a copy onto checkpoint_last.pt, after half of a first write, and in
    the middle of an update."""
    chance = random.Random(1)
    flags = "--max-update 20 --save-interval-updates 3 --keep-interval-updates 1 --no-epoch-checkpoints"
    command = arguments(data, tmp_path / "run", *flags.split())

    def die_in_write(number):
        def arm():
            real, calls = saving.write, []

            def write(path, fill):
                calls.append(path)
                if len(calls) == number:

                    def half(file):
                        fill(file)
                        file.truncate(file.tell() // 2)
                        file.flush()
                        os.kill(os.getpid(), signal.SIGKILL)

                    return real(path, half)
                return real(path, fill)

            saving.write = write

        return arm

    for number in (4, 5):  # the copy of the second save, the first write of the third
        run = Run(command, tmp_path / "log", before=die_in_write(number))
        assert run.wait() == -signal.SIGKILL, run.printed()
        assert any(".part" in name for name in os.listdir(tmp_path / "run"))
    run = Run(command, tmp_path / "log")
    run.wait_for("Start iterating")
    time.sleep(chance.uniform(0, 0.2))
    os.kill(run.process, signal.SIGKILL)
    run.wait()
    train(command, tmp_path / "log")
    assert not any(".part" in name for name in os.listdir(tmp_path / "run"))
    assert_bitwise_equal(tmp_path / "run", uninterrupted)


# Another order of the data


@pytest.mark.parametrize(
    "more, sentences, what",
    [
        (("--batch-size", 2), None, ["--batch-size 4, now 2"]),
        (("--tokens-per-sample", 12), None, ["--tokens-per-sample 16, now 12"]),
        ((), 61, ["training data 64 samples of sizes", "now 61 samples of sizes"]),
        ((), 8, ["more batches a rank than the training data make now"]),
    ],
)
def test_resuming_with_other_batches_in_an_epoch_is_refused(data, tmp_path, more, sentences, what):
    train(arguments(data, tmp_path / "run", "--max-update", 4), tmp_path / "log")
    now = data if sentences is None else binarise(tmp_path / "other", train=sentences)
    command = arguments(now, tmp_path / "run", "--max-update", 6, *more)
    error = error_of(Run(command, tmp_path / "log"))
    assert all(part in error for part in (*what, "--reset-dataloader"))
    assert "@ 4 updates" in train([*command, "--reset-dataloader"], tmp_path / "log")


def test_update_freq_makes_other_batches_in_streams_alone():
    found = {"max_tokens": 8, "update_freq": [4], "seed": 1, "distributed_world_size": 1}
    groups = ("distributed_training", "dataset", "common")
    cfg = Namespace(**dict.fromkeys(groups, Namespace(**found)), task=Namespace(**found))
    assert "--update-freq" not in resuming.data_order(cfg)  # an older task, which gets all arguments
    cfg.task.memory_length = 16
    assert resuming.data_order(cfg)["--update-freq"] == "[4]"


def test_at_the_end_of_an_epoch_other_batches_are_allowed():
    state = {"data_order": {"number of ranks": 2}, "train_iterator": {"iterations_in_epoch": 0}}
    resuming.refuse_another_order("x.pt", state, {"number of ranks": 1})
    state["train_iterator"]["iterations_in_epoch"] = 7
    with pytest.raises(ValueError, match="number of ranks 2, now 1"):
        resuming.refuse_another_order("x.pt", state, {"number of ranks": 1})
