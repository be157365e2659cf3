"""The commands of docs/first-steps.md and docs/fine-tuning.md run as they stand there, one after another: on a small
text, with the smaller numbers below."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
#: number -> what has it here
NUMBERS = {
    2: "beam encoder-attention-heads decoder-attention-heads epochs max-epoch warmup-updates",
    8: "DOC_STRIDE max-update total-num-update",
    12: "MAX_QUERY_LENGTH",
    16: "encoder-embed-dim decoder-embed-dim",
    32: "encoder-ffn-embed-dim decoder-ffn-embed-dim max-positions MAX_POSITIONS tokens-per-sample WINDOW",
    60: "vocab_size",
    64: "max-source-positions max-target-positions",
    512: "max-tokens",
}
SMALLER = {name: number for number, names in NUMBERS.items() for name in names.split()}
WORDS = "one of the first things to know is that this small model has never seen a large text".split()
SENTENCES = {"train": 120, "valid": 21, "test": 11}


def blocks(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```(?:bash|python)\n(.*?)^```$", text, re.M | re.S)


MASKED_LM, FILLING, COMPARISON, TRANSLATION = blocks("first-steps.md")
SENTENCES_OF_ONES_OWN, CLASSIFYING, FROM_SCRATCH, ANSWERS = blocks("fine-tuning.md")
(EXPORT,) = re.findall(r"`fairseq-relpos (export-hf \S+ \S+ --data \S+)`", (ROOT / "docs/fine-tuning.md").read_text())


def shrunk(block):
    """The block with smaller numbers; each value that has one is a number on the page."""
    block, changed = re.subn(
        rf"\b({'|'.join(SMALLER)})([ =])(\d+)\b", lambda found: f"{found[1]}{found[2]}{SMALLER[found[1]]}", block
    )
    assert changed, block
    return block


def pasted(command, folder, variables=os.environ):
    """The output of the command, each line of which must succeed."""
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


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder after the first commands, and what they have printed."""
    folder = tmp_path_factory.mktemp("first_steps")
    for seed, split in enumerate(("train", "valid")):
        write_text(folder / f"{split}.txt", SENTENCES[split], seed)
    return folder, in_bash(MASKED_LM, folder, preloaded.environment())  # those of the translation start anew


def test_first_steps_lead_from_own_text_to_a_filled_mask_and_a_comparison(pretrained):
    folder, printed = pretrained
    assert_nothing_unknown(printed, texts=2)
    assert (folder / "runs" / "tupe_r" / "checkpoint_best.pt").exists()
    trained = re.findall(r'"valid_loss": "(\S+)"', printed)[-1]
    assert float(trained) == float(re.search(r"valid on 'valid' subset \| loss (\S+)", printed)[1])
    filled = pasted([sys.executable, "-c", FILLING], folder).splitlines()
    assert filled and all(re.fullmatch(r"[01]\.\d\d This is one.+ the first things to know\.", line) for line in filled)
    printed = pasted(["bash", "-e", "-c", COMPARISON], folder, preloaded.environment())
    assert re.search(r"^\| tupe_r \| 1 \| \S+ \|$", printed, re.M)
    assert (folder / "losses.png").exists() and "tupe_r" in (folder / "report.html").read_text()


def write_reviews(folder):
    for split, sentences in {"train": WORDS, "valid": WORDS[:6], "test": WORDS[6:]}.items():
        lines = [f"{number}\t{'bad' if number % 3 else 'good'}\t{word} is one" for number, word in enumerate(sentences)]
        (folder / f"reviews.{split}.tsv").write_text("\n".join(["id\tlabel\tsentence", *lines]), encoding="utf-8")


def write_questions(folder):
    context = " ".join(WORDS)
    answers = [{"text": word, "answer_start": context.index(word)} for word in ("first", "small", "large")]
    asked = [{"id": answer["text"], "question": "one of the things?", "answers": [answer]} for answer in answers]
    data = {"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": asked}]}]}
    for split in ("train", "valid"):
        (folder / f"questions.{split}.json").write_text(json.dumps(data), encoding="utf-8")


def accuracy_of(predictions, wanted):
    found = [line.split("\t")[1] for line in predictions.read_text(encoding="utf-8").splitlines()[1:]]
    return sum(one == other for one, other in zip(found, wanted, strict=True)) / len(wanted)


def test_first_steps_and_a_table_lead_to_a_fine_tuned_model_its_predictions_and_a_score(pretrained):
    folder, _ = pretrained
    write_reviews(folder)
    labels = ["bad" if number % 3 else "good" for number in range(6)]
    printed = in_bash(SENTENCES_OF_ONES_OWN, folder, preloaded.environment())
    assert f"own: {len(WORDS)} train, 6 valid, {len(WORDS) - 6} test" in printed
    scores = json.loads(printed.splitlines()[-1])
    assert scores["valid"]["accuracy"] == accuracy_of(folder / "runs/reviews/predictions.valid.tsv", labels)
    assert {"accuracy", "f1", "mcc"} <= set(scores["test"])
    pasted(["fairseq-relpos", *EXPORT.split()], folder)
    found = pasted([sys.executable, "-c", CLASSIFYING], folder)
    assert re.search(r"{'label': '(bad|good)', 'score': 0\.\d+}", found)

    printed = in_bash(FROM_SCRATCH, folder, preloaded.environment())
    results = json.loads((folder / "runs/words/results.json").read_text())
    assert results["metrics"]["accuracy"] == accuracy_of(folder / "runs/words/valid.predictions.tsv", labels)
    assert f"test: accuracy {results['test']['accuracy']:.4f}" in printed


def test_first_steps_and_questions_lead_to_answers_and_a_score(pretrained):
    folder, _ = pretrained
    write_questions(folder)
    in_bash(ANSWERS, folder, preloaded.environment())
    run = folder / "runs/squad/tupe_r-seed1"
    answers = json.loads((run / "valid.predictions.json").read_text())
    assert answers.keys() == {"first", "small", "large"}
    hits = sum(name == answer for name, answer in answers.items())
    metrics = json.loads((run / "results.json").read_text())["metrics"]
    assert metrics["exact_match"] >= 100 * hits / 3 and 0 <= metrics["f1"] <= 100


def test_first_steps_lead_from_own_parallel_text_to_a_bleu_score(tmp_path):
    for seed, split in enumerate(SENTENCES):
        write_text(tmp_path / f"{split}.en", SENTENCES[split], seed)
        write_text(tmp_path / f"{split}.de", SENTENCES[split], seed, order=-1)
    printed = in_bash(TRANSLATION, tmp_path)
    assert_nothing_unknown(printed, texts=6)
    assert re.match(r"Generate test with beam=2: BLEU = \d", printed.splitlines()[-1])
    translations = (tmp_path / "translations.txt").read_text(encoding="utf-8")
    sources = sorted(re.findall(r"^S-\d+\t(.*)$", translations, re.M))
    assert sources == sorted((tmp_path / "test.en").read_text(encoding="utf-8").splitlines())
    assert len(re.findall(r"^D-\d+\t", translations, re.M)) == SENTENCES["test"]
    assert "\N{LOWER ONE EIGHTH BLOCK}" not in translations
