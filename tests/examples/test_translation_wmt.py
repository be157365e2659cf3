"""The WMT recipe without a network: stand-ins in a folder, and links that do not answer."""

import hashlib
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest
from recipes import Recipe, refused

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "translation_wmt_en_de"
TINY = """
VOCAB_SIZE=70 WORKERS=1 VOCAB_THRESHOLD=2
LAYERS=1 EMBED_DIM=16 FFN_DIM=32 HEADS=2
BATCH=400 TOKENS_PER_UPDATE=200 UPDATES=2 WARMUP_UPDATES=1 LOG_EVERY=1 VALIDATE_EVERY=1 SAVE_EVERY=1
"""
WORDS = "der die Katze Hund-Haus sieht macht auf , .".split()


def lines(count, seed):
    chance = random.Random(seed)
    return "".join(" ".join(chance.choices(WORDS, k=chance.randint(4, 9))) + "\n" for _ in range(count))


def write(folder, name, count):
    for number, language in enumerate(("en", "de")):
        Path(folder, f"{name}.{language}").write_text(lines(count, number), encoding="utf-8")


# no test asks the network
recipe = Recipe("translation_wmt_en_de", DATA="", RUNS="", SACREBLEU="none")
succeeds = recipe.succeeds


@pytest.fixture
def stand_ins(tmp_path):
    """Small files under the names of WMT's, some of them packed as WMT has them."""
    folder = tmp_path / "stand-ins"
    folder.mkdir()
    for name in ("newstest2013", "newstest2014", "newstest2015", "newstest2016", "newstest2017"):
        write(folder, name, 6)
    for name in ("europarl-v7.de-en", "commoncrawl.de-en", "news-commentary-v9.de-en", "corpus.tc"):
        write(folder, name, 60)
    for language in ("en", "de"):
        subprocess.run(["gzip", folder / f"corpus.tc.{language}"], check=True)
        subprocess.run(["xz", folder / f"commoncrawl.de-en.{language}"], check=True)
        (folder / f"truecase-model.{language}").write_text("der (9/9)\nKatze (5/5)\n")
    with tarfile.open(folder / "true.tgz", "w:gz") as tar:
        for language in ("en", "de"):
            tar.add(folder / f"truecase-model.{language}", f"./truecase-model.{language}")
            (folder / f"truecase-model.{language}").unlink()
    return folder


def test_wmt14_from_a_folder_to_scores_of_the_averaged_checkpoint(tmp_path, stand_ins):
    (tmp_path / "tiny.sh").write_text(TINY + "AVERAGED=2 PRECISION=fp32 BEAM=2 GENERATE_FLAGS=(--max-len-b 20)\n")
    printed = succeeds(tmp_path, "prepare.sh", "--offline", stand_ins)
    assert "train: 105 pairs" in printed and "left out: 75 with lengths beyond 1.5 : 1" in printed
    assert "ready: data-bin/translation_wmt14_en_de" in printed
    printed = succeeds(tmp_path, "run.sh", "evaluate", "t5")
    assert "average of checkpoint_" in printed and "BLEU|nrefs:1" in printed
    assert "newstest2014 (6 sentences)" in succeeds(tmp_path, "run.sh", "report")


@pytest.mark.slow
def test_at5_has_its_own_tokens_dictionaries_flags_and_test_sets(tmp_path, stand_ins):
    (tmp_path / "tiny.sh").write_text(f". {RECIPE}/at5.sh\n{TINY}")
    succeeds(tmp_path, "prepare.sh", "--offline", stand_ins)
    data = tmp_path / "data-bin" / "translation_wmt17_at5"
    # tokenised with hyphens split, and truecased
    text = (data / "text" / "test.de").read_text()
    assert "Hund @-@ Haus" in text and len(text.splitlines()) == 6
    succeeds(tmp_path, "run.sh", "evaluate", "at5")
    run = tmp_path / "runs" / "translation_wmt17_at5" / "at5-seed1"
    command = (run / "trained").read_text()
    for flag in (
        "--position-layers=first",
        "--position-hparams=gamma_min=1 gamma_max=15 hidden=32,4",
        "--encoder-normalize-before",
        "'--max-source-positions' '256'",
        "--eval-bleu",
    ):
        assert flag in command
    assert "--share-all-embeddings" not in command
    tokens, joined = (run / "test2.de.tokens").read_text(), (run / "test2.de").read_text()
    assert len(tokens.splitlines()) == len(joined.splitlines()) == 6


def test_a_text_that_is_not_in_the_folder_is_named(tmp_path, stand_ins):
    (tmp_path / "tiny.sh").write_text(TINY)
    (stand_ins / "europarl-v7.de-en.de").unlink()
    line = refused(recipe(tmp_path, "prepare.sh", "--offline", stand_ins))
    assert "europarl-v7.de-en.de" in line and "de-en.tgz" in line
    assert "no such folder" in refused(recipe(tmp_path, "prepare.sh", "--offline", "absent"))
    assert not (tmp_path / "data-bin" / "translation_wmt14_en_de" / "dict.de.txt").exists()
    given = [f"--{split}={stand_ins}/newstest2014" for split in ("train", "valid", "test")]
    line = refused(recipe(tmp_path, "prepare.sh", "out", "--offline", stand_ins, *given))
    assert "--offline is for the texts that are downloaded" in line
    (tmp_path / "tiny.sh").write_text(f"{TINY}TEXT=tokenized\n")
    assert "TEXT=tokenized: give raw or tokenised" in refused(recipe(tmp_path, "prepare.sh", "--offline", stand_ins))


# --- the batch ---


def batch(names, settings="", **environment):
    """The values of names once make_batch has run, on a machine with 8 GPUs."""
    script = f"""set -euo pipefail; . {RECIPE}/../common/recipe.sh; read_settings
python() {{ echo 8; }}
eval "$(sed -n '/^make_batch/,/^}}/p' {RECIPE}/../translation_small/run.sh)"
make_batch; echo {names}"""
    return subprocess.run(
        ["bash", "-c", script, "run.sh"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HERE": str(RECIPE), "SETTINGS": str(RECIPE / settings) if settings else "", **environment},
    )


@pytest.mark.parametrize(
    "settings, environment, expected",
    [("", {}, "8 3584 16"), ("", {"GPUS": "1"}, "1 3584 128"), ("at5.sh", {"TOKENS_PER_UPDATE": "3125"}, "8 3125 1")],
)
def test_every_number_of_gpus_makes_the_batch_of_the_paper(settings, environment, expected):
    done = batch("$GPUS $TOKENS_PER_UPDATE $UPDATE_FREQ", settings, **environment)
    assert done.stdout.strip() == expected, done.stdout


@pytest.mark.parametrize(
    "settings, environment, message",
    [
        (
            "at5.sh",
            {},
            "GPUS=8 x TOKENS_PER_UPDATE=12500 x UPDATE_FREQ=1 make an update of 100000 tokens, and the settings "
            "say BATCH=25000: set TOKENS_PER_UPDATE=3125 UPDATE_FREQ=1",
        ),
        ("at5.sh", {"UPDATE_FREQ": "2"}, "of 200000 tokens"),
        ("", {"GPUS": "3"}, "GPUS=3 x TOKENS_PER_UPDATE=3584 x UPDATE_FREQ=42 make an update of 451584 tokens"),
        ("", {"GPUS": "many"}, "GPUS=many: give a number"),
    ],
)
def test_gpus_that_make_another_batch_are_refused_in_one_line(settings, environment, message):
    assert message in refused(batch("", settings, **environment))


def test_flags_that_change_the_batch_are_refused_and_a_run_does_not_go_on_with_another(tmp_path):
    (tmp_path / "tiny.sh").write_text(TINY)
    data = tmp_path / "data-bin" / "translation_wmt14_en_de"
    data.mkdir(parents=True)
    for language in ("en", "de"):
        (data / f"dict.{language}.txt").write_text("a 1\n")
    for flag in ("--update-freq", "--max-tokens=4", "--distributed-world-size"):
        assert "the batch is BATCH=400" in refused(recipe(tmp_path, "run.sh", "train", "t5", flag, "4"))
    run = tmp_path / "runs" / "translation_wmt14_en_de" / "t5-seed1"
    assert not run.exists()
    # as if it had been begun with a batch of 200 tokens
    run.mkdir(parents=True)
    (run / "checkpoint_last.pt").touch()
    (run / "conditions").write_text("batch 200 tokens\n")
    digest = hashlib.sha256(b"a 1\na 1\n").hexdigest()
    (run / "dictionary").write_text(f"{digest}\n")
    (run / "command").write_text("'fairseq-train' '--user-dir' 'x'\n")
    line = refused(recipe(tmp_path, "run.sh", "train", "t5"))
    assert "was begun with other settings" in line and "was batch 200 tokens" in line and "is batch 400 tokens" in line
