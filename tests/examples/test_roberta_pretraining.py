"""The recipe through its own scripts, sized for seconds."""

import bz2
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from forked import free_port
from recipes import COMMON, Recipe, refused

from fairseq_relpos.finetuning.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "roberta_pretraining"
TINY = f"""
. {RECIPE}/laptop.sh
VOCAB_SIZE=150 VOCAB_MEGABYTES=1 VALID_EVERY=4
MODEL_FLAGS=(--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2)
TOKENS_PER_SAMPLE=64 BATCH=8
UPDATES=2 WARMUP_UPDATES=1 LOG_EVERY=1 VALIDATE_EVERY=1 SAVE_EVERY=1 KEEP_EVERY=2
"""
#: the settings of `Preparation`
VALUES = {
    **{"VOCABULARY": "sentencepiece", "VOCAB_SIZE": "150", "MERGES": "0", "VOCAB_MEGABYTES": "1", "VALID_EVERY": "4"},
    **{"CHARACTER_COVERAGE": "1.0", "LOWERCASE": "no", "MOSES_TOKENS": "no"},
    "TOKENS_PER_SAMPLE": "64",
}


def text_of(documents, seed=0):
    """Documents of paragraphs of sentences; some paragraphs come again, some are too short."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdefghij", k=chance.randint(2, 6))) for _ in range(60)]
    sentence = lambda: " ".join(chance.choices(words, k=chance.randint(3, 20))).capitalize() + "."  # noqa: E731
    paragraphs = ["A heading"]
    found = []
    for _ in range(documents):
        of_document = []
        for _ in range(chance.randint(1, 6)):
            if chance.random() < 0.8:
                paragraphs.append(" ".join(sentence() for _ in range(chance.randint(2, 7))))
                of_document.append(paragraphs[-1])
            else:
                of_document.append(chance.choice(paragraphs))
        found.append("\n".join(of_document) + "\n")
    return "\n".join(found)


def environment(**more):
    path = os.pathsep.join(map(str, (RECIPE, ROOT / "examples" / "common", ROOT)))
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PATH": programs, **more}


recipe = Recipe("roberta_pretraining", WORKERS="1", CUDA_VISIBLE_DEVICES="")
succeeds = recipe.succeeds


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.sh").write_text(TINY)
    (tmp_path / "text.txt").write_text(text_of(40), encoding="utf-8")
    return tmp_path


# A stand-in for fairseq-preprocess, which takes seconds to start: what it is given, in its own format.
FAST_PREPROCESS = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --trainpref) train=$2 ;; --validpref) valid=$2 ;; --destdir) out=$2 ;; esac
  shift
done
mkdir -p "$out"
for split in train valid; do
  eval text=\\$$split
  [ -z "$text" ] || { cp "$text" "$out/$split.bin"; wc -l <"$text" >"$out/$split.idx"; }
done
"""
# Blocks of a few KB, so that there are many of them.
SMALL_BLOCKS = f"""
import runpy
from preparation import binarising, duplicates, sources
sources.BLOCK = 2000
sources.LONGEST_DOCUMENT = 3000
binarising.TOGETHER = 7
duplicates.TOGETHER = 50
runpy.run_path("{COMMON}/prepare.py", run_name="__main__")
"""


class Preparation:
    """prepare.py with small blocks, started and perhaps killed."""

    def __init__(self, folder, inputs, **settings):
        self.folder, self.inputs = folder, inputs
        programs = folder / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "fairseq-preprocess").write_text(FAST_PREPROCESS)
        (programs / "fairseq-preprocess").chmod(0o755)
        self.environment = environment(**{**VALUES, **settings}, HERE=str(RECIPE), DATA="data", SCRIPT="prepare.sh")
        self.environment["PATH"] = f"{programs}{os.pathsep}{self.environment['PATH']}"

    def command(self, out, workers, first=""):
        """first: Python to run in the process before."""
        words = [first + SMALL_BLOCKS, "pretraining", "--out", out, "--workers", workers, *self.inputs]
        return [sys.executable, "-c", *map(str, words)]

    def start(self, out, workers, first="", **more):
        return subprocess.Popen(
            self.command(out, workers, first),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **more,
        )

    def run(self, out, workers=1):
        process = self.start(out, workers)
        printed, _ = process.communicate(timeout=600)
        assert process.returncode == 0, printed
        return printed


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != "lock"}


@pytest.fixture(scope="module")
def many_blocks(tmp_path_factory):
    """Preparation of several files, and what it makes with one worker."""
    folder = tmp_path_factory.mktemp("blocks")
    for number, opened in enumerate((open, gzip.open, bz2.open, lzma.open)):
        with opened(folder / f"{number}{('', '.gz', '.bz2', '.xz')[number]}", "wb") as file:
            file.write(text_of(25, seed=number % 3).encode())  # the last is the first once more
    inputs = ["0", "1.gz", "2.bz2", "3.xz"]
    preparation = Preparation(folder, inputs)
    preparation.run("one")
    return preparation, content(folder / "one")


def test_killed_three_times_the_result_is_that_of_one_run_with_another_number_of_workers(many_blocks):
    preparation, expected = many_blocks
    chance = random.Random(5)
    out = preparation.folder / "killed"
    kills = 0
    # moments counted in files, not in seconds; a run that was over first does not count, whoever was slow
    for _ in range(30):
        files = chance.randint(1, 25)
        process = preparation.start("killed", 3)
        seen = set()
        while len(seen) < files and process.poll() is None:
            seen |= set((out / "work").rglob("*.json"))
            time.sleep(0.002)
        time.sleep(chance.random() * 0.02)
        process.kill()  # its workers see to themselves
        printed, _ = process.communicate(timeout=600)
        if process.returncode == 0:
            shutil.rmtree(out)
            kills = 0
            continue
        assert process.returncode == -signal.SIGKILL, printed
        kills += 1
        if kills == 3:
            break
    assert kills == 3, "no run lasted long enough to be killed"
    preparation.run("killed", 3)
    assert content(out) == expected
    assert not (out / "work").exists()


# SIGSTOP to itself in place of the second step, so that one can look.
STOPS = """
import os, signal
from preparation import duplicates
duplicates.ranges = lambda lines: os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_what_is_done_is_not_done_again(many_blocks):
    preparation, expected = many_blocks
    assert "one is ready" in preparation.run("one")
    out = preparation.folder / "again"
    process = preparation.start("again", 1, first=STOPS)
    stopped(process)
    process.kill()
    process.communicate()
    (out / "work" / "cleaned.json").unlink()  # as if it had been killed a moment before
    cleaned = sorted(out.glob("work/cleaned/*.json"))
    assert len(cleaned) > 10
    for path in cleaned[5:8]:
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in cleaned if path.exists()}
    process = preparation.start("again", 1, first=STOPS)
    stopped(process)
    process.kill()
    process.communicate()
    after = {path: path.stat().st_mtime_ns for path in cleaned}  # those that were missing are there again
    assert {path: time for path, time in after.items() if path in before} == before


def stopped(process):
    """Returns when the process has stopped itself."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        process.returncode = os.waitstatus_to_exitcode(status)
        raise AssertionError(f"ended with {process.returncode}: {process.stdout.read()}")


def test_changed_text_or_settings_start_over_and_the_manifest_says_what_it_was_made_of(many_blocks):
    preparation, expected = many_blocks
    manifest = json.loads(expected["manifest.json"])
    assert [file["name"] for file in manifest["inputs"]] == preparation.inputs
    assert manifest["steps"]["duplicates"]["duplicates"] > 20  # a whole file came twice
    digests = {
        name: hashlib.sha256(data).hexdigest()
        for name, data in expected.items()
        if name not in ("manifest.json", "sources.txt")
    }
    assert manifest["outputs"] == digests
    other = Preparation(preparation.folder, preparation.inputs[:2], VALID_EVERY="3")
    preparation.run("other")
    # as if it had been killed while it removed what it had made before
    (preparation.folder / "other" / "manifest.json").unlink()
    (preparation.folder / "other" / "train7.bin").touch()
    other.run("other")
    assert not (preparation.folder / "other" / "train7.bin").exists()
    preparation.run("other")
    printed = other.run("other")
    assert "have changed" in printed
    assert json.loads((preparation.folder / "other" / "manifest.json").read_text())["settings"]["valid_every"] == 3


def test_a_document_is_in_one_split_whatever_stands_around_it(tmp_path):
    (tmp_path / "a").write_text(text_of(40))
    documents = text_of(40).split("\n\n")
    random.Random(1).shuffle(documents)
    (tmp_path / "b").write_text("\n\n".join(documents))
    valid = {}
    for name in "ab":
        Preparation(tmp_path, [name]).run(f"out-{name}")
        splits = {}
        for split in ("train", "valid"):
            text = (tmp_path / f"out-{name}" / f"{split}.bin").read_text()
            # the vocabulary is another one
            splits[split] = set(text.replace(" ", "").replace("▁", " ").splitlines()) - {""}
        assert not splits["train"] & splits["valid"]
        valid[name] = splits["valid"]
    # lines of duplicates may go to the other document that has them
    assert len(valid["a"] & valid["b"]) > 0.7 * len(valid["a"]) > 0


def test_the_words_of_tupe_are_those_of_fine_tuning(tmp_path):
    """A pretraining whose vocabulary no fine-tuning takes costs weeks."""
    common = " and ".join(["They stood in well-known Places, as did me"] * 3)
    text = "\n\n".join(f"{common} number {'abcdefghij'[n % 10]}{n}x. Then it ended so." for n in range(400))
    (tmp_path / "text").write_text(text)
    words = dict(re.findall(r"^([A-Z_]+)=(\w+)$", (RECIPE / "uncased.sh").read_text(), re.M))
    assert words["MERGES"] == "32640"
    Preparation(tmp_path, ["text"], **words | {"MERGES": "60", "VOCAB_SIZE": "100", "VALID_EVERY": "200"}).run("out")
    pieces = (tmp_path / "out" / "train.bin").read_text()
    assert pieces == pieces.lower() and "well-known places , as did" in pieces.replace(" ", "").replace("▁", " ")
    dictionary = (tmp_path / "out" / "dict.txt").read_text().splitlines()
    assert len(dictionary) == 100 - 5
    # 60 merges: the rest is letters, which are single
    assert sum(len(line.split(" ")[0]) > 1 for line in dictionary) == 60
    found = Vocabulary(tmp_path / "out").pieces("They stood, as did me.")
    assert "".join(found).replace("▁", " ").split() == ["they", "stood", ",", "as", "did", "me", "."]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with binarised data, and what prepare.sh printed."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "tiny.sh").write_text(TINY)
    (folder / "text.txt").write_text(text_of(40), encoding="utf-8")
    with lzma.open(folder / "text.jsonl.xz", "wt") as file:
        for document in text_of(40, seed=1).split("\n\n"):
            file.write(json.dumps({"id": 1, "text": document}) + "\n")
    return folder, succeeds(folder, "prepare.sh", "text.txt", "text.jsonl.xz")


def test_raw_text_to_a_trained_model_and_a_report(prepared):
    folder, printed = prepared
    assert "ready: data" in printed and "dictionary 150" in printed
    train = succeeds(folder, "run.sh", "train", "t5", "--mask-whole-words")
    assert "training t5, seed 1, on laptop" in train
    run = folder / "runs" / "t5-seed1"
    output = (run / "output.txt").read_text()
    # <mask> comes to them
    assert "dictionary: 149 types" in output and "sample_break_mode='complete'" in output
    assert '"train_num_updates": "2"' in output and (run / "checkpoint_1_2.pt").exists()
    assert "is trained" in succeeds(folder, "run.sh", "train", "t5", "--mask-whole-words")
    succeeds(folder, "run.sh", "validate", "t5")
    succeeds(folder, "run.sh", "report")
    results = (folder / "runs" / "RESULTS.md").read_text()
    assert "the loss after 2 updates" in results and re.search(r"^\| t5 \| 1 \| \d\.\d+ \|$", results, re.M)
    assert "no text for tests" in results and "Not measured: that takes --criterion masked_lm_order_gap" in results
    assert results.startswith("# Results of examples/roberta_pretraining") and str(ROOT) not in results
    assert "text.jsonl.xz" in results and "held-out (nats)" in results


def test_a_run_does_not_go_on_with_another_batch_or_other_data(prepared):
    folder, _ = prepared
    succeeds(folder, "run.sh", "train", "none", RUNS="kept")
    assert "is trained" in succeeds(folder, "run.sh", "train", "none", RUNS="kept")
    (folder / "batch.sh").write_text(TINY + "BATCH=16\n")
    line = refused(recipe(folder, "run.sh", "train", "none", RUNS="kept", SETTINGS="batch.sh"))
    assert "was begun with other settings (was batch 8 is batch 16)" in line
    for flag in ("--update-freq", "--batch-size=4", "--max-tokens"):
        assert "the batch is BATCH=8" in refused(recipe(folder, "run.sh", "train", "t5", flag, "4", RUNS="new"))
    assert not (folder / "new").exists()
    # the same size, other words
    shutil.copytree(folder / "data", folder / "others")
    lines = (folder / "others" / "dict.txt").read_text().splitlines(True)
    (folder / "others" / "dict.txt").write_text("".join(lines[1:] + lines[:1]))
    assert "(was dictionary " in refused(recipe(folder, "run.sh", "train", "none", RUNS="kept", DATA="others"))
    line = refused(recipe(folder, "run.sh", "validate", "none", RUNS="kept", DATA="others"))
    assert "the dictionary in others is not the one" in line


@pytest.mark.slow
def test_from_a_trained_model_and_on_from_there(prepared):
    folder, _ = prepared
    succeeds(folder, "run.sh", "train", "learned", RUNS="first")
    model = folder / "first" / "learned-seed1" / "checkpoint_last.pt"
    start = {"RUNS": "second", "START_FROM": str(model)}
    flags = ["--position-hparams", "max_distance=4 heads=shared"]
    succeeds(folder, "run.sh", "train", "shaw", *flags, **start)
    run = folder / "second" / "shaw-seed1"
    assert "--finetune-from-model" in (run / "trained").read_text() and (run / "start.pt").exists()
    assert "is trained" in succeeds(folder, "run.sh", "train", "shaw", *flags, **start)
    # fairseq refuses this flag beside --finetune-from-model
    succeeds(folder, "run.sh", "train", "shaw", *flags, "--max-update", "3", "--reset-dataloader", **start)
    assert "--finetune-from-model" not in (run / "command").read_text()
    assert '"train_num_updates": "3"' in (run / "output.txt").read_text()
    (folder / "other.pt").write_bytes(model.read_bytes() + b"x")
    line = refused(recipe(folder, "run.sh", "train", "shaw", *flags, **{**start, "START_FROM": "other.pt"}))
    assert "(was start " in line


def launched(**torchrun):
    flags = " ".join(f"--{name} {value}" for name, value in torchrun.items())
    return f"bash {ROOT}/scripts/launch_torchrun.sh {flags} --"


def test_two_nodes_train_one_model_through_the_launcher(prepared):
    """The same command on each, as in the README; here both nodes are this machine, and so is the folder."""
    folder, _ = prepared
    (folder / "two.sh").write_text(TINY + "MACHINE=cpu2\n")
    nodes = {"nnodes": 2, "nproc_per_node": 1, "master_addr": "127.0.0.1", "master_port": free_port()}
    command, place = (folder, "run.sh", "train", "t5"), {"SETTINGS": "two.sh", "RUNS": "two"}
    launches = [launched(node_rank=node, **nodes) for node in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(succeeds, *command, **place, LAUNCH=launch) for launch in launches]
        assert all("on cpu2" in run.result() for run in runs)
    run = folder / "two" / "t5-seed1"
    assert "training on 2 devices" in (run / "output.txt").read_text()
    assert '"train_num_updates": "2"' in (run / "train.log").read_text()
    assert (run / "trained").exists() and (run / "node1" / "trained").exists()


@pytest.mark.slow
def test_another_number_of_processes_than_the_machine_has_is_refused_in_one_line(prepared):
    folder, _ = prepared
    (folder / "two.sh").write_text(TINY + "MACHINE=cpu2\n")
    # PRELOADED: as a user runs it
    place = {"SETTINGS": "two.sh", "RUNS": "one", "LAUNCH": launched(nproc_per_node=1), "PRELOADED": ""}
    line = refused(recipe(folder, "run.sh", "train", "t5", **place))
    assert "launch_torchrun: error: rank 0: --distributed-world-size 2, but the launcher started 1 ranks" in line


# --- what cannot be done ---


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "no file odd.txt"),
        (b"", "odd.txt is empty"),
        (b"\n\n  \n", "odd.txt is empty"),
        (
            b"A heading\n\n| a | table | with | more | bars | than | words | and | so | on | and | on | and |\n",
            "lines dropped: shorter than 50 characters 1",
        ),
        (b"One paragraph that is as long as it has to be, no doubt, but only one.\n", "no document for valid"),
        (b'{"text": "good"}\n{"text": "cut off', "odd.txt: a line is not JSON"),
        (b'{"maintext": "good", "id": 1}\n', 'odd.txt: none of 1 JSON lines has "text", but id, maintext'),
    ],
)
def test_text_that_cannot_be_used_is_named_in_one_line(folder, content, message):
    if content is not None:
        (folder / "odd.txt").write_bytes(content)
    done = recipe(folder, "prepare.sh", "odd.txt")
    assert message in refused(done)
    assert not (folder / "data" / "manifest.json").exists()


def test_an_archive_that_is_cut_short_is_named_and_all_goes_well_when_it_is_whole(folder):
    data = gzip.compress(text_of(30).encode())
    (folder / "a.gz").write_bytes(data[: len(data) // 2])
    assert "a.gz cannot be read to its end" in refused(recipe(folder, "prepare.sh", "text.txt", "a.gz"))
    for name, kind in (("a.zip", ".zip"), ("a.xml.bz2", "dump in XML"), ("a.tar.gz", "unpack it")):
        (folder / name).write_bytes(b"x")
        assert kind in refused(recipe(folder, "prepare.sh", name))


def test_no_room_is_one_line_and_nothing_is_left_half_written(tmp_path):
    (tmp_path / "text").write_text(text_of(300), encoding="utf-8")
    preparation = Preparation(tmp_path, ["text"])
    limit = 1500  # bytes that a file may have

    def no_room():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = preparation.start("out", 1, preexec_fn=no_room)
    printed, _ = process.communicate(timeout=600)
    assert process.returncode != 0 and "Traceback" not in printed
    assert "make room" in printed.strip().splitlines()[-1]
    assert not list((tmp_path / "out").rglob("*.part*"))
    preparation.run("out")


def test_text_from_a_folder_instead_of_the_network(folder):
    (folder / "tiny.sh").write_text(TINY + 'TEXTS="books_large_p1.txt books_large_p2.txt"\n')
    (folder / "have").mkdir()
    (folder / "runs").mkdir()
    for number in (1, 2):
        with lzma.open(folder / "have" / f"books_large_p{number}.txt.xz", "wt") as file:
            file.write(text_of(1, seed=number))
    assert "neither books_large_p1.txt" in refused(recipe(folder, "prepare.sh", "--offline", "runs", DATA="no"))
    line = refused(recipe(folder, "prepare.sh", "--offline", "have"))
    assert "no document for" in line or "no vocabulary" in line  # so they have been read
    assert (folder / "data" / "own" / "books_large_p2.txt").read_text() == text_of(1, seed=2)


def test_text_is_fetched_and_extracted_by_one_process_at_a_time(tmp_path, monkeypatch):
    for path in (COMMON, RECIPE):
        monkeypatch.syspath_prepend(path)
    for name, value in {**VALUES, "HERE": str(RECIPE)}.items():
        monkeypatch.setenv(name, value)
    pretraining = runpy.run_path(str(COMMON / "prepare.py"))["pretraining"]

    def texts(*_):
        with open(tmp_path / "lock") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sys.exit("it was locked")

    monkeypatch.setitem(pretraining.__globals__, "pretraining_texts", texts)
    with pytest.raises(SystemExit, match="it was locked"):
        pretraining(["--out", str(tmp_path), "--workers", "1"])


@pytest.mark.parametrize(
    "arguments, settings, message",
    [
        (["prepare.sh", "--sing"], "", "--sing"),
        (["prepare.sh", "--workers", "0", "text.txt"], "", "argument --workers: 0: give a whole number"),
        (["prepare.sh", "--offline", "absent"], "", "no such folder"),
        (["prepare.sh", "text.txt"], "VOCABULARY=wordpiece\n", "give sentencepiece or gpt2"),
        (["prepare.sh", "text.txt"], "VALID_EVERY=many\n", "VALID_EVERY=many: give a number"),
        (["prepare.sh", "text.txt"], "VOCAB_SIZE=9000\n", "smaller VOCAB_SIZE"),
    ],
)
def test_wrong_arguments_and_settings_are_one_line(folder, arguments, settings, message):
    (folder / "tiny.sh").write_text(TINY + settings)
    assert message in refused(recipe(folder, *arguments))


PAPERS = {"": 256, "m4m.sh": 96, "m4m_continued.sh": 480, "m4m_continued_large.sh": 192, "huang.sh": 160}
PAPERS |= {"large.sh": 256}


@pytest.mark.parametrize("machine", ["v100x16", "a100x8", "gpu1"])
@pytest.mark.parametrize("paper", PAPERS)
def test_every_machine_makes_the_batch_of_every_paper(tmp_path, machine, paper):
    script = f"""set -euo pipefail; HERE={RECIPE}; LAUNCH=launcher; . $HERE/../common/recipe.sh; read_settings
eval "$(sed -n '/^read_machine/,/^}}/p' $HERE/run.sh)"; read_machine; echo $BATCH"""
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(SETTINGS=str(RECIPE / paper) if paper else "", MACHINE=machine),
    )
    assert done.returncode == 0 and int(done.stdout) == PAPERS[paper], done.stderr


def fake_data(folder, vocabulary="sentencepiece", longest=62):
    (folder / "data").mkdir()
    (folder / "data" / "manifest.json").write_text("{}")
    (folder / "data" / "sources.txt").write_text(f"vocabulary {vocabulary} {longest}\n")


@pytest.mark.parametrize(
    "settings, data, message",
    [
        ("BATCH=100 MACHINE=a100x8", {}, "does not say how it makes a batch of 100"),
        ("BATCH=256 MACHINE=v100x16", {}, "2 nodes: set LAUNCH"),
        ("BATCH=9 MACHINE=cpu2", {}, "makes a batch of 8 (2 GPUs or processes x 4 samples x update frequency 1), and"),
        ("MACHINE=mine", {}, "there are a100x8 cpu2 gpu1 laptop v100x16"),
        ("VOCABULARY=gpt2", {}, "has the vocabulary sentencepiece, not gpt2"),
        ("", {"longest": 126}, "lines of 126 pieces, too long for TOKENS_PER_SAMPLE=64"),
        ("NEEDS_START=yes", {}, "set START_FROM"),
    ],
)
def test_what_does_not_fit_together_is_known_before_training(folder, settings, data, message):
    (folder / "tiny.sh").write_text(TINY + settings.replace(" ", "\n") + "\n")
    fake_data(folder, **data)
    (folder / "runs" / "t5-seed1").mkdir(parents=True)
    assert message in refused(recipe(folder, "run.sh", "train", "t5"))


# --- memory ---


def test_memory_does_not_grow_with_the_text(tmp_path):
    peaks = []
    for size in (60, 240):
        paragraphs = text_of(size).split("\n\n")
        (tmp_path / f"{size}").write_text("\n\n".join(f"{p} {n} {size}." for n, p in enumerate(paragraphs * 20)))
        preparation = Preparation(tmp_path, [str(size)])
        # not ru_maxrss, in which the parent's memory counts
        first = "import atexit; atexit.register(lambda: print(*open('/proc/self/status')))"
        command = preparation.command(f"out{size}", 1, first)
        command[2] = command[2].replace("2000", "100000").replace("TOGETHER = 50", "TOGETHER = 5000")
        printed = subprocess.run(command, cwd=tmp_path, env=preparation.environment, capture_output=True, text=True)
        assert printed.returncode == 0, printed.stdout + printed.stderr
        peaks.append(int(printed.stdout.split("VmHWM:")[1].split()[0]) / 1000)
    sizes = [(tmp_path / name).stat().st_size / 1e6 for name in ("60", "240")]
    assert sizes[1] - sizes[0] > 3 and peaks[1] - peaks[0] < 0.5 * (sizes[1] - sizes[0]), (sizes, peaks)
