"""Sweeps with a stand-in recipe, whose runs take a tenth of a second."""

import contextlib
import fcntl
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairseq_relpos.reports import score_table, sweeps
from scripts.sweep import Progress, Sweep, lines_of

SWEEP = Path(__file__).parents[2] / "scripts" / "sweep.py"
#: its score depends on the encoding, the learning rate and the seed; with lr 1e3 it diverges, "broken" fails once
RUN_SH = r"""
run=$RUNS/$3-seed$SEED; mkdir -p "$run"
echo "$3 $LEARNING_RATE $SEED" >>begun
echo "$CUDA_VISIBLE_DEVICES" >>devices
sleep 0.1
[ "$LEARNING_RATE" != 1e3 ] || { echo "run.sh: error: loss is nan"; exit 76; }
[ "$3" != broken ] || [ -e mended ] || { echo "run.sh: error: no data in data"; exit 1; }
score=$(python3 -c 'import sys, zlib; print(zlib.crc32(sys.argv[1].encode()) % 1000 / 1000)' "$3 $LEARNING_RATE $SEED")
echo '{"metrics": {"accuracy": '$score', "f1": 0.5}, "encoding": "'$3'"}' >"$run/results.json.part"
mv "$run/results.json.part" "$run/results.json"
echo "$3 $LEARNING_RATE $SEED" >>ended
"""
HEAD = ("recipe", "action", "task", "encoding", "LEARNING_RATE", "SEED")
ENCODINGS, RATES, SEEDS = ("learned", "t5"), ("1e-5", "2e-5"), (1, 2, 3)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "standin").mkdir()
    (tmp_path / "standin/run.sh").write_text(RUN_SH)
    return tmp_path


def manifest(place, runs, head=HEAD, name="manifest.tsv"):
    rows = [head, *(("standin", "finetune", "CoLA", *run) for run in runs)]
    (place / name).write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return name


def grid(rates=RATES, encodings=ENCODINGS, seeds=SEEDS):
    return [(encoding, rate, seed) for encoding in encodings for rate in rates for seed in seeds]


def start(place, *arguments, path=None, gpus=""):
    environment = {name: value for name, value in os.environ.items() if name != "SUPERVISED"}
    environment["PATH"] = f"{path}:{environment['PATH']}" if path else environment["PATH"]
    return subprocess.Popen(
        [sys.executable, SWEEP, *map(str, arguments)],
        env={**environment, "SEED": "9", "CUDA_VISIBLE_DEVICES": gpus},  # the manifest says everything
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def sweep(place, *arguments, **more):
    process = start(place, *arguments, **more)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def report(place, folder):
    """RESULTS.md, as `sweep.py report` writes it, in this process."""
    sweeps.write(place / folder, Sweep(place / folder).records(), "median")
    return (place / folder / "RESULTS.md").read_text()


def test_a_product_has_every_combination_and_keeps_the_spaces_of_files(place):
    words = ["recipe=standin", "action=finetune", "encoding=t5 shaw", "SEED=1 2", "SETTINGS=a b"]
    code, out, err = sweep(place, "product", *words)
    head, *lines = [line.split("\t") for line in out.splitlines()]
    assert code == 0 and head == [word.split("=")[0] for word in words]
    assert [line[2:] for line in lines] == [[e, s, "a b"] for e in ("t5", "shaw") for s in "12"]


@pytest.mark.parametrize("jobs, shares", [(1, {"3,5,6"}), (2, {"3", "5,6"}), (4, {"3", "5", "6"})])
def test_runs_at_a_time_divide_the_gpus(place, jobs, shares):
    """Each would take the first ones, beside all the others."""
    code, _, err = sweep(place, "run", "here", manifest(place, grid(RATES[:1])), "--jobs", jobs, gpus="3,5,6")
    assert code == 0, err
    assert set((place / "devices").read_text().splitlines()) == shares


@pytest.mark.slow
def test_a_sweep_that_was_killed_three_times_ends_with_the_table_of_an_undisturbed_one(place):
    given = manifest(place, grid())
    code, out, err = sweep(place, "run", "calm", given, "--jobs", 4)
    assert code == 0 and err == "" and "12 of 12 runs have ended" in out
    chance = random.Random(1)
    for sent, ended in zip((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL), chance.sample([1, 2, 3], 3)):
        before = len((place / "ended").read_text().splitlines())
        process = start(place, "run", "killed", given)
        while len((place / "ended").read_text().splitlines()) < before + ended:
            time.sleep(0.005)
        time.sleep(chance.random() / 20)
        # a job that is killed loses all its processes, also those in sessions of their own
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        process.send_signal(sent)
        for child in children.split():
            if sent == signal.SIGKILL:
                os.killpg(int(child), sent)
        assert process.wait(300) == (-9 if sent == signal.SIGKILL else 75)
    before = (place / "ended").read_text().splitlines()
    code, out, _ = sweep(place, "run", "killed", given, "--jobs", 2)
    done = int(re.search(r"12 runs, (\d+) of them done", out)[1])
    assert code == 0 and 0 < done < 12, out
    after = (place / "ended").read_text().splitlines()
    assert len(after) - len(before) == 12 - done  # what is done is not done again
    assert report(place, "killed") == report(place, "calm")


def test_a_run_that_diverges_or_fails_is_named_and_harms_no_other(place):
    given = manifest(place, [*grid(["1e-5", "1e3"], ["t5"]), ("broken", "1e-5", 1)])
    code, out, err = sweep(place, "run", "sweep", given, "--jobs", 3)
    assert code == 1 and "7 of 7 runs have ended, 1 not to their end" in out
    assert "error: 1 of 7 runs have not come to their end" in err.splitlines()[-1]
    text = report(place, "sweep")
    assert "7 runs: 3 done, 3 diverged, 1 failed." in text
    assert "- standin-finetune-CoLA-t5-lr1e3-seed2: diverged: run.sh: error: loss is nan" in text
    assert "- standin-finetune-CoLA-broken-lr1e-5-seed1: failed: run.sh: error: no data in data" in text
    assert re.search(r"^\| t5 \| 1e-5 \| 3 \| .* \| 3 \| 0 \| 0 \|$", text, re.M)
    assert re.search(r"^\| broken \| none \| 0 \| .* \| 0 \| 1 \| 0 \|$", text, re.M)

    # what has diverged would diverge again; what failed is tried again
    (place / "begun").unlink()
    (place / "mended").touch()
    assert sweep(place, "run", "sweep", given)[0] == 0
    assert (place / "begun").read_text() == "broken 1e-5 1\n"
    assert "4 done, 3 diverged." in report(place, "sweep")


def test_the_time_left_is_estimated_from_runs_that_were_not_done_before(capsys):
    progress = Progress(8, 0, jobs=2)
    for code, seconds in ((0, 1.2), (0, 0.8), (1, 600), (0, 1200)):
        progress.ended_one(None, code, seconds)
    said = [line.partition("runs have ended")[2] for line in capsys.readouterr().out.splitlines()]
    assert said[:2] == ["", ""] and said[2].endswith("about 25 min left") and said[3].endswith("about 30 min left")


class Slow(io.StringIO):
    """A stream that lets other threads write after each write."""

    def write(self, text):
        super().write(text)
        time.sleep(0.02)


def test_lines_of_runs_that_end_at_one_time_are_whole_and_counted_in_order(place, monkeypatch):
    monkeypatch.setenv("SCRIPT", "sweep.py")
    given = place / manifest(place, [("broken", "1e-5", seed) for seed in range(4)])
    lines, folder = lines_of(given.read_text(), given), Sweep(place / "sweep")
    progress, out, err = Progress(4, 0, 4), Slow(), Slow()
    with ThreadPoolExecutor(4) as pool, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        list(pool.map(lambda line: folder.run_one(line, progress), lines))
    counted = [line.partition(",")[0] for line in out.getvalue().splitlines()]
    assert counted == [f"sweep.py: {number} of 4 runs have ended" for number in range(1, 5)]
    named = sorted(line.split(" has failed: ")[0] for line in err.getvalue().splitlines())
    assert named == [f"sweep.py: standin-finetune-CoLA-broken-lr1e-5-seed{seed}" for seed in range(4)]


def test_the_rate_has_the_best_median_or_the_best_run(tmp_path):
    figures = {"1e-5": (0.5, 0.7, 0.6), "2e-5": (0.1, 0.9, 0.2), "3e-5": (None, None, 0.99)}
    records = []
    for rate, values in figures.items():
        for seed, value in enumerate(values, 1):
            run = tmp_path / f"{rate}-{seed}"
            run.mkdir()
            (run / "results.json").write_text(json.dumps({"metrics": {"mcc": value or 0}, "test": {"mcc": 0.25}}))
            cells = {"recipe": "glue", "action": "finetune", "encoding": "t5", "LEARNING_RATE": rate, "SEED": str(seed)}
            cells["SETTINGS"] = "small.sh"  # as in every run, so no row has it
            state = "done" if value else "diverged"
            records.append({"name": run.name, "cells": cells, "place": run, "state": state, "message": "loss is nan"})
    sweeps.write(tmp_path, records, "median")
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| t5 | 1e-5 | 3 | 0.6000 | 0.6000 ± 0.1000 | 0.7000 | 0.2500 ± 0.0000 | 2 | 0 | 0 |" in text
    assert "| 2e-5-2 | mcc | 0.9000 | 0.2500 | done |" in text and "| 3e-5-1 | mcc | - | - | diverged |" in text
    sweeps.write(tmp_path, records, "best")
    assert "| t5 | 3e-5 | 3 | diverged | 0.9900 | 0.9900 |" in (tmp_path / "RESULTS.md").read_text()


SETTINGS = (
    "{'common': {'seed': 1}, 'criterion': {'_name': 'sequence_labels'}, 'optimization': {'max_update': 9}, "
    "'model': {'arch': 'x'}}\n"
)
LOG = """\
{"epoch": 1, "num_updates": "4", "loss": "FIRST", "wall": "1"}
{"epoch": 1, "valid_loss": "1.5", "valid_num_updates": "4"}
{"epoch": 1, "train_loss": "LAST", "train_num_updates": "5"}
{"epoch": 2, "valid_loss": "9.5", "valid_num_updates": "9"}
"""


@pytest.mark.parametrize(
    "first, last, diverged",
    [("1.7", "0.2", False), ("1.7", "2.3", True), ("7e7", "2e7", True), ("1.7", "nan", True), ("7", "6", False)],
)
def test_a_run_with_scores_has_diverged_if_its_training_loss_says_so(tmp_path, first, last, diverged):
    (tmp_path / "train.log").write_text(SETTINGS + LOG.replace("FIRST", first).replace("LAST", last))
    (tmp_path / "results.json").write_text('{"metrics": {"accuracy": 0.5}}')

    def ended():
        (run,) = score_table.read([{"name": "a", "cells": {}, "place": tmp_path, "state": "done"}]).itertuples()
        return run

    run = ended()
    assert (run.state == "diverged") == diverged and ("training loss" in run.message) == diverged
    (tmp_path / "results.json").write_text('{"metrics": ')
    assert "cannot be read" in ended().message
    (tmp_path / "results.json").write_text('{"metrics": {"accuracy": 0.5}, "metric": "f1"}')
    assert ended().state == "failed"
    # without scores it is the validation that tells
    (tmp_path / "results.json").unlink()
    assert ended().state == "diverged"


def test_runs_without_scores_are_judged_by_the_lowest_loss(tmp_path):
    records = []
    for rate, losses in {"1e-3": (2.0, 2.5), "2e-3": (1.5, 1.25), "4e-3": (0.5, "nan"), "8e-3": ("nan", "nan")}.items():
        for seed, loss in enumerate(losses, 1):
            run = tmp_path / f"{rate}-{seed}"
            run.mkdir()
            log = f'{{"epoch": 1, "valid_loss": "{loss}", "valid_num_updates": "9"}}\n'
            (run / "train.log").write_text(SETTINGS + log)
            cells = {"recipe": "x", "encoding": "t5", "LEARNING_RATE": rate, "SEED": str(seed)}
            records.append({"name": run.name, "cells": cells, "place": run, "state": "done"})
    sweeps.write(tmp_path, records, "median")
    expected = "| t5 | 2e-3 | 2 | 1.3750 | 1.3750 ± 0.1768 | 1.2500 | 3 | 0 | 0 |"
    assert expected in (tmp_path / "RESULTS.md").read_text()
    sweeps.write(tmp_path, records, "best")
    assert "| t5 | 4e-3 | 2 | diverged | 0.5000 | 0.5000 | 3 | 0 | 0 |" in (tmp_path / "RESULTS.md").read_text()


def test_folds_are_averaged_before_seeds_and_a_missing_fold_leaves_a_seed_out(tmp_path):
    records = []
    for seed, fold, value in ((1, 0, 0.5), (1, 1, 0.7), (2, 0, 0.8), (2, 1, None)):
        run = tmp_path / f"{seed}-{fold}"
        run.mkdir()
        (run / "results.json").write_text(json.dumps({"metrics": {"accuracy": value}}))
        cells = {"recipe": "x", "action": "train", "encoding": "t5", "SEED": str(seed), "FOLD": str(fold)}
        state = "done" if value else "failed"
        records.append({"name": run.name, "cells": {**cells, "LEARNING_RATE": "1"}, "place": run, "state": state})
    sweeps.write(tmp_path, records, "median")
    assert "| t5 | 1 | 1 | 0.6000 | 0.6000 | 0.6000 | 0 | 1 | 0 |" in (tmp_path / "RESULTS.md").read_text()


def test_a_mean_of_tests_is_of_the_seeds_in_the_mean_of_validations_and_of_their_folds(tmp_path):
    records = []
    for seed, fold, test in ((1, 0, 0.5), (1, 1, 0.7), (2, 0, 0.7), (2, 1, 0.9), (3, 0, 0.1), (3, 1, 0.1)):
        run = tmp_path / f"{seed}-{fold}"
        run.mkdir()
        (run / "results.json").write_text(json.dumps({"metrics": {"accuracy": 0.6}, "test": {"accuracy": test}}))
        if (seed, fold) == (3, 1):  # it has diverged
            (run / "train.log").write_text(SETTINGS + LOG.replace("FIRST", "1.7").replace("LAST", "nan"))
        cells = {"encoding": "t5", "SEED": str(seed), "FOLD": str(fold), "LEARNING_RATE": "1"}
        records.append({"name": run.name, "cells": cells, "place": run, "state": "done"})
    text = sweeps.text(score_table.read(records), "median")
    assert "| t5 | 1 | 3 | 0.6000 | 0.6000 ± 0.0000 | 0.6000 | 0.7000 ± 0.1414 | 1 | 0 | 0 |" in text


def test_two_sweeps_in_one_folder_are_refused(place):
    given = manifest(place, grid(seeds=[1]))
    (place / "sweep").mkdir()
    with open(place / "sweep/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, err = sweep(place, "run", "sweep", given)
        assert code == 1 and out == "" and len(err.splitlines()) == 1 and "another sweep is running in" in err
    assert sweep(place, "run", "sweep", given, "--jobs", 4)[0] == 0
    other = manifest(place, grid(seeds=[1], encodings=["t5", "m4"]), name="other.tsv")
    code, _, err = sweep(place, "run", "sweep", other)
    assert code == 1 and "has another sweep, of which other.tsv lacks 2 runs" in err
    assert (place / "sweep/manifest.tsv").read_text() == (place / given).read_text()
    # with more runs it is the same sweep
    more = manifest(place, grid(seeds=[1, 2]), name="more.tsv")
    code, out, _ = sweep(place, "run", "sweep", more, "--jobs", 4)
    assert code == 0 and "8 runs, 4 of them done" in out


@pytest.mark.parametrize(
    "text, message",
    [
        ("recipe\taction\nnonsense\ttrain\n", "line 2: no recipe nonsense: give one of artificial_tasks"),
        ("recipe\taction\tspeed\nstandin\ttrain\t1\n", "the column 'speed' twice, or it is unknown"),
        ("recipe\taction\nstandin\ttrain\nstandin\ttrain\n", "has standin-train twice"),
        ("recipe\taction\nstandin\ttrain\t1\n", "line 2: 3 cells under 2 columns"),
        ("recipe\taction\tFOLD\nroberta_small\ttrain\t1\n", "line 2: roberta_small has no setting FOLD"),
        ("recipe\ttask\nstandin\tCoLA\n", "line 2: no recipe or no action"),
        ("recipe\taction\n", "has no runs"),
        ("", "is empty"),
        (None, "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_meant_is_refused_in_one_line(place, text, message):
    if text is not None:
        (place / "wrong.tsv").write_text(text)
    code, out, err = sweep(place, "run", "sweep", "wrong.tsv")
    (line,) = err.splitlines()
    assert code == 1 and out == "" and line.startswith("sweep.py: error: ") and message in line
    assert not (place / "sweep").exists()


def test_slurm_gets_one_array_with_requeue_whose_tasks_are_the_runs(place):
    (place / "bin").mkdir()
    # a stand-in: runs every task of the array at once, as Slurm would
    (place / "bin/sbatch").write_text(
        '#!/bin/bash\nprintf "%s\\n" "$@" >submitted\nfor i in 0 1; do SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$i'
        ' bash "${@: -1}" & done; wait\n'
    )
    (place / "bin/sbatch").chmod(0o755)
    (place / "bin/scontrol").write_text('#!/bin/bash\necho "$@" >>requeued\n')
    (place / "bin/scontrol").chmod(0o755)
    given = manifest(place, grid(seeds=[1], encodings=["t5"]))
    code, out, err = sweep(place, "run", "s", given, "--jobs", 16, "--slurm", "--gpus", "1", path=place / "bin")
    assert code == 0, err
    assert (place / "submitted").read_text().split() == ["--gpus", "1", str(place / "s/array.sbatch")]
    script = (place / "s/array.sbatch").read_text()
    assert "#SBATCH --array=0-1%16\n" in script and "#SBATCH --requeue\n" in script
    assert sorted((place / "ended").read_text().splitlines()) == ["t5 1e-5 1", "t5 2e-5 1"]
    assert not (place / "requeued").exists() and "2 runs: 2 done." in report(place, "s")
    # a task that is stopped saves, and goes back into the queue
    (place / "standin/run.sh").write_text(
        "sleep 60 & trap 'kill $!; sleep 1; echo >saved; exit 75' TERM; echo >running; wait"
    )
    more = manifest(place, grid(seeds=[1, 2], encodings=["t5"]))
    (place / "bin/sbatch").write_text("#!/bin/bash\n")
    assert sweep(place, "run", "s", more, "--slurm", path=place / "bin")[0] == 0
    # sbatch passes the environment of sweep.py on
    environment = {**os.environ, "SUPERVISED": "yes", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    environment["PATH"] = f"{place / 'bin'}:{environment['PATH']}"
    task = subprocess.Popen(["bash", place / "s/array.sbatch"], cwd=place, env=environment, start_new_session=True)
    while not (place / "running").exists():
        time.sleep(0.02)
    task.send_signal(signal.SIGUSR1)
    time.sleep(0.2)
    task.send_signal(signal.SIGTERM)  # another job takes the node meanwhile: the run still saves
    assert task.wait(300) == 75 and (place / "requeued").read_text() == "requeue 7_1\n" and (place / "saved").exists()
