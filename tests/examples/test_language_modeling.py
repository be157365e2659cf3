"""The recipe through its own scripts, sized for seconds; and the conventions of its figures on text counted by hand."""

import json
import math
import os
import random
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from recipes import Recipe

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "language_modeling"
COMMON = ROOT / "examples" / "common"


@pytest.fixture
def programs(monkeypatch):
    """The programs of the recipe in this process: name -> its functions."""
    monkeypatch.syspath_prepend(str(COMMON))
    monkeypatch.syspath_prepend(str(RECIPE))
    return lambda name: runpy.run_path(str(RECIPE / f"{name}.py"))


# --- counts and figures ---

TEXT = " = Title = \n\nthe  cat sat ,\n"  # 3 lines; 3 + 0 + 4 words; "= Title =", "" and "the cat sat ,"


def test_words_and_line_ends_are_counted_as_the_papers_do(programs, tmp_path, capsys):
    (tmp_path / "test.txt").write_text(TEXT)
    import corpus

    counts = corpus.encode(tmp_path, "test", None, counted=True)
    assert counts == {"lines": 3, "tokens": 10, "words": 10, "bytes": None}
    assert (tmp_path / "test.pieces").read_text() == "= Title =\n\nthe cat sat ,\n"
    figures = programs("figures")
    # each token with probability 1/4
    assert figures["FIGURES"]["words"][1](10 * math.log(4), counts) == pytest.approx(4)


def test_bits_per_byte_are_of_the_text_whatever_the_pieces(programs, tmp_path, monkeypatch):
    import corpus

    figures = programs("figures")
    (tmp_path / "train.txt").write_text("the cat sat on the mat , a title of cats\n" * 20)
    (tmp_path / "test.txt").write_text(f"{TEXT}snow: 雪\n")
    lines = corpus.lines_of(tmp_path / "train.txt")
    corpus.learn(tmp_path / "spm.model", lines, 285, "identity", byte_fallback=True)
    counts = corpus.encode(tmp_path, "test", corpus.processor_of(tmp_path), counted=True)
    units = (tmp_path / "test.pieces").read_text().splitlines()
    assert units[-1].endswith("<0xE9> <0x9B> <0xAA>")  # a character that the training text lacks
    assert counts["bytes"] == (9 + 1) + (0 + 1) + (13 + 1) + (6 + 3 + 1)
    assert counts["words"] == 10 + 3 and counts["lines"] == 4
    assert counts["tokens"] == sum(len(line.split()) + 1 for line in units)
    # one bit for each byte
    nats = counts["bytes"] * math.log(2)
    assert figures["FIGURES"]["pieces"][1](nats, counts) == pytest.approx(1)
    assert figures["perplexity_per_word"](nats, counts) == pytest.approx(2 ** (35 / 13))


def test_a_word_that_the_training_text_lacks_is_an_error_and_no_unk(programs, tmp_path):
    (tmp_path / "dict.txt").write_text("cat 3\nsat 2\n")
    (tmp_path / "test.pieces").write_text("cat <unk> sat\nthe cat\n")
    with pytest.raises(SystemExit, match="test, line 2: the word 'the' is not in the training text: set VOCABULARY"):
        import corpus

        corpus.refuse_unknown_words(tmp_path / "dict.txt", tmp_path, ["test"])


@pytest.mark.parametrize("text", ["128", "128/", "0/128", "64/640/400/1", "a/b"])
def test_an_evaluation_that_is_none_is_named(programs, text):
    with pytest.raises(SystemExit, match="is not TOKENS/MEMORY or TOKENS/MEMORY/CLAMP"):
        programs("score")["evaluation_of"](text)


def test_the_report_takes_the_runs_that_are_not_scored_again(programs, tmp_path):
    def is_scored():
        settings = {"EVALUATED": "checkpoint_last.pt", "HOW_SCORED": "same length no, 4 streams"}
        return programs("report")["is_scored"](tmp_path, settings)

    for number, name in enumerate(("trained", "checkpoint_last.pt", "scores.json.how", "scores.json")):
        (tmp_path / name).write_text("128/0 same length no, 4 streams\n")
        os.utime(tmp_path / name, (10**9 + number, 10**9 + number))
    assert is_scored()  # the scores are the last: copied without its time, or scored once more and stopped
    os.utime(tmp_path / "checkpoint_last.pt")
    assert not is_scored()
    os.utime(tmp_path / "scores.json.how")
    assert is_scored()
    (tmp_path / "scores.json.how").write_text("128/0 same length yes, 4 streams\n")
    assert not is_scored()
    (tmp_path / "scores.json.how").unlink()
    assert not is_scored()


def test_longer_blocks_of_other_settings_or_of_an_older_checkpoint_are_left_out_and_named(programs, tmp_path):
    lengths_of = programs("report")["lengths_of"]
    how = {"split": "test", "tokens": 9, "checkpoint": "runs/x/checkpoint_last.pt", "digest": ""}
    how["measurements"] = [{"length": 16}, {"length": 40}]
    others = {
        "a": {},
        "b": {"tokens": 5},
        "c": {"split": "valid"},
        "d": {"checkpoint": "x/checkpoint_best.pt"},
        "e": {},
        "f": {"measurements": [{"length": 16}]},
    }
    for name, other in others.items():
        (tmp_path / name).mkdir()
        for file in ("checkpoint_last.pt", "trained", "extrapolation.json"):
            (tmp_path / name / file).write_text(json.dumps(how | other))
    os.utime(tmp_path / "e" / "extrapolation.json", (0, 0))
    runs = [SimpleNamespace(name=name, encoding=name) for name in others]
    told = {}
    compared = SimpleNamespace(place=tmp_path, runs=runs, notes=[], note=told.__setitem__)
    settings = {"EVALUATED": "checkpoint_last.pt", "LENGTHS": "16 40"}
    assert list(lengths_of(compared, settings, 9)) == ["a"]
    assert told == {"longer blocks, not finished with these settings (run.sh extrapolate)": ["b", "c", "d", "e", "f"]}
    assert lengths_of(compared, {**settings, "LENGTHS": ""}, 9) == {}


# --- from text to the report ---

TINY = """
VOCAB_SIZE=300 LAYERS=1 EMBED_DIM=16 HEADS=2 FFN_DIM=32
TOKENS_PER_SAMPLE=16 BATCH=4 UPDATES=3 WARMUP_UPDATES=1 LOG_EVERY=1 SAVE_EVERY=2
EVALUATIONS="16/0 16/24" EVALUATED_STREAMS=3 LENGTHS="16 40"
COMPARED="learned transformer_xl" SEEDS=1 JOBS=2 BASELINE=transformer_xl
"""
#: the papers' settings, but for the size
TINY_PAPER = """
LAYERS=2 EMBED_DIM=20 HEADS=2 FFN_DIM=16 BANDS=12,24 DROPOUT=0.1 WORKERS=1
TOKENS_PER_SAMPLE=8 MEMORY=8 BATCH=4 UPDATES=3 LOG_EVERY=1 SAVE_EVERY=3 LENGTHS=
EVALUATIONS="8/0 8/8 4/32 4/32/16" EVALUATED_STREAMS=2
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language_modeling")
    (folder / "tiny.sh").write_text(TINY)
    (folder / "paper.sh").write_text(TINY_PAPER)
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefgh", k=chance.randint(2, 4))) for _ in range(40)]
    for name, lines in (("train", 60), ("valid", 9), ("test", 9)):
        text = "".join(" ".join(chance.choices(words, k=chance.randint(3, 9))) + "\n" for _ in range(lines))
        (folder / f"{name}.txt").write_text(" ".join(words) + "\n" + text if name == "train" else text)
    return folder


recipe = Recipe("language_modeling")
succeeds, fails = recipe.succeeds, recipe.fails


def prepare(workplace, run=succeeds, train="train.txt", **environment):
    return run(workplace, "prepare.sh", "--train", train, "--valid", "valid.txt", "--test", "test.txt", **environment)


@pytest.mark.slow
def test_from_text_to_tables_with_every_token_scored_once(workplace):
    prepare(workplace)
    assert "data is ready" in prepare(workplace)
    counts = json.loads((workplace / "data" / "counts.json").read_text())["test"]
    assert counts["bytes"] == len((workplace / "test.txt").read_bytes())
    assert "--no-such-flag" in fails(workplace, "run.sh", "evaluate", "t5", "--no-such-flag", RUNS="wrong")
    succeeds(workplace, "compare.sh")
    runs = workplace / "runs"
    results = (runs / "RESULTS.md").read_text()
    scores = json.loads((runs / "transformer_xl-seed1" / "scores.json").read_text())["scores"]
    plain, memory = (one["nats"] for one in scores)
    assert abs(plain - memory) > 1e-3  # the memory is read
    bits = plain / math.log(2) / counts["bytes"]
    assert f"| transformer_xl | {bits:.4f} | {memory / math.log(2) / counts['bytes']:.4f} |" in results
    assert f"| transformer_xl | {math.exp(plain / counts['words']):.2f} |" in results
    # another program scores the same tokens as one row of blocks
    found, longer = json.loads((runs / "transformer_xl-seed1" / "extrapolation.json").read_text())["measurements"]
    assert (found["length"], found["scored"]) == (16, counts["tokens"])
    assert found["loss"] * found["scored"] == pytest.approx(plain, rel=1e-5)
    rise = (longer["loss"] - found["loss"]) * found["scored"] / math.log(2) / counts["bytes"]
    assert f"| transformer_xl | {bits:.4f} | {rise:+.4f} |" in results
    # learned cannot remember, and ends: gaps with a reason
    assert "- learned, 16/24: a segment memory of 24 tokens (--memory-length): learned adds positions" in results
    assert "| ends at 16 |" in results and (runs / "reach.png").exists()
    figures = json.loads((runs / "results.json").read_text())["figures"]
    assert figures["bits per byte, blocks of 40"]["learned"] == {"1": None}

    # nothing is done twice
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*-seed1/*.json")}
    assert "is trained" in succeeds(workplace, "run.sh", "evaluate", "transformer_xl")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # but another checkpoint is another evaluation, and not in one table with the last
    (workplace / "best.sh").write_text(f"{TINY}EVALUATED=checkpoint_best.pt\n")
    assert "scoring" in succeeds(workplace, "run.sh", "evaluate", "transformer_xl", SETTINGS="best.sh")
    succeeds(workplace, "run.sh", "report", SETTINGS="best.sh")
    results = (runs / "RESULTS.md").read_text()
    assert "the weights of checkpoint_best.pt from trainings that ended after 3\n" in results
    assert "not finished with these settings: learned-seed1\n" in results


@pytest.mark.slow
def test_the_papers_settings_train_with_a_memory_and_are_scored_by_their_convention(workplace):
    paper = {"SETTINGS": f"{RECIPE}/transformer_xl.sh paper.sh", "DATA": "words", "RUNS": "paper"}
    prepare(workplace, **paper)
    succeeds(workplace, "run.sh", "evaluate", "transformer_xl", **paper)
    succeeds(workplace, "run.sh", "report", **paper)
    run = workplace / "paper" / "transformer_xl-seed1"
    for flag in ("'lm_streams' '--memory-length' '8'", "'adaptive_loss'", "'cosine'"):
        assert flag in (run / "trained").read_text()
    results = json.loads((run / "scores.json").read_text())
    words = (workplace / "test.txt").read_text()
    assert results["counts"]["test"]["tokens"] == len(words.split()) + words.count("\n")
    found = {(one["tokens"], one["memory"], one["clamp"]): one["nats"] for one in results["scores"]}
    perplexity = math.exp(found[4, 32, 16] / results["counts"]["test"]["tokens"])
    assert f"| {perplexity:.2f} |" in (workplace / "paper" / "RESULTS.md").read_text()
    assert len(set(found.values())) == 4  # clamp too changes something


@pytest.mark.parametrize("memory, rows", [(0, 4), (128, 8)])
def test_an_update_has_as_many_streams_whatever_the_passes_and_processes(workplace, tmp_path, memory, rows):
    settings = tmp_path / "passes.sh"
    settings.write_text(f"BATCH=16 GPUS=2 UPDATE_FREQ=2 MEMORY={memory}")
    command = succeeds(workplace, "run.sh", "command", "t5", SETTINGS=str(settings))
    # --task lm_streams divides its streams among the passes itself
    assert f"--batch-size {rows} --update-freq 2" in " ".join(command.replace("\\\n", " ").split())


def test_what_is_wrong_is_one_line(workplace, tmp_path):
    for words, message in [
        (["--train", "train.txt"], "no text for --valid; usage"),
        (["train.txt"], "unrecognized arguments: train.txt"),
        (["--offline", "nowhere"], "--offline nowhere: no such folder"),
        (["--train", "none.txt"], "no readable file none.txt"),
    ]:
        assert message in fails(workplace, "prepare.sh", *words, DATA="odd")
    for setting, message in [
        ("VOCABULARY=letters", "VOCABULARY=letters: give pieces or words"),
        ("TEXTS=wikitext-3", "TEXTS=wikitext-3: there are wikitext-103 wikitext-103-raw wikitext-2 wikitext-2-raw"),
    ]:
        (workplace / "wrong.sh").write_text(setting)
        assert message in fails(workplace, "prepare.sh", SETTINGS="wrong.sh", DATA="odd")
    for setting, message in [
        ("NORM=middle", "NORM=middle: give pre or post"),
        ("SCHEDULE=flat", "SCHEDULE=flat: give polynomial_decay or cosine"),
        ("UPDATE_FREQ=3", "BATCH=16 is no multiple of 1 processes x UPDATE_FREQ=3"),
    ]:
        (workplace / "wrong.sh").write_text(setting)
        assert message in fails(workplace, "run.sh", "command", "t5", SETTINGS="wrong.sh")
