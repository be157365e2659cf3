"""The recipe through its own scripts, sized for seconds: from text to a BART, and from there to a translation."""

import re

import pytest
from recipes import Recipe

from fairseq_relpos.checkpoints.loading import load_checkpoint

MODEL = "LAYERS=1 EMBED_DIM=16 HEADS=2 FFN_DIM=32 UPDATES=2 WARMUP_UPDATES=1 LOG_EVERY=1 VALIDATE_EVERY=2\n"
PRETRAINING = MODEL + "VOCAB_SIZE=60 TOKENS_PER_SAMPLE=16 TOKENS_PER_UPDATE=256\n"
TRANSLATION = MODEL + "VOCABULARY=data START_FROM=runs TOKENS_PER_UPDATE=400 SAVE_EVERY=2 BEAM=2 LENGTH_PENALTIES=\n"
SENTENCES = {
    "en": ["A dog sleeps here .", "The cat works .", "Cats laugh", "the man sees the dog"],
    "de": ["Ein Hund schläft hier .", "Die Katze arbeitet .", "Katzen lachen", "der Mann sieht den Hund"],
}
denoising, translation = Recipe("denoising"), Recipe("translation_small")


@pytest.mark.slow
def test_a_text_becomes_a_bart_and_a_translation_starts_from_it(tmp_path):
    (tmp_path / "tiny.sh").write_text(PRETRAINING)
    for language, lines in SENTENCES.items():
        for split, times in (("train", 12), ("valid", 1)):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines * times))
    texts = ["--train", "train.en", "train.de", "--valid", "valid.en", "valid.de"]
    denoising.succeeds(tmp_path, "prepare.sh", "data", *texts)
    assert "no checkpoint runs/t5-seed1" in denoising.fails(tmp_path, "run.sh", "validate", "t5")
    denoising.succeeds(tmp_path, "run.sh", "train", "t5")
    assert "t5-seed1 is trained" in denoising.succeeds(tmp_path, "run.sh", "train", "t5")
    assert re.search(r"loss [\d.]+ ", denoising.succeeds(tmp_path, "run.sh", "validate", "t5"))
    assert "| t5 |" in denoising.succeeds(tmp_path, "run.sh", "report", "out")
    assert (tmp_path / "out/losses.png").exists()

    bart_like = (denoising.folder / "translation.sh").read_text(encoding="utf-8")
    (tmp_path / "tiny.sh").write_text(bart_like + TRANSLATION)
    place = {"DATA": "pairs", "RUNS": "translated"}
    pairs = ["--train", "train", "--valid", "valid", "--test", "valid"]
    translation.succeeds(tmp_path, "prepare.sh", *pairs, **place)
    assert (tmp_path / "pairs/spm.model").read_bytes() == (tmp_path / "data/spm.model").read_bytes()
    translation.succeeds(tmp_path, "run.sh", "train", "t5", **place)
    run = tmp_path / "translated/t5-seed1"
    assert "initialised, seed 1: 0 numbers" in (run / "start.txt").read_text()
    paths = (run / "start.pt", tmp_path / "runs/t5-seed1/checkpoint_last.pt")
    start, bart = (load_checkpoint(path)["model"] for path in paths)
    words = "encoder.embed_tokens.weight"
    assert start[words].equal(bart[words][:-1]) and "start.pt" in (run / "trained").read_text()
    assert "no checkpoint runs/shaw-seed1" in translation.fails(tmp_path, "run.sh", "train", "shaw", **place)
    (tmp_path / "tiny.sh").write_text(bart_like + TRANSLATION + "VOCABULARY=gone\n")
    assert "no spm.model and dict.txt in VOCABULARY=gone" in translation.fails(tmp_path, "prepare.sh", *pairs, **place)


def test_a_report_that_is_refused_leaves_the_old_one(tmp_path):
    (tmp_path / "tiny.sh").touch()
    (tmp_path / "runs" / "t5-seed1").mkdir(parents=True)  # without a log
    (tmp_path / "RESULTS.md").write_text("kept")
    denoising.fails(tmp_path, "run.sh", "report", ".")
    assert (tmp_path / "RESULTS.md").read_text() == "kept"
