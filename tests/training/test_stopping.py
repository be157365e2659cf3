"""Signals that save, and numbers that stop being numbers."""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import types
from unittest.mock import Mock, patch

import pytest
import torch
from fairseq.trainer import Trainer
from fairseq_data import fairseq, masked_lm, with_plugin
from forked import Run, error_of, ranks, train, weights

from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.diverged import Diverged
from fairseq_relpos.mends import precision, stopping
from fairseq_relpos.mends.nonfinite import explained


def arguments(data, save_dir, *more):
    flags = "--arch roberta_tupe_r --dropout 0.1 --required-batch-size-multiple 1"
    return masked_lm(data, save_dir, *flags.split(), *more)


def in_update(number, act):
    """Calls ``act`` while update ``number`` is under way."""

    def arm():
        from fairseq.tasks import FairseqTask

        step = FairseqTask.optimizer_step

        def optimizer_step(self, optimizer, model, update_num):
            if update_num + 1 == number:
                act()
            return step(self, optimizer, model, update_num)

        FairseqTask.optimizer_step = optimizer_step

    return arm


def signal_in_update(number, sent):
    return in_update(number, lambda: os.kill(os.getpid(), sent))


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A training that no signal has stopped."""
    folder = tmp_path_factory.mktemp("whole")
    train(arguments(data, folder, "--max-update", 10, "--disable-validation"), folder / "log")
    return folder


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_the_run_goes_on_as_if_nothing_had_been(data, whole, tmp_path, sent):
    command = arguments(data, tmp_path / "run", "--max-update", 10, "--disable-validation")
    run = Run(command, tmp_path / "log", before=signal_in_update(7, sent))
    assert run.wait() == 75, run.printed()
    assert f"{sent.name} after 7 updates: checkpoint_last.pt is saved" in run.printed()
    assert "Traceback" not in run.printed()
    assert "@ 7 updates" in train(command, tmp_path / "log")
    torch.testing.assert_close(weights(tmp_path / "run"), weights(whole), rtol=0, atol=0)


def test_a_signal_to_one_rank_ends_both_after_the_same_update(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 10, "--disable-validation")
    runs = ranks(2, command, tmp_path, before=lambda rank: rank and signal_in_update(5, signal.SIGTERM)())
    assert [run.wait() for run in runs] == [75, 75], runs[0].printed()
    assert load_checkpoint(tmp_path / "run" / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 5


def signal_in_validation():
    from fairseq.tasks import FairseqTask

    step = FairseqTask.valid_step

    def valid_step(self, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGUSR1)
        return step(self, *args, **kwargs)

    FairseqTask.valid_step = valid_step


def validations(printed):
    return re.findall(r"epoch 00\d \| valid on 'valid' subset \| loss ([\d.]+) .*num_updates (\d+)", printed)


@pytest.mark.parametrize(
    "end, stop",
    [
        (3, signal_in_validation),
        (3, signal_in_update(3, signal.SIGUSR1)),  # of the last update
        (20, signal_in_validation),
        (20, signal_in_update(16, signal.SIGUSR1)),  # of an epoch's end
    ],
)
def test_a_validation_that_a_signal_kept_from_being_made_is_made_first(data, tmp_path, end, stop):
    command = arguments(data, tmp_path / "run", "--max-update", end)
    run = Run(command, tmp_path / "log", before=stop)
    assert run.wait() == 75, run.printed()
    after = min(end, 16)
    assert f"SIGUSR1 after {after} updates" in run.printed() and not validations(run.printed())
    printed = train(command, tmp_path / "log")
    whole = train(arguments(data, tmp_path / "whole", "--max-update", end), tmp_path / "log")
    assert validations(printed) == validations(whole) and len(validations(whole)) == (1 if end == 3 else 2)
    names = os.listdir(tmp_path / "whole")
    assert "checkpoint_best.pt" in names and set(names) <= set(os.listdir(tmp_path / "run"))
    torch.testing.assert_close(weights(tmp_path / "run"), weights(tmp_path / "whole"), rtol=0, atol=0)
    assert validations(train(command, tmp_path / "log")) == []  # only once


def test_what_is_saved_after_an_update_is_saved_on_a_signal_too(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 10, "--save-interval-updates", 4)
    run = Run(command, tmp_path / "log", before=signal_in_update(4, signal.SIGTERM))
    assert run.wait() == 75, run.printed()
    assert run.printed().count("Saved checkpoint") == 1
    assert sorted(os.listdir(tmp_path / "run")) == ["checkpoint_1_4.pt", "checkpoint_last.pt"]


def test_a_signal_to_the_data_loaders_as_well(data, tmp_path):
    """torchrun and Slurm send it to all processes of a rank, also while it waits for batches."""

    def arm():
        from torch.utils.data._utils import fetch

        os.setpgrp()
        real, seen = fetch._MapDatasetFetcher.fetch, []

        def fetch_and_signal(self, index):
            seen.append(index)
            if len(seen) == 3:
                os.killpg(os.getpgrp(), signal.SIGTERM)
            return real(self, index)

        fetch._MapDatasetFetcher.fetch = fetch_and_signal

    command = arguments(
        data, tmp_path / "run", "--max-update", 3, "--disable-validation", "--num-workers", 1, "--update-freq", 12
    )
    run = Run(command, tmp_path / "log", before=arm)
    assert run.wait() == 75, run.printed()
    assert "SIGTERM after 1 updates: checkpoint_last.pt is saved" in run.printed()


@pytest.mark.parametrize("stop", [False, True])
def test_the_command_ends_while_its_loaders_still_read(data, tmp_path, stop):
    """Python asks children to end by SIGTERM and waits for them."""
    command = arguments(data, tmp_path / "run", "--max-update", 2, "--num-workers", 1, "--batch-size", 1)
    signals = f"if {stop}: os.kill(os.getpid(), signal.SIGTERM)"
    done = fairseq("train", *with_plugin(command, tmp_path / "signals", signals))
    assert done.returncode == (75 if stop else 0), done.stdout
    assert "Traceback" not in done.stdout and "killed by signal" not in done.stdout


def test_a_step_that_runs_out_of_memory_looks_once(monkeypatch):
    """It calls itself, on its own rank: another look would meet the others' next collective."""
    from fairseq_relpos.mends.trainer import MendedTrainer, Progress

    looks = []
    monkeypatch.setattr(stopping, "_asked_on_any_rank", lambda trainer: looks.append(trainer) or 0)
    inner = []

    class Stock:
        relpos = Progress()

        def valid_step(self, again):
            inner.append(again)
            return self.valid_step(False) if again else "loss"

    class Rank(MendedTrainer, Stock):
        def __init__(self):
            pass

    assert Rank().valid_step(True) == "loss" and inner == [True, False] and len(looks) == 1


def test_a_validation_that_is_broken_off_leaves_nothing_behind(data, tmp_path):
    def arm():
        from fairseq.data.iterators import BackgroundConsumer
        from fairseq.trainer import Trainer
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

        step, read = Trainer.train_step, _MultiProcessingDataLoaderIter._next_data

        def train_step(self, *args, **kwargs):
            threads = [one for one in threading.enumerate() if isinstance(one, BackgroundConsumer)]
            print(f"{len(multiprocessing.active_children())} loaders, {len(threads)} threads")
            return step(self, *args, **kwargs)

        def read_slowly(self):
            time.sleep(0.1)  # the thread of a validation still reads when the next one begins
            return read(self)

        Trainer.train_step, _MultiProcessingDataLoaderIter._next_data = train_step, read_slowly

    flags = "--max-update 8 --no-save --num-workers 1 --validate-interval-updates 1 --max-valid-steps 1"
    printed = train(arguments(data, tmp_path / "run", *flags.split()), tmp_path / "log", before=arm)
    counts = [tuple(map(int, found)) for found in re.findall(r"(\d+) loaders, (\d+) threads", printed)]
    assert len(counts) == 8 and max(counts)[0] <= 2 and max(threads for _, threads in counts) <= 1


# Numbers that stop being numbers

DIVERGED = 76


def poison(layer):
    """NaN among the weights of a layer from the third update on."""

    def arm():
        from fairseq.trainer import Trainer

        step = Trainer.train_step

        def train_step(self, samples, *args, **kwargs):
            if self.get_num_updates() == 2:
                stack = self.get_model().encoder.sentence_encoder
                stack.layers[layer].fc1.weight.data[0, 0] = float("nan")
            return step(self, samples, *args, **kwargs)

        Trainer.train_step = train_step

    return arm


@pytest.mark.parametrize("how", [(), ("--bf16",), ("--amp",)])
def test_nan_names_update_rank_sentences_and_module(data, tmp_path, how):
    command = arguments(data, tmp_path / "run", "--max-update", 9, "--disable-validation", *how)
    said = error_of(Run(command, tmp_path / "log", before=poison(1)), DIVERGED)
    assert "update 3, rank 0: gradients are Nan/Inf; first: the output of " in said
    assert "encoder.sentence_encoder.layers.1.fc1;" in said and "sentences " in said


def test_nan_on_one_rank_ends_all_and_is_named_there(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 9, "--disable-validation")
    runs = ranks(2, command, tmp_path, before=lambda rank: rank and poison(0)())
    lines = [error_of(run, DIVERGED) for run in runs]
    assert "rank 0" in lines[0] and "nothing non-finite on this rank" in lines[0] and "sentences" not in lines[0]
    assert "rank 1" in lines[1] and "layers.0.fc1" in lines[1] and "sentences" in lines[1]


@pytest.mark.parametrize("other, kind", [(1.5, ValueError), (float("nan"), Diverged)])
def test_finite_gradients_that_differ_between_ranks_are_no_divergence(other, kind):
    trainer = Mock(data_parallel_world_size=2, data_parallel_rank=1, _grad_norm_buf=torch.zeros(2))
    trainer.get_num_updates.return_value, trainer.cfg.common.amp = 2, False
    both = Mock(side_effect=lambda norms, group: norms.copy_(torch.tensor([1.0, other])))
    with pytest.raises(ValueError, match="update 3, rank 1: ") as error, explained(trainer, []):
        with patch("fairseq.trainer.distributed_utils.all_reduce", both):
            Trainer._check_grad_norms(trainer, torch.tensor(1.0))
    assert error.type is kind
    assert ("from 1.00000000 (rank 0) to 1.50000000 (rank 1)" in str(error.value)) == (kind is ValueError)


@pytest.mark.parametrize("lowest", ["--min-loss-scale 0.5", "--threshold-loss-scale 1"])
def test_a_loss_scale_that_has_collapsed_is_named(data, tmp_path, lowest):
    how = f"--max-update 9 --disable-validation --fp16 --fp16-init-scale 4 {lowest}".split()
    run = Run(arguments(data, tmp_path / "run", *how), tmp_path / "log", before=poison(1))
    said = error_of(run, DIVERGED)
    assert "update 3, rank 0: the loss scale has collapsed" in said and "layers.1.fc1" in said
    if "min" in lowest:
        assert run.printed().count("gradient overflow detected") == 2  # to 2, to 1, and no further


# Half precision without a GPU


@pytest.mark.parametrize("how", ["--memory-efficient-fp16", "--memory-efficient-bf16", "--amp"])
def test_every_precision_trains_and_resumes(data, tmp_path, how):
    common = "--disable-validation", "--fp16-init-scale", 4, how, "--max-update"
    train(arguments(data, tmp_path / "run", *common, 3), tmp_path / "log")
    assert "@ 3 updates" in train(arguments(data, tmp_path / "run", *common, 5), tmp_path / "log")
    assert all(value.isfinite().all() for value in weights(tmp_path / "run").values())


@pytest.mark.parametrize("has_units", [True, False])
def test_amp_on_a_cpu_computes_in_bfloat16(data, tmp_path, has_units):
    def watch():
        precision.has_bf16_units = lambda: has_units
        linear = torch.nn.functional.linear

        def spy(*args, **kwargs):
            output = linear(*args, **kwargs)
            print(f"linear in {output.dtype}")
            return output

        torch.nn.functional.linear = spy

    command = arguments(data, tmp_path / "run", "--max-update", 1, "--disable-validation", "--amp")
    printed = train(command, tmp_path / "log", before=watch)
    assert ("linear in torch.bfloat16" in printed) == has_units
    assert printed.count("--amp computes in float32: this processor has no units") == (not has_units)


@pytest.mark.parametrize(
    "line, has_units",
    [
        ("flags\t\t: fpu avx512_bf16 avx512vl", True),
        ("flags\t\t: fpu amx_bf16 amx_tile", True),
        ("Features\t: fp asimd bf16 i8mm", True),
        ("flags\t\t: fpu avx2 fma", False),
        ("model name\t: bf16", False),
    ],
)
def test_a_processor_says_whether_it_has_units_for_bfloat16(tmp_path, line, has_units):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\nbugs\t\t:\n")
    assert precision.has_bf16_units(tmp_path / "cpuinfo") == has_units
    assert not precision.has_bf16_units(tmp_path / "none")


def test_a_second_ctrl_c_ends_at_once_and_nothing_half_written_stays(data, tmp_path):
    def twice():
        for pause in (0.1, 0):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(pause)

    def arm():
        stopping.SECONDS_BETWEEN_CTRL_C = 0.05
        in_update(4, twice)()

    command = arguments(
        data, tmp_path / "run", "--max-update", 10, "--save-interval-updates", 2, "--disable-validation"
    )
    run = Run(command, tmp_path / "log", before=arm)
    assert error_of(run, 130) == "interrupted" and "Ctrl-C: this update" in run.printed()
    assert sorted(os.listdir(tmp_path / "run")) == ["checkpoint_1_2.pt", "checkpoint_last.pt"]


def test_signals_are_a_python_programs_own_again_after_its_training(data, tmp_path):
    from fairseq_cli import train as command

    arrived = []

    def program():
        signal.signal(signal.SIGTERM, lambda *given: arrived.append("the program's own"))
        main = command.cli_main

        def cli_main():
            main()
            os.kill(os.getpid(), signal.SIGTERM)
            print(arrived)

        command.cli_main = cli_main

    call = arguments(data, tmp_path / "run", "--max-update", 1, "--no-save", "--disable-validation")
    printed = train(call, tmp_path / "log", before=program)
    assert printed.splitlines()[-1] == '["the program\'s own"]'


def test_ctrl_c_saves_where_what_reads_the_output_has_ended_by_it(data, tmp_path):
    """fairseq-train ... 2>&1 | tee log"""

    def end_the_reader_too():
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.kill(os.getpid(), signal.SIGINT)

    command = arguments(data, tmp_path / "run", "--max-update", 10, "--disable-validation")
    Run(command, tmp_path / "log", before=in_update(3, end_the_reader_too)).wait()
    assert load_checkpoint(tmp_path / "run" / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 3


def test_a_program_that_goes_on_after_a_stop_can_be_ended(data, tmp_path):
    from fairseq_cli import train as command

    def program():
        main = command.cli_main

        def cli_main():
            with pytest.raises(SystemExit):
                main()
            os.kill(os.getpid(), signal.SIGTERM)
            print("not ended")

        command.cli_main = cli_main
        signal_in_update(2, signal.SIGTERM)()

    call = arguments(data, tmp_path / "run", "--max-update", 9, "--disable-validation")
    run = Run(call, tmp_path / "log", before=program)
    code = run.wait()
    assert code == -signal.SIGTERM and "not ended" not in run.printed(), (code, run.printed())


def test_a_handler_that_the_program_has_set_stays(caplog):
    def own(*_):
        """That of a job that submits itself again."""

    before, request = signal.signal(signal.SIGUSR1, own), stopping.Request()
    caplog.set_level("INFO")
    try:
        request.listen()
        assert signal.getsignal(signal.SIGUSR1) is own and signal.getsignal(signal.SIGTERM) == request.note
        assert "SIGUSR1 remains with the handler" in caplog.text
    finally:
        request.stop_listening()
        signal.signal(signal.SIGUSR1, before)
        request.process = None


@pytest.mark.parametrize("names", ["validate_and_save", "validate_and_save validate"])
def test_functions_of_a_program_that_have_the_names_of_fairseqs_are_left_alone(names, monkeypatch):
    program = types.ModuleType("__main__")
    exec("\n".join(f"def {name}(trainer, itr): return itr" for name in names.split()), vars(program))
    monkeypatch.setitem(sys.modules, "__main__", program)
    monkeypatch.delitem(sys.modules, "fairseq_cli.train", raising=False)
    monkeypatch.setattr(stopping.REQUEST, "listen", lambda: pytest.fail("it would listen"))
    stopping.listen()
    assert program.validate_and_save(1, 2) == 2


def test_a_programs_own_processes_live_as_long_as_it_wants(data, tmp_path):
    """A pool whose worker is killed while it waits for work would never end."""
    from fairseq_relpos.mends import ending

    pool = multiprocessing.get_context("fork").Pool(1)
    alive = pool._pool[0]
    try:
        ending.end_all()
        assert alive.is_alive() and pool.apply(abs, (-1,)) == 1
    finally:
        ending.has_begun = False
        pool.terminate()
