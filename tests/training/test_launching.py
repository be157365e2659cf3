"""Several ranks: they find each other, agree, and train as one; or say in one line why not."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq_data import masked_lm
from forked import Run, free_port, ranks, train

from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.training import agreement, gradients, joining

USER_DIR = "fairseq_relpos"
ROOT = Path(__file__).parents[2]
PREFIX = "fairseq_relpos: error: "


def arguments(data, save_dir, *more, arch="roberta_tupe_r"):
    return masked_lm(data, save_dir, USER_DIR, "--arch", arch, "--required-batch-size-multiple", 1,
                     "--disable-validation", *more)


def error_of(run, seconds=60):
    """The one line in which a rank has ended."""
    assert run.wait(seconds) == 1, run.printed()
    last = run.printed().splitlines()[-1]
    assert last.startswith(PREFIX) and "Traceback" not in run.printed(), run.printed()
    return last.removeprefix(PREFIX)


def weights(folder):
    return load_checkpoint(folder / "checkpoint_last.pt")["model"]


@pytest.mark.parametrize("name", ["learned", "tupe_r", "m4m", "deberta"])
def test_two_ranks_equal_one_rank_with_twice_the_batch(data, tmp_path, name):
    """Updates of 8 sentences: 8 at once on one rank, 4 on each of two. An epoch is not shuffled
    here, so that the sentences of an update are the same."""
    common, arch = in_order(), f"roberta_{name}"
    train(arguments(data, tmp_path / "one", *common, "--batch-size", 8, arch=arch), tmp_path / "log")
    runs = ranks(2, arguments(data, tmp_path / "two", *common, arch=arch), tmp_path / "logs")
    assert [run.wait() for run in runs] == [0, 0], runs[0].printed() + runs[1].printed()
    assert_close(tmp_path / "one", tmp_path / "two")


def in_order():
    # RoBERTa's epsilon: a bias of the keys has no gradient but rounding errors, and Adam's
    # default would make whole steps of them
    return ("--max-update", 20, "--curriculum", 99, "--adam-eps", 1e-6)


def assert_close(one, other):
    torch.testing.assert_close(weights(one), weights(other), rtol=0, atol=1e-5)


def test_accumulated_gradients_equal_twice_the_batch(data, tmp_path):
    train(arguments(data, tmp_path / "one", *in_order(), "--batch-size", 8), tmp_path / "log")
    train(arguments(data, tmp_path / "two", *in_order(), "--update-freq", 2), tmp_path / "log")
    assert_close(tmp_path / "one", tmp_path / "two")


def test_ranks_that_do_not_come_are_named(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 2)
    started = time.monotonic()
    runs = ranks(4, command, tmp_path, start=[0, 2], RELPOS_JOIN_TIMEOUT=3)
    errors = [error_of(run) for run in runs]
    assert "after 3 s 2 of 4 ranks have not joined: 1, 3 (here: 2 on " in errors[0]
    assert time.monotonic() - started < 60


def test_a_rank_that_nobody_answers_says_where(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 2)
    (alone,) = ranks(2, command, tmp_path, start=[1], RELPOS_JOIN_TIMEOUT=2)
    assert "rank 0 does not answer at 127.0.0.1:" in error_of(alone)


def test_a_port_in_use_is_named(data, tmp_path):
    port = free_port()
    busy = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    rank = Run(arguments(data, tmp_path / "run"), tmp_path / "log", MASTER_ADDR="127.0.0.1",
               MASTER_PORT=port, WORLD_SIZE=2, RANK=0, LOCAL_RANK=0, RELPOS_JOIN_TIMEOUT=3)
    assert f"port {port} of " in error_of(rank)
    del busy


@pytest.mark.parametrize("given", ["soon", "0", "-1"])
def test_the_wait_is_a_number_of_seconds(given, monkeypatch):
    monkeypatch.setenv(joining.TIMEOUT_VARIABLE, given)
    with pytest.raises(ValueError, match="is not a number of seconds above 0"):
        joining.join_timeout()


def test_ranks_with_other_settings_are_named(data, tmp_path):
    def be_different(rank):
        if rank == 1:
            sys.argv += ["--position-hparams", "num_buckets=16", "--lr", "0.02"]

    runs = ranks(2, arguments(data, tmp_path / "run"), tmp_path, before=be_different)
    errors = [error_of(run) for run in runs]
    for error in errors:
        assert "rank 1 and rank 0 do not train the same: they differ in " in error
        assert "--position-hparams" in error or "--lr" in error
    assert not (tmp_path / "run" / "checkpoint_last.pt").exists()


def test_ranks_with_other_data_are_named(data, tmp_path):
    def read_less(rank):
        if rank == 1:
            from fairseq.tasks.masked_lm import MaskedLMTask

            real = MaskedLMTask.load_dataset

            def load(self, split, *args, **kwargs):
                real(self, split, *args, **kwargs)
                self.datasets[split].sizes[0] += 1

            MaskedLMTask.load_dataset = load

    runs = ranks(2, arguments(data, tmp_path / "run"), tmp_path, before=read_less)
    assert all("they differ in train data (64 samples of sizes" in error_of(run) for run in runs)


def test_what_belongs_to_one_rank_is_not_compared():
    cfg = {"model": {"lr": [1]}, "distributed": {"device_id": 3, "distributed_rank": 1}}
    assert agreement.flat(cfg) == {"--lr": [1]}


def trainer_with(ddp_backend, world_size=2, find_unused=False):
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "spare": torch.nn.Linear(2, 2)})
    model["used"](torch.ones(1, 2)).sum().backward()
    distributed = SimpleNamespace(ddp_backend=ddp_backend, find_unused_parameters=find_unused)
    return SimpleNamespace(get_model=lambda: model, data_parallel_world_size=world_size,
                           cfg=SimpleNamespace(distributed_training=distributed))


def test_parameters_that_ddp_would_wait_for_are_named(caplog):
    with pytest.raises(ValueError, match="no gradient reaches spare.weight, spare.bias, and --ddp-"):
        gradients.check(trainer_with("pytorch_ddp"))
    gradients.check(trainer_with("pytorch_ddp", find_unused=True))
    assert not caplog.text
    gradients.check(trainer_with("legacy_ddp", world_size=1))
    assert "no gradient reaches spare.weight" in caplog.text


def test_a_rank_that_dies_ends_the_other(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 100000, "--no-save")
    runs = ranks(2, command, tmp_path)
    runs[0].wait_for("Start iterating")
    os.kill(runs[1].process, 9)
    runs[1].wait()
    assert runs[0].wait(60) != 0


# The launcher


def launch(*arguments, **environment):
    return subprocess.run(
        ["bash", ROOT / "scripts/launch_torchrun.sh", *map(str, arguments)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
    )  # fmt: skip


def test_launch_torchrun_restarts_the_ranks_after_one_has_died(data, tmp_path):
    """One rank kills itself after the 4th update of the first start; both go on from it."""
    (tmp_path / "dies").mkdir()
    (tmp_path / "dies" / "__init__.py").write_text(
        "import os\n"
        "from fairseq.trainer import Trainer\n"
        "step = Trainer.train_step\n"
        "def train_step(self, *args, **kwargs):\n"
        "    if self.get_num_updates() == 5 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' \\\n"
        "            and os.environ['RANK'] == '1':\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return step(self, *args, **kwargs)\n"
        "Trainer.train_step = train_step\n"
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import fairseq_relpos\n"
    )
    command = arguments(data, tmp_path / "run", "--max-update", 8, "--save-interval-updates", 4)
    command[command.index("--user-dir") + 1] = str(tmp_path / "dies")
    done = launch("--nproc_per_node", 2, "--max-restarts", 1, "--", *command)
    assert done.returncode == 0, done.stdout
    assert "@ 4 updates" in done.stdout
    alone = arguments(data, tmp_path / "alone", "--max-update", 8, "--update-freq", 2)
    train(alone, tmp_path / "log")
    assert_close(tmp_path / "run", tmp_path / "alone")


@pytest.mark.parametrize("given, said", [
    (("DATA",), "no -- between"),
    (("--nproc_per_node", 2, "--"), "no data folder"),
    (("--nnodes", 2, "--nproc_per_node", 1, "--", "DATA"), "needs --master_addr"),
    (("--", "DATA"), "no GPU here: say how many processes"),
])
def test_launch_torchrun_says_what_is_missing(given, said):
    done = launch(*given)
    assert done.returncode == 1 and said in done.stdout.splitlines()[-1]


def test_launch_check_names_a_taken_port_and_a_node_that_is_not_there():
    def check(port, node_rank):
        command = [sys.executable, ROOT / "scripts/launch_check.py", "127.0.0.1", str(port),
                   str(node_rank), "0.5"]
        return subprocess.run(command, capture_output=True, text=True).stderr

    port = free_port()
    assert check(port, 0) == ""
    assert f"node 0 does not answer at 127.0.0.1:{port} after 0.5 s" in check(port, 1)
    busy = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    assert f"port {port} of this machine cannot be used" in check(port, 0)
    del busy
