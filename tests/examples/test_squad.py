"""The recipe through its own scripts, sized for seconds."""

import hashlib
import json
import subprocess
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import preloaded
import pytest
import tiny_squad
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_relpos.checkpoints import starting_point
from fairseq_relpos.finetuning import squad_data

RECIPE = Path(__file__).parents[2] / "examples" / "squad"
SIZES = {"layers": 1, "embed-dim": 16, "ffn-embed-dim": 32, "attention-heads": 2}
TINY = f"""
MODEL_FLAGS=({" ".join(f"--encoder-{name} {size}" for name, size in SIZES.items())})
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


def recipe(workplace, script, *arguments, **environment):
    return subprocess.run(
        ["bash", str(RECIPE / script), *map(str, arguments)],
        env={**preloaded.environment(), "SETTINGS": "tiny.sh", "DATA": "data", "RUNS": "runs", **environment},
        cwd=workplace,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
    )


def succeeds(*arguments, **environment):
    done = recipe(*arguments, **environment)
    assert done.returncode == 0, done.stdout
    return done.stdout


def fails(*arguments, **environment):
    done = recipe(*arguments, **environment)
    assert done.returncode != 0 and "Traceback" not in done.stdout
    return done.stdout.strip().splitlines()[-1]


def pretrained(workplace):
    """A checkpoint as a masked LM leaves it."""
    path = workplace / "pretraining" / "checkpoint.pt"
    sizes = {f"encoder_{name.replace('-', '_')}": size for name, size in SIZES.items()}
    args = Namespace(arch="roberta_t5", _name="roberta_t5", max_positions=32, **sizes)
    ARCH_CONFIG_REGISTRY["roberta_t5"](args)
    words = SimpleNamespace(source_dictionary=squad_data.load_dictionary(str(workplace / "pretraining")))
    model = ARCH_MODEL_REGISTRY["roberta_t5"].build_model(args, words)
    starting_point.save(path, OmegaConf.create({}), args, model)
    return path


def test_from_json_to_a_table(workplace):
    prepare = ("prepare.sh", "data", "--vocabulary", "pretraining")
    splits = ("--train", "all.json", "--valid", "all.json", "--test", "all.json")
    printed = succeeds(workplace, *prepare, *splits)
    assert "valid: 6 questions (1 without an answer) about 2 texts" in printed and "oracle EM" in printed
    assert "data is ready" in succeeds(workplace, *prepare, *splits)
    start = pretrained(workplace)
    succeeds(workplace, "run.sh", "evaluate", "t5", start)
    run = workplace / "runs" / "t5-seed1"
    assert "no head for answers: it begins with random weights" in (run / "output.txt").read_text()
    assert f"start {hashlib.sha256(start.read_bytes()).hexdigest()}" in (run / "conditions").read_text()
    succeeds(workplace, "run.sh", "predict", "t5", "test")
    results = json.loads((run / "results.json").read_text())
    assert {name: results[name] for name in ("encoding", "lr", "seed", "split", "metric")} == {
        "encoding": "t5",
        "lr": "1e-2",
        "seed": "1",
        "split": "valid",
        "metric": "f1",
    }
    assert results["metrics"]["total"] == 6 and "tuned_f1" in results["test"]
    assert list(json.loads((run / "test.predictions.json").read_text())) == [name for name, *_ in UNANSWERABLE]
    assert "is trained" in succeeds(workplace, "run.sh", "evaluate", "t5", start)
    succeeds(workplace, "run.sh", "evaluate", "t5", "none", SETTINGS="tiny.sh scratch.sh", SEED="2")
    assert "sequence_encoder_t5" in (workplace / "runs" / "t5-seed2" / "trained").read_text()
    succeeds(workplace, "run.sh", "report", "out")
    table = (workplace / "out" / "RESULTS.md").read_text()
    assert "| t5 | 1e-2 | 1, 2 |" in table and "## test" in table and (workplace / "out" / "runs.tar.xz").exists()


def test_what_is_missing_or_does_not_fit_is_one_line(workplace, tmp_path):
    def prepare(*words):
        return fails(workplace, "prepare.sh", tmp_path / "data", "--vocabulary", "pretraining", *words)

    assert "no readable file no.json" in prepare("--train", "no.json", "--valid", "all.json")
    assert "something is missing; usage" in prepare("--train", "all.json")
    lacking = tiny_squad.squad(UNANSWERABLE, version="1.1")
    bad = tiny_squad.write(tmp_path / "bad.json", lacking)
    assert "question q5 has no answer, which only version 2.0 allows" in prepare("--train", bad, "--valid", "all.json")
    assert not (tmp_path / "data" / "dict.txt").exists()
    none = {"DATA": str(tmp_path / "none")}
    assert "no data in" in fails(workplace, "run.sh", "finetune", "t5", "none", **none)
    assert "which checkpoint? usage" in fails(workplace, "run.sh", "command", "t5", **none)


def test_a_checkpoint_of_another_dictionary_is_refused(workplace, tmp_path):
    data = tiny_squad.data(tmp_path / "data")
    (data / "sources.txt").write_text("x\n")
    start = tmp_path / "other" / "model.pt"
    start.parent.mkdir()
    torch.save({}, start)
    (start.parent / "conditions").write_text("dictionary 0123\n")
    line = fails(workplace, "run.sh", "finetune", "t5", start, DATA=str(data), RUNS=str(tmp_path / "runs"))
    assert "is not the one that" in line and "--vocabulary of its data" in line
    assert not (tmp_path / "runs").exists()
