"""Several ranks: they find each other, agree, and train as one; or say in one line why not."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import preloaded
import pytest
import torch
from fairseq.distributed import utils
from fairseq_data import binarise, masked_lm, with_plugin
from forked import error_of, free_port, ranks, train, weights

from fairseq_relpos.mends import agreement, batches, joining, resuming, saving

ROOT = Path(__file__).parents[2]


def arguments(data, save_dir, *more, arch="roberta_tupe_r"):
    return masked_lm(data, save_dir, "--arch", arch, "--required-batch-size-multiple", 1, "--disable-validation", *more)


@pytest.mark.parametrize("name", ["learned", "tupe_r", "m4m", "deberta"])
def test_two_ranks_equal_one_rank_with_twice_the_batch(data, tmp_path, name):
    """Updates of 8 sentences: 8 at once on one rank, 4 on each of two. An epoch is not shuffled
    here, so that the sentences of an update are the same."""
    common, arch = in_order(), f"roberta_{name}"
    train(arguments(data, tmp_path / "one", *common, "--batch-size", 8, arch=arch), tmp_path / "log")
    runs = ranks(2, arguments(data, tmp_path / "two", *common, arch=arch), tmp_path / "logs")
    assert [run.wait() for run in runs] == [0, 0], runs[0].printed() + runs[1].printed()
    assert_close(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("in_evaluation", [True, False])
def test_results_of_any_size_are_gathered_in_an_evaluation_on_gpus(monkeypatch, in_evaluation):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(batches.made_for, "evaluation", in_evaluation)
    monkeypatch.setattr(utils, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(utils, "get_rank", lambda group=None: 0)
    large, gathered = ["x" * 20000], []
    monkeypatch.setattr(torch.distributed, "all_gather_object", lambda found, data, group: gathered.append(data))
    if in_evaluation:
        utils.all_gather_list(large, group="all")
        assert gathered == [large]
    else:  # fairseq's own
        with pytest.raises((ValueError, TypeError, AssertionError)):
            utils.all_gather_list(large, group="all")
        assert not gathered


@pytest.mark.slow
def test_the_last_update_of_an_epoch_counts_the_batches_that_there_are(tmp_path):
    """15 batches of 4 on two ranks, two each for an update: in the last one a rank has one less."""
    data = binarise(tmp_path / "corpus", train=60)
    common = (*in_order(), "--max-update", 8)
    train(arguments(data, tmp_path / "one", *common, "--update-freq", 4), tmp_path / "log")
    runs = ranks(2, arguments(data, tmp_path / "two", *common, "--update-freq", 2), tmp_path / "logs")
    assert [run.wait() for run in runs] == [0, 0], runs[0].printed() + runs[1].printed()
    assert_close(tmp_path / "one", tmp_path / "two")


def in_order():
    # RoBERTa's epsilon: a bias of the keys has no gradient but rounding errors, and Adam's
    # default would make whole steps of them
    return ("--max-update", 20, "--curriculum", 99, "--adam-eps", 1e-6)


def assert_close(one, other):
    torch.testing.assert_close(weights(one), weights(other), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_ranks_that_do_not_come_are_named(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 2)
    # longer than two forked ranks can take to come, on any machine
    runs = ranks(4, command, tmp_path, start=[0, 2], RELPOS_JOIN_TIMEOUT=8)
    errors = [error_of(run) for run in runs]
    for run, error in zip(runs, errors):
        assert "after 8 s 2 of 4 ranks have not joined: 1, 3 (here: 2 on " in error
        assert "frame #" not in run.printed()


def test_a_rank_that_nobody_answers_says_where(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 2)
    (alone,) = ranks(2, command, tmp_path, start=[1], RELPOS_JOIN_TIMEOUT=2)
    assert "rank 0 does not answer at 127.0.0.1:" in error_of(alone)
    assert "frame #" not in alone.printed()


def test_a_port_in_use_is_named(data, tmp_path):
    port = free_port()
    busy = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    (rank,) = ranks(2, arguments(data, tmp_path / "run"), tmp_path, start=[0], port=port, RELPOS_JOIN_TIMEOUT=3)
    assert f"port {port} of " in error_of(rank)
    del busy


def in_a_thread(found, *arguments):
    def call():
        found.append(joining.call_the_roll(*arguments))

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_ranks_that_were_started_again_do_not_meet_those_of_before():
    """Two ranks meet and end; rank 0 starts again, and some time later rank 1."""
    store, before, after = torch.distributed.HashStore(), [], []
    for thread in [in_a_thread(before, store, rank, 2, 30) for rank in (0, 1)]:
        thread.join()
    first = in_a_thread(after, store, 0, 2, 30)
    first.join(1)
    assert first.is_alive()
    in_a_thread(after, store, 1, 2, 30).join()
    first.join()
    assert len(set(before)) == len(set(after)) == 1 and before[0] != after[0]


def test_rank_0_tells_the_others_that_it_gives_up():
    store, errors = torch.distributed.HashStore(), []

    def join(rank, seconds):
        try:
            joining.call_the_roll(store, rank, 3, seconds)
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=join, args=arguments) for arguments in ((1, 60), (0, 1))]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert len(errors) == 2 and errors[0] == errors[1] and "1 of 3 ranks have not joined: 2" in errors[0]


@pytest.mark.slow
def test_a_rank_that_does_not_see_the_checkpoint_is_named(data, tmp_path, monkeypatch):
    train(arguments(data, tmp_path / "run", "--max-update", 2), tmp_path / "log")

    def look_elsewhere(rank):
        resuming.SECONDS_TO_BE_SEEN = 2
        if rank == 1:
            sys.argv += ["--save-dir", str(tmp_path / "of_this_node")]

    runs = ranks(2, arguments(data, tmp_path / "run", "--max-update", 4), tmp_path, before=look_elsewhere)
    for run in runs:
        error = error_of(run)
        assert "the ranks do not see the same" in error and "give every node a --save-dir" in error
        assert "rank 0 on " in error and "sees one of" in error and "sees none" in error


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


def test_ranks_with_as_many_samples_of_other_sizes_are_named(data, tmp_path):
    def read_longer(rank):
        if rank == 1:
            from fairseq.tasks.masked_lm import MaskedLMTask

            real = MaskedLMTask.load_dataset

            def load(self, split, *args, **kwargs):
                real(self, split, *args, **kwargs)
                self.datasets[split].sizes[0] += 1

            MaskedLMTask.load_dataset = load

    runs = ranks(2, arguments(data, tmp_path / "run"), tmp_path, before=read_longer)
    assert all("they differ in train data (64 samples of sizes" in error_of(run) for run in runs)


@pytest.mark.parametrize("shard", [1, 2])
def test_ranks_with_another_shard_of_the_data_are_named(data, tmp_path, shard):
    """The second one is read after an epoch."""
    other = binarise(tmp_path / "other", train=61)
    for name in ("valid.idx", "valid.bin"):
        shutil.copy(data / name, other)

    def read_another(rank):
        sys.argv[1] = ":".join([str(data)] * (shard - 1) + [str(other if rank else data)])

    runs = ranks(2, arguments(data, tmp_path / "run", "--max-update", 20, "--no-save"), tmp_path, before=read_another)
    for run in runs:
        assert "they differ in train data (61 samples of sizes" in error_of(run)
    assert ("end of epoch 1" in runs[0].printed()) == (shard == 2)


def fail(error):
    def raise_it(*arguments, **options):
        raise error

    return raise_it


def no_room(folder):
    saving.write = fail(ValueError("no room"))


def facts_are_lost(folder):
    agreement.settings = fail(KeyError("lost"))


def data_are_missing(folder):
    sys.argv[1] = str(folder / "nowhere")


def the_last_checkpoint_is_damaged(folder):
    (folder / "run").mkdir()
    (folder / "run" / "checkpoint_last.pt").write_bytes(b"PK half a file")


def the_checkpoint_has_code(folder):
    torch.save({"model": {}, "args": Path}, folder / "hostile.pt")


@pytest.mark.slow
@pytest.mark.parametrize(
    "how, failing, said",
    [
        (facts_are_lost, 1, "KeyError: 'lost'"),
        (data_are_missing, 1, "nowhere"),
        (the_last_checkpoint_is_damaged, 0, "is cut short"),
        (the_checkpoint_has_code, 0, "hostile.pt contains"),
        (no_room, 0, "no room"),
    ],
)
def test_what_fails_on_one_rank_ends_the_others_in_one_line_that_names_it(data, tmp_path, how, failing, said):
    more = ("--restore-file", tmp_path / "hostile.pt") if how is the_checkpoint_has_code else ()
    command = arguments(data, tmp_path / "run", "--max-update", 2, *more)
    runs = ranks(2, command, tmp_path / "logs", before=lambda rank: how(tmp_path) if rank == failing else None)
    others = error_of(runs[1 - failing])
    assert others.startswith(f"rank {failing} on {socket.gethostname()}: ") and said in others
    assert runs[failing].wait() == 1 and said in runs[failing].printed().splitlines()[-1]


@pytest.mark.parametrize("name", ["model.py", "gated.cpp"])
def test_ranks_with_another_source_file_have_another_digest(tmp_path, name):
    for file in ("model.py", "gated.cpp"):
        (tmp_path / file).write_text("one")
    before = agreement.digest_of_package(tmp_path)
    (tmp_path / name).write_text("other")
    assert agreement.digest_of_package(tmp_path) != before


def test_what_belongs_to_one_rank_is_not_compared():
    cfg = {"model": {"lr": [1]}, "distributed": {"device_id": 3, "distributed_rank": 1}}
    assert agreement.flat(cfg) == {"--lr": [1]}


def test_a_rank_that_dies_ends_the_other(data, tmp_path):
    command = arguments(data, tmp_path / "run", "--max-update", 100000, "--no-save")
    runs = ranks(2, command, tmp_path)
    runs[0].wait_for("Start iterating")
    os.kill(runs[1].process, 9)
    runs[1].wait()
    assert runs[0].wait(180) != 0


# The launchers


def start(script, *arguments, **environment):
    return subprocess.Popen(
        ["bash", ROOT / "scripts" / script, *map(str, arguments)],
        text=True,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=preloaded.environment(CUDA_VISIBLE_DEVICES="", **environment),
    )


def end_of(process, seconds=300):
    """Exit code and what was printed."""
    printed, _ = process.communicate(timeout=seconds)
    return process.returncode, printed


def launch(*arguments, **environment):
    return end_of(start("launch_torchrun.sh", *arguments, **environment))


@pytest.mark.slow
def test_launch_torchrun_restarts_the_ranks_after_one_has_died(data, tmp_path):
    """One rank kills itself after the 5th update of the first start; both go on from it."""
    dies = (
        "if update == 6 and os.environ['RANK'] == '1':\n"
        "    if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os.kill(os.getpid(), 9)"
    )
    command = arguments(data, tmp_path / "run", "--max-update", 8, "--save-interval-updates", 4)
    command = with_plugin(command, tmp_path / "dies", dies)
    code, printed = launch("--nproc_per_node", 2, "--max-restarts", 1, "--", *command)
    assert code == 0, printed
    assert "@ 4 updates" in printed
    alone = arguments(data, tmp_path / "alone", "--max-update", 8, "--update-freq", 2)
    train(alone, tmp_path / "log")
    assert_close(tmp_path / "run", tmp_path / "alone")


@pytest.mark.slow
def test_launch_torchrun_ends_with_the_error_of_the_last_start(data, tmp_path):
    """In the first start a rank kills itself."""
    fails = (
        "if update == 3 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os.kill(os.getpid(), 9)\n"
        "if update == 5: self.get_model().encoder.sentence_encoder.layers[0].fc1.weight.data[:] = float('nan')"
    )
    command = with_plugin(arguments(data, tmp_path / "run", "--max-update", 8), tmp_path / "fails", fails)
    code, printed = launch("--nproc_per_node", 2, "--max-restarts", 1, "--", *command)
    assert code == 76, printed
    assert "launch_torchrun: error: rank " in printed.splitlines()[-1]
    assert "first: the output of encoder.sentence_encoder.layers.0.fc1" in printed.splitlines()[-1]


@pytest.mark.slow
def test_ranks_that_a_signal_has_stopped_are_not_trained_on_by_a_restart(data, tmp_path):
    """The launcher knows nothing of the signal, so that torchrun takes exit code 75 for a crash."""
    stops = "if update == 3: os.kill(os.getpid(), signal.SIGUSR1)"
    command = with_plugin(arguments(data, tmp_path / "run", "--max-update", 8), tmp_path / "stops", stops)
    code, printed = launch("--nproc_per_node", 2, "--max-restarts", 1, "--", *command)
    assert code == 75, printed
    assert "SIGUSR1 after 3 updates" in printed and "Loaded checkpoint" not in printed


def test_a_signal_before_the_training_begins_is_no_crash(tmp_path):
    """In the place of torchrun is a program that only sleeps."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/launch_torchrun.sh", tmp_path / "scripts")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text("#!/bin/bash\ncase $1 in -m) touch started; exec sleep 60 ;; esac\n")
    python.chmod(0o755)
    process = subprocess.Popen(
        ["bash", tmp_path / "scripts/launch_torchrun.sh", "--nproc_per_node", "1", "--", "DATA"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    while not (tmp_path / "started").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    code, printed = end_of(process)
    assert code == 75 and "stopped by a signal, and no rank has saved" in printed


def test_sigterm_to_launch_torchrun_saves_and_the_same_command_goes_on(data, tmp_path):
    """The launcher gets SIGTERM as the rank begins its 5th update."""
    stops = (
        "if update == 5:\n"
        "    os.kill(int(os.environ['LAUNCHER']), signal.SIGTERM)\n"
        "    from fairseq_relpos.mends.stopping import REQUEST\n"
        "    while not REQUEST.signal: signal.sigtimedwait([], 0.05)"
    )
    command = with_plugin(arguments(data, tmp_path / "run", "--max-update", 8), tmp_path / "stops", stops)
    flags = ("--nproc_per_node", 1, "--", *command)
    shell = 'LAUNCHER=$$ exec bash "$@"'
    process = subprocess.Popen(
        ["bash", "-c", shell, "launch", ROOT / "scripts/launch_torchrun.sh", *map(str, flags)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    code, printed = end_of(process)
    assert code == 75, printed
    assert "SIGTERM after 5 updates: checkpoint_last.pt is saved" in printed
    assert "stopped by a signal and saved" in printed.splitlines()[-1]
    assert "@ 5 updates" in train(arguments(data, tmp_path / "run", "--max-update", 8), tmp_path / "log")


@pytest.mark.parametrize(
    "given, said",
    [
        (("DATA",), "no -- between"),
        (("--nproc_per_node", 2, "--"), "no data folder"),
        (("--nnodes", 2, "--nproc_per_node", 1, "--", "DATA"), "needs --master_addr"),
        (
            ("--nnodes", "two", "--master_addr", "h", "--nproc_per_node", 1, "--", "DATA"),
            "--nnodes two is not a number",
        ),
        (("--nnodes", 2, "--node_rank", 2, "--master_addr", "h", "--nproc_per_node", 1, "--", "DATA"), "count from 0"),
        (("--", "DATA"), "no GPU here: say how many processes"),
    ],
)
def test_launch_torchrun_says_what_is_missing(given, said):
    code, printed = launch(*given)
    assert code == 1 and said in printed.splitlines()[-1]


def test_nodes_that_do_not_come_are_named():
    code, printed = launch(
        *"--nnodes 3 --node_rank 0 --master_addr 127.0.0.1 --master_port".split(),
        free_port(),
        *"--nproc_per_node 1 -- DATA --cpu".split(),
        RELPOS_JOIN_TIMEOUT="1",
    )
    assert code == 1 and len(printed.splitlines()) == 1
    assert "after 1 s 2 of 3 nodes have not joined: 1, 2 (here: 1 on " in printed.splitlines()[-1]


@pytest.fixture
def check(monkeypatch):
    """main of scripts/launch_check.py, for one of two nodes."""
    monkeypatch.setenv(joining.TIMEOUT_VARIABLE, "1")
    monkeypatch.setattr(sys, "path", sys.path[:])
    spec = importlib.util.spec_from_file_location("launch_check", ROOT / "scripts/launch_check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "launch_check", module)
    return lambda port, node_rank: module.main("127.0.0.1", port, node_rank, 2)


def test_launch_check_names_a_taken_port_and_a_first_node_that_is_not_there(check):
    port = free_port()
    with pytest.raises(ValueError, match=f"node 0 does not answer at 127.0.0.1:{port} after 1 s"):
        check(port, 1)
    busy = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    with pytest.raises(ValueError, match=f"port {port} of this machine cannot be used"):
        check(port, 0)
    del busy


def test_a_server_that_is_none_of_ours_is_noticed(monkeypatch):
    monkeypatch.setattr(joining, "GRACE", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ValueError, match=f"what answers at 127.0.0.1:{port} is not node 0 but another program"):
            joining.open_store("127.0.0.1", port, False, 1, 1, who="node")


def test_launch_check_lets_nodes_go_on_that_have_all_come_and_frees_the_port(check, monkeypatch):
    monkeypatch.setenv(joining.TIMEOUT_VARIABLE, "60")
    port = free_port()
    other = threading.Thread(target=check, args=(port, 1))
    waits = []

    def serve_a_little_longer(*arguments):
        joining.wait_for_all(*arguments)
        time.sleep(0.5)
        waits.append(other.is_alive())  # or its torchrun would join a store that is about to end

    monkeypatch.setattr(sys.modules["launch_check"], "wait_for_all", serve_a_little_longer)
    other.start()
    check(port, 0)
    other.join(60)
    assert waits == [True] and not other.is_alive()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))


# Slurm, as far as stand-ins for its commands go

SRUN = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
pids=()
for ((id = 0; id < SLURM_NTASKS; id++)); do
  SLURM_PROCID=$id SLURM_LOCALID=$id SLURM_STEP_NUM_TASKS=$SLURM_NTASKS "$@" & pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait $pid && of_task=0 || of_task=$?; ((of_task <= code)) || code=$of_task; done
exit $code
"""
SCONTROL = """#!/usr/bin/env bash
case $1 in show) echo 127.0.0.1 ;; *) echo "$@" >>"$SCONTROL_LOG" ;; esac
"""


@pytest.fixture
def slurm(tmp_path):
    """Starts launch_slurm.sbatch in what looks like a job of two tasks."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "here",
        "SLURM_NTASKS": "2",
        "SLURM_NNODES": "1",
        "SLURM_SUBMIT_DIR": str(ROOT),
        "SCONTROL_LOG": str(tmp_path / "scontrol.log"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }

    def run(*arguments, srun=SRUN, **more):
        (programs / "srun").write_text(srun)
        return end_of(start("launch_slurm.sbatch", *arguments, **job, **more, MASTER_PORT=str(free_port())))

    return run


def test_a_preempted_slurm_job_saves_and_is_put_into_the_queue_again(data, tmp_path, slurm):
    """Both tasks get USR1 before the 5th update, as before the end of their time."""
    signals = "if update == 5: os.kill(os.getpid(), signal.SIGUSR1)"
    code, printed = slurm(*with_plugin(arguments(data, tmp_path / "run", *in_order()), tmp_path / "signals", signals))
    assert code == 75, printed
    assert "training on 2 devices" in printed and "SIGUSR1 after 5 updates" in printed
    assert (tmp_path / "scontrol.log").read_text() == "requeue 7\n"
    # on one rank with the same batches
    train(arguments(data, tmp_path / "one", *in_order(), "--max-update", 5, "--batch-size", 8), tmp_path / "log")
    assert_close(tmp_path / "one", tmp_path / "run")


def test_ranks_that_srun_ends_after_the_first_are_put_into_the_queue_again_too(data, tmp_path, slurm):
    """--kill-on-bad-exit: the first 75 has the other tasks killed, and srun's code is theirs."""
    signals = "if update == 2: os.kill(os.getpid(), signal.SIGUSR1)"
    command = with_plugin(arguments(data, tmp_path / "run"), tmp_path / "signals", signals)
    code, printed = slurm(*command, srun=SRUN.replace("exit $code", "exit 137"))
    assert code == 75, printed
    assert (tmp_path / "scontrol.log").read_text() == "requeue 7\n"


def test_a_slurm_job_that_has_saved_and_that_no_queue_takes_ends_as_stopped(tmp_path, slurm):
    (tmp_path / "programs/scontrol").write_text("#!/bin/sh\n[ $1 = show ] && echo here\n")
    code, printed = slurm(
        "DATA", srun='#!/bin/sh\necho "rank 0: SIGTERM after 3 updates" >>$RELPOS_STOPPED_FILE; exit 75\n'
    )
    assert code == 75 and "the job was not requeued" in printed


def test_a_slurm_job_that_ends_by_an_error_while_it_starts_is_not_queued_again(tmp_path, slurm):
    """The first rank fails, and srun ends the others by SIGTERM and returns their code."""
    code, _ = slurm("DATA", srun="#!/bin/sh\nexit 143\n")
    assert code == 143 and not (tmp_path / "scontrol.log").exists()


def test_gpus_that_would_idle_are_an_error(slurm):
    code, printed = slurm("DATA", SLURM_GPUS_ON_NODE="8")
    assert code == 1 and "add --ntasks-per-node 8" in printed


def test_srun_gives_each_task_the_cores_that_the_job_was_given_for_it(slurm):
    """From Slurm 22.05 on, srun takes them from SRUN_CPUS_PER_TASK alone."""
    srun = "#!/bin/sh\necho cores ${SRUN_CPUS_PER_TASK-none}\n"
    assert "cores 4" in slurm("DATA", srun=srun, SLURM_CPUS_PER_TASK="4")[1]
    assert "cores none" in slurm("DATA", srun=srun)[1]


def test_a_slurm_job_that_fails_is_not_queued_again(tmp_path, slurm):
    code, printed = slurm("DATA", srun="#!/bin/sh\necho why; exit 3\n")
    assert code == 3 and "why" in printed
    assert printed.splitlines()[-1].startswith("launch_slurm: error: srun ended with exit code 3")
    assert not (tmp_path / "scontrol.log").exists()


def test_launch_slurm_outside_a_job_says_so():
    code, printed = end_of(start("launch_slurm.sbatch", "DATA"))
    assert code == 1 and printed.startswith("launch_slurm: error: this is for sbatch")
