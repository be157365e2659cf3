"""The recipe through its own scripts, sized for seconds."""

import fcntl
import importlib
import json
import lzma
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from statistics import mean, stdev

import pytest
from recipes import EXAMPLES, Recipe, refused, written
from scipy.stats import ttest_rel
from unpacking import UNPACKING

from fairseq_relpos.cli import main
from fairseq_relpos.reports.training_log import Run, first_update

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "roberta_small"
TINY = """
VOCAB_SIZE=60
LAYERS=1 EMBED_DIM=16 HEADS=2 FFN_DIM=32
TOKENS_PER_SAMPLE=16 TOKENS_PER_UPDATE=128
UPDATES=4 WARMUP_UPDATES=1 LOG_EVERY=2 VALIDATE_EVERY=2
COMPARED="learned t5" BASELINE=learned SEEDS=1 LEARNING_RATES= JOBS=2
"""


def text_of(path, lines, seed=0):
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdefghij", k=chance.randint(2, 5))) for _ in range(30)]
    content = ""
    for number in range(lines):
        content += " ".join(chance.choices(words, k=chance.randint(3, 14))) + "\n"
        content += "\n" if number % 5 == 4 else ""
    path.write_text(content, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roberta_small")
    (folder / "tiny.sh").write_text(TINY)
    text_of(folder / "train.txt", 80)
    text_of(folder / "one.txt", 15, seed=1)
    text_of(folder / "two.txt", 9, seed=2)
    return folder


recipe = Recipe("roberta_small")


def test_a_start_with_other_words_is_refused(tmp_path):
    (tmp_path / "tiny.sh").write_text(TINY)
    for name in ("data/dict.txt", "data/sources.txt", "data/valid.bin", "old/model.pt", "old/conditions"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("dictionary 0123\n")
    line = recipe.fails(tmp_path, "run.sh", "train", "t5", START_FROM="old/model.pt")
    assert "dictionary in data is not the one that old/model.pt was trained with" in line
    assert not list(tmp_path.glob("runs/*/checkpoint*"))


succeeds, fails = recipe.succeeds, recipe.fails


def prepare(workplace, out="data", train="train.txt", run=succeeds):
    return run(workplace, "prepare.sh", out, "--train", train, "--valid", "one.txt", "two.txt")


@pytest.fixture(scope="session")
def data(workplace):
    prepare(workplace)
    return workplace / "data"


def test_the_dictionary_is_the_vocabulary_and_every_line_is_binarised(data):
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(data / "dict.txt"))
    assert len(dictionary) == 60 - 3 + 4  # SentencePiece's special pieces, and fairseq's
    lines = {
        split: len(data_utils.load_indexed_dataset(str(data / split), dictionary))
        for split in ("train", "valid", "valid1")
    }
    assert lines == {"train": 96, "valid": 18, "valid1": 10}
    assert not list(data.glob("*.tmp*")) and not list(data.glob("*.txt.tmp"))


def test_prepare_again_does_nothing_and_a_changed_text_is_noticed(workplace, data):
    before = written(data)
    assert "is ready" in prepare(workplace)
    assert written(data) == before

    changed = workplace / "changed"
    shutil.copytree(data, changed)
    (changed / "mine.txt").write_text("stays")
    text_of(workplace / "changed.txt", 70)
    printed = prepare(workplace, changed, "changed.txt")
    assert "have changed" in printed and "train: 84 lines" in printed
    assert (changed / "mine.txt").exists()


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "no readable file odd.txt"),
        (b"\n\n", "odd.txt holds no text"),
        (b"good\nbad \xff\n", "line 2: not UTF-8"),
        (b"a b c\n", "smaller VOCAB_SIZE"),
    ],
)
def test_text_that_cannot_be_used_is_named_in_one_line(workplace, content, message):
    (workplace / "odd.txt").unlink(missing_ok=True)
    if content is not None:
        (workplace / "odd.txt").write_bytes(content)
    assert re.search(message, prepare(workplace, "odd", "odd.txt", run=fails))
    assert not (workplace / "odd" / "dict.txt").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["prepare.sh"], "required: OUT"),
        (["prepare.sh", "out", "train.txt"], "unrecognized arguments: train.txt"),
        (["prepare.sh", "out", "--train", "train.txt"], "usage"),
        (["run.sh", "validate", "m4"], "no data in data"),
        (["run.sh", "report"], "no finished run in runs"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, workplace, arguments, message):
    for name in ("tiny.sh", "train.txt"):
        (tmp_path / name).write_text((workplace / name).read_text())
    assert message in fails(tmp_path, *arguments)


def test_a_full_disk_is_named_and_leaves_nothing_half_written(tmp_path, workplace):
    (tmp_path / "tiny.sh").write_text(TINY)
    text_of(tmp_path / "one.txt", 15, seed=1)
    text_of(tmp_path / "train.txt", 900)
    # a limit of the size of files stands in for a full disk: of 20 KB, then of 60 KB; then there is room
    assert (tmp_path / "train.txt").stat().st_size in range(25_000, 55_000)
    prepare = f"bash {RECIPE}/prepare.sh out --train train.txt --valid one.txt"
    for kilobytes in (20, 60):
        done = subprocess.run(
            ["bash", "-c", f"ulimit -f {kilobytes}; {prepare}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "SETTINGS": "tiny.sh"},
        )
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1 and "no room to write in out" in line and "make room" in line
        kept = {p.name for p in (tmp_path / "out").iterdir()}
        assert kept <= {"lock"}, kept  # SentencePiece itself would leave half a model
    cut = lzma.compress(b"text" * 9999)[:-20]
    (tmp_path / "cut.xz").write_bytes(cut)
    line = fails(tmp_path, "prepare.sh", "other", "--train", "cut.xz", "--valid", "one.txt")
    assert "cut.xz cannot be read to its end: is it cut short?" in line and not list(
        (tmp_path / "other").glob("*.part*")
    )


def test_a_run_is_trained_by_one_process_at_a_time(workplace, data):
    folder = workplace / "runs" / "nonsense-seed1"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        threading.Timer(1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        printed = recipe(workplace, "run.sh", "train", "nonsense").stdout
    waited, trained = printed.index("waiting for it"), printed.index("run.sh: training nonsense")
    assert waited < trained


def test_sinusoids_have_the_flag_without_which_they_outweigh_the_tokens(workplace, data):
    def is_scaled(name, start=""):
        return "--scale-embedding" in succeeds(workplace, "run.sh", "command", name, START_FROM=start)

    assert [is_scaled(name) for name in ("sinusoidal", "shape", "learned")] == [True, True, False]
    starts = ("runs/shape-seed1", "runs/learned-seed1")
    for start in starts:
        (workplace / start).mkdir(parents=True, exist_ok=True)
        (workplace / start / "start.pt").touch()
    assert [is_scaled("t5", f"{start}/start.pt") for start in starts] == [True, False]
    assert not is_scaled("sinusoidal", "runs/learned-seed1/start.pt")


def test_a_missing_start_is_one_line(workplace, data):
    done = recipe(workplace, "run.sh", "train", "t5", START_FROM="missing.pt")
    assert "missing.pt: no such checkpoint" in refused(done) and "cat:" not in done.stdout


def losses_of(run):
    return {gap["split"]: gap["loss"] for gap in json.loads((run / "order_gap.json").read_text())}


@pytest.mark.slow
def test_the_rate_is_chosen_on_the_validation_text_and_the_test_text_is_reported(workplace, data, capsys):
    succeeds(workplace, "prepare.sh", "tested", "--train", "train.txt", "--valid", "one.txt", "--test", "two.txt")
    more = {"DATA": "tested", "RUNS": "tuned", "SEEDS": " 2 1 3", "LEARNING_RATES": "1e-3 8e-2"}
    succeeds(workplace, "compare.sh", **more)
    runs = workplace / "tuned"
    assert '"valid_order_gap"' in (runs / "lr8e-2/t5-seed2/train.log").read_text()
    chosen = {}
    for name in ("learned", "t5"):
        chosen[name] = min(("1e-3", "8e-2"), key=lambda rate: losses_of(runs / f"lr{rate}/{name}-seed2")["valid"])
        trained = sorted(str(log.parent.relative_to(runs)) for log in runs.glob(f"*/{name}-*/train.log"))
        expected = {f"lr1e-3/{name}-seed2", f"lr8e-2/{name}-seed2"} | {
            f"lr{chosen[name]}/{name}-seed{s}" for s in (1, 3)
        }
        assert trained == sorted(expected)
    each = {
        name: [losses_of(runs / f"lr{rate}/{name}-seed{seed}")["test"] for seed in (1, 2, 3)]
        for name, rate in chosen.items()
    }
    results = (runs / "RESULTS.md").read_text()
    low, high = ttest_rel(each["t5"], each["learned"]).confidence_interval(0.95)
    row = (
        f"| t5 | 1 2 3 | {mean(each['t5']):.3f} ± {stdev(each['t5']):.3f} "
        f"| {(low + high) / 2:+.3f} ± {(high - low) / 2:.3f} |"
    )
    assert row in results and "two (nats)" in results and "| one (nats) |" not in results
    # the same runs in the report over runs of any recipe
    folders = [str(runs / f"lr{rate}/{name}-seed{seed}") for name, rate in chosen.items() for seed in (1, 2, 3)]
    assert main(["compare", *folders, "--baseline", "learned"]) == 0
    assert row in capsys.readouterr().out
    # the command is the one that was given
    (shown,) = re.findall(r"^(.*) bash examples/roberta_small/compare.sh learned t5$", results, re.M)
    words = dict(word.split("=", 1) for word in shlex.split(shown))
    assert words == {**more, "SETTINGS": "tiny.sh"}

    def report(*expected, named=None):
        """In the report, or in the line of its error."""
        text = (
            fails(workplace, "run.sh", "report", **more) if named else succeeds(workplace, "run.sh", "report", **more)
        )
        text = text if named else (runs / "RESULTS.md").read_text()
        for words in [named, *expected] if named else expected:
            assert re.search(words, text), (words, text)

    # what cannot be averaged is refused by name
    run = runs / f"lr{chosen['t5']}/t5-seed3"
    kept = {name: (run / name).read_text() for name in ("trained", "order_gap.json", "conditions", "train.log")}
    for name, old, new, message in (
        ("trained", "'--dropout' '0'", "'--dropout' '0.1'", r"differ in more than seed.*--dropout.*t5-seed3"),
        ("trained", "'--lr'", "'--position-hparams' 'a=1' '--lr'", r"more than seed.*--position-hparams.*t5-seed3"),
        ("order_gap.json", '"digest": "', '"digest": "f', r"not validated on the same masked text: .*; .*t5-seed3"),
        ("conditions", "text ", "text f", r"trained with other data or another batch: .*; .*t5-seed3"),
    ):
        assert old in kept[name]
        (run / name).write_text(kept[name].replace(old, new))
        report(named=message)
        (run / name).write_text(kept[name])
        os.utime(run / "order_gap.json")

    # what may differ does not matter; what is missing or left out is listed
    (run / "trained").write_text(kept["trained"].strip() + " '--bf16' '--tensorboard-logdir' 'tb'\n")
    last = re.findall(r'"valid_loss": "[^"]*"', kept["train.log"])[-1]
    (run / "train.log").write_text(kept["train.log"].replace(last, '"valid_loss": "99"'))
    (runs / "lr1e-9/t5-seed2").mkdir(parents=True)
    shutil.copy(run / "train.log", runs / "lr1e-9/t5-seed2")
    report(
        rf"- diverged \(exit code 76, or .* more than 0.5 nats above the best\): {run.relative_to(runs)}",
        "no seed 3: t5\n",
        r"\| t5 \| 1 2 \|",
        "- fewer than 3 seeds: t5\n",
        r"- left out, because they are not of LEARNING_RATES: lr1e-9/t5-seed2",
    )
    (run / "train.log").write_text(kept["train.log"])
    shutil.rmtree(runs / "lr1e-9")

    # the best rate stays the best where its evaluation is missing, and without a training there is no choice
    best = runs / f"lr{chosen['t5']}/t5-seed2"
    (best / "order_gap.json").rename(workplace / "kept.json")
    report(rf"- not finished with these settings: {best.relative_to(runs)}", r"\| t5 \| 1 3 \|")
    (workplace / "kept.json").rename(best / "order_gap.json")
    more["COMPARED"] = "learned t5 m4"
    report("- m4: no finished run\n")
    more["SETTINGS"] = "other.sh"
    (workplace / "other.sh").write_text(TINY + "BASELINE=m4\n")
    report("- no run of m4, the baseline, so no differences\n", r"\| encoding \| seeds \| two \(nats\) \|\n")


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"LEARNING_RATES": "1e-3 0.001"}, "LEARNING_RATES=1e-3 0.001 has one number twice: 1e-3 0.001"),
        ({"LEARNING_RATES": "1e-3 fast"}, "LEARNING_RATES=1e-3 fast: give numbers"),
        ({"LEARNING_RATES": "1e-3 2e-3", "LEARNING_RATE": "4e-3"}, "LEARNING_RATE=4e-3 changes nothing beside"),
    ],
)
def test_a_grid_that_cannot_be_meant_is_refused(workplace, data, environment, message):
    assert message in fails(workplace, "compare.sh", **environment)


def test_without_every_rate_there_is_no_choice_and_the_comparison_fails(workplace, data):
    (workplace / "fails.sh").write_text(
        TINY + "LEARNING_RATES='1e-3 1e30' SEEDS='1 2' COMPARED=t5 BASELINE=t5 LAYERS=2\n"
    )
    (workplace / "stop/lr1e30/t5-seed1/train.log").mkdir(parents=True)  # so that this training fails
    printed = recipe(workplace, "compare.sh", SETTINGS="fails.sh", RUNS="stop")
    assert printed.returncode == 1
    assert ": error: t5, seed 1: no training with 1e30 to its end yet" in printed.stdout
    assert not (workplace / "stop/lr1e-3/t5-seed2").exists()


def test_single_runs_are_reported_where_no_comparison_has_been_begun(workplace, data):
    (workplace / "grid.sh").write_text(TINY + "LEARNING_RATES='1e-3 2e-3'\n")
    more = {"SETTINGS": "grid.sh", "RUNS": "single", "LEARNING_RATE": "5e-3"}
    succeeds(workplace, "run.sh", "evaluate", "t5", **more)
    succeeds(workplace, "run.sh", "report", **more)
    results = (workplace / "single/RESULTS.md").read_text()
    assert re.search(r"^\| t5 \| 1 \| \d\.\d+ \|$", results, re.M) and "No choice: all runs have 5e-3." in results


def test_text_to_report(workplace, data):
    printed = succeeds(workplace, "compare.sh")
    results = (workplace / "runs" / "RESULTS.md").read_text()
    assert "| learned | 1 |" in results and "| t5 | 1 |" in results
    assert "one (nats)" in results and "two (nats)" in results
    assert str(ROOT) not in results
    assert (workplace / "runs" / "losses.png").stat().st_size < 200_000
    assert "the loss rises by when the words of each block are put in another order" in printed
    assert "learned, seed 1, does not use the order yet (gap " in printed

    # all is done: nothing is trained or validated again
    before = written(workplace / "runs" / "t5-seed1")
    succeeds(workplace, "compare.sh")
    assert written(workplace / "runs" / "t5-seed1") == before

    # what is packed beside a report makes the same report again, anywhere
    succeeds(workplace, "run.sh", "report", "kept")
    with tarfile.open(workplace / "kept" / "runs.tar.xz") as packed:
        files = [packed.extractfile(member).read() for member in packed if member.isfile()]
        assert not any(str(ROOT).encode() in content for content in files)
        assert not any(member.name.endswith(".pt") for member in packed)
        elsewhere = workplace / "elsewhere"
        packed.extractall(elsewhere / "runs", **UNPACKING)
    for name in ("tiny.sh", "data"):
        (elsewhere / name).symlink_to(workplace / name)
    succeeds(elsewhere, "run.sh", "report")
    assert (elsewhere / "runs" / "RESULTS.md").read_text() == (workplace / "kept" / "RESULTS.md").read_text()
    assert "t5-seed1 is trained" in succeeds(elsewhere, "run.sh", "train", "t5")

    # flags of fairseq-train reach it, and the run goes on from its checkpoint
    succeeds(workplace, "run.sh", "train", "t5", "--max-update", "6")
    assert '"num_updates": "6"' in (workplace / "runs" / "t5-seed1" / "train.log").read_text()
    log = (workplace / "runs" / "t5-seed1" / "output.txt").read_text()
    assert "Loaded checkpoint" in log

    filled = succeeds(workplace, "run.sh", "fill-mask", "t5", "ab <mask> cd")
    assert filled.count("%") == 5
    assert "give a text with one <mask>" in fails(workplace, "run.sh", "fill-mask", "t5", "no mask")


@pytest.mark.slow
def test_sigterm_to_the_comparison_saves_and_ends_with_75(workplace, data):
    (workplace / "long.sh").write_text(TINY + "UPDATES=1000000 JOBS=1\n")
    process = subprocess.Popen(
        ["bash", RECIPE / "compare.sh", "t5"],
        env={**os.environ, "SETTINGS": "long.sh", "DATA": "data", "RUNS": "long"},
        cwd=workplace,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    run = workplace / "long" / "t5-seed1"
    deadline = time.monotonic() + 120
    while not (run / "train.log").exists() or "num_updates" not in (run / "train.log").read_text():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 75 and "the same command resumes" in printed and "error" not in printed, printed
    assert "checkpoint_last.pt is saved" in (run / "output.txt").read_text()
    assert (run / "checkpoint_last.pt").exists() and not (run / "trained").exists()
    assert not (workplace / "long" / "RESULTS.md").exists()


def test_runs_that_use_order_little_or_not_at_all_are_named(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "common"))
    report = importlib.import_module("masked_lm_report")
    said = report.bags_of_words({"t5-seed1": 4.7, "m4-seed1": 4.9, "learned-seed1": 1.1, "none-seed1": 0.0})
    assert re.search("Not used so far.*: none-seed1\\..*Used little.*: learned-seed1\\.", said)
    assert "losses above compare" in report.bags_of_words({"t5-seed1": 4.7, "learned-seed1": 3.9})


class Compared:
    """The attributes that the report of masked language models reads of its runs."""

    runs = [
        Run(
            "learned1", "learned", 1, valid={"valid": {100: 5.0, 200: 4.0}}, order_gap={"valid": {100: 0.01, 200: 0.6}}
        ),
        Run("learned2", "learned", 2, valid={"valid": {100: 5.0, 200: 3.9}}, order_gap={"valid": {100: 0.2, 200: 0.7}}),
        Run("t5", "t5", 1, valid={"valid": {100: 4.0, 200: 3.0}}, order_gap={"valid": {100: 0.06, 200: 0.4}}),
    ]
    encodings, baseline = ["learned", "t5"], "t5"

    def of(self, encoding):
        return [run for run in self.runs if run.encoding == encoding]

    def values(self, figure):
        return {encoding: {run.seed: figure(run) for run in self.of(encoding)} for encoding in self.encodings}


def test_what_is_reached_how_soon_and_what_order_is_worth(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "common"))
    report, compared = importlib.import_module("masked_lm_report"), Compared()
    soon = report.soon_figures(compared)
    assert soon == {
        "updates until gap above 0.05": {"learned": {1: 200, 2: 100}, "t5": {1: 100}},
        "updates until gap above 0.5": {"learned": {1: 200, 2: 200}, "t5": {1: None}},
        # of the same seed
        "updates until the final loss of learned": {"learned": {1: 200, 2: 200}, "t5": {1: 100}},
    }
    assert "| learned | 1 2 | 200 100 | 200 200 | 200 200 |" in report.soon_table(compared, soon)
    gaps = {run.name: {"test": {"loss": 3.0, "permuted": 3.5 + run.seed}} for run in compared.runs}
    order = {name: of_run["test"]["permuted"] - of_run["test"]["loss"] for name, of_run in gaps.items()}
    table = report.order_table(compared, gaps, order, ["test"], {"test": "two"})
    assert "| learned | +2.000 ± 0.707 | +1.500 |" in table


def test_something_is_reached_where_the_mean_over_the_splits_is():
    by_split = {"valid": {100: 3.0, 200: 1.0, 300: 0.0}, "valid1": {100: 1.0, 200: 2.0}}
    assert first_update(by_split, lambda loss: loss <= 1.5) == 200
    assert first_update(by_split, lambda loss: loss < 1.5) is None and first_update({}, bool) is None
