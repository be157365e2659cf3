"""Comparisons that the reports of recipes refuse."""

from types import SimpleNamespace

import pytest

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
