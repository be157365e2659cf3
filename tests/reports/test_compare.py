"""fairseq-relpos compare: runs of several recipes on one page, and which are refused."""

import json
import re

import pytest
from refusals import assert_refused
from training_logs import finished

from fairseq_relpos.cli import main
from fairseq_relpos.reports.differences import from_baseline

SEEDS = (1, 2, 3)
#: encoding -> a figure of each seed
LOSSES = {"t5": [4.20, 4.31, 4.15], "tupe_r": [3.95, 4.01, 3.88], "shaw": [4.21, 4.02, 4.30]}
BLEU = {"t5": [30.1, 31.4, 29.9], "rope": [32.0, 32.9, 31.6]}
ACCURACY = {"t5": [0.80, 0.83, 0.81], "none": [0.61, 0.66, 0.58]}


def masked_lms(place, gap=2.0):
    for encoding, losses in LOSSES.items():
        for seed, loss in zip(SEEDS, losses):
            gaps = [{"split": "test", "loss": loss, "permuted": loss + gap, "digest": "8fd9"}]
            files = {"order_gap.json": gaps, "machine.txt": "Processor A; torch 2\n"}
            yield finished(place / f"{encoding}-seed{seed}", encoding, seed, loss - 0.1, files=files)


def translations(place):
    for encoding, scores in BLEU.items():
        for seed, score in zip(SEEDS, scores):
            found = [{"name": "BLEU", "value": score, "signature": "tok:13a", "meaning": ""}]
            found.append({"name": "exact", "value": 1.0, "signature": None, "meaning": "not compared"})
            settings = {"task": "translation", "data": "data-bin/en-de", "criterion": "label_smoothed_cross_entropy"}
            yield finished(
                place / f"{encoding}-seed{seed}", encoding, seed, files={"scores.json": {"test": found}}, **settings
            )


def classifiers(place):
    for encoding, scores in ACCURACY.items():
        for seed, score in zip(SEEDS, scores):
            facts = {"task": "TREC", "encoding": encoding, "metrics": {"accuracy": score, "loss": 0.5}}
            settings = {"task": "sequence_labels", "data": "data-bin/TREC", "criterion": "sequence_labels"}
            yield finished(
                place / f"{encoding}-seed{seed}", encoding, seed, 0.5, files={"results.json": facts}, **settings
            )


def compare(runs, *flags):
    return main(["compare", *map(str, runs), *map(str, flags)])


def report(runs, place, *flags):
    """The output of --json, by task."""
    assert compare(runs, "--json", place / "found.json", *flags) == 0
    return {task["task"]: task for task in json.loads((place / "found.json").read_text())["tasks"]}


@pytest.fixture
def runs(tmp_path):
    return [*masked_lms(tmp_path / "lm"), *translations(tmp_path / "mt"), *classifiers(tmp_path / "tc")]


def test_runs_of_three_recipes_are_one_page_with_the_intervals_of_the_table(runs, tmp_path, capsys):
    found = report(runs[::-1], tmp_path, "--baseline", "t5", "--html", tmp_path / "page.html")
    assert set(found) == {"masked_lm", "translation", "TREC (sequence_labels)"}
    figures = [
        ("masked_lm", "loss on test (nats)", LOSSES),
        ("masked_lm", "last validation loss on valid (nats)", LOSSES),
        ("translation", "BLEU on test", BLEU),
        ("TREC (sequence_labels)", "accuracy on valid", ACCURACY),
    ]
    for task, figure, values in figures:
        for encoding in values.keys() - {"t5"}:
            one = from_baseline({name: dict(enumerate(of_seed)) for name, of_seed in values.items()}, "t5")[encoding]
            ours = found[task]["differences"][figure][encoding]
            interval = [one.mean - one.half_width, one.mean + one.half_width]
            assert [ours["low"], ours["high"], ours["p"]] == pytest.approx([*interval, one.p_value]), figure
            assert ours["seeds"] == 3
    printed = capsys.readouterr().out
    # Markdown: a table for each figure, the baseline first
    assert "## masked_lm on text" in printed and "exact" not in printed
    assert "### BLEU on test: higher is better" in printed and "### Accuracy on valid: higher is better" in printed
    assert printed.count("lower is better") == 4  # the loss on test, and the last validation loss of each task
    assert printed.index("| t5 | 1 2 3 | 4.220 ± 0.082 | the baseline |") < printed.index("| shaw | 1 2 3 |")
    assert "Warning" not in printed and "Machine: Processor A; torch 2" in printed
    page = (tmp_path / "page.html").read_text()
    pictures = re.findall(r"<img [^>]*>", page)
    assert len(pictures) >= 6
    for picture in pictures:
        assert re.search(r'src="data:image/svg', picture) and re.search(r'alt="[^"]{20,}"', picture)
    # of one file, for a phone, too
    assert not re.search(r"https?://|<script|<link|@import|url\(", page) and 'name="viewport"' in page
    assert page.count("<table") == page.count('<div class="table"')


def test_warns_of_models_that_do_not_use_positions(tmp_path, capsys):
    assert compare(masked_lms(tmp_path, gap=0.01)) == 0
    printed = capsys.readouterr().out
    assert "**Warning:** these models do not use positions" in printed and "shaw-seed1" in printed
    assert "| t5 | +0.010 ± 0.000 | 0 of 3 |" in printed


def test_scores_of_generated_questions_are_figures(tmp_path):
    found = [{"name": "BLEU-4", "value": 3.7, "signature": "BLEU|tok:none", "meaning": "sacreBLEU on the tokens"}]
    found.append({"name": "ROUGE-L (rouge-score)", "value": 24.6, "signature": None, "meaning": "mean F1"})
    run = finished(tmp_path / "a", "t5", 1, files={"scores.json": found}, task="translation")
    figures = report([run], tmp_path)["translation"]["figures"]
    assert figures["BLEU-4 on test"] == {"t5": {"1": 3.7}}
    assert figures["ROUGE-L (rouge-score) on test"] == {"t5": {"1": 24.6}}


def test_losses_of_a_language_model_are_figures_in_nats_a_token(tmp_path):
    scores = [{"tokens": 16, "memory": 0, "clamp": None, "nats": 900.0}]
    scores += [{"tokens": 8, "memory": 24, "clamp": 20, "nats": 880.0}, {"tokens": 16, "memory": 9, "clamp": None}]
    lengths = [(16, 0, 4.5), (32, 8, 4.25), (64, 0, None)]
    measured = [{"length": n, "memory": m, "stride": None, "loss": loss} for n, m, loss in lengths]
    files = {
        "scores.json": {"counts": {"test": {"tokens": 200, "words": 100}}, "scores": scores},
        "extrapolation.json": {"split": "test", "digest": "1f", "measurements": measured},
    }
    run = finished(tmp_path / "a", "t5", 1, files=files, task="lm_streams")
    figures = report([run], tmp_path)["language_modeling"]["figures"]
    assert {name: values["t5"]["1"] for name, values in figures.items() if "test" in name} == {
        "loss on test (nats a token), segments of 16, no memory": 4.5,
        "loss on test (nats a token), segments of 8, a memory of 24, clamp 20": 4.4,
        "loss on test (nats a token), blocks of 16": 4.5,
        "loss on test (nats a token), blocks of 32, memory 8": 4.25,
    }


def test_losses_with_changed_positions_are_figures_of_their_own(tmp_path):
    runs = []
    for seed, changed in (1, ""), (2, "scaling=yarn"):
        measured = [{"length": 32, "memory": 0, "stride": None, "loss": 4.0 + seed}]
        found = {"split": "test", "digest": "1f", "changed": changed, "measurements": measured}
        runs.append(finished(tmp_path / str(seed), "rope", seed, files={"extrapolation.json": found}))
    figures = report(runs, tmp_path)["masked_lm"]["figures"]
    assert figures["loss on test (nats a token), blocks of 32"] == {"rope": {"1": 5.0}}
    assert figures["loss on test (nats a token), blocks of 32, scaling=yarn"] == {"rope": {"2": 6.0}}


def test_the_accuracy_of_an_artificial_task_is_that_on_test(tmp_path):
    settings = {"task": "sequence_labels", "criterion": "sequence_labels", "data": "data-bin/reber-seed1"}
    run = finished(tmp_path / "a", "t5", 1, files={"result.json": {"valid": 1.0, "test": 0.75}}, **settings)
    assert report([run], tmp_path)["reber (sequence_labels)"]["figures"]["accuracy on test"] == {"t5": {"1": 0.75}}


def test_a_model_without_an_encoding_has_no_positions_to_use(tmp_path):
    gaps = [{"split": "test", "loss": 4.0, "permuted": 4.0, "digest": "8fd9"}]
    run = finished(tmp_path / "a", "none", 1, files={"order_gap.json": gaps})
    assert not report([run], tmp_path)["masked_lm"]["warnings"]


def test_warns_where_runs_have_not_made_as_many_updates(tmp_path, capsys):
    runs = [the_run(tmp_path), other(tmp_path)]
    log = runs[1] / "train.log"
    log.write_text("\n".join(line for line in log.read_text().splitlines() if '"40"' not in line))
    warnings = report(runs, tmp_path)["masked_lm"]["warnings"]
    assert len(warnings) == 1 and "from 30 to 40 updates" in warnings[0]


def test_warns_where_runs_differ_in_more_than_the_encoding(tmp_path, capsys):
    # an update of 4,096 tokens may be made in one step or in two; the learning rate is another question
    settings = [("t5", {}), ("shaw", {"dropout": 0.1}), ("rope", {"max_tokens": 2048, "update_freq": 2, "lr": 0.002})]
    runs = [finished(tmp_path / name, name, 1, **given) for name, given in settings]
    found = report(runs, tmp_path)["masked_lm"]
    assert found["settings"]["dropout"] == {"0": ["rope", "t5"], "0.1": ["shaw"]}
    assert found["settings"]["lr"] == {"0.002": ["rope"], "0.001": ["shaw", "t5"]} and len(found["settings"]) == 2
    assert len(found["warnings"]) == 2
    assert "more than the encoding and the seed: dropout 0 (rope, t5), 0.1 (shaw)" in found["warnings"][0]
    assert "the learning rates differ" in found["warnings"][1]
    assert "| dropout | 0.1 | shaw |" in capsys.readouterr().out


def test_runs_of_one_encoding_with_other_settings_are_no_seeds_of_it(tmp_path):
    runs = [
        finished(tmp_path / "a", "t5", 1, 4.0, lr=0.001),
        finished(tmp_path / "b", "t5", 1, 3.0, lr=0.002),
        finished(tmp_path / "c", "t5", 2, 3.5, lr=0.002),
        finished(tmp_path / "d", "shaw", 1, hparams="max_distance=4 x=1"),
        finished(tmp_path / "f", "shaw", 2, hparams="x=1 max_distance=4"),
        finished(tmp_path / "e", "shaw", 1, hparams="max_distance=8"),
    ]
    log = finished(tmp_path / "g", "shaw", 3, hparams="max_distance=4 x=1") / "train.log"
    log.write_text(log.read_text().replace("_name='roberta')", "new_flag=None, _name='roberta')"))  # of a later version
    runs += [log.parent, finished(tmp_path / "mt", "t5", 1, task="translation")]  # which has a t5 without variants
    found = report(runs, tmp_path, "--baseline", "t5", "--baseline", "t5 (lr=0.002)")["masked_lm"]
    figure = found["figures"]["last validation loss on valid (nats)"]
    assert {row: sorted(values) for row, values in figure.items()} == {
        "t5 (lr=0.002)": ["1", "2"],
        "t5 (lr=0.001)": ["1"],
        "shaw (max_distance=4 x=1)": ["1", "2", "3"],
        "shaw (max_distance=8)": ["1"],
    }


def test_speeds_of_several_machines_are_told_apart_and_memory_is_what_the_gpu_has_used(tmp_path, capsys):
    runs = []
    for name, free in (("t5", 30.0), ("rope", 28.0)):
        runs.append(finished(tmp_path / name, name, 1, files={"machine.txt": f"Processor of {name}; torch 2\n"}))
        (runs[-1] / "output.txt").write_text("rank 0: capabilities = 8.0 ; total memory = 40.000 GB ; name = A GPU\n")
        log = (runs[-1] / "train.log").read_text()
        (runs[-1] / "train.log").write_text(log.replace('"wps"', f'"gb_free": "{free}", "wps"'))
    assert compare(runs) == 0
    printed = capsys.readouterr().out
    for name, used in (("rope", "12.0"), ("t5", "10.0")):
        assert f"| {name} | 12,345 | 40 | 1,000 | 0.7 | {used} |" in printed
    differing = "machine Processor of rope (rope), Processor of t5 (t5)"
    assert f"Speeds do not compare, because these differ: {differing}" in printed


def goes_on_with(run, **given):
    """Adds a second start with other settings, from half of the way."""
    with open(run / "train.log") as log:
        lines = log.read().splitlines()
    again = finished(run.parent / f"again-{run.name}", "t5", 1, **given) / "train.log"
    later = [line for line in again.read_text().splitlines() if '"10"' not in line and '"20"' not in line]
    (run / "train.log").write_text("\n".join([*lines, *later]) + "\n")
    return run


def test_a_run_that_went_on_with_other_settings_is_named(tmp_path):
    runs = [goes_on_with(the_run(tmp_path, dropout=0.1), dropout=0.2), other(tmp_path, dropout=0.2)]
    warnings = report(runs, tmp_path)["masked_lm"]["warnings"]
    assert warnings == [f"{runs[0]} was resumed with other settings: dropout 0.1, 0.2"]
    # an update of the same size, divided otherwise, is none
    (again := tmp_path / "divided").mkdir()
    run = goes_on_with(the_run(again), max_tokens=2048, update_freq=2)
    assert not report([run], tmp_path)["masked_lm"]["warnings"]


def test_all_runs_that_have_not_ended_are_named_at_once(tmp_path, capsys):
    assert compare([the_run(tmp_path, ended=False), other(tmp_path, ended=False)]) == 1
    printed = capsys.readouterr().err
    assert printed.count("has not come to its end") == 2 and printed.count("\n") == 1


def test_control_characters_in_names_are_visible(tmp_path, capsys):
    """A terminal would obey them."""
    name = "a\x1b]0;title\x07\x9b31m"
    runs = [finished(tmp_path / name, "t5", 1, float("nan")), finished(tmp_path / "b", "t5\x1b[2J", 2)]
    assert compare(runs) == 0
    assert compare([tmp_path / name / "none"]) == 1
    printed = capsys.readouterr()
    for text in printed:
        assert "a\\x1b]0;title\\x07\\x9b31m" in text and all(x.isprintable() or x == "\n" for x in text)
    assert "t5\\x1b[2J" in printed.out


def test_a_diverged_run_is_named_and_in_no_figure(tmp_path):
    runs = [finished(tmp_path / "a", "t5", 1), finished(tmp_path / "b", "t5", 2, float("nan"))]
    found = report(runs, tmp_path, "--baseline", "t5")["masked_lm"]
    assert found["figures"]["last validation loss on valid (nats)"] == {"t5": {"1": pytest.approx(4.0)}}
    assert any("diverged" in warning and str(runs[1]) in warning for warning in found["warnings"])
    runs[0] = finished(tmp_path / "c", "rope", 1)
    warnings = report(runs, tmp_path, "--baseline", "t5")["masked_lm"]["warnings"]
    assert "every run of t5, the baseline, has diverged, so no differences" in warnings


def test_a_run_that_has_not_been_evaluated_stands_beside_the_others_of_its_task(tmp_path):
    runs = [*classifiers(tmp_path)]
    (runs[0] / "results.json").unlink()
    found = report(runs, tmp_path)["TREC (sequence_labels)"]
    assert found["warnings"][-1] == f"not known of {runs[0]}: accuracy on valid"
    assert found["figures"]["accuracy on valid"]["t5"] == {"2": 0.83, "3": 0.81}


def test_an_evaluation_that_is_older_than_the_checkpoint_is_left_out(tmp_path):
    import os

    run = next(masked_lms(tmp_path))
    (run / "checkpoint_last.pt").touch()
    os.utime(run / "order_gap.json", (0, 0))
    found = report([run], tmp_path)["masked_lm"]
    assert list(found["figures"]) == ["last validation loss on valid (nats)"]
    assert "order_gap.json is older than the checkpoint" in found["warnings"][0]


def test_a_seed_or_a_fold_may_have_data_of_its_own(tmp_path):
    runs = [
        finished(
            tmp_path / f"{name}{seed}", name, seed, data=f"bin/toy-seed{seed}", files={"conditions": f"data {seed}\n"}
        )
        for name in ("t5", "rope")
        for seed in SEEDS
    ]
    figures = report(runs, tmp_path, "--baseline", "t5")["masked_lm"]["differences"]
    assert figures["last validation loss on valid (nats)"]["rope"]["seeds"] == 3
    (runs[0] / "conditions").write_text("data other\n")
    assert compare(runs) == 1


def test_seeds_are_one_row_whose_updates_are_counted_in_their_epochs(tmp_path):
    def rows(place, **settings):
        runs = [finished(place / f"t5-seed{n}", "t5", n, total_num_update=1000 + n, **settings) for n in SEEDS]
        if "more" in place.name:
            runs += [finished(place / f"more-seed{n}", "t5", n, total_num_update=9000, **settings) for n in SEEDS]
        found = report(runs, tmp_path)["masked_lm"]
        return {run["row"] for run in found["runs"]}, "total-num-update" in found["settings"]

    assert rows(tmp_path / "epochs", max_epoch=10) == ({"t5"}, False)
    for place, settings in ("updates", {}), ("more", {"max_epoch": 10}):  # another schedule is another training
        found, differ = rows(tmp_path / place, **settings)
        assert len(found) > 2 and differ


def test_folds_are_one_row_though_the_schedule_is_counted_in_each(tmp_path):
    runs = []
    for n in SEEDS:
        files = {"results.json": {"task": "MR", "fold": n, "metrics": {"accuracy": 0.8}}}
        runs.append(finished(tmp_path / f"MR-fold{n}", "t5", 1, total_num_update=1000 + n, files=files))
    (found,) = report(runs, tmp_path).values()
    assert {run["row"] for run in found["runs"]} == {"t5"}


def test_folders_of_other_names_may_hold_the_same_data(tmp_path, capsys):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dict.txt").write_text("the 9\n")
    runs = [
        finished(tmp_path / f"run-{name}", "t5", n, data=tmp_path / name) for n, name in enumerate(("here", "there"))
    ]
    assert compare(runs) == 0
    (tmp_path / "there" / "dict.txt").write_text("The 9\n")
    assert compare(runs) == 1
    assert "runs of different data do not compare" in capsys.readouterr().err


def the_run(place, **given):
    return finished(place / "t5", "t5", 1, **given)


def other(place, **given):
    return finished(place / "other", "rope", 1, **given)


def goes_on(place):
    run = other(place)
    with open(run / "train.log") as log:
        first = next(log)
    with open(run / "train.log", "a") as log:
        log.write(first)
    return run


def empty(place):
    (place / "empty").mkdir()
    return place / "empty"


BAD = {
    "an empty folder": (empty, "empty needs one log, and has none: give the log that fairseq-train wrote"),
    "a folder of runs": (lambda place: other(place / "runs").parent, "is a folder of runs: give the runs, "),
    "no folder": (lambda place: place / "nowhere", "no run "),
    "still going": (
        lambda place: other(place, ended=False),
        "other has not come to its end (40 of 40 updates, no line",
    ),
    "going on": (goes_on, "other has not come to its end"),
    "another command than the one that has ended": (
        lambda place: other(place, files={"command": "'a'", "trained": "'b'"}),
        "wait if it still runs, else resume or omit it",
    ),
    "another vocabulary": (
        lambda place: other(place, words=80),
        "runs of different vocabularies do not compare (words in the embeddings: 40 of ",
    ),
    "other data": (lambda place: other(place, data="data-bin/other"), "runs of different data do not compare (folder"),
    "another text": (
        lambda place: other(place, files={"conditions": "dictionary 1\ntext 3\n"}),
        "runs of different data do not compare (digest: 2 of ",
    ),
    "the same run": (lambda place: place / "t5", "is given twice"),
    "the same seed": (lambda place: finished(place / "copy", "t5", 1), "are both t5 with seed 1"),
    "a result that is none": (
        lambda place: other(place, files={"order_gap.json": "[{}]"}),
        "order_gap.json cannot be read (KeyError('permuted')): remove it, and evaluate the run again",
    ),
    "no such baseline": (lambda place: other(place), "--baseline alibi: no such run; there are rope, t5"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_does_not_compare_is_one_line_and_no_file(what, tmp_path, capsys):
    bad, message = BAD[what]
    first = the_run(tmp_path, files={"conditions": "dictionary 1\ntext 2\n"})
    flags = ["--baseline", "alibi"] if what == "no such baseline" else []
    runs, pages = [first, bad(tmp_path)], ["--html", tmp_path / "a.html", "--json", tmp_path / "a.json"]
    assert_refused(["compare", *runs, *flags, *pages], message, capsys, tmp_path)


def test_losses_of_other_checkpoints_do_not_compare(tmp_path, capsys):
    runs = []
    for encoding, checkpoint in (("t5", "checkpoint_last.pt"), ("rope", "checkpoint_best.pt")):
        gap = {"split": "test", "loss": 4.0, "permuted": 5.0, "digest": "8fd9", "checkpoint": f"runs/{checkpoint}"}
        runs.append(finished(tmp_path / encoding, encoding, 1, files={"order_gap.json": [gap]}))
    assert compare(runs) == 1
    assert "checkpoint_best.pt" in capsys.readouterr().err
