"""The recipe from texts to scores, with a few made-up sentences."""

import configparser
import functools
import importlib.util
import json
import lzma
import os
import random
import re
import shutil
import subprocess
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from glue_files import sentence, write_vocabulary
from recipes import Recipe
from small_models import trained

import fairseq_relpos.models  # noqa: F401  registers the architectures
from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.criterions.sequence_labels import SequenceLabelsCriterion
from fairseq_relpos.finetuning import classification_data as data
from fairseq_relpos.finetuning import classify
from fairseq_relpos.reports import score_table
from fairseq_relpos.tasks.sequence_labels import SequenceLabelsConfig, SequenceLabelsTask

RECIPE = Path(__file__).parents[2] / "examples" / "text_classification"
_found = importlib.util.spec_from_file_location("text_classification_report", RECIPE / "report.py")
report = importlib.util.module_from_spec(_found)
_found.loader.exec_module(report)
TINY = """
LAYERS=1 HEADS=2 EMBED_DIM=8 FFN_DIM=16 MAX_LENGTH=12 MAX_EPOCHS=2 BATCH_SIZE=8 LEARNING_RATE=1e-2
"""


def sentences(count, seed=0):
    """A label, and words of which one tells it."""
    chance = random.Random(seed)
    for _ in range(count):
        label = chance.randint(0, 5)
        words = chance.choices("who what ran sat the a".split(), k=chance.randint(2, 9))
        yield label, " ".join([*words, f"kind{label}"])


def write(path, rows, header="label\tsentence"):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([header, *("\t".join(map(str, row)) for row in rows)]) + "\n"
    path.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())


@pytest.fixture
def trec(tmp_path):
    write(tmp_path / "texts/TREC/train.tsv.xz", [*sentences(60), (0, '"open quote')])
    write(tmp_path / "texts/TREC.dev.tsv", sentences(14, seed=1))
    (tmp_path / "texts/TREC.test.all").write_bytes(b"".join(f"{y} {x}\n".encode() for y, x in sentences(9, seed=2)))
    return tmp_path


def read(folder, part="train"):
    with np.load(folder / f"{part}.npz") as file:
        arrays = dict(file)
    starts = np.cumsum(arrays["lengths"])[:-1]
    return [[str(arrays["symbols"][i]) for i in row] for row in np.split(arrays["inputs"], starts)], arrays


recipe = Recipe("text_classification")


def test_from_texts_to_the_scores_of_a_run_and_of_a_sweep(trec):
    (trec / "tiny.sh").write_text(TINY)
    (trec / "glove.txt").write_text("".join(f"{word} {' '.join(['0.5'] * 8)}\n" for word in ("the", "kind1", "unseen")))
    done = recipe(trec, "prepare.sh", "--offline", "texts", "--glove", "glove.txt", "TREC")
    assert done.stdout.endswith("TREC: 61 train, 14 valid, 9 test; 17 words, 2 with a vector\n"), done.stdout
    flags = ["--lr=2e-2", "--seed", "3"]
    done = recipe(trec, "run.sh", "evaluate", "TREC", "at5", *flags)
    assert done.returncode == 0, done.stdout
    run = trec / "runs/TREC/at5-seed1"
    results = json.loads((run / "results.json").read_text())
    # what the training's own validation has said of the same examples
    best = max(
        float(json.loads(line[line.index("{") :])["valid_accuracy"])
        for line in (run / "train.log").read_text().splitlines()
        if '"valid_accuracy"' in line
    )
    assert results["metrics"]["accuracy"] == pytest.approx(best, abs=6e-5) and "test" not in results
    assert (results["lr"], results["seed"]) == ("2e-2", "3")
    assert len((run / "valid.predictions.tsv").read_text().splitlines()) == 1 + 14
    (trec / "short.sh").write_text(TINY.replace("MAX_LENGTH=12", "MAX_LENGTH=6"))
    done = recipe(trec, "run.sh", "train", "TREC", "at5", SETTINGS="short.sh")
    assert done.returncode == 1, done.stdout
    assert "data/TREC was not prepared with MAX_LENGTH=6 MIN_COUNT=1: run prepare.sh TREC again" in done.stdout
    # again: nothing is trained, and the test part is scored beside it
    before = (run / "train.log").stat().st_mtime_ns
    done = recipe(trec, "run.sh", "test", "TREC", "at5", *flags)
    assert done.returncode == 0 and (run / "train.log").stat().st_mtime_ns == before, done.stdout
    results = json.loads((run / "results.json").read_text())
    assert results["metrics"]["accuracy"] == pytest.approx(best, abs=6e-5) and 0 <= results["test"]["accuracy"] <= 1
    lines = (run / "test.predictions.tsv").read_text().splitlines()
    found = [line.split("\t")[1] for line in lines[1:]]
    right = [answer == str(label) for answer, (label, _) in zip(found, sentences(9, seed=2))]
    assert len(found) == 9 and results["test"]["accuracy"] == pytest.approx(sum(right) / 9)
    report.main(str(trec / "runs"), str(trec), "learned")
    assert "## TREC, from scratch\n" in (trec / "RESULTS.md").read_text()
    (trec / "last.sh").write_text(f"{TINY}EVALUATED=checkpoint_last.pt\n")
    recipe.succeeds(trec, "run.sh", "test", "TREC", "at5", *flags, SETTINGS="last.sh")
    results = json.loads((run / "results.json").read_text())
    assert results["evaluated"] == "checkpoint_last.pt" and "test" in results


def test_the_test_part_is_scored_until_the_results_have_its_score(tmp_path):
    script = f"""evaluate() {{ :; }}; score() {{ echo scored; }}; run=. data=. EVALUATED=best.pt
    eval "$(sed -n '/^test_part/,/^}}/p' {RECIPE}/run.sh)"; test_part"""
    (tmp_path / "test.predictions.tsv").touch()
    (tmp_path / "test.npz").touch()
    os.utime(tmp_path / "test.npz", (1, 1))
    for results, printed in (({"metrics": {}}, "scored\n"), ({"metrics": {}, "test": {}}, "")):
        (tmp_path / "results.json").write_text(json.dumps(results))
        assert subprocess.check_output(["bash", "-c", script], cwd=tmp_path, text=True) == printed
    os.utime(tmp_path / "results.json", (0, 0))  # the test part was prepared again
    assert subprocess.check_output(["bash", "-c", script], cwd=tmp_path, text=True) == "scored\n"


@pytest.mark.slow
def test_a_pretrained_model_is_fine_tuned_and_its_tests_are_scored_beside_the_validation(tmp_path):
    succeeds = functools.partial(recipe.succeeds, tmp_path)

    (tmp_path / "tiny.sh").write_text("EPOCHS=1 BATCH=8 MAX_TOKENS= VALIDATIONS=1 ALLOCATOR=tuned\n")
    (tmp_path / "t5").mkdir()
    trained("roberta_t5", tmp_path / "t5/start.pt")
    write_vocabulary(tmp_path / "t5")
    rows = [(fold, n % 2, sentence(n, 3 + n % 5)) for n in range(20) for fold in range(3)]
    write(tmp_path / "texts/MR.tsv", rows, "fold\tlabel\tsentence")
    printed = succeeds("prepare.sh", "--offline", "texts", "--vocabulary", "t5", "MR", SETTINGS="")
    assert printed.startswith("fold 0 of MR: 20 train, 20 valid, 20 test\n") and printed.count("\n") == 3
    given = ["MR", "t5/start.pt", "--pooling", "mean"]
    succeeds("run.sh", "test", *given, FOLD="1", LEARNING_RATE="1e-3")
    run = tmp_path / "runs/finetuned/t5/MR-fold1-seed1"
    results = json.loads((run / "results.json").read_text())
    expected = {"task": "MR", "fold": "1", "encoding": "t5", "lr": 1e-3, "seed": 1, "metric": "accuracy"}
    assert {name: results[name] for name in expected} == expected
    checkpoint = load_checkpoint(run / "checkpoint_best.pt")
    assert checkpoint["cfg"]["model"].pooling == "mean"
    assert results["metrics"]["accuracy"] == checkpoint["extra_state"]["best"]
    lines = [line.split("\t") for line in (run / "predictions.test.tsv").read_text().splitlines()[1:]]
    assert [label for _, _, label, _ in lines] == [str(n % 2) for n in range(20)]
    right = sum(found == label for _, found, label, _ in lines) / 20
    assert results["test"]["accuracy"] == right and set(results["splits"]) == {"valid"}
    again = succeeds("run.sh", "finetune", *given, FOLD="1", LEARNING_RATE="1e-3")
    assert again == "run.sh: runs/finetuned/t5/MR-fold1-seed1 is trained\n"
    (record,) = score_table.records_of(tmp_path / "runs")
    expected = {"task": "MR", "encoding": "t5", "checkpoint": "t5/start.pt", "LEARNING_RATE": "0.001", "SEED": "1"}
    assert record["cells"] == {**expected, "FOLD": "1"}


@pytest.mark.parametrize(
    "script, arguments, message",
    [
        ("run.sh", ["train", "TREC", "t5"], "no data in data/TREC: run prepare.sh TREC first"),
        ("run.sh", ["train", "MR", "t5"], "MR is in folds: set FOLD"),
        ("run.sh", ["train", "XYZ", "t5"], "no task XYZ: give MR"),
        ("run.sh", ["finetune", "TREC", "t5/start.pt"], "TREC: run prepare.sh --vocabulary FOLDER TREC first"),
        (
            "run.sh",
            ["train", "TREC", "t5/start.pt"],
            "is a checkpoint, and train trains from scratch: run.sh finetune TREC t5",
        ),
        ("run.sh", ["finetune", "CR", "t5/start.pt"], "CR is in folds: set FOLD"),
        ("run.sh", ["finetune", "TREC"], "which checkpoint? usage: run.sh"),
        ("run.sh", ["predict", "TREC", "t5/start.pt"], "no checkpoint runs/finetuned/t5/TREC-seed1/checkpoint_best.pt"),
        ("prepare.sh", ["--vocabulary", ".", "TREC"], "no dict.txt in .: give the folder of the pretraining's data"),
        ("run.sh", ["sing"], "usage: run.sh"),
        ("run.sh", ["report"], "no finished run in runs"),
        ("prepare.sh", ["SNLI"], "SNLI is not downloaded: give the folder"),
        ("prepare.sh", ["--offline", "nowhere", "TREC"], "no such folder"),
        ("prepare.sh", ["--offline", ".", "IMDB"], "no part train of IMDB in .: give IMDB/train.tsv there"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, script, arguments, message):
    (tmp_path / "tiny.sh").touch()
    done = recipe(tmp_path, script, *arguments)
    assert done.returncode == 1 and message in done.stdout and len(done.stdout.splitlines()) == 1, done.stdout


def test_shaw_and_lfhc_have_the_k_that_is_best_for_the_task_in_the_papers_table_5():
    index = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    index.read(RECIPE.parents[1] / "docs/papers.ini")
    (_, _, *tasks), *rows = (
        [cell.strip() for cell in line.split("|")]
        for line in re.sub(r" \(`.*?`\)", "", index["Qu Table 5"]["numbers"]).splitlines()
        if line
    )
    best = [
        max((float(row[place]), f"max_distance={row[1]}") for row in rows if row[0] == name and row[place] != "-")[1]
        for name in ("Shaw", "LFHC")
        for place in range(2, 2 + len(tasks))
    ]
    script = '. "$0"; for encoding in shaw lfhc; do for task in "$@"; do hparams_of $encoding; done; done'
    done = subprocess.run(["bash", "-c", script, RECIPE / "lfhc.sh", *tasks], capture_output=True, text=True)
    assert done.stdout.split() == best


def result(folder, encoding, seed, valid, test=None, **more):
    """Writes the results.json of a run."""
    facts = {"task": "MR", "encoding": encoding, "seed": str(seed), "lr": "1e-3", "metrics": {"accuracy": valid}}
    if test is not None:
        facts["test"] = {"accuracy": test}
    place = folder / f"{encoding}-seed{seed}-{len(list(folder.glob('*')))}"
    place.mkdir(parents=True)
    (place / "results.json").write_text(json.dumps({**facts, "majority": {"valid": 0.5, "test": 0.4}} | more))


def test_a_report_has_differences_by_fold_the_majority_and_what_the_papers_say(tmp_path):
    for fold in range(3):
        result(tmp_path / "runs", "learned", 1, 0.9, 0.6, fold=fold)
        result(tmp_path / "runs", "at5", 1, 0.8, 0.7 + fold / 100, fold=fold)
        result(tmp_path / "runs", "at5", 1, 0.1, 0.9, fold=fold, lr="1e-2")  # not the rate that validation chooses
        more = {"checkpoint": f"runs/t5-seed{fold}/x.pt", "majority": {"test": 0.3}}
        result(tmp_path / "runs", "t5", 1, 0.9, 0.6, fold=fold, **more)
    report.main(str(tmp_path / "runs"), str(tmp_path), "learned")
    text = (tmp_path / "RESULTS.md").read_text()
    assert (
        "| encoding | folds | test accuracy, % | - learned | p | verdict | *in the papers, with larger models* |"
        in text
    )
    assert "| always the most frequent class |  | 40.00 |" in text
    assert "| at5 | 0 1 2 | 71.00 ± 1.00 | +11.00 ± 2.48 | 0.003 | higher | AT5 81.2 |" in text
    assert "(encoding + fold, with one error" in text and "the intervals are too narrow" in text
    tuned = text.split("## MR, fine-tuned\n")[1]
    assert "| t5-seed0 | 0 | 60.00 |" in tuned and "papers" not in tuned and "class |  | 30.00 |" in tuned
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["figures"]["MR, from scratch"]["at5"] == {"0": 70.0, "1": pytest.approx(71), "2": 72.0}


def test_a_model_without_a_test_makes_a_table_of_validations(tmp_path):
    result(tmp_path / "runs", "learned", 1, 0.9, 0.6)
    result(tmp_path / "runs", "t5", 1, 0.8)
    report.main(str(tmp_path / "runs"), str(tmp_path), "learned")
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| validation accuracy, % |" in text and "| t5 | 1 | 80.00 | -10.00 |  | too few seeds |" in text
    result(tmp_path / "runs", "t5", 2, 0.8, 0.7)
    report.main(str(tmp_path / "runs"), str(tmp_path), "learned")
    assert "| t5 | 2 | 70.00 | no common seed |" in (tmp_path / "RESULTS.md").read_text()


def test_what_a_report_says_of_the_papers_stands_in_the_readme():
    readme = (RECIPE / "README.md").read_text()
    numbers = {value for rows in report.PAPERS.values() for row in rows.values() for value in row.values()}
    assert len(numbers) > 40 and all(f"| {value:.2f} |" in readme or f"| {value:.1f} |" in readme for value in numbers)


def test_folds_share_no_sentence_and_each_is_the_test_part_once(tmp_path):
    lines = [f"{n % 2} some words {n // 2}\n" for n in range(200)]  # each sentence twice
    (tmp_path / "custrev.all").write_text("".join(lines), encoding="latin-1")
    task = data.task_of("CR")
    data.prepare_all("CR", tmp_path, tmp_path / "CR", longest=9)
    tested = []
    for fold in range(10):
        parts = {part: read(tmp_path / f"CR-fold{fold}", part)[0] for part in ("train", "valid", "test")}
        texts = {part: {" ".join(words) for words in rows} for part, rows in parts.items()}
        assert sum(map(len, parts.values())) == 200
        tested += [data.digest(one) for one in data.parts_of(tmp_path, task, fold)["test"]]
        train = {data.digest(one) for one in data.parts_of(tmp_path, task, fold)["train"]}
        assert not train & set(tested[-len(parts["test"]) :]) and texts["train"]
    assert len(tested) == 200 and len(set(tested)) == 100
    # fewer folds leave none of before
    rows = [(n // 2 % 5, n % 2, f"some words {n // 2}") for n in range(200)]
    write(tmp_path / "other/CR/all.tsv", rows, "fold\tlabel\tsentence")
    (tmp_path / "CR-fold8/shaw-seed1").mkdir()  # a run, which is not to be removed
    shutil.copytree(tmp_path / "CR-fold0", tmp_path / "CR-fold0-kept")
    data.prepare_all("CR", tmp_path / "other", tmp_path / "CR", longest=9)
    shutil.rmtree(tmp_path / "CR-fold0-kept")  # which is nobody's to remove
    assert sorted(path.name for path in tmp_path.glob("CR-fold*")) == [f"CR-fold{fold}" for fold in (0, 1, 2, 3, 4, 8)]


def test_without_a_validation_part_a_tenth_of_the_sentences_is_held_out(tmp_path):
    write(tmp_path / "TREC/train.tsv", [(n % 6, f"words {n}") for n in range(300)] * 2)
    parts = data.parts_of(tmp_path, data.task_of("TREC"), None)
    train, valid = ({one.sentences[0] for one in parts[part]} for part in ("train", "valid"))
    assert not train & valid and len(train | valid) == 300 and 15 < len(valid) < 45
    assert len(parts["train"]) + len(parts["valid"]) == 600


def test_pairs_have_marks_and_the_longer_sentence_is_cut_first(tmp_path):
    header = "index\tquestion\tsentence\tlabel"
    rows = [(0, "Who?", 'He said "no" to all of them.', "entailment"), (1, "a b c d", "e", "not_entailment")]
    for part in ("train", "dev"):
        write(tmp_path / f"QNLI/{part}.tsv", rows, header)
    data.prepare(data.task_of("QNLI"), tmp_path, tmp_path / "out", longest=8)
    found, arrays = read(tmp_path / "out")
    assert found[0] == ["[CLS]", "who", "?", "[SEP]", "he", "said", '"', "no"]
    assert found[1] == ["[CLS]", "a", "b", "c", "d", "[SEP]", "e"] and arrays["labels"].tolist() == [0, 1]


def test_words_of_the_test_part_change_no_word_of_training():
    train, known = [["often", "often", "rare"]], {"rare", "unseen"}
    for others, words in ([], ["often"]), ([["rare", "unseen", "unknown"]], ["often", "unseen"]):
        assert data.vocabulary(train, others, 2, known)[3:] == words


def test_folds_without_a_label_in_training_and_vectors_that_are_none_are_errors(tmp_path):
    write(tmp_path / "CR/all.tsv", [(0, 1, "a"), (1, 0, "b"), (2, 0, "c")], "fold\tlabel\tsentence")
    with pytest.raises(ValueError, match="CR: training has no example of the label 1: get its file again"):
        data.prepare_all("CR", tmp_path, tmp_path / "CR-data")
    assert not list(tmp_path.glob("CR-data*"))
    (tmp_path / "glove.txt").write_text("b 1 x\n")
    with pytest.raises(ValueError, match="glove.txt, line 1: could not convert string to float: 'x': give GloVe's"):
        data.read_glove(tmp_path / "glove.txt", {"b"}, 2)
    with pytest.raises(ValueError, match="glove.txt has a vector for no word of the data"):
        data.read_glove(tmp_path / "glove.txt", {"a"}, 2)


def test_examples_of_snli_without_a_label_are_counted_and_left_out(tmp_path, capsys):
    labels = ["neutral", "-", "entailment", "contradiction", "-"]
    for part in ("train", "dev"):
        write(tmp_path / f"SNLI/{part}.tsv", [(x, "a", "b") for x in labels], "gold_label\tsentence1\tsentence2")
    printed = data.prepare(data.task_of("SNLI"), tmp_path, tmp_path / "out")
    assert printed.startswith("SNLI: 3 train, 3 valid;")
    assert f"{tmp_path}/SNLI/dev.tsv: 2 examples without a label are left out\n" in capsys.readouterr().out
    with pytest.raises(ValueError, match="the label '-' is none of"):
        data.from_table(data.Table(tmp_path / "SNLI/dev.tsv"), data.task_of("MNLI"))


def test_a_broken_result_is_named(tmp_path):
    result(tmp_path / "runs", "t5", 1, 0.8)
    (place,) = (tmp_path / "runs").rglob("results.json")
    place.write_text("{")
    with pytest.raises(ValueError, match="results.json cannot be read .*: remove it, and evaluate this run again"):
        report.main(str(tmp_path / "runs"), str(tmp_path), "learned")


@pytest.mark.parametrize(
    "text, message",
    [
        ("label\tsentence\n1\tok\n1\ttoo\tmany\n", "line 3: 3 values for 2 columns"),
        ("label\ttitle\n1\tok\n", "has no column sentence or text or review: it has label, title"),
        ("label\tsentence\n7\tok\n", "line 2: the label '7' is none of 0 1 2 3 4 5"),
        ("label\tsentence\n", "is empty"),
        ("label\tsentence\n1\t\xff\n", "is no UTF-8"),
        ("label\tsentence\n1\tok\n", "training has no example of the label 0"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_leaves_nothing(trec, text, message):
    (trec / "texts/TREC/train.tsv").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        data.prepare(data.task_of("TREC"), trec / "texts", trec / "out")
    assert not list(trec.glob("out*"))


def model_on(folder, **settings):
    cfg = SequenceLabelsConfig(data=str(folder))
    cfg.seed = 1
    task = SequenceLabelsTask.setup_task(cfg)
    task.load_dataset("valid")
    args = Namespace(
        encoder_embed_dim=8, encoder_ffn_embed_dim=16, encoder_attention_heads=2, max_source_positions=16, **settings
    )
    ARCH_CONFIG_REGISTRY["sequence_encoder_t5"](args)
    torch.manual_seed(1)
    return task, ARCH_MODEL_REGISTRY["sequence_encoder_t5"].build_model(args, task).eval(), args


def test_given_vectors_are_the_input_and_the_checkpoint_needs_no_file(trec):
    data.prepare(data.task_of("TREC"), trec / "texts", trec / "out")
    symbols = len(read(trec / "out")[1]["symbols"])
    vectors = np.full((symbols, 8), np.nan, dtype=np.float32)
    vectors[5] = np.arange(8)
    np.save(trec / "vectors.npy", vectors)
    _, plain, _ = model_on(trec / "out")
    task, model, args = model_on(trec / "out", embedding_file=str(trec / "vectors.npy"))
    rows, row = model.encoder.embed_tokens.weight, 5 + task.dictionary.nspecial
    torch.testing.assert_close(rows[row] * model.encoder.embed_scale, torch.arange(8.0))
    others = torch.arange(len(rows)) != row
    assert torch.equal(rows[others], plain.encoder.embed_tokens.weight[others]) and args.embedding_file is None
    np.save(trec / "vectors.npy", vectors[:, :4])
    with pytest.raises(ValueError, match=rf"has the shape \[{symbols}, 4\], but there are {symbols} symbols"):
        model_on(trec / "out", embedding_file=str(trec / "vectors.npy"))
    with pytest.raises(ValueError, match="cannot be read"):
        model_on(trec / "out", embedding_file=str(trec / "none.npy"))


def test_a_part_is_scored_by_the_mean_loss_and_beside_the_most_frequent_class_of_training(trec, monkeypatch):
    data.prepare(data.task_of("TREC"), trec / "texts", trec / "out")
    task, model, _ = model_on(trec / "out")
    monkeypatch.setattr(classify, "load", lambda *_: (model, None, task))
    found = classify.predict(str(trec), "a.pt", str(trec / "out"), "valid", {})
    dataset = task.datasets["valid"]
    sample = dataset.collater([dataset[i] for i in range(14)])
    loss, count, log = SequenceLabelsCriterion(task, 0.04)(model, sample)
    assert found == {"accuracy": log["right"] / 14, "loss": pytest.approx(loss.item() / count)}
    labels = {part: read(trec / "out", part)[1]["labels"].tolist() for part in ("train", "valid")}
    frequent, other = (max(range(6), key=labels[part].count) for part in ("train", "valid"))
    assert frequent != other
    results = json.loads((trec / "results.json").read_text())
    assert results["majority"] == {"valid": labels["valid"].count(frequent) / 14}


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "cls"])
def test_every_example_has_its_prediction_in_its_place_whatever_the_pooling(trec, pooling, monkeypatch):
    data.prepare(data.task_of("TREC"), trec / "texts", trec / "out")
    task, model, _ = model_on(trec / "out", pooling=pooling, input_dropout=0.5)
    assert model.encoder.dropout_module.p == 0.5 and model.encoder.layers[0].dropout_module.p == 0
    monkeypatch.setattr(classify, "BATCH", 4)
    dataset = task.datasets["valid"]
    found = classify.outputs(model, dataset)
    alone = [model(**dataset.collater([dataset[i]])["net_input"])[0] for i in range(len(dataset))]
    torch.testing.assert_close(found, torch.stack(alone), atol=1e-5, rtol=1e-5)
    words = dataset.collater([dataset[0]])["net_input"]
    out = model.encoder(words["src_tokens"], words["src_lengths"])["encoder_out"][0][:, 0]
    expected = {"last": out[-1], "mean": out.mean(0), "max": out.amax(0), "cls": out[0]}[pooling]
    torch.testing.assert_close(model.pool(out[:, None], words["src_lengths"])[0], expected)
