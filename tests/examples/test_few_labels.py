"""text_classification with few labels: how SST-2 is cut, and the report."""

import importlib.util
import json
import tarfile
from pathlib import Path

import pytest
from training_logs import finished
from unpacking import UNPACKING

RECIPE = Path(__file__).resolve().parents[2] / "examples" / "text_classification"
_found = importlib.util.spec_from_file_location("few_labels", RECIPE / "few_labels.py")
few_labels = importlib.util.module_from_spec(_found)
_found.loader.exec_module(few_labels)


def test_each_seed_has_a_draw_of_its_own_and_larger_ones_hold_smaller_ones():
    lines = [f"{n % 2} sentence {n}" for n in range(3000)]
    parts = few_labels.parts_of(lines, ["0 a test"])
    train = {part: set(tables["train"]) for part, tables in parts.items()}
    assert [len(train[f"{size}-seed2"]) for size in few_labels.SIZES] == [100, 300, 1000, 2000]
    assert train["100-seed2"] < train["300-seed2"] < train["1000-seed2"] < train["5920-seed2"]
    assert train["100-seed1"] != train["100-seed2"] and train["5920-seed1"] == train["5920-seed2"]
    assert all(not train[part] & set(tables["dev"]) for part, tables in parts.items())
    assert {tuple(tables["dev"]) for tables in parts.values()} == {tuple(parts["5920-seed1"]["dev"])}
    assert parts["5920-seed1"]["test"] == ["0 a test"]


def test_the_manifest_takes_the_seed_from_the_pretraining(tmp_path):
    checkpoint = tmp_path / "t5-seed12/x.pt"
    with pytest.raises(ValueError, match="no checkpoint .*t5-seed12/x.pt: give files"):
        list(few_labels.manifest("1e-4", [checkpoint]))
    checkpoint.parent.mkdir()
    checkpoint.touch()
    head, *lines = (line.split("\t") for line in few_labels.manifest("1e-4 1e-3", [str(checkpoint)]))
    runs = [dict(zip(head, line, strict=True)) for line in lines]
    assert [run["DATA"].split("/")[-1] for run in runs[::2]] == [f"{size}-seed12" for size in few_labels.SIZES]
    assert {run["SEED"] for run in runs} == {"12"} and [run["LEARNING_RATE"] for run in runs[:2]] == ["1e-4", "1e-3"]


def test_each_encoding_has_its_best_rate_for_a_number_of_labels(tmp_path):
    for size, more in (("100", 0.0), ("5920", 0.2)):
        for encoding, better in (("tupe_a", 0.0), ("learned", 0.1)):
            for seed in (1, 2):
                for rate, valid in (("1e-4", 0.5), ("1e-3", 0.6)):
                    facts = {"task": "SST-2", "encoding": encoding, "seed": seed, "lr": rate, "metric": "accuracy"}
                    facts |= {"checkpoint": f"pretrained/{encoding}-seed{seed}/x.pt", "metrics": {"accuracy": valid}}
                    test = valid + more + better + seed / 100
                    finished(
                        tmp_path / f"runs/{size}-{rate}/{encoding}-seed{seed}",
                        encoding,
                        seed,
                        data=f"data-bin/few_labels/{size}-seed{seed}/finetuning/SST-2",
                        files={
                            "results.json": {**facts, "test": {"accuracy": test}},
                            "machine.txt": f"Processor {seed}\n",
                        },
                    )
    few_labels.report(tmp_path / "runs", tmp_path / "out")
    figures = json.loads((tmp_path / "out/results.json").read_text())["figures"]
    assert figures["100 labels"] == {"tupe_a": {"1": 61.0, "2": 62.0}, "learned": {"1": 71.0, "2": 72.0}}
    assert figures["5920 labels"]["learned"]["2"] == 92.0
    text = (tmp_path / "out/RESULTS.md").read_text()
    assert "no score" not in text and "\n\n|" in text
    assert "- Processor 1\n- Processor 2\n" in text
    with tarfile.open(tmp_path / "out/runs.tar.xz") as packed:
        packed.extractall(tmp_path / "unpacked", **UNPACKING)
    few_labels.report(tmp_path / "unpacked", tmp_path / "again")
    assert (tmp_path / "again/RESULTS.md").read_text() == text
    assert (tmp_path / "out/labels.png").exists() and "## 5,920 labels" in text and "no seed 3, 4, 5" in text


def one(place, encoding, seed, size="100", flags="", **more):
    facts = {"task": "SST-2", "encoding": encoding, "seed": seed, "lr": "1e-3", "metrics": {"accuracy": 0.5}, **more}
    facts |= {"checkpoint": f"pretrained/{encoding}-seed{seed}/x.pt", "test": {"accuracy": 0.5}}
    command = f"fairseq-train data --user-dir . --lr 1e-3 --seed {seed} {flags}"
    data = f"data-bin/few_labels/{size}-seed{seed}/finetuning/SST-2"
    finished(place, encoding, seed, data=data, files={"results.json": facts, "trained": command})


def test_a_size_without_the_baseline_has_no_differences(tmp_path):
    for seed in (1, 3):
        one(tmp_path / f"runs/a/learned-seed{seed}", "learned", seed)
    lost = finished(
        tmp_path / "runs/b/learned-seed2", "learned", 2, data="data-bin/few_labels/100-seed2/finetuning/SST-2"
    )
    (lost / "diverged").touch()
    few_labels.report(tmp_path / "runs", tmp_path / "out")
    text = (tmp_path / "out/RESULTS.md").read_text()
    assert "| learned | 1 3 | 50.00 ± 0.00 |" in text and "- no score: b/learned-seed2 (diverged)" in text


def test_seeds_of_another_training_are_refused(tmp_path):
    one(tmp_path / "runs/a/tupe_a-seed1", "tupe_a", 1)
    one(tmp_path / "runs/b/tupe_a-seed2", "tupe_a", 2, flags="--dropout 0.3")
    with pytest.raises(ValueError, match="a-seed2 and .*a-seed1 differ in more than seed .*: `--dropout`"):
        few_labels.report(tmp_path / "runs", tmp_path / "out")


def test_what_is_packed_makes_the_committed_results(tmp_path):
    kept = RECIPE / "few_labels"
    with tarfile.open(kept / "runs.tar.xz") as packed:
        packed.extractall(tmp_path / "runs", **UNPACKING)
    few_labels.report(tmp_path / "runs", tmp_path / "out")
    for name in ("RESULTS.md", "results.json"):
        assert (tmp_path / "out" / name).read_text() == (kept / name).read_text()
