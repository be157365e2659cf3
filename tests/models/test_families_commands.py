"""transformer_align_NAME, the non-autoregressive models and s2t_transformer_NAME through fairseq's own commands."""

import random
import re

import numpy as np
import pytest
from fairseq_data import USER_DIR, WORDS, binarise_translation, error_line, fairseq, fairseq_ok, torchrun, translation

pytestmark = pytest.mark.slow
ALL = ["--required-batch-size-multiple", 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("variants")


@pytest.fixture(scope="module")
def data(folder):
    """Sentences and their reversals, with alignments."""
    made = binarise_translation(folder / "corpus")
    prefixes = []
    for split in ("train", "valid", "test"):
        lines = (folder / "corpus" / f"{split}.a").read_text().splitlines()
        pairs = [" ".join(f"{n}-{len(words) - 1 - n}" for n in range(len(words))) for words in map(str.split, lines)]
        (folder / "corpus" / f"{split}.align").write_text("\n".join(pairs) + "\n")
        prefixes += [f"--{split}pref", folder / "corpus" / split]
    options = ["--source-lang", "a", "--target-lang", "b", "--joined-dictionary", "--srcdict", made / "dict.a.txt"]
    fairseq_ok("preprocess", *options, *prefixes, "--align-suffix", "align", "--destdir", folder / "bin")
    return folder / "bin"


def generated(data, folder, *more):
    """The sentences that the last checkpoint generates, and all that is printed."""
    path = folder / "checkpoint_last.pt"
    options = ["--user-dir", USER_DIR, "--path", path, "--cpu", "--num-workers", 0, "--batch-size", 8, *ALL]
    printed = fairseq_ok("generate", data, *options, *more)
    return re.findall(r"^H-\d+\t", printed, re.M), printed


def test_transformer_align_learns_alignments_and_prints_them(folder, data):
    save_dir = folder / "align"
    arguments = translation(data, save_dir, "--max-update", 20, *ALL, "--load-alignments", arch="transformer_align_t5")
    more = ["--alignment-layer", 1, "--alignment-heads", 1, "--full-context-alignment"]
    criterion = ["--criterion", "label_smoothed_cross_entropy_with_alignment", "--alignment-lambda", 1]
    printed = fairseq_ok("train", *arguments, *more, *criterion)
    assert "alignment_loss" in printed
    sentences, printed = generated(data, save_dir, "--beam", 2, "--print-alignment", "hard")
    assert len(sentences) == 11 and len(re.findall(r"^A-\d+\t\d+-\d+", printed, re.M)) == 11


@pytest.mark.parametrize(
    "family, noise",
    [
        ("nonautoregressive_transformer", "full_mask"),
        ("cmlm_transformer", "random_mask"),
        ("levenshtein_transformer", "random_delete"),
    ],
)
def test_nonautoregressive_models_train_and_translate(folder, data, family, noise):
    save_dir = folder / family
    arguments = translation(data, save_dir, "--max-update", 12, *ALL, arch=f"{family}_t5")
    more = ["--task", "translation_lev", "--noise", noise, "--criterion", "nat_loss", "--label-smoothing", 0.1]
    fairseq_ok("train", *arguments, *more, "--apply-bert-init")
    sentences, _ = generated(data, save_dir, "--task", "translation_lev", "--iter-decode-max-iter", 3, "--beam", 1)
    assert len(sentences) == 11
    if family == "levenshtein_transformer":
        model = ["--user-dir", USER_DIR, "--cpu", "--path", save_dir / "checkpoint_last.pt", "--num-workers", 0]
        more = ["--task", "translation_lev", "--batch-size", 4, *ALL]
        fairseq_ok("validate", data, *model, *more, launcher=torchrun(2))  # 11 sentences: one rank has a batch more
        sentences, printed = generated(data, save_dir, "--task", "translation_lev", "--distributed-world-size", 2)
        assert len(sentences) < 11 and "the result is that of one of 2 parts of the data" in printed


def speech(folder):
    """Made-up features of speech: 8 frames for each word, with the word's own mean."""
    chance, noise = random.Random(1), np.random.default_rng(1)
    (folder / "audio").mkdir(parents=True)
    means = noise.normal(size=(len(WORDS), 6)).astype(np.float32)
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS))
    (folder / "config.yaml").write_text("vocab_filename: dict.txt\ninput_feat_per_channel: 6\ninput_channels: 1\n")
    for split, count in {"train": 24, "valid": 8, "test": 8}.items():
        rows = ["id\taudio\tn_frames\ttgt_text\tspeaker"]
        for number in range(count):
            words = chance.choices(range(len(WORDS)), k=chance.randint(2, 6))
            features = means[np.repeat(words, 8)] + 0.1 * noise.normal(size=(8 * len(words), 6))
            np.save(folder / "audio" / f"{split}{number}.npy", features.astype(np.float32))
            text = " ".join(WORDS[word] for word in words)
            rows.append(f"{split}{number}\t{folder}/audio/{split}{number}.npy\t{len(features)}\t{text}\tone")
        (folder / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    return folder


def test_s2t_transformer_trains_starts_from_a_trained_encoder_and_transcribes(folder):
    data = speech(folder / "speech")
    sizes = ["--encoder-layers", 2, "--decoder-layers", 2, "--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 32]
    sizes += ["--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--conv-channels", 16]
    sizes += ["--max-source-positions", 60, "--max-target-positions", 20]
    task = ["--task", "speech_to_text", "--train-subset", "train", "--valid-subset", "valid"]
    arguments = [data, "--user-dir", USER_DIR, "--cpu", "--arch", "s2t_transformer_tupe_r_s", *sizes, *task]
    arguments += ["--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam", "--lr", 0.01, "--seed", 1]
    arguments += ["--max-tokens", 400, "--max-update", 6, "--num-workers", 0, "--no-progress-bar", *ALL]
    fairseq_ok("train", *arguments, "--save-dir", folder / "asr")
    start = ["--load-pretrained-encoder-from", folder / "asr" / "checkpoint_last.pt"]
    fairseq_ok("train", *arguments, "--save-dir", folder / "st", *start)
    (folder / "asr" / "checkpoint_last.pt").unlink()  # a trained model is read without it
    sentences, _ = generated(data, folder / "st", "--task", "speech_to_text", "--gen-subset", "test", "--beam", 2)
    assert len(sentences) == 8
    done = fairseq("train", *arguments, "--save-dir", folder / "again", *start)
    assert "fairseq_relpos: error: " in error_line(done)
