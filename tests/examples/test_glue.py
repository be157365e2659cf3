"""The recipe through its own scripts, sized for seconds."""

import functools
import json
import re
import runpy
import shlex
import zipfile
from pathlib import Path

import pytest
from glue_files import write_tsv, write_vocabulary
from recipes import COMMON, Recipe
from small_models import trained

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "glue"
# of the sweep's trainings one has the allocator that the recipe sets: it needs a Python of its own
TINY = """VOCABULARY=vocabulary EPOCHS=1 BATCH=8 MAX_TOKENS= VALIDATIONS=1
case ${_given[*]} in *1e30*) ALLOCATOR=default ;; *) ALLOCATOR=tuned ;; esac
"""
PAIRS = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta b\tc\n0\t9\t10\td\te\n"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glue")
    (folder / "tiny.sh").write_text(TINY)
    (folder / "vocabulary").mkdir()
    write_vocabulary(folder / "vocabulary")
    tables = write_tsv(folder / "tables" / "RTE", "RTE")
    (tables / "test.tsv").write_text((tables / "dev.tsv").read_text())  # with labels
    (folder / "t5-seed1").mkdir()
    trained("roberta_t5", folder / "t5-seed1" / "start.pt")
    return folder


recipe = Recipe("glue")


def test_from_tables_to_a_report_and_files_for_the_server(workplace):
    succeeds = functools.partial(recipe.succeeds, workplace)

    assert "RTE: 24 train, 24 valid, 24 test" in succeeds("prepare.sh", "--offline", "tables", "RTE")
    assert succeeds("prepare.sh", "--offline", "tables", "RTE") == "prepare.sh: data/RTE is ready\n"
    start, sweep = "t5-seed1/start.pt", {"SEEDS": "2", "LEARNING_RATES": "1e-3 1e30"}
    assert "2 of 2 runs have ended" in succeeds("run.sh", "sweep", "RTE", start, **sweep)
    assert "2 runs, 2 of them done" in succeeds("run.sh", "sweep", "RTE", start, **sweep)
    (run,) = (path.parent for path in workplace.glob("runs/sweep/runs/*/t5-seed1/RTE-seed2/results.json"))
    results = json.loads((run / "results.json").read_text())
    expected = {"task": "RTE", "encoding": "t5", "lr": 1e-3, "seed": 2, "split": "valid", "metric": "accuracy"}
    assert {name: results[name] for name in expected} == expected
    found = [line.split("\t")[1:3] for line in (run / "predictions.valid.tsv").read_text().splitlines()[1:]]
    assert results["metrics"]["accuracy"] == sum(one == other for one, other in found) / 24
    assert results["majority"] == {"valid": 0.5}
    assert results["one_answer"] == (len({one for one, _ in found}) == 1)
    assert "--total-num-update' '3'" in (run / "trained").read_text()
    given = {"SEED": "2", "LEARNING_RATE": "1e-3", "RUNS": str(run.parents[1])}
    again = succeeds("run.sh", "finetune", "RTE", start, **given)
    assert again == f"run.sh: {run} is trained\n"
    before = (workplace / "runs" / "RESULTS.md").read_text()
    succeeds("run.sh", "test", "RTE", start, **given)
    assert len((run / "RTE.tsv").read_text().splitlines()) == 25
    tested = json.loads((run / "results.json").read_text())
    assert tested["test"] == tested["metrics"] and tested["majority"]["test"] == 0.5  # the same examples
    assert "| t5 | 0.001 | 1 |" in succeeds("run.sh", "report") and "| test |" not in before
    assert "| validation | test |" in (workplace / "runs" / "RESULTS.md").read_text()
    (diverged,) = (path.parent for path in workplace.glob("runs/sweep/runs/*lr1e30*/sweep.json"))
    assert json.loads((diverged / "sweep.json").read_text())["state"] == "diverged"
    assert "| t5 | 0.001 | 1 |" in before and "lr1e30" in before.splitlines()[-1]


@pytest.mark.parametrize(
    "script, words, message",
    [
        (
            "prepare.sh",
            "--offline tables RTE WNLI",
            "--offline tables lacks WNLI/train.tsv, WNLI/dev.tsv (plain, .xz or",
        ),
        ("prepare.sh", "--vocabulary tables RTE", "no dict.txt in tables: give the folder of the pretraining's data"),
        ("prepare.sh", "SICK", "no task 'SICK': give CoLA, SST-2"),
        (
            "run.sh",
            "finetune CoLA t5-seed1/start.pt",
            "no data in nowhere/CoLA: run prepare.sh CoLA first, or set DATA",
        ),
        ("run.sh", "finetune SICK t5-seed1/start.pt", "no task 'SICK': give CoLA, SST-2, "),
        ("run.sh", "finetune CoLA", "which checkpoint? usage: run.sh command|finetune|test|predict|sweep TASK"),
        ("run.sh", "sweep RTE 'a b/start.pt'", "the path of a b/start.pt has a space, which a sweep cannot have"),
        ("run.sh", "predict RTE x/start.pt", "no checkpoint runs/x/RTE-seed1/checkpoint_best.pt: run.sh finetune RTE"),
    ],
)
def test_wrong_input_is_one_line(workplace, script, words, message):
    done = recipe(workplace, script, *shlex.split(words), DATA="nowhere")
    (line,) = done.stdout.splitlines()
    assert done.returncode == 1 and ": error: " in line and message in line


def fetch(tmp_path, get, *tasks):
    """The archives are others than those of the list, so it has no digests."""
    sources = re.sub("sha256:[0-9a-f]{64}", "-", (RECIPE / "downloads.txt").read_text())
    (tmp_path / "downloads.txt").write_text(sources)
    get(tmp_path / "downloads.txt", tmp_path / "out", tmp_path, tasks)


def test_archives_of_a_folder_are_unpacked_and_mrpc_is_split_as_glue_does(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(COMMON)
    get = runpy.run_path(RECIPE / "tables.py")["get"]
    with zipfile.ZipFile(tmp_path / "RTE.zip", "w") as packed:
        for name in ("train", "dev", "test"):
            packed.writestr(f"RTE/{name}.tsv", f"{name}\n")
            packed.writestr(f"__MACOSX/RTE/{name}.tsv", "no\n")
    (tmp_path / "msr_paraphrase_train.txt").write_text("\ufeff" + PAIRS, encoding="utf-8")
    (tmp_path / "msr_paraphrase_test.txt").write_text(PAIRS)
    (tmp_path / "mrpc_dev_ids.tsv").write_text("9\t10\n")
    fetch(tmp_path, get, "RTE", "MRPC")
    out = tmp_path / "out"
    assert (out / "RTE/dev.tsv").read_text() == "dev\n"
    header, first, second = PAIRS.splitlines()
    assert (out / "MRPC/train.tsv").read_text().splitlines() == [header, first]
    assert (out / "MRPC/dev.tsv").read_text().splitlines() == [header, second]
    (out / "MNLI").mkdir()
    for name in ("train", "dev_matched", "dev_mismatched", "test_matched", "diagnostic"):
        (out / f"MNLI/{name}.tsv").write_text("of before\n")
        (tmp_path / "later/MNLI").mkdir(parents=True, exist_ok=True)
        if name.startswith(("train", "dev")):
            (tmp_path / f"later/MNLI/{name}.tsv").write_text("later\n")
    get(tmp_path / "downloads.txt", out, tmp_path / "later", ["MNLI"])
    assert not (out / "MNLI/test_matched.tsv").exists() and (out / "MNLI/diagnostic.tsv").exists()
    # other tables, in another folder: no table of before remains
    (tmp_path / "other/RTE").mkdir(parents=True)
    for name in ("train", "dev"):
        (tmp_path / f"other/RTE/{name}.tsv").write_text("other\n")
    get(tmp_path / "downloads.txt", out, tmp_path / "other", ["RTE"])
    assert {path.name: path.read_text() for path in (out / "RTE").iterdir()} == {
        "train.tsv": "other\n",
        "dev.tsv": "other\n",
    }
