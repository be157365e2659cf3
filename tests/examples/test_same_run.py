"""Whether a training is the same run as before: examples/common/same_run.py."""

import importlib
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMON = ROOT / "examples" / "common"
TRAIN = f"fairseq-train data --user-dir {ROOT}/fairseq_relpos --arch roberta_t5 --dropout 0.2".split()


@pytest.fixture
def same_run(monkeypatch):
    """The module; the environment of this test says nothing of conditions."""
    monkeypatch.syspath_prepend(str(COMMON))
    monkeypatch.delenv("CONDITIONS", raising=False)
    monkeypatch.setenv("SCRIPT", "run.sh")
    return importlib.import_module("same_run")


def to(run, *flags):
    return [*TRAIN, *flags, "--save-dir", str(run), "--log-file", f"{run}/train.log"]


def begun(same_run, run, *flags, ended=False):
    """As if train had been there."""
    run.mkdir(parents=True, exist_ok=True)
    (run / ("trained" if ended else "command")).write_text(same_run.in_words(to(run, *flags)) + "\n")
    (run / "checkpoint_last.pt").touch()
    return run


def refused(same_run, run, *flags):
    """The settings that the one line names."""
    with pytest.raises(SystemExit) as ended:
        same_run.SameRun(run, to(run, *flags)).need_same_settings()
    line = str(ended.value)
    assert line.startswith(f"run.sh: error: {run} was begun with other settings (") and "\n" not in line
    return line[line.index("(") + 1 : line.index("): set RUNS to another folder")]


def test_a_command_is_kept_as_bash_quotes_it(same_run):
    words = ["a b", "it's", "", "{'x': \"y\"}", f"{ROOT}/fairseq_relpos", "ä\\n"]
    kept = same_run.in_words(words)
    quoted = subprocess.check_output(["bash", "-c", 'words=("$@"); echo "${words[*]@Q}"', "bash", *words], text=True)
    assert kept == quoted.strip().replace(str(ROOT), ".")
    assert shlex.split(kept) == [word.replace(str(ROOT), ".") for word in words]


def test_a_run_that_has_ended_is_known_wherever_it_lies(same_run, tmp_path):
    run = begun(same_run, tmp_path / "here", ended=True)
    moved = tmp_path / "there"
    run.rename(moved)
    more = ["--distributed-world-size", "8", "--finetune-from-model=start.pt"]
    assert same_run.SameRun(moved, to(moved, *more)).is_trained()
    assert not same_run.SameRun(moved, to(moved, "--seed", "2")).is_trained()
    assert not same_run.SameRun(tmp_path / "none", to(tmp_path / "none")).is_trained()


def test_what_a_command_does_not_say_counts_where_it_was_kept(same_run, tmp_path, monkeypatch):
    run = begun(same_run, tmp_path, ended=True)
    monkeypatch.setenv("CONDITIONS", "batch 8\ntext abc")
    assert same_run.SameRun(run, to(run)).is_trained()  # from before conditions were kept
    (run / "conditions").write_text("batch 4\ntext abc\n")
    assert not same_run.SameRun(run, to(run)).is_trained()
    assert refused(same_run, run) == "was batch 4 is batch 8"
    # another node has them in the folder of the run
    assert same_run.SameRun(run / "node1", to(run)).conditions_before() == "batch 4\ntext abc"


@pytest.mark.parametrize(
    "flags",
    [
        ["--max-update", "9"],
        ["--log-interval=3", "--fp16", "--memory-efficient-bf16"],
        ["--cpu", "--update-freq", "4", "--num-workers", "0"],
        ["--reset-dataloader", "--finetune-from-model=x", "--tensorboard-logdir", "tb"],
    ],
)
def test_a_run_goes_on_with_another_end_other_logs_and_another_machine(same_run, tmp_path, flags):
    run = begun(same_run, tmp_path)
    same_run.SameRun(run, to(run, *flags)).need_same_settings()
    same_run.SameRun(run, ["torchrun", "--nnodes", "2", *to(run, *flags)]).need_same_settings()


def test_a_trained_run_that_was_resumed_and_stopped_is_not_the_trained_one(same_run, tmp_path):
    run = begun(same_run, tmp_path, "--max-update", "9", ended=True)
    begun(same_run, tmp_path, "--max-update", "20")  # and stopped: it has no end of its own
    with pytest.raises(SystemExit, match=r"resumed with --max-update 20 and stopped"):
        same_run.SameRun(run, to(run, "--max-update", "9")).is_trained()
    assert not same_run.SameRun(run, to(run, "--max-update", "20")).is_trained()
    begun(same_run, tmp_path, "--max-update", "20", ended=True)
    assert same_run.SameRun(run, to(run, "--max-update", "20")).is_trained()
    begun(same_run, tmp_path, "--max-update", "20", "--num-workers", "2")  # and stopped: its weights are the same
    assert same_run.SameRun(run, to(run, "--max-update", "20")).is_trained()


def test_a_start_that_fails_at_once_leaves_a_trained_run_as_it_was(same_run, tmp_path):
    def training(end, then):
        command = ["bash", "-c", then, "--user-dir", ".", "--max-update", end, "--save-dir", str(tmp_path)]
        return same_run.SameRun(tmp_path, command)

    saves = f"touch {tmp_path}/checkpoint_last.pt"
    training("9", saves).train()
    longer = training("20", "exit 1")
    with pytest.raises(SystemExit):
        longer.train()
    assert training("9", saves).is_trained()
    longer.command[2] = f"sleep 0.01; {saves}; exit 1"
    with pytest.raises(SystemExit):
        longer.train()
    with pytest.raises(SystemExit, match="resumed with --max-update 20"):
        training("9", saves).is_trained()


def test_a_run_does_not_go_on_with_another_model_and_every_difference_is_named(same_run, tmp_path):
    run = begun(same_run, tmp_path, "--adam-betas", "(0.9, 0.98)", "--share-all-embeddings")
    assert refused(same_run, run, "--adam-betas", "(0.9, 0.98)", "--share-all-embeddings", "--clip-norm=1") == (
        "is '--clip-norm=1'"
    )
    assert "was '--share-all-embeddings'" in refused(same_run, run)
    assert "--max-updates-of-mine" in refused(same_run, run, "--max-updates-of-mine", "1")


def test_another_batch_is_another_run_however_it_is_divided(same_run, tmp_path, monkeypatch):
    run = begun(same_run, tmp_path, "--batch-size", "64")
    same_run.SameRun(run, to(run, "--batch-size=16", "--update-freq", "4")).need_same_settings()
    assert refused(same_run, run, "--batch-size", "32") == "was batch 64 sentences is batch 32 sentences"
    assert "batch 64 then 128 sentences" in refused(same_run, run, "--batch-size", "64", "--update-freq", "1,2")
    monkeypatch.setenv("CONDITIONS", "batch 64")  # also where the command has that of a process
    same_run.SameRun(run, to(run, "--batch-size", "32")).need_same_settings()


def test_a_folder_without_checkpoints_or_without_a_command_is_no_run(same_run, tmp_path):
    run = begun(same_run, tmp_path / "a")
    (run / "checkpoint_last.pt").unlink()
    same_run.SameRun(run, to(run, "--seed", "2")).need_same_settings()
    begun(same_run, tmp_path / "b").joinpath("command").unlink()
    same_run.SameRun(tmp_path / "b", to(tmp_path / "b", "--seed", "2")).need_same_settings()


def test_a_program_that_cannot_be_started_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, COMMON / "same_run.py", "run", "a run", tmp_path / "run", "0", "no-such-program"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (1, "same_run.py: error: no-such-program: No such file or directory\n")
    assert not (tmp_path / "run" / "trained").exists()


def test_a_resume_keeps_the_output_of_before_and_its_error_is_its_own(same_run, tmp_path):
    def train(text):
        same_run.SameRun(tmp_path, ["bash", "-c", text, "--save-dir", str(tmp_path)]).train()

    with pytest.raises(SystemExit, match=r"first \(all of it"):
        train("echo first; exit 1")
    with pytest.raises(SystemExit, match=r"exit code 1 \(all of it"):
        train("exit 1")
    train("echo third")
    assert (tmp_path / "output.txt").read_text() == "first\nthird\n"


@pytest.mark.parametrize("allocator, kept", [("tuned", "4294967296 7"), ("default", "- 7")])
def test_the_allocator_is_set_for_a_training_but_is_no_condition_of_its_run(
    same_run, tmp_path, monkeypatch, allocator, kept
):
    threshold, pad = "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"
    monkeypatch.delenv(threshold, raising=False)
    monkeypatch.setenv(pad, "7")  # what somebody has set wins
    monkeypatch.setenv("ALLOCATOR", allocator)
    command = ["bash", "-c", f"echo ${{{threshold}:--}} ${pad}", "--save-dir", str(tmp_path)]
    same_run.SameRun(tmp_path, command).train()
    assert (tmp_path / "output.txt").read_text() == f"{kept}\n"
    monkeypatch.setenv("ALLOCATOR", {"tuned": "default", "default": "tuned"}[allocator])
    assert same_run.SameRun(tmp_path, command).is_trained()
    assert not (tmp_path / "conditions").exists()


def test_neither_files_that_are_being_written_nor_an_earlier_report_are_packed(same_run, tmp_path):
    report = tmp_path / "report"
    for name in ("run/train.log", "run/scores.json.part0123456789ab", "RESULTS.md", "report/runs.tar.xz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "results.json").write_text('{"figures": {}}')
    (tmp_path / "run/results.json").write_text('{"metrics": {}}')
    same_run.pack(tmp_path, report)
    with tarfile.open(report / "runs.tar.xz") as packed:
        assert packed.getnames() == ["./run/results.json", "./run/train.log"]
