"""The generators, and the recipe through its own scripts, sized for seconds."""

import fcntl
import importlib.util
import json
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checkouts import shell
from recipes import Recipe

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "artificial_tasks"


def load(name):
    spec = importlib.util.spec_from_file_location(f"artificial_tasks_{name}", RECIPE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load("generate")


def samples(task, count=300):
    return generate.different(generate.GENERATORS[task], random.Random(3), count)


def follows_reber(text):
    """Whether Reber's grammar, as Hochreiter and Schmidhuber (1997) draw it, accepts the text."""
    following = {"BT": "1", "BP": "2", "1S": "1", "1X": "3", "2T": "2", "2V": "4", "3X": "2", "3S": "5", "4P": "3"}
    following |= {"4V": "5", "5E": "end"}
    state = "B" if text[:1] == "B" else None
    for letter in text[1:]:
        state = following.get(f"{state}{letter}")
    return state == "end"


def test_embedded_reber_wraps_two_strings_and_ends_before_its_last_letter():
    labels = set()
    for text, label in samples("reber"):
        first, rest = text[1], text[2:]
        other = "T" if first == "P" else "P"
        assert text[0] == "B" and first == "PT"[label]
        # one of the E's followed by the other letter splits the rest into two Reber strings
        splits = [
            k for k in range(len(rest)) if rest[k] == other and follows_reber(rest[:k]) and follows_reber(rest[k + 1 :])
        ]
        assert splits, text
        labels.add(label)
    assert labels == {0, 1}
    assert not follows_reber("BTXE") and follows_reber("BTSXSE")


def test_both_chains_spend_two_thirds_of_the_time_in_state_0_but_move_differently():
    for label, (leave_0, leave_1) in enumerate(generate.CHAINS):
        texts = [text for text, of in samples("process50", 2000) if of == label]
        states = np.array([[int(s) for s in text] for text in texts])
        assert states.shape[1] == 50
        assert abs((states == 0).mean() - 2 / 3) < 0.02
        left = (states[:, 1:] != states[:, :-1]) & (states[:, :-1] == 0)
        assert abs(left.sum() / (states[:, :-1] == 0).sum() - leave_0) < 0.02
        left = (states[:, 1:] != states[:, :-1]) & (states[:, :-1] == 1)
        assert abs(left.sum() / (states[:, :-1] == 1).sum() - leave_1) < 0.03


def test_the_best_possible_answer_is_the_chain_that_is_more_likely():
    samples = [("01" * 25, 1), ("0" * 50, 0), ("0" * 50, 1)]
    assert generate.chain_likelihood_accuracy(samples) == pytest.approx(2 / 3)


def test_adding_marks_two_values_and_asks_for_half_plus_a_quarter_of_their_sum():
    for pairs, label in samples("adding100"):
        values, marks = np.array(pairs).T
        assert len(values) == 100 and np.abs(values).max() <= 1
        chosen = np.flatnonzero(marks == 1)
        assert len(chosen) == 2 and chosen[0] < 10 and chosen[1] < 49
        assert label == pytest.approx(0.5 + values[chosen].sum() / 4)
        assert marks[-1] == -1 and (marks[0] == -1 or chosen[0] == 0)
        assert set(marks[1:-1]) <= {0, 1}


def test_the_same_seed_gives_the_same_files_and_no_sequence_is_in_two_of_them(tmp_path):
    for folder, seed in [("one", 1), ("again", 1), ("other", 2)]:
        subprocess.run(
            [sys.executable, RECIPE / "generate.py", "reber", tmp_path / folder, "--seed", str(seed)], check=True
        )

    def inputs(folder, split):
        with np.load(tmp_path / folder / f"{split}.npz") as arrays:
            return np.split(arrays["inputs"], np.cumsum(arrays["lengths"])[:-1])

    counts, seen = {}, set()
    for split in ("train", "valid", "test"):
        one, again, other = (inputs(folder, split) for folder in ("one", "again", "other"))
        assert all(np.array_equal(a, b) for a, b in zip(one, again))
        assert not all(np.array_equal(a, b) for a, b in zip(one, other))
        counts[split] = len(one)
        seen |= {tuple(sequence) for sequence in one}
    assert counts == {"train": 1000, "valid": 500, "test": 5000}
    assert len(seen) == 6500


def test_two_trainings_of_one_task_may_begin_at_once(tmp_path):
    """run.sh reads the lengths from the first line, also where another training makes the same data."""
    (tmp_path / "data").mkdir()
    with open(tmp_path / "data" / "lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        threading.Timer(1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        second = [sys.executable, RECIPE / "generate.py", "reber", tmp_path / "data", "--seed", "1"]
        done = subprocess.run(second, check=True, capture_output=True, text=True)
    assert re.fullmatch(r"\d+ \d+\n", done.stdout) and "waiting" in done.stderr


TINY = "MAX_EPOCHS=1 PATIENCE=2 BATCH_SIZE=512 LEARNING_RATES='5e-4 1e-4'"
SMALL = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2".split()


@pytest.fixture(autouse=True)
def settings(tmp_path):
    (tmp_path / "tiny.sh").write_text(TINY)


recipe = Recipe("artificial_tasks")


@pytest.mark.slow
def test_from_nothing_to_a_table_and_again_without_training_twice(tmp_path):
    done = recipe(tmp_path, "run.sh", "train", "reber", "at5", *SMALL, SEED="2")
    assert done.returncode == 0, done.stdout
    runs = tmp_path / "runs" / "reber"
    rate = (runs / "at5.learning_rate").read_text().strip()
    # the first seed tries both rates, the second takes the better one
    assert sorted(p.parent.name for p in runs.glob("*/result.json")) == sorted(
        ["at5-seed1-lr5e-4", "at5-seed1-lr1e-4", f"at5-seed2-lr{rate}"]
    )
    valid = {p.parent.name: json.loads(p.read_text())["valid"] for p in runs.glob("*/result.json")}
    assert valid[f"at5-seed1-lr{rate}"] == max(v for k, v in valid.items() if "seed1" in k)
    command = (runs / "at5-seed1-lr5e-4" / "trained").read_text()
    assert "gamma_min=1 gamma_max=10 hidden=100,5" in command

    again = recipe(tmp_path, "run.sh", "train", "reber", "at5", *SMALL, SEED="2")
    assert again.returncode == 0 and len(re.findall(r"lr\S+ is trained", again.stdout)) == 3, again.stdout
    assert "training" not in again.stdout

    # others would be averaged with those of before
    changed = recipe(tmp_path, "run.sh", "train", "reber", "at5", *SMALL, "--patience", "1")
    assert changed.returncode != 0 and "begun with other settings (is '--patience' '1')" in changed.stdout
    assert (runs / "at5-seed1-lr5e-4" / "result.json").exists()

    report = recipe(tmp_path, "run.sh", "report", PRELOADED="")  # as a user runs it
    assert report.returncode == 0, report.stdout
    text = (tmp_path / "runs" / "RESULTS.md").read_text()
    assert "(2) | 1.000 |" in text and "| t5 | - | - |" in text
    assert (
        "- Embedded Reber, no seed 1, 2, 3, 4, 5: none, t5_nob, t5, at5_nob\n" in text
        and "ended by the cap on epochs: at5 on Embedded Reber, seed" in text
    )
    assert (tmp_path / "runs" / "accuracy.png").stat().st_size > 5000
    figures = json.loads((tmp_path / "runs" / "results.json").read_text())["figures"]
    trained = runs / f"at5-seed2-lr{rate}" / "trained"
    kept = trained.read_text()
    trained.write_text(kept.replace("'--max-epoch' '1'", "'--max-epoch' '9'"))
    refused = recipe(tmp_path, "run.sh", "report")
    assert (
        refused.returncode == 1 and "at5 on reber: The runs differ in more than seed: `--max-epoch`" in refused.stdout
    )
    trained.write_text(kept)
    tested = {
        seed: json.loads((runs / f"at5-seed{seed}-lr{rate}" / "result.json").read_text())["test"] for seed in "12"
    }
    assert figures == {"accuracy on reber": {"at5": tested}}


TRAINING = """#!/usr/bin/env bash
[[ $* != *" --lr 9 "* && $* != *"--seed 7 "* ]] || exit 76
while [ "$1" != --save-dir ]; do shift; done
echo '{"epoch": 1, "valid_accuracy": 0.5}' >>"$2/train.log"
touch "$2/checkpoint_best.pt"
"""


@pytest.fixture
def train(checkout, tmp_path):
    """run.sh train with programs that take no time."""
    for name, text in {"train": TRAINING, "validate": """echo '{"test_accuracy": "0.8"}'"""}.items():
        (tmp_path / f"fairseq-{name}").write_text(text)
        (tmp_path / f"fairseq-{name}").chmod(0o755)
    script = f"PATH='{tmp_path}':$PATH; bash '{checkout}/examples/artificial_tasks/run.sh' train reber t5"
    return lambda flags="", **environment: shell(checkout, f"{script} {flags}", tmp_path, RUNS="runs", **environment)


def test_a_finished_run_stays_as_it_is_with_another_precision(train, tmp_path):
    assert train(LEARNING_RATES="1e-4").returncode == 0
    again = train(LEARNING_RATES="1e-4", PRECISION="amp")
    assert again.returncode == 0 and again.stdout.endswith("t5-seed1-lr1e-4 is trained\n"), again.stderr
    assert len((tmp_path / "runs/reber/t5-seed1-lr1e-4/train.log").read_text().splitlines()) == 1
    assert "is batch 8 sentences" in train("--batch-size 8", LEARNING_RATES="1e-4").stderr


def test_a_rate_that_diverges_is_left_out_of_the_choice(train, tmp_path):
    done = train(LEARNING_RATES="9 1e-4", SEED="2")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/reber/t5.learning_rate").read_text() == "1e-4\n"
    assert sorted(path.parent.name for path in tmp_path.rglob("result.json")) == ["t5-seed1-lr1e-4", "t5-seed2-lr1e-4"]
    assert train(LEARNING_RATES="1e-4", SEED="7").returncode == 76
    again = train(LEARNING_RATES="9 1e-4").stdout
    assert "t5-seed1-lr9 has diverged\n" in again and "training" not in again
    assert "training reber: t5, seed 1, learning rate 9" in train("--dropout 0.5", LEARNING_RATES="9").stdout
    none = train(LEARNING_RATES="9")
    assert none.returncode == 76 and none.stderr.endswith("run.sh: error: t5 has diverged with every rate: 9\n")


def test_compare_trains_in_a_checkout_whose_path_has_a_space(train, checkout, tmp_path):
    (checkout / "fairseq_relpos" / "encodings.py").write_text("def names_for(causal): return ['t5']")
    (tmp_path / "tiny.sh").write_text(
        "PAPER_TASKS=reber PAPER_ENCODINGS=t5 PAPER_SEEDS=1 OTHER_TASKS=reber OTHER_SEEDS=1"
    )
    script = f"PATH='{tmp_path}':$PATH; bash '{checkout}/examples/artificial_tasks/compare.sh'"
    shell(checkout, script, tmp_path, RUNS="runs", SETTINGS="tiny.sh", LEARNING_RATES="1e-4")
    assert (tmp_path / "runs/reber/t5-seed1-lr1e-4/result.json").exists()


def test_the_report_says_of_a_run_without_a_result_whether_it_has_diverged(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(RECIPE)
    for name in ("reber/t5-seed1-lr9/diverged", "reber/t5-seed1-lr9/train.log", "reber/t5-seed1-lr1/train.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    results = pd.DataFrame(columns=["encoding", "task", "epochs", "most_epochs"])
    found = load("report").missing(tmp_path, {}, results, [])
    assert found == "- not finished: reber/t5-seed1-lr1\n- diverged: reber/t5-seed1-lr9\n"


def test_of_equally_good_epochs_the_last_was_tested(tmp_path):
    """fairseq writes checkpoint_best.pt again where the accuracy is the same."""
    entries = [{"epoch": epoch, "valid_accuracy": accuracy} for epoch, accuracy in enumerate((0.5, 1, 1, 0.9), 1)]
    (tmp_path / "train.log").write_text("".join(f"{json.dumps(e)}\n" for e in entries))
    (tmp_path / "test.log").write_text('{"test_accuracy": "0.8"}\n')
    subprocess.run([sys.executable, RECIPE / "result.py", "write", tmp_path], check=True)
    assert json.loads((tmp_path / "result.json").read_text())["best_epoch"] == 3


def test_an_unknown_task_and_a_report_without_runs_are_one_line(tmp_path):
    assert "no task chess" in recipe.fails(tmp_path, "run.sh", "train", "chess", "t5")
    assert "no finished run in runs" in recipe.fails(tmp_path, "run.sh", "report")
