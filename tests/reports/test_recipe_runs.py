"""Comparisons that the reports of recipes refuse."""

from types import SimpleNamespace

import pytest
from training_logs import inner, log_of

from fairseq_relpos.reports.recipe_runs import RecipeRuns


def test_runs_that_start_from_a_checkpoint_each_are_compared_without_it(tmp_path):
    names = ["t5-seed1", "t5-seed2"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "conditions").write_text(f"batch 9 tokens\ntext a\nstart {name}\n")

    def check(**settings):
        known = SimpleNamespace(place=tmp_path, settings=settings, note=lambda what, names: None)
        RecipeRuns.check_same_conditions(known, names)

    check(START_FROM="runs/denoising")
    for start in ("runs/model.pt", "none", ""):
        with pytest.raises(SystemExit, match="trained with other data"):
            check(START_FROM=start)
    (tmp_path / names[1] / "conditions").write_text("batch 9 tokens\ntext a\n")  # from scratch
    with pytest.raises(SystemExit, match="trained with other data"):
        check(START_FROM="runs/denoising")


def test_a_variant_that_has_a_name_of_its_own_shows_its_flags(tmp_path):
    for name, flags in [("t5-seed3", ""), ("shaw_8-seed3", "max_distance=8"), ("at5-seed3", "hidden=15,2")]:
        log = log_of(tmp_path / name, inner(10, 2)) / "train.log"
        encoding = name.partition("-")[0].partition("_")[0]
        changed = f"position_encoding='{encoding}', position_hparams='{flags}', "
        log.write_text(log.read_text().replace("position_encoding='tupe_r', ", changed))
    runs, _ = RecipeRuns.read(SimpleNamespace(place=tmp_path), ["t5-seed3", "shaw_8-seed3", "at5-seed3"])
    assert [run.encoding for run in runs] == ["t5", "shaw (max_distance=8)", "at5"]  # at5's come from HPARAMS
