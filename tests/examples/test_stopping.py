"""Signals to the recipes' scripts, with a program of a second in the place of fairseq-train."""

import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

COMMON = Path(__file__).parents[2] / "examples" / "common"
#: takes its time to save, as a large model does
TRAINER = """#!/bin/bash
trap 'echo asked >>asked; sleep 0.3; echo saved >>saved; exit ${CODE:-75}' TERM
echo $1 >>begun
[ "$1" != fails ] || exit 1
[ "$1" != ends ] || exit 0
[ "$1" != stops ] || kill $$
for i in {1..300}; do sleep 0.1; done
"""
ONE = 'same_run run "a run" . 0 ./trainer "$@"; echo is finished'
SEVERAL = r"""
mkdir -p recipe; ln -sf ../trainer recipe/run.sh
code=0
(printf "%s\t%s\n" recipe action; printf "$PWD/recipe\t%s\n" "$@") | python "$ROOT/scripts/sweep.py" each 2 || code=$?
[ $code != 75 ] || exit 75
[ $code = 0 ] || die "not every run came to its end"
echo report
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "trainer").write_text(TRAINER)
    (tmp_path / "trainer").chmod(0o755)
    return tmp_path


def start(place, script, *arguments, **environment):
    (place / "run.sh").write_text(f'set -euo pipefail; . {COMMON}/recipe.sh; end_in_order "$@"; {script}')
    return subprocess.Popen(
        ["bash", "run.sh", *arguments],
        cwd=place,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # which nohup ignores, and bash then, too
    )


def wait_for(path, lines=1):
    deadline = time.monotonic() + 300
    while not path.exists() or len(path.read_text().splitlines()) < lines:
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def ended(process):
    """Exit code, stdout and stderr."""
    printed = process.communicate(timeout=600)
    return process.returncode, *printed


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_the_shell_reaches_the_trainer_once_and_its_end_is_waited_for(place, sent):
    process = start(place, ONE, "long")
    wait_for(place / "begun")
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)  # as Ctrl-C does
    else:
        process.send_signal(sent)
    code, out, err = ended(process)
    assert (code, out) == (75, "run.sh: training a run: ./train.log\n") and "the same command resumes" in err
    assert len((place / "asked").read_text().split()) == len((place / "saved").read_text().split()) == 1
    assert not (place / "trained").exists()


def test_a_second_signal_does_not_end_the_waiting(place):
    process = start(place, ONE, "long")
    wait_for(place / "begun")
    process.send_signal(signal.SIGTERM)
    wait_for(place / "asked")
    process.send_signal(signal.SIGUSR1)
    assert ended(process)[0] == 75
    assert (place / "saved").exists()


def test_a_trainer_that_was_stopped_by_itself_is_told_from_one_that_failed(place):
    code, _, err = ended(start(place, ONE, "stops"))
    assert code == 75 and "the same command resumes" in err
    code, _, err = ended(start(place, ONE, "stops", CODE="130"))
    assert code == 1 and "error" in err  # nothing says that it has saved
    (place / "trainer").write_text("#!/bin/sh\necho out of memory; exit 1")
    code, _, err = ended(start(place, ONE, "fails"))
    assert code == 1 and "run.sh: error: out of memory" in err


def test_a_run_that_has_diverged_is_told_from_one_that_failed_until_it_is_trained_again(place):
    for script in (ONE, "errors_in log ./trainer", "logged log ./trainer"):
        (place / "trainer").write_text("#!/bin/sh\necho the loss is nan; echo the loss is nan >&2; exit 76")
        code, _, err = ended(start(place, script, "diverges"))
        assert code == 76 and "run.sh: error: the loss is nan" in err
    assert (place / "diverged").read_text() == (place / "command").read_text()
    (place / "trainer").write_text("#!/bin/sh\nexit 0")
    assert ended(start(place, ONE, "ends"))[0] == 0
    assert (place / "trained").exists() and not (place / "diverged").exists()


@pytest.mark.parametrize("step", ["logged log sleep 60", "errors_in log sleep 60", "sleep 60 || { die failed; }"])
def test_a_step_without_anything_to_save_ends_at_once(place, step):
    process = start(place, f"echo >begun; {step}; echo never")
    wait_for(place / "begun")
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    code, out, err = ended(process)
    assert (code, out) == (75, "") and "error" not in err


def test_a_run_that_waits_for_another_ends_at_once(place):
    process = start(place, "exec 8>lock; flock 8; lock .; echo never")
    assert "waiting for it" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    code, out, _ = ended(process)
    assert code == 75 and "never" not in out


@pytest.mark.parametrize(
    "recipe, action",
    [
        ("roberta_small", "validate"),
        ("language_modeling", "score"),
        ("language_modeling", "extrapolate"),
        ("electra", "export-discriminator"),
    ],
)
def test_an_evaluation_waits_until_its_run_has_been_trained(tmp_path, recipe, action):
    run = tmp_path / "t5-seed1"
    run.mkdir()
    (tmp_path / "sources.txt").write_text("vocabulary pieces\n")
    for path in (tmp_path / "dict.txt", tmp_path / "counts.json", run / "checkpoint_last.pt"):
        path.touch()
    with open(run / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = subprocess.Popen(
            ["bash", COMMON.parent / recipe / "run.sh", action, "t5"],
            env={**os.environ, "DATA": str(tmp_path), "RUNS": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert "waiting for it" in process.stderr.readline()
        process.terminate()
        assert ended(process)[0] == 75


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_several_runs_are_all_stopped_no_more_are_begun_and_nothing_is_reported(place, sent):
    (place / "recipe").mkdir()
    (place / "recipe/program").write_text(f'. {COMMON}/recipe.sh; end_in_order; same_run run x "$1" 0 ./trainer "$1"')
    process = start(place, SEVERAL.replace("../trainer", "program"), "a", "b", "c")
    wait_for(place / "begun", 2)
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    code, out, _ = ended(process)
    assert code == 75 and "report" not in out
    assert sorted((place / "begun").read_text().split()) == ["a", "b"]
    assert len((place / "saved").read_text().split()) == 2


def test_after_a_run_that_was_stopped_no_more_are_begun_and_after_one_that_failed_all_are(place):
    code, out, _ = ended(start(place, SEVERAL, "stops", "stops", "ends", "ends", "ends"))
    assert code == 75 and len((place / "begun").read_text().split()) == 2 and "report" not in out
    (place / "begun").unlink()
    code, out, err = ended(start(place, SEVERAL, "fails", "ends", "ends", "ends"))
    assert code == 1 and "not every run" in err and len((place / "begun").read_text().split()) == 4
    code, out, _ = ended(start(place, SEVERAL, "ends", "ends", "ends"))
    assert code == 0 and out.splitlines()[-2:] == ["run.sh: 3 of 3 runs have ended", "report"]
