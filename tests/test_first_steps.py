"""The commands of docs/first-steps.md run as they stand there: on a small text, with the smaller numbers below."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest

ROOT = Path(__file__).parents[1]
SMALLER = {
    "vocab_size": 60,
    "tokens-per-sample": 32,
    "max-positions": 32,
    "max-source-positions": 64,
    "max-target-positions": 64,
    "encoder-embed-dim": 16,
    "encoder-ffn-embed-dim": 32,
    "encoder-attention-heads": 2,
    "decoder-embed-dim": 16,
    "decoder-ffn-embed-dim": 32,
    "decoder-attention-heads": 2,
    "warmup-updates": 2,
    "total-num-update": 8,
    "max-update": 8,
    "max-tokens": 512,
    "beam": 2,
}
WORDS = "one of the first things to know is that this small model has never seen a large text".split()
SENTENCES = {"train": 120, "valid": 21, "test": 11}


@pytest.fixture(scope="module")
def blocks():
    """masked LM, filling of masks, translation."""
    page = (ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8")
    found = re.findall(r"^```\w+\n(.*?)^```$", page, re.M | re.S)
    assert len(found) == 3
    return found


def shrunk(block):
    """The block with smaller numbers; each value that has one is a number on the page."""
    block, changed = re.subn(
        rf"\b({'|'.join(SMALLER)})([ =])(\d+)\b", lambda found: f"{found[1]}{found[2]}{SMALLER[found[1]]}", block
    )
    assert changed > 8, block
    return block


def pasted(command, folder, variables=os.environ):
    """What the command prints where each of its lines succeeds."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        env={
            **variables,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
    )
    assert done.returncode == 0, done.stdout
    assert "LEFT OUT" not in done.stdout
    return done.stdout


def in_bash(block, folder, variables=os.environ):
    return pasted(["bash", "-e", "-o", "pipefail", "-c", shrunk(block)], folder, variables)


def write_text(path, count, seed, order=1):
    chance = random.Random(seed)
    lines = [" ".join(chance.choices(WORDS, k=chance.randint(3, 9))[::order]) + "." for _ in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def assert_nothing_unknown(printed, texts):
    assert printed.count("0.0% replaced (by <unk>)") == texts, printed


def test_first_steps_lead_from_own_text_to_a_filled_mask(blocks, tmp_path):
    for seed, split in enumerate(("train", "valid")):
        write_text(tmp_path / f"{split}.txt", SENTENCES[split], seed)
    printed = in_bash(blocks[0], tmp_path, preloaded.environment())  # the commands of the translation start anew
    assert_nothing_unknown(printed, texts=2)
    assert (tmp_path / "runs" / "tupe_r" / "checkpoint_best.pt").exists()
    trained, validated = re.findall(r"valid on 'valid' subset \| loss (\S+)", printed)[-2:]
    assert float(trained) == float(validated)
    filled = pasted([sys.executable, "-c", blocks[1]], tmp_path).splitlines()
    assert filled and all(re.fullmatch(r"[01]\.\d\d This is one.+ the first things to know\.", line) for line in filled)


def test_first_steps_lead_from_own_parallel_text_to_a_bleu_score(blocks, tmp_path):
    for seed, split in enumerate(SENTENCES):
        write_text(tmp_path / f"{split}.en", SENTENCES[split], seed)
        write_text(tmp_path / f"{split}.de", SENTENCES[split], seed, order=-1)
    printed = in_bash(blocks[2], tmp_path)
    assert_nothing_unknown(printed, texts=6)
    assert re.match(r"Generate test with beam=2: BLEU = \d", printed.splitlines()[-1])
    translations = (tmp_path / "translations.txt").read_text(encoding="utf-8")
    sources = sorted(re.findall(r"^S-\d+\t(.*)$", translations, re.M))
    assert sources == sorted((tmp_path / "test.en").read_text(encoding="utf-8").splitlines())
    assert len(re.findall(r"^D-\d+\t", translations, re.M)) == SENTENCES["test"]
    assert "\N{LOWER ONE EIGHTH BLOCK}" not in translations
