"""Comparisons that the reports of recipes refuse."""

from types import SimpleNamespace

import pytest
from training_logs import finished, inner, log_of

from fairseq_relpos.reports.recipe_runs import RecipeRuns, is_evaluated


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


def compared(place):
    names = ("RUNS", "SEEDS", "LEARNING_RATES", "COMPARED", "BASELINE", "CONDITIONS")
    values = (str(place), "1 2", "1e-3 2e-3", "t5", "t5", "")
    return RecipeRuns(dict(zip(names, values, strict=True)), lambda run: (run / "trained").exists())


def trained(place, rate, encoding, seed, flags="--batch-size 64", **settings):
    command = f"fairseq-train data --user-dir . --lr {rate} --seed {seed} {flags}"
    return finished(place / f"lr{rate}/{encoding}-seed{seed}", encoding, seed, files={"trained": command}, **settings)


def test_runs_that_have_diverged_are_called_so(tmp_path):
    trained(tmp_path, "1e-3", "t5", 1)
    stopped = trained(tmp_path, "1e-3", "t5", 2)
    (stopped / "trained").rename(stopped / "diverged")
    (trained(tmp_path, "1e-3", "m1", 1) / "diverged").touch()  # with the only rate that was tried
    unfinished = trained(tmp_path, "1e-3", "shaw", 2)
    (unfinished / "trained").unlink()
    notes = [note.partition(": ") for note in compared(tmp_path).notes]
    named = {what.partition(" (")[0]: names for what, _, names in notes}
    assert named["diverged"] == "lr1e-3/m1-seed1, lr1e-3/t5-seed2"
    assert named["not finished with these settings"] == "lr1e-3/shaw-seed2"


def test_a_run_that_is_made_longer_is_not_evaluated(tmp_path):
    run = trained(tmp_path, "1e-3", "t5", 1)
    assert is_evaluated(run, "checkpoint_last.pt")
    (run / "command").write_text((run / "trained").read_text() + " --max-update 99")
    assert not is_evaluated(run, "checkpoint_last.pt")


def test_seeds_with_another_batch_are_refused(tmp_path):
    trained(tmp_path, "1e-3", "t5", 1)
    trained(tmp_path, "1e-3", "t5", 2, flags="--batch-size 16 --update-freq 4")  # as large
    compared(tmp_path)
    trained(tmp_path, "1e-3", "t5", 3, flags="--batch-size 16")
    with pytest.raises(SystemExit, match="differ in more than seed and learning rate: the batch"):
        compared(tmp_path)
