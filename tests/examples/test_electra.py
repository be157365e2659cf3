"""The recipe through its own scripts, sized for seconds, down to the fine-tuning of its discriminators."""

import json
import math
import random
import re
import shutil
import subprocess
import sys
import tarfile

import preloaded
import pytest
import tiny_squad
from glue_files import write_tsv
from recipes import EXAMPLES, Recipe
from scipy import stats
from unpacking import UNPACKING

from fairseq_relpos.reports import differences
from scripts.sweep import Sweep

TINY = """
PREPARED_BY=roberta_small PREPARE_SETTINGS=vocabulary.sh GPUS=0 PRECISION=fp32 LOADERS=0
MODEL_FLAGS=(--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2)
GENERATOR_SIZE=1/2 TOKENS_PER_SAMPLE=32 SAMPLE_BREAK_MODE=none BATCH=8
UPDATES=4 WARMUP_UPDATES=1 LOG_EVERY=2 VALIDATE_EVERY=2 KEEP_EVERY=4
COMPARED=t5 BASELINE=t5
"""
FINE_TUNING = {
    "finetuned": """DISCRIMINATORS=runs MASKED_LMS=masked COMPARED=t5 PRETRAINING_SEEDS=1 TASKS="glue RTE glue"
      FINE_TUNING=glue.sh LEARNING_RATES=1e-3 SEEDS=1 ALLOCATOR=default""",
    "glue": "VOCABULARY=data EPOCHS=1 BATCH=8 MAX_TOKENS= VALIDATIONS=1",
    "squad": """MODEL_FLAGS=(--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32
      --encoder-attention-heads 2) MAX_POSITIONS=32 WINDOW=32 DOC_STRIDE=8 MAX_QUERY_LENGTH=12 BATCH=8 EPOCHS=1""",
}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("electra")
    (folder / "tiny.sh").write_text(TINY)
    (folder / "vocabulary.sh").write_text("VOCAB_SIZE=60\n")
    for name, settings in FINE_TUNING.items():
        (folder / f"{name}.sh").write_text(settings)
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghij", k=chance.randint(2, 5))) for _ in range(30)]
    for name, lines in (("train", 60), ("valid", 20)):
        text = "".join(" ".join(chance.choices(words, k=chance.randint(3, 14))) + "\n" for _ in range(lines))
        (folder / f"{name}.txt").write_text(text)
    return folder


recipe = Recipe("electra")
succeeds, fails = recipe.succeeds, recipe.fails


@pytest.mark.slow
def test_from_text_to_fine_tuned_discriminators(workplace):
    prepare = ("prepare.sh", "--train", "train.txt", "--valid", "valid.txt")
    assert "ready: data" in succeeds(workplace, *prepare)
    assert "--no-such-flag" in fails(workplace, "run.sh", "evaluate", "t5", "--no-such-flag", RUNS="wrong")
    succeeds(workplace, "compare.sh")
    runs = workplace / "runs"
    log = (runs / "t5-seed1" / "train.log").read_text()
    *_, last = re.findall(r'"valid_disc_loss": "([\d.]+)"', log)
    results = (runs / "RESULTS.md").read_text()
    assert f"| t5 | 1 | {float(last) * math.log(2):.4f} |" in results and "order_gap" in results
    found = json.loads((runs / "results.json").read_text())["figures"]["discriminator, valid (nats)"]
    assert found["t5"]["1"] == pytest.approx(float(last) * math.log(2))
    before = (runs / "t5-seed1" / "discriminator.pt").stat().st_mtime_ns
    assert "is trained" in succeeds(workplace, "run.sh", "evaluate", "t5")
    assert (runs / "t5-seed1" / "discriminator.pt").stat().st_mtime_ns == before

    # what is packed beside a report, which has no discriminators, makes the same report again
    succeeds(workplace, "run.sh", "report", "kept")
    with tarfile.open(workplace / "kept" / "runs.tar.xz") as packed:
        assert not any(member.name.endswith(".pt") for member in packed)
        packed.extractall(workplace / "unpacked", **UNPACKING)
    succeeds(workplace, "run.sh", "report", RUNS="unpacked")
    again, kept = ((workplace / name / "RESULTS.md").read_text() for name in ("unpacked", "kept"))
    assert again.replace("RUNS='unpacked' ", "") == kept.replace("RUNS='runs' ", "")

    # fine-tuned beside masked language models, for which the same weights stand in here
    start = "runs/t5-seed1/discriminator.pt"
    tables = write_tsv(workplace / "tables" / "RTE", "RTE")
    shutil.copy(tables / "dev.tsv", tables / "test.tsv")
    glue = {"SETTINGS": "glue.sh", "DATA": "glue", "RUNS": "glue_runs"}
    Recipe("glue").succeeds(workplace, "prepare.sh", "--offline", "tables", "RTE", **glue)
    beside = {"SETTINGS": "finetuned.sh", "RUNS": "beside"}
    masked = workplace / "masked" / "t5-seed1"
    masked.mkdir(parents=True)
    shutil.copy(workplace / start, masked / "checkpoint_last.pt")
    said = fails(workplace, "compare_finetuned.sh", **beside)
    assert "masked/t5-seed1 has no training that has come to its end: README.md has the command" in said
    (masked / "trained").touch()
    succeeds(workplace, "compare_finetuned.sh", "tuned", **beside)
    (facts,) = {path.read_text() for path in (workplace / "beside").glob("**/electra-t5-seed1/RTE-seed1/results.json")}
    assert json.loads(facts)["encoding"] == "t5"
    score = 100 * json.loads(facts)["test"]["accuracy"]
    told = (workplace / "tuned" / "FINETUNED.md").read_text()
    assert f"| t5 | 1 | {score:.2f} | {score:.2f} | +0.00 |" in told and "Missing" not in told
    figures = json.loads((workplace / "tuned" / "finetuned.json").read_text())["figures"]
    assert figures == {f"RTE, {kind}": {"t5": {"1": score}} for kind in ("ELECTRA", "masked LM")}
    (masked / "checkpoint_last.pt").touch()
    said = fails(workplace, "compare_finetuned.sh", **beside)
    assert "masked/t5-seed1/checkpoint_last.pt is newer than what was fine-tuned in beside" in said

    tiny_squad.write(workplace / "all.json", tiny_squad.squad())
    squad = {"SETTINGS": "squad.sh", "DATA": "squad", "RUNS": "squad_runs"}
    splits = ("--train", "all.json", "--valid", "all.json")
    Recipe("squad").succeeds(workplace, "prepare.sh", "squad", "--vocabulary", "data", *splits, **squad)
    Recipe("squad").succeeds(workplace, "run.sh", "finetune", "t5", start, "--max-update", "1", **squad)
    assert (workplace / "squad_runs/t5-seed1/checkpoint_last.pt").exists()


def test_an_export_that_was_killed_before_its_last_file_is_made_again(tmp_path):
    script = f"""train() {{ :; }}; export_discriminator() {{ echo exported; }}; run=. checkpoint=last.pt
    eval "$(sed -n '/^evaluate/,/^}}/p' {recipe.folder}/run.sh)"; evaluate"""
    (tmp_path / "discriminator.pt").touch()
    for printed in ("exported\n", ""):
        assert subprocess.check_output(["bash", "-c", script], cwd=tmp_path, text=True) == printed
        (tmp_path / "export.txt").touch()


def write_fine_tuned(sweep, tasks):
    """A sweep that has ended. tasks: name -> (kind, seed of the pretraining, rate) -> validation and test by seed, None
    for a run that has diverged."""
    lines = ["recipe\taction\ttask\tcheckpoint\tLEARNING_RATE\tSEED"]
    rows = [(task, *row, of_seed) for task, scores in tasks.items() for row, of_seed in scores.items()]
    for task, kind, seed, rate, of_seed in rows:
        lines += [f"glue\ttest\t{task}\tstart/{kind}-t5-seed{seed}/start.pt\t{rate}\t{n}" for n in of_seed]
    sweep.mkdir()
    (sweep / "manifest.tsv").write_text("\n".join(lines) + "\n")
    found = [pair for *_, of_seed in rows for pair in of_seed.values()]
    for record, pair in zip(Sweep(sweep).records(), found, strict=True):
        record["place"].mkdir(parents=True)
        end = {"state": "diverged", "message": "FloatingPointError"} if pair is None else {"state": "done"}
        (record["place"] / "sweep.json").write_text(json.dumps(end))
        if pair is not None:
            facts = {"encoding": "t5", "metric": "accuracy", "majority": {"test": 0.5}}
            facts |= {"metrics": {"accuracy": pair[0]}, "test": {"accuracy": pair[1]}}
            (record["place"] / "results.json").write_text(json.dumps(facts))


def test_the_fine_tuned_are_compared_pretraining_by_pretraining(tmp_path):
    scores = {
        # the rate with the better median of validation counts, whatever its tests are
        ("electra", 1, "1e-3"): {1: (0.6, 0.5), 2: (0.7, 0.6), 3: (0.8, 0.7)},
        ("electra", 1, "3e-4"): {1: (0.9, 0.9), 2: (0.6, 0.9), 3: (0.6, 0.9)},
        # a run that has diverged is the worst in a median, and no part of a mean
        ("electra", 2, "1e-3"): {1: (0.7, 0.6), 2: (0.7, 0.66), 3: (0.7, 0.66)},
        ("electra", 2, "3e-4"): {1: None, 2: None, 3: (0.9, 0.9)},
        ("masked_lm", 1, "1e-3"): {1: (0.7, 0.7), 2: (0.7, 0.7), 3: (0.7, 0.7)},
        ("masked_lm", 2, "1e-3"): {1: (0.7, 0.68), 2: (0.7, 0.68), 3: None},
    }
    # three seeds have an interval; Holm's correction does not count the other task, which has none
    tests = {"electra": (0.62, 0.63, 0.66), "masked_lm": (0.61, 0.61, 0.61)}
    three = {(kind, n, "1e-3"): {1: (0.5, test)} for kind in tests for n, test in enumerate(tests[kind], 1)}
    write_fine_tuned(tmp_path / "sweep", {"RTE": scores, "WNLI": three})
    report = [sys.executable, EXAMPLES / "electra" / "finetuned_report.py", tmp_path / "sweep", tmp_path]
    said = subprocess.run(report, env=preloaded.environment(), capture_output=True, text=True, timeout=600)
    assert said.returncode == 0, said.stderr
    figures = json.loads((tmp_path / "finetuned.json").read_text())["figures"]
    assert figures["RTE, ELECTRA"]["t5"] == pytest.approx({"1": 60, "2": 64})
    assert figures["RTE, masked LM"]["t5"] == pytest.approx({"1": 70, "2": 68})
    text = (tmp_path / "FINETUNED.md").read_text()
    assert "| t5 | 2 | 62.00 ± 2.83 | 69.00 ± 1.41 | -7.00 |  |  |" in text
    assert "| all | 2 pairs | 62.00 | 69.00 | -7.00 |  | too few seeds |" in text
    assert "Missing: no seed 3: RTE masked_lm-t5-2" in text and "most frequent label: 50.00" in text
    assert "| masked LM, t5, 2 | 1e-3 | 70.00 | 68.00, 68.00 | 68.00 |" in text
    p_value = stats.ttest_rel(tests["electra"], tests["masked_lm"]).pvalue
    assert re.search(rf"\| all \| 3 pairs \| .* \| {p_value:.3f} \| {differences.SAME} \|", text)
    assert "21 done, 3 diverged" in text


def test_what_is_packed_makes_the_committed_table_of_the_fine_tuned(tmp_path):
    with tarfile.open(EXAMPLES / "electra" / "finetuned.tar.xz") as packed:
        packed.extractall(tmp_path, **UNPACKING)
    report = [sys.executable, EXAMPLES / "electra" / "finetuned_report.py", tmp_path / "sweep", tmp_path]
    subprocess.run(report, env=preloaded.environment(), check=True, capture_output=True, timeout=600)
    again, kept = (
        [line for line in (place / "FINETUNED.md").read_text().splitlines() if "The machine" not in line]
        for place in (tmp_path, EXAMPLES / "electra")
    )
    assert again == kept


def test_what_is_wrong_is_one_line(workplace, tmp_path):
    (tmp_path / "tiny.sh").write_text(TINY)
    for words, message in [
        (("compare.sh", "t5", "shaw"), "no data in data: run prepare.sh first"),
        (("run.sh", "export-discriminator", "t5"), "no checkpoint runs/t5-seed1/checkpoint_last.pt: run.sh train t5"),
        (("run.sh", "command", "t5", "--update-freq", "2"), "--update-freq: the batch is BATCH=8 of the settings"),
    ]:
        assert message in fails(tmp_path, *words)
    (tmp_path / "tiny.sh").write_text(f"{TINY}PREPARED_BY=glue\n")
    assert "PREPARED_BY=glue: give roberta_small or roberta_pretraining" in fails(tmp_path, "prepare.sh")
