"""The recipe through its own scripts, sized for seconds."""

import hashlib
import json
import re
import shutil

import pytest
import tiny_squad
import torch
from recipes import Recipe

TINY = f"""
MODEL_FLAGS=({" ".join(f"--encoder-{name.replace('_', '-')} {size}" for name, size in tiny_squad.SIZES.items())})
MAX_POSITIONS=32 WINDOW=32 DOC_STRIDE=8 MAX_QUERY_LENGTH=12
BATCH=8 EPOCHS=1 LEARNING_RATE=1e-2 LOG_EVERY=1
"""
UNANSWERABLE = [*tiny_squad.QUESTIONS, ("q5", "Who counted the stars?", 1, None)]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squad")
    (folder / "tiny.sh").write_text(TINY)
    (folder / "scratch.sh").write_text("ARCH=sequence_encoder\n")
    tiny_squad.vocabulary(folder / "pretraining")
    tiny_squad.write(folder / "all.json", tiny_squad.squad(UNANSWERABLE, version="v2.0"))
    return folder


recipe = Recipe("squad")
succeeds, fails = recipe.succeeds, recipe.fails


@pytest.fixture(scope="module")
def start(workplace):
    return tiny_squad.pretrained(workplace / "pretraining" / "checkpoint.pt", "roberta_at5")


@pytest.mark.slow
def test_from_json_to_a_table(workplace, start):
    prepare = ("prepare.sh", "data", "--vocabulary", "pretraining")
    splits = ("--train", "all.json", "--valid", "all.json", "--test", "all.json")
    printed = succeeds(workplace, *prepare, *splits)
    assert "valid: 6 questions (1 without an answer) about 2 texts" in printed and "oracle EM" in printed
    assert "data is ready" in succeeds(workplace, *prepare, *splits)
    # a run that was stopped goes on, also with more positions than in the pretraining
    succeeds(workplace, "run.sh", "finetune", "at5", start, "--max-update", "1")
    run = workplace / "runs" / "at5-seed1"
    assert "no head for answers: it begins with random weights" in (run / "output.txt").read_text()
    succeeds(workplace, "run.sh", "evaluate", "at5", start)
    assert f"start {hashlib.sha256(start.read_bytes()).hexdigest()}" in (run / "conditions").read_text()
    succeeds(workplace, "run.sh", "predict", "at5", LEARNING_RATE="7")  # the results say the rate of the training
    succeeds(workplace, "run.sh", "predict", "at5", "test")
    results = json.loads((run / "results.json").read_text())
    told = {"encoding": "at5", "lr": "1e-2", "seed": "1", "split": "valid", "metric": "f1"}
    assert told.items() <= results.items()
    assert results["metrics"]["total"] == 6 and "tuned_f1" in results["test"]
    assert list(json.loads((run / "test.predictions.json").read_text())) == [name for name, *_ in UNANSWERABLE]
    written = (run / "valid.predictions.json").stat().st_mtime_ns
    assert "is trained" in succeeds(workplace, "run.sh", "evaluate", "at5", start)
    assert (run / "valid.predictions.json").stat().st_mtime_ns == written
    settings = (workplace / "tiny.sh").read_text()
    (workplace / "other.sh").write_text(settings + "MAX_ANSWER_LENGTH=1\n")
    succeeds(workplace, "run.sh", "evaluate", "at5", start, SETTINGS="other.sh")
    assert (run / "valid.predictions.json").stat().st_mtime_ns > written
    succeeds(workplace, "run.sh", "evaluate", "at5", start)
    succeeds(workplace, "run.sh", "predict", "at5", "test")
    succeeds(workplace, "run.sh", "evaluate", "at5", "none", SETTINGS="tiny.sh scratch.sh", RUNS="scratch")
    assert "sequence_encoder_at5" in (workplace / "scratch" / "at5-seed1" / "trained").read_text()
    shutil.copytree(run, workplace / "runs" / "at5-seed2")
    (workplace / "runs" / "at5-seed2" / "results.json").write_text(json.dumps({**results, "seed": "2"}))
    for seed, kept in (("3", "diverged"), ("4", "output.txt")):
        (workplace / "runs" / f"at5-seed{seed}").mkdir()
        for name in ("command", kept):
            (workplace / "runs" / f"at5-seed{seed}" / name).write_text("fairseq-train\n")
    # a training with a loss that stays finite, though worse than any guess
    lost = workplace / "runs" / "at5-seed5"
    shutil.copytree(run, lost)
    log = lost / "train.log"
    log.write_text(re.sub(r'"train_loss": "[^"]*"', '"train_loss": "9e9"', log.read_text()))
    shutil.copytree(run, workplace / "runs" / "learned-seed1")
    metrics = {**results["metrics"], "f1": results["metrics"]["f1"] - 1.5}
    of_learned = {**results, "encoding": "learned", "metrics": metrics}
    (workplace / "runs" / "learned-seed1" / "results.json").write_text(json.dumps(of_learned))
    succeeds(workplace, "run.sh", "report", "out")
    table = (workplace / "out" / "RESULTS.md").read_text()
    assert "| at5 | 1e-2 | 1, 2 |" in table and "## test" in table and (workplace / "out" / "runs.tar.xz").exists()
    assert "f1 - learned |" in table and "| +1.50 |" in table
    words = "Not in the tables: at5-seed3 (diverged); at5-seed4 (not done); at5-seed5 (diverged: the training loss"
    assert words in table


def test_what_is_missing_or_does_not_fit_is_one_line(workplace, tmp_path):
    def prepare(*words):
        return fails(workplace, "prepare.sh", tmp_path / "data", "--vocabulary", "pretraining", *words)

    assert "no readable file no.json" in prepare("--train", "no.json", "--valid", "all.json")
    assert "required: --valid" in prepare("--train", "all.json")
    lacking = tiny_squad.squad(UNANSWERABLE, version="1.1")
    bad = tiny_squad.write(tmp_path / "bad.json", lacking)
    assert "question q5 has no answer, which only version 2.0 allows" in prepare("--train", bad, "--valid", "all.json")
    assert not (tmp_path / "data" / "dict.txt").exists()
    splits = ("--train", "all.json", "--valid", "all.json")
    succeeds(workplace, "prepare.sh", tmp_path / "data", "--vocabulary", "pretraining", *splits)
    made = {path.name: path.read_bytes() for path in (tmp_path / "data").glob("*[!g]")}
    assert "question q5 has no answer" in prepare("--train", "all.json", "--valid", bad)
    assert {path.name: path.read_bytes() for path in (tmp_path / "data").glob("*[!g]") if path.is_file()} == made
    none = {"DATA": str(tmp_path / "none")}
    assert "no data in" in fails(workplace, "run.sh", "finetune", "t5", "none", **none)
    assert "which checkpoint? usage" in fails(workplace, "run.sh", "command", "t5", **none)


QUESTIONS = "--vocabulary . --train a.json --valid a.json"


@pytest.mark.parametrize(
    "name, settings, words",
    [
        ("squad", "", QUESTIONS),
        ("question_generation", "", QUESTIONS),
        ("translation_small", "VOCABULARY=.\n", "--train a --valid a --test a"),
    ],
)
def test_the_folder_of_the_vocabulary_is_not_overwritten(tmp_path, name, settings, words):
    for file in ("dict.txt", "spm.model", "train.bin", "a.json", "a.en", "a.de"):
        (tmp_path / file).touch()
    (tmp_path / "tiny.sh").write_text(settings)
    line = Recipe(name).fails(tmp_path, "prepare.sh", tmp_path, *words.split())
    assert "OUT is the folder of the vocabulary" in line and (tmp_path / "train.bin").exists()


def test_a_checkpoint_of_another_dictionary_is_refused(workplace, start, tmp_path):
    data = tiny_squad.data(tmp_path / "data")
    (data / "sources.txt").write_text("x\n")
    words = (data / "dict.txt").read_text().splitlines()
    (data / "dict.txt").write_text("".join(f"{word}\n" for word in reversed(words)))
    places = {"DATA": str(data), "RUNS": str(tmp_path / "runs")}
    line = fails(workplace, "run.sh", "finetune", "at5", start, **places)
    assert "was trained with the dictionary" in line and "has another one: prepare the data with" in line
    # its data are no longer there, but what the run has kept of them
    other = tmp_path / "other" / "model.pt"
    other.parent.mkdir()
    torch.save({}, other)
    (other.parent / "conditions").write_text("dictionary 0123\n")
    line = fails(workplace, "run.sh", "finetune", "at5", other, **places)
    assert "is not the one that" in line and "the vocabulary of its data" in line
    assert not (tmp_path / "runs").exists()
