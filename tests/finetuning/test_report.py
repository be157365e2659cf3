"""The report of fine-tuned runs."""

import json

import pytest
from training_logs import finished

from fairseq_relpos.finetuning import report

#: encoding -> learning rate -> validation and test scores of the seeds 1, 2, 3
FIGURES = {
    "learned": {1e-5: [(0.5, 0.4), (0.6, 0.5), (0.7, 0.6)], 2e-5: [(0.1, 0.9), (0.9, 0.9), (0.1, 0.9)]},
    "tupe_r": {1e-5: [(0.6, 0.52), (0.7, 0.6), (0.8, 0.74)]},
}


def write_runs(folder):
    for encoding, rates in FIGURES.items():
        for rate, values in rates.items():
            for seed, (valid, test) in enumerate(values, 1):
                run = folder / f"lr{rate}" / f"{encoding}-seed{seed}"
                run.mkdir(parents=True)
                facts = {"task": "CoLA", "encoding": encoding, "lr": rate, "seed": seed, "metric": "mcc"}
                facts |= {"checkpoint": f"runs/{encoding}/c.pt", "one_answer": valid == 0.1}
                facts |= {"metrics": {"mcc": valid}, "splits": {"valid": {"mcc": valid}}, "test": {"mcc": test}}
                facts |= {"majority": {"valid": 0.0, "test": 0.0}}
                (run / "results.json").write_text(json.dumps(facts))


def test_the_rate_has_the_best_median_and_differences_are_taken_seed_by_seed(tmp_path):
    write_runs(tmp_path)
    (tmp_path / "results.json").write_text('{"rule": "median", "runs": []}')  # of a sweep's report
    finished(tmp_path / "lr3e-05" / "t5-seed1", "t5", 1, ended=False, lr=3e-05, data="data-bin/glue/CoLA")
    finished(tmp_path / "lr3e-05" / "t5-MNLI", "t5", 1, ended=False, lr=3e-05, data="data-bin/glue/MNLI")
    report.main([str(tmp_path), str(tmp_path / "out"), "tupe", "learned"])
    text = (tmp_path / "out" / "RESULTS.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert lines[2].startswith("| always the most frequent label |  |  |  | 0.00 | 0.00 |")
    # two runs with the other rate give one answer
    assert lines[3] == "| learned | 1e-05 | 3 | 60.00 | 60.00 ± 10.00 | 50.00 ± 10.00 |  |  | 2 | 55.19 |"
    assert lines[4].startswith("| t5 | none | 0 | - | - | - |")
    assert lines[5].startswith(
        "| tupe_r | 1e-05 | 3 | 70.00 | 70.00 ± 10.00 | 62.00 ± 11.14 | +12.00 ± 4.97 | 0.009 | 0 |"
    )
    assert lines[5].endswith("| 63.56 |") and "| lr2e-05/learned-seed2 | mcc | 90.00 | 90.00 | done |" in text
    assert "lr3e-05/t5-seed1 (not done)" in text and "sweep" not in text


def test_the_test_part_is_compared_where_all_that_count_have_it(tmp_path):
    write_runs(tmp_path)
    untested = tmp_path / "lr1e-05" / "tupe_r-seed3" / "results.json"
    untested.write_text(
        json.dumps({key: value for key, value in json.loads(untested.read_text()).items() if key != "test"})
    )
    report.main([str(tmp_path), str(tmp_path / "out"), "tupe", "learned"])
    text = (tmp_path / "out" / "RESULTS.md").read_text()
    assert "| - learned, validation |" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| tupe_r | 1e-05"))
    assert line.startswith("| tupe_r | 1e-05 | 3 | 70.00 | 70.00 ± 10.00 | 56.00 ± 5.66 (seeds 1, 2) | +10.00")


def test_seeds_that_an_encoding_lacks_are_named(tmp_path):
    write_runs(tmp_path)
    (tmp_path / "lr1e-05" / "tupe_r-seed3" / "results.json").unlink()
    report.main([str(tmp_path), str(tmp_path / "out"), "tupe", "learned"])
    assert "no seed 3: tupe_r" in (tmp_path / "out" / "RESULTS.md").read_text()


def test_the_mean_over_all_tasks_is_that_of_their_seeds_and_counts_both_parts_of_mnli(tmp_path):
    figures = {"CoLA": {"valid": (0.4, 0.6)}, "MNLI": {"valid": (0.8, 0.8), "valid1": (0.7, 0.7)}}
    for task, of_splits in figures.items():
        for encoding in ("learned", "t5") if task == "CoLA" else ("learned",):
            for seed in (1, 2):
                run = tmp_path / f"{encoding}-{task}-seed{seed}"
                run.mkdir()
                splits = {split: {"mcc": values[seed - 1]} for split, values in of_splits.items()}
                facts = {"task": task, "encoding": encoding, "lr": 1e-5, "seed": seed, "metric": "mcc"}
                facts |= {"metrics": splits["valid"], "splits": splits, "majority": dict.fromkeys(splits, 0.0)}
                (run / "results.json").write_text(json.dumps(facts))
    report.main([str(tmp_path), str(tmp_path), "tupe", "learned"])
    text = (tmp_path / "RESULTS.md").read_text()
    section = text[text.index("## All tasks") : text.index("## Every score")].strip().splitlines()
    # one without all tasks has no row
    assert section[4:] == ["| learned | 3 | 66.67 |"]


def test_results_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "lr1").mkdir()
    (tmp_path / "lr1" / "results.json").write_text("{")
    with pytest.raises(ValueError, match="lr1/results.json cannot be read .*: remove it, and evaluate this run again"):
        report.main([str(tmp_path), str(tmp_path), "tupe", "learned"])


def test_without_results_or_with_an_unknown_convention_there_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="no results.json below .*: run.sh finetune first, or set RUNS"):
        report.main([str(tmp_path), str(tmp_path), "tupe", "learned"])
    with pytest.raises(ValueError, match="CONVENTION=bert: give tupe, huang, m4m, glue"):
        report.main([str(tmp_path), str(tmp_path), "bert", "learned"])
