"""Scored runs whose mean the reports refuse to take."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from fairseq_relpos.finetuning import report as of_glue
from fairseq_relpos.reports import score_table

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(place, seed, fold=None, flags="", conditions="dictionary a\ntext b\nstart 1\n"):
    run = place / "runs" / f"fold{fold or 0}" / f"t5-seed{seed}"
    run.mkdir(parents=True)
    facts = {"task": "CoLA", "encoding": "t5", "seed": seed, "lr": "1e-3", "metrics": {"f1": 0.5}}
    (run / "results.json").write_text(json.dumps(facts | ({"fold": fold} if fold is not None else {})))
    words = f"'fairseq-train' 'data' '--user-dir' '.' '--lr' '1e-3' '--seed' '{seed}' '--max-update' '9' {flags}\n"
    for name in ("command", "trained"):
        (run / name).write_text(words)
    (run / "conditions").write_text(conditions)


def of_recipe(name):
    spec = importlib.util.spec_from_file_location(f"{name}_report", EXAMPLES / name / "report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("recipe", ["glue", "squad", "text_classification"])
def test_a_report_refuses_seeds_of_another_training(recipe, tmp_path):
    run(tmp_path, 1)
    run(tmp_path, 2, flags="'--dropout' '0.1'")
    runs = str(tmp_path / "runs")
    with pytest.raises(ValueError, match=r"^fold0/t5-seed2 and fold0/t5-seed1 .*: `--dropout` \(0.1, not given\)\."):
        if recipe == "glue":
            of_glue.main([runs, str(tmp_path), "tupe", "learned"])
        elif recipe == "squad":
            of_recipe(recipe).main(str(tmp_path), f"RUNS={runs}", "METRIC=squad", "BASELINE=learned")
        else:
            of_recipe(recipe).main(runs, str(tmp_path), "learned")


def test_runs_of_a_sweep_are_in_folders_of_their_own(tmp_path):
    records = []
    for seed, flags in (1, ""), (2, "'--dropout' '0.1'"):
        run(tmp_path / f"run{seed}", seed, flags=flags)
        records.append({"name": f"run{seed}", "cells": {}, "place": tmp_path / f"run{seed}", "state": "done"})
    with pytest.raises(ValueError, match=r"^run2 and run1 differ .*: `--dropout` \(0.1, not given\)\."):
        score_table.check_alike(score_table.read(records))


def test_folds_differ_in_their_data_and_seeds_of_a_fold_do_not(tmp_path):
    def check():
        score_table.check_alike(score_table.read(score_table.records_of(tmp_path / "runs")))

    run(tmp_path, 1, 0)
    run(tmp_path, 1, 1, flags="'--max-update' '10'", conditions="dictionary a\ntext c\nstart 1\n")
    run(tmp_path, 2, 0, conditions="dictionary a\ntext b\nstart 2\n")
    check()
    run(tmp_path, 3, 0, flags="'--position-hparams' 'num_buckets=8'")
    with pytest.raises(ValueError, match="fold0/t5-seed3 and .*: `--position-hparams` "):
        check()
    shutil.rmtree(tmp_path / "runs" / "fold0/t5-seed3")
    run(tmp_path, 3, 1, conditions="dictionary a\ntext b\n", flags="'--max-update' '10' '--batch-size' '4'")
    with pytest.raises(ValueError, match="fold1/t5-seed3 and fold0/t5-seed1 differ .*: the batch"):
        check()
    (tmp_path / "runs" / "fold1/t5-seed3" / "trained").unlink()
    check()
    run(tmp_path, 4, 1, conditions="dictionary a\ntext b\n", flags="'--max-update' '10'")
    with pytest.raises(ValueError, match="fold1/t5-seed4 and fold1/t5-seed1 differ .*: the data"):
        check()
