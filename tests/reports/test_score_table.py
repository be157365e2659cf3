"""Scored runs whose mean the reports refuse to take."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from training_logs import finished

from fairseq_relpos.finetuning import report as of_glue
from fairseq_relpos.reports import score_table, sweeps

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


def test_seeds_differ_in_the_updates_that_max_tokens_gives_and_not_in_others(tmp_path):
    by_epochs = "'--max-epoch' '10' '--max-tokens' '4400' '--total-num-update' '{0}' '--warmup-updates' '{1}'"
    run(tmp_path, 1, flags=by_epochs.format(1020, 61))
    run(tmp_path, 2, flags=by_epochs.format(1050, 63))
    table = score_table.read(score_table.records_of(tmp_path / "runs"))
    score_table.check_alike(table)
    run(tmp_path, 3, flags=by_epochs.format(1050, 500))
    with pytest.raises(ValueError, match=r"`--warmup-updates` \(500, 61\)"):
        score_table.check_alike(score_table.read(score_table.records_of(tmp_path / "runs")))
    for words in (run_ / "trained" for run_ in table.place):
        words.write_text(words.read_text().replace(" '--max-tokens' '4400'", ""))
    with pytest.raises(ValueError, match=r"`--total-num-update` \(1020, 1050\), `--warmup-updates` \(61, 63\)"):
        score_table.check_alike(table)


def test_from_scratch_and_fine_tuned_are_no_seeds_of_one_training(tmp_path):
    run(tmp_path, 1)
    run(tmp_path, 2, flags="'--finetune-from-model=a/t5-seed2/checkpoint_last.pt'")
    runs = str(tmp_path / "runs")
    with pytest.raises(ValueError, match=r"`--finetune-from-model` \(given, not given\)"):
        of_recipe("squad").main(str(tmp_path), f"RUNS={runs}", "METRIC=squad", "BASELINE=learned")


def test_the_report_of_squad_says_where_seeds_started_from_different_models(tmp_path, capsys):
    for seed, start in (1, "a/t5-seed1"), (2, "a/t5-seed2"), (3, "a/long"):
        run(tmp_path, seed, flags=f"'--finetune-from-model={start}/checkpoint_last.pt'")
        if seed > 1:
            of_recipe("squad").main(str(tmp_path), f"RUNS={tmp_path / 'runs'}", "METRIC=squad", "BASELINE=learned")
            said = capsys.readouterr().out
            assert ("different models: t5 (a/long/checkpoint_last.pt, a/t5/checkpoint_last.pt)" in said) == (seed == 3)


def scored(place, rate, seed, value, fold="", state="done"):
    """The folder of a run with this accuracy, or that has none."""
    facts = {"task": "MR", "encoding": "t5", "seed": seed, "lr": rate, "metrics": {"accuracy": value}}
    files = {"results.json": facts | ({"fold": fold} if fold else {})} if state == "done" else {}
    files |= {"diverged": ""} if state == "diverged" else {}
    data = f"data-bin/MR-fold{fold}" if fold else "data-bin/MR"
    finished(place / f"{rate}-{fold}/t5-seed{seed}", "t5", seed, files=files, data=data, lr=float(rate))


def test_runs_that_have_diverged_count_in_the_choice_of_a_rate_and_are_named(tmp_path):
    for seed in (1, 2, 3):
        scored(tmp_path, "1e-3", seed, 0.8)
    for rate, seed, value, state in [("4e-3", 1, 0.9, "done"), ("4e-3", 2, 0, "diverged"), ("4e-3", 3, 0, "diverged")]:
        scored(tmp_path, rate, seed, value, state=state)
    scored(tmp_path, "8e-3", 1, 0, state="not done")
    table = score_table.read(score_table.records_of(tmp_path))
    assert score_table.choose_rate(table) == "1e-3" and set(table.task) == {"MR"} and set(table.encoding) == {"t5"}
    assert sweeps.without_score(table) == {
        "4e-3-/t5-seed2": "diverged",
        "4e-3-/t5-seed3": "diverged",
        "8e-3-/t5-seed1": "not done",
    }


def test_a_rate_that_lacks_a_fold_has_no_score(tmp_path):
    for fold, value in ("0", 0.70), ("1", 0.75), ("2", 0.80):
        scored(tmp_path, "1e-3", 1, value, fold)
    scored(tmp_path, "2e-3", 1, 0.79, "2")
    scored(tmp_path, "2e-3", 1, 0, "1", state="not done")
    table = score_table.read(score_table.records_of(tmp_path))
    assert score_table.choose_rate(table) == "1e-3" and set(table.fold) == {"0", "1", "2"}


def test_two_runs_of_one_seed_are_refused(tmp_path):
    for folder in ("a", "b"):
        scored(tmp_path / folder, "1e-3", 1, 0.8)
    with pytest.raises(ValueError, match="^a/1e-3-/t5-seed1 and b/1e-3-/t5-seed1 have one encoding, seed and"):
        score_table.chosen(score_table.read(score_table.records_of(tmp_path)))


def test_a_run_without_a_score_is_scored_as_others_of_its_recipe(tmp_path):
    finished(tmp_path / "lm", "t5", 1)
    records = [{"name": "lm", "cells": {"recipe": "roberta_small"}, "place": tmp_path / "lm", "state": "done"}]
    for rate, values in {"1e-5": (61.0, 63.0), "3e-5": (82.0, None)}.items():
        for seed, value in enumerate(values, 1):
            place = tmp_path / f"{rate}-{seed}"
            place.mkdir()
            (place / "results.json").write_text(json.dumps({"metrics": {"f1": value}}))
            cells = {"recipe": "squad", "encoding": "t5", "LEARNING_RATE": rate, "SEED": str(seed)}
            records.append({"name": place.name, "cells": cells, "place": place, "state": "done" if value else "failed"})
    table = score_table.read(records)
    of_squad = table[table.cells.map(lambda cells: cells["recipe"] == "squad")]
    assert not score_table.is_loss(of_squad) and score_table.choose_rate(of_squad) == "3e-5"


def test_a_sweep_tells_of_rows_whose_runs_differ_in_more_than_seed_and_rate(tmp_path):
    records = []
    for seed, flags in (1, ""), (2, "'--dropout' '0.1'"):
        run(tmp_path / f"run{seed}", seed, flags=flags)
        cells = {"encoding": "t5", "LEARNING_RATE": "1e-3", "SEED": str(seed)}
        records.append({"name": f"run{seed}", "cells": cells, "place": tmp_path / f"run{seed}", "state": "done"})
    assert "run2 and run1 differ" in sweeps.text(score_table.read(records), "median")
    assert "## Rows whose" not in sweeps.text(score_table.read(records[:1]), "median")


def test_the_only_rate_has_the_scores_of_the_folds_that_are_done(tmp_path):
    for fold in "01":
        scored(tmp_path, "1e-3", 1, 0.7, fold)
    scored(tmp_path, "1e-3", 1, 0, "2", state="not done")
    (tmp_path / "begun/t5-seed1").mkdir(parents=True)
    (tmp_path / "begun/t5-seed1/train.log").touch()
    table = score_table.read(score_table.records_of(tmp_path))
    assert set(score_table.chosen(table).fold) == {"0", "1"}
