"""The recipe through its own scripts, sized for seconds: on the toy grammar, and on files."""

import itertools
import json
import lzma
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest
import torch
from recipes import COMMON, Recipe, written

from fairseq_relpos.reports import differences

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "translation_small"
TINY = """
VOCAB_SIZE=250
TOY_TRAIN=150 TOY_VALID=12 TOY_TEST=9
LAYERS=1 EMBED_DIM=16 HEADS=2 FFN_DIM=32
TOKENS_PER_UPDATE=400 UPDATES=4 WARMUP_UPDATES=1 LOG_EVERY=1 VALIDATE_EVERY=2 SAVE_EVERY=2
AVERAGED=2 EVALUATED=average.pt BEAM=2 GENERATE_FLAGS=(--max-len-b 20)
COMPARED="sinusoidal tupe_r" SEEDS=1 LEARNING_RATES= LENGTH_PENALTIES= JOBS=2
"""
#: with a test set of joined sentences
TOY = f"{TINY}JOINED=1\n"
SENTENCES = [
    ("A dog sleeps here .", "Ein Hund schläft hier ."),
    ("The cat works .", "Die Katze arbeitet ."),
    ("Cats laugh", "Katzen lachen"),
    ("the man sees the dog", "der Mann sieht den Hund"),
]


recipe = Recipe("translation_small")
succeeds, fails = recipe.succeeds, recipe.fails


def write_pairs(prefix, pairs):
    for side, language in enumerate(("en", "de")):
        Path(f"{prefix}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


def test_a_start_with_other_words_is_refused(tmp_path):
    (tmp_path / "tiny.sh").write_text(TOY)
    for folder in ("data", "bart", "translator"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "checkpoint.pt").touch()
    for name in ("dict.en.txt", "dict.de.txt", "sources.txt"):
        (tmp_path / "data" / name).write_text("b 1\n")
    (tmp_path / "bart" / "conditions").write_text("dictionary 0123\n")
    (tmp_path / "translator" / "dictionary").write_text("0123\n")
    for folder in ("bart", "translator"):
        line = fails(tmp_path, "run.sh", "train", "t5", START_FROM=f"{folder}/checkpoint.pt")
        assert "in data " in line and f"that {folder}/checkpoint.pt was trained with" in line
        assert not list(tmp_path.glob("runs/*/checkpoint*"))


# --- prepare ---


def translations(monkeypatch, data):
    """The module translations.py for these data."""
    facts = {"SOURCE": "en", "TARGET": "de", "TEXT": "raw", "DATA": data, "CHECKPOINT": "a.pt"}
    for name, value in facts.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.syspath_prepend(str(COMMON))
    return runpy.run_path(str(RECIPE / "translations.py"))


def test_files_are_cleaned_filtered_and_noticed_when_they_change(tmp_path, monkeypatch):
    (tmp_path / "tiny.sh").write_text(TINY + "VOCAB_SIZE=60 MAX_PIECES=25 MAX_RATIO=2.5\n")
    pairs = SENTENCES * 5 + [("", "leer"), ("a", "dog" * 9), ("sleeps " * 30, "schläft " * 30)]
    for side, language in enumerate(("en", "de")):
        with lzma.open(tmp_path / f"train.{language}.xz", "wt", encoding="utf-8") as file:
            file.write("".join(f"{pair[side]}\r\n" for pair in pairs))
    write_pairs(tmp_path / "valid", SENTENCES)
    write_pairs(tmp_path / "news", [*SENTENCES, ("", "")])
    texts = ["--train", "train", "--valid", "valid", "--test", "news"]
    printed = succeeds(tmp_path, "prepare.sh", "out", *texts)
    left_out = re.search(r"^train: 20 pairs;.*?(left out: .*)$", printed, re.M)[1]
    for reason in ("1 with an empty side", "1 with lengths beyond 2.5 : 1", "1 longer than 25 pieces"):
        assert reason in left_out
    # a test set is never shortened
    assert "test: 5 pairs" in printed
    assert "is ready" in succeeds(tmp_path, "prepare.sh", "out", *texts)
    write_pairs(tmp_path / "valid", SENTENCES[:3])
    write_pairs(tmp_path / "news", [*SENTENCES * 3, ("", "")])
    with open(tmp_path / "tiny.sh", "a") as settings:
        settings.write('JOINED="1 2"\n')
    printed = succeeds(tmp_path, "prepare.sh", "out", *texts)
    assert "have changed" in printed and "valid: 3 pairs" in printed
    joined_sentences_are_longer_than_any_in_training(tmp_path / "out", printed, monkeypatch)
    with open(tmp_path / "tiny.sh", "a") as settings:
        settings.write("JOINED=99\n")
    assert "JOINED=99: the sentences of test together are no longer than " in fails(tmp_path, "prepare.sh", "a", *texts)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["lock"]
    with open(tmp_path / "tiny.sh", "a") as settings:
        settings.write("JOINED= MAX_POSITIONS=4\n")
    message = fails(tmp_path, "prepare.sh", "a", *texts)
    assert re.search(r"valid: pair 1 has \d+ tokens, and MAX_POSITIONS=4: set a larger one", message)


@pytest.mark.parametrize(
    "settings, message",
    [
        ("JOINED_DICTIONARY=true", "JOINED_DICTIONARY=true: give yes or no"),
        ("VOCABULARY=given", "VOCABULARY=given is of text that was changed (lowercase)"),
        ("VOCABULARY=other", "of the pieces of train.en are not in other/dict.txt"),
    ],
)
def test_settings_that_would_make_other_data_in_silence_are_refused(tmp_path, monkeypatch, settings, message):
    monkeypatch.syspath_prepend(COMMON)
    import corpus

    (tmp_path / "tiny.sh").write_text(f"{TINY}{settings}\n")
    write_pairs(tmp_path / "news", SENTENCES * 5)
    for folder, text in (("given", {"settings": {"lowercase": True}}), ("other", {})):
        (tmp_path / folder).mkdir()
        corpus.learn(tmp_path / folder / "spm.model", iter([" ".join(pair) for pair in SENTENCES] * 5), 60, "nmt_nfkc")
        (tmp_path / folder / "dict.txt").write_text("unused 1\n")
        (tmp_path / folder / "manifest.json").write_text(json.dumps(text))
    texts = ["--train", "news", "--valid", "news", "--test", "news"]
    assert message in fails(tmp_path, "prepare.sh", "out", *texts)


def test_data_whose_move_was_cut_off_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("HERE", str(RECIPE))
    monkeypatch.syspath_prepend(COMMON)
    make, replace, built = runpy.run_path(str(Path(COMMON, "making.py")))["make"], os.replace, []

    def build(work):
        built.append(work)
        for name in ("dict.de.txt", "dict.en.txt", "train.bin"):
            (work / "made" / name).touch()

    for last in ("train.bin", "dict.de.txt", "dict.en.txt", "sources.txt"):
        make(tmp_path, ["old"], build)

        def cut_off(source, target, last=last):
            if target.name == last:
                raise KeyboardInterrupt
            replace(source, target)

        monkeypatch.setattr(os, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path, ["new"], build)
        monkeypatch.setattr(os, "replace", replace)
        before = len(built)
        make(tmp_path, ["new"], build)
        make(tmp_path, ["new"], build)  # is ready
        assert len(built) == before + 1
    for path in tmp_path.glob("dict.*"):  # run.sh asks for the dictionary
        path.unlink()
    make(tmp_path, ["new"], build)
    assert (tmp_path / "dict.de.txt").exists()


def joined_sentences_are_longer_than_any_in_training(data, printed, monkeypatch):
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(data / "dict.en.txt"))
    texts = [
        data_utils.load_indexed_dataset(str(data / f"{split}.en-de.en"), dictionary)
        for split in ("train", "test1", "test2")
    ]
    train, *tests = ([int(size) - 1 for size in text.sizes] for text in texts)
    for times, sizes in zip((1, 2), tests):
        assert min(sizes) > times * max(train), (times, sizes)
        assert f"test{times}: {len(sizes)} pairs, joined from test, with sources of more than" in printed
    named = translations(monkeypatch, data)["names_of"](["test", "test1", "test2"])
    assert list(named.values()) == ["news", "news-joined1", "news-joined2"]
    english, german = ((data / "text" / f"test1.{language}").read_text().splitlines() for language in ("en", "de"))
    assert english[0].startswith("A dog sleeps here . The cat works .")
    assert german[0].startswith("Ein Hund schläft hier . Die Katze arbeitet .") and len(german) == len(english)


@pytest.mark.parametrize(
    "english, german, message",
    [
        (b"a b\n" * 9, None, r"no file odd\.de \(or \.xz, \.gz\)"),
        (b"a b\n" * 9, b"\n\n", r"odd\.de holds no text"),
        (b"a b\n" * 9, b"a b\n" * 8, r"odd\.en has 9 lines and odd\.de has 8"),
        (b"a b\n" * 9, b"a b\n" * 3 + b"b\xfcse\n" * 6, r"odd\.de, line 4: not UTF-8"),
        (b"a b\n" * 9, b"a b\n" * 9, "set a smaller VOCAB_SIZE"),
    ],
)
def test_text_that_cannot_be_used_is_named_in_one_line_and_nothing_is_left(tmp_path, english, german, message):
    (tmp_path / "tiny.sh").write_text(TINY)
    for language, content in (("en", english), ("de", german)):
        if content is not None:
            (tmp_path / f"odd.{language}").write_bytes(content)
    write_pairs(tmp_path / "good", SENTENCES)
    texts = ["--train", "odd", "--valid", "good", "--test", "good"]
    assert re.search(message, fails(tmp_path, "prepare.sh", "out", *texts))
    assert {path.name for path in (tmp_path / "out").glob("*")} <= {"lock"}


def test_joined_sources_have_edges_of_their_own(monkeypatch):
    beyond = translations(monkeypatch, "data")["beyond"]
    assert beyond([8, 12], ["a " * 10] * 3 + ["a " * 90]) == [8, 12]
    assert beyond([8, 12], ["a " * 40, "a " * 50, "a " * 90]) == [8, 12, 24, 48, 96]


def test_test_sets_of_data_with_a_given_vocabulary_have_names(tmp_path, monkeypatch):
    (tmp_path / "sources.txt").write_text("vocabulary 1f2e\nfilter 175 pieces 1.5 : 1\n1f2e test news.en\n")
    assert translations(monkeypatch, tmp_path)["names_of"](["test"]) == {"test": "news"}


@pytest.mark.parametrize("ages", list(itertools.permutations(range(3))), ids=str)
def test_what_the_report_does_not_take_is_scored_again(tmp_path, ages):
    """Files that were copied without their times lie in any order."""
    is_finished = runpy.run_path(str(RECIPE / "report.py"))["is_finished"]
    (function,) = re.findall(r"^is_scored.*?^\}", (RECIPE / "run.sh").read_text(), re.DOTALL | re.MULTILINE)
    for name, age in zip(("trained", "decoded", "lengths.json", "scores.json"), (0, *ages)):
        (tmp_path / name).write_text('{"edges": "8 12"}' if name == "lengths.json" else "as ever")
        os.utime(tmp_path / name, (10**9 + age, 10**9 + age))

    def is_scored(edges):
        settings = {"EVALUATED": "checkpoint_last.pt", "DECODING": "as ever", "LENGTH_EDGES": edges}
        script = f"{function}; run={tmp_path} LENGTH_EDGES='{edges}'; is_scored"
        return subprocess.run(["bash", "-c", script]).returncode == 0, is_finished(tmp_path, settings)

    assert is_scored("8 12") == ((True, True) if ages == (0, 1, 2) else (False, False))
    assert is_scored("8") == (False, False)
    (tmp_path / "lengths.json").unlink()
    assert is_scored("8 12") == (False, False)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["prepare.sh", "out", "--train"], "--train: expected at least one argument"),
        (["prepare.sh", "out", "train"], "unrecognized arguments: train"),
        (["prepare.sh", "out", "--sing", "x"], "--sing"),
        (["run.sh", "report"], "no data in data: run prepare.sh"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, arguments, message):
    (tmp_path / "tiny.sh").write_text(TINY)
    assert message in fails(tmp_path, *arguments)


def test_a_vocabulary_of_some_of_the_sentences_is_the_same_every_time(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(COMMON)
    import corpus

    models = set()
    for side, language in enumerate(("en", "de")):
        lines = [f"{pair[side]} {number * 7919 % 1000}\n" for number in range(100) for pair in SENTENCES]
        (tmp_path / f"train.{language}").write_text("".join(lines))
    for _ in range(3):
        lines = corpus.drawn([tmp_path / "train.en", tmp_path / "train.de"], 120)
        corpus.learn(tmp_path / "spm.model", lines, 90, "nmt_nfkc", 1.0)
        models.add((tmp_path / "spm.model").read_bytes())
    assert len(models) == 1


# --- from nothing to a report: one test, since each step builds on those before it ---


@pytest.mark.slow
def test_from_the_toy_grammar_to_a_report(tmp_path):
    (tmp_path / "tiny.sh").write_text(TOY)
    for step in STEPS:
        step(tmp_path)


def without_files_the_toy_grammar_is_prepared_and_nothing_is_done_twice(folder):
    from fairseq.data import Dictionary, data_utils

    succeeds(folder, "prepare.sh")
    data = folder / "data"
    dictionary = Dictionary.load(str(data / "dict.de.txt"))
    assert (data / "dict.en.txt").read_text() == (data / "dict.de.txt").read_text()
    lines = {
        split: len(data_utils.load_indexed_dataset(str(data / f"{split}.en-de.de"), dictionary))
        for split in ("train", "valid", "test", "test1", "test2")
    }
    assert lines == {"train": 150, "valid": 12, "test": 9, "test1": 9, "test2": 3}
    assert len((data / "text" / "test1.en").read_text().splitlines()) == 9
    assert not (data / "work").exists() and not list(data.rglob("*.tmp*"))
    before = written(data)
    assert "is ready" in succeeds(folder, "prepare.sh")
    after = written(data)
    assert {path.parts[0] for path in before if after[path] != before[path]} == {"own"}  # the grammar's text


def what_has_to_come_first_is_named(folder):
    for action, message in [
        ("generate", "no checkpoint runs/m4-seed1/average.pt: run.sh average m4 first"),
        ("average", "no checkpoint runs/m4-seed1/checkpoint_last.pt: run.sh train m4 first"),
        ("translate", "no checkpoint runs/m4-seed1/average.pt"),
        ("score", "no translation runs/m4-seed1/test.de: run.sh generate m4 first"),
    ]:
        assert message in fails(folder, "run.sh", action, "m4", stdin="Hello\n")
    assert "no finished run in runs with these settings" in fails(folder, "run.sh", "report")
    line = fails(folder, "run.sh", "train", "nonsense")
    assert "unknown position encoding 'nonsense'; known: abs_m4m" in line
    assert not (folder / "runs").exists()


def test_the_report_estimates_the_seeds_that_a_difference_needs_where_the_error_is_known():
    needed = runpy.run_path(str(RECIPE / "report.py"))["needed"]
    bleu = {name: {seed: 30 + k + (seed * 7 + k * 3) % 5 / 10 for seed in range(1, 6)} for k, name in enumerate("abcd")}
    seeds = differences.Model(bleu).seeds_needed(0.3)
    assert f"0.3 BLEU on test needs about {seeds} seeds" in needed({"chrF on test": {}, "BLEU on test": bleu})
    assert needed({"BLEU on test": {name: dict(list(bleu[name].items())[:3]) for name in "abc"}}) == ""


def a_comparison_ends_in_a_report(folder):
    succeeds(folder, "compare.sh")
    runs = folder / "runs"
    results = (runs / "RESULTS.md").read_text()
    assert "| sinusoidal | 1 |" in results and "| tupe_r | 1 |" in results
    for test in ("test (9 sentences)", "long (9 sentences)", "test-joined1 (3 sentences)"):
        assert f"### {test}" in results
    assert "### test-joined1\n| encoding | 21-40 words (3) |\n" in results
    assert "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in results
    assert str(ROOT) not in results
    for picture in ("losses.png", "lengths.png"):
        assert 5000 < (runs / picture).stat().st_size < 200_000
    for run in ("sinusoidal-seed1", "tupe_r-seed1"):
        translations = (runs / run / "test.de").read_text(encoding="utf-8")
        assert len(translations.splitlines()) == 9 and "▁" not in translations
    # absolute positions in a bias: sources are padded on the right
    flags = {
        run: "--left-pad-source" in (runs / f"{run}-seed1" / "trained").read_text() for run in ("sinusoidal", "tupe_r")
    }
    assert flags == {"sinusoidal": False, "tupe_r": True}


def a_finished_comparison_does_nothing_again(folder):
    before = {run: written(folder / "runs" / run) for run in ("sinusoidal-seed1", "tupe_r-seed1")}
    succeeds(folder, "compare.sh")
    assert before == {run: written(folder / "runs" / run) for run in before}


def packed_runs_count_as_finished_where_they_are_unpacked(folder):
    succeeds(folder, "run.sh", "report", "packed")
    (folder / "unpacked").mkdir()
    subprocess.run(["tar", "-xJf", folder / "packed" / "runs.tar.xz", "-C", folder / "unpacked"], check=True)
    assert not list((folder / "unpacked").rglob("*.pt"))
    before = written(folder / "unpacked" / "tupe_r-seed1")
    succeeds(folder, "run.sh", "evaluate", "tupe_r", RUNS="unpacked")
    assert written(folder / "unpacked" / "tupe_r-seed1") == before
    succeeds(folder, "run.sh", "report", RUNS="unpacked", DATA="none")
    results, again = (folder / name / "RESULTS.md" for name in ("packed", "unpacked"))
    assert [line for line in again.read_text().splitlines() if "bash examples" not in line] == [
        line for line in results.read_text().splitlines() if "bash examples" not in line
    ]
    changed(folder, "DROPOUT=0.3")
    line = fails(folder, "run.sh", "train", "tupe_r", RUNS="unpacked")
    assert "begun with other settings (was '--dropout' '0.2' is '--dropout' '0.3')" in line
    changed(folder, "")


def scores_are_those_of_the_sacrebleu_command(folder):
    run = folder / "runs" / "sinusoidal-seed1"
    (bleu,) = (s for s in json.loads((run / "scores.json").read_text())["test"] if s["name"] == "BLEU")
    command = [sys.executable, "-m", "sacrebleu", folder / "data" / "text" / "test.de", "-i", run / "test.de"]
    printed = subprocess.check_output([*command, "-m", "bleu", "-w", "8", "-f", "text"], text=True)
    signature, score = printed.split(" = ", 1)
    assert (bleu["signature"], round(bleu["value"], 8)) == (signature, float(score.split()[0]))


def text_is_translated_line_by_line_and_bad_text_is_named(folder):
    printed = succeeds(folder, "run.sh", "translate", "tupe_r", stdin="The dog sees the man.\n\nA cat.\n")
    assert len(printed.splitlines()) == 3
    done = subprocess.run(
        ["bash", RECIPE / "run.sh", "translate", "tupe_r"],
        input=b"good\nbad \xff\n",
        cwd=folder,
        env={**preloaded.environment(), "SETTINGS": "tiny.sh", "DATA": "data", "RUNS": "runs"},
        capture_output=True,
    )
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode != 0 and done.stdout == b"" and "line 2: not UTF-8" in line


def other_dictionaries_than_those_of_the_training_are_refused(folder):
    shutil.copytree(folder / "data", folder / "other")
    words = (folder / "data" / "dict.de.txt").read_text().splitlines()
    (folder / "other" / "dict.de.txt").write_text("\n".join([words[1], words[0], *words[2:]]) + "\n")
    for action in ("generate", "train", "translate"):
        line = fails(folder, "run.sh", action, "tupe_r", DATA="other", stdin="x\n")
        assert "the dictionaries in other are not those that runs/tupe_r-seed1 was trained with" in line


def weights_are_averaged_and_the_signature_is_kept(folder):
    run = folder / "runs" / "tupe_r-seed1"
    read = {
        name: torch.load(run / f"{name}.pt", weights_only=False)
        for name in ("checkpoint_1_2", "checkpoint_1_4", "average")
    }
    first, second, mean = (state["model"] for state in read.values())
    for key, value in mean.items():
        expected = (first[key].double() + second[key].double()) / 2
        torch.testing.assert_close(value, expected.to(first[key].dtype), rtol=0, atol=0)
    assert any("encoding_version" in key for key in mean)
    assert read["average"]["last_optimizer_state"] is None
    assert read["average"]["cfg"]["task"] == read["checkpoint_1_4"]["cfg"]["task"]
    changed(folder, "AVERAGED=1\n")
    assert "or another average: run.sh average tupe_r first" in fails(folder, "run.sh", "generate", "tupe_r")
    (run / "averaged").unlink()  # of an older run
    succeeds(folder, "run.sh", "generate", "tupe_r")
    changed(folder, "")


def average(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "average_checkpoints.py", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def checkpoints_of_different_models_are_refused_and_nothing_is_written(folder):
    runs = folder / "runs"
    mine, other = (runs / f"{name}-seed1" / "checkpoint_last.pt" for name in ("tupe_r", "sinusoidal"))
    changed = torch.load(mine, weights_only=False)
    key = next(key for key in changed["model"] if key.endswith("encoding_version"))
    changed["model"][key] = changed["model"][key] + 1
    torch.save(changed, folder / "changed.pt")
    for paths, message in [
        ([mine, other], "is not in both"),
        ([mine, folder / "changed.pt"], "encoding_version differs"),
        ([mine, folder / "absent.pt"], "absent.pt"),
        (["--last", 7, runs / "tupe_r-seed1"], "holds 2 of the 7"),
        (["--last", 0, runs / "tupe_r-seed1"], "give a number from 1"),
    ]:
        done = average(folder / "out.pt", *paths)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1 and message in line
    assert not (folder / "out.pt").exists()


def changed(folder, settings):
    (folder / "tiny.sh").write_text(TOY + settings)


def scores_of_another_decoding_or_text_are_not_reported(folder):
    changed(folder, "BEAM=3 BASELINE=tupe_r")
    assert "no finished run in runs with these settings" in fails(folder, "run.sh", "report")
    succeeds(folder, "run.sh", "evaluate", "tupe_r")
    succeeds(folder, "run.sh", "report")
    results = (folder / "runs" / "RESULTS.md").read_text()
    assert "beam 3" in results and "- not finished with these settings: sinusoidal-seed1" in results
    changed(folder, "")
    sources = folder / "data" / "sources.txt"
    before = sources.read_text()
    sources.write_text(before.replace(before.split()[-3], "0" * 64))
    assert "are of another text" in fails(folder, "run.sh", "score", "sinusoidal")
    sources.write_text(before)


def a_length_penalty_is_chosen_on_the_validation_text(folder):
    changed(folder, 'LENGTH_PENALTIES="0.2 3" BEAM=4\n')
    run = folder / "runs" / "tupe_r-seed1"
    assert "no length penalty is chosen for runs/tupe_r-seed1/average.pt: run.sh generate tupe_r first" in fails(
        folder, "run.sh", "translate", "tupe_r", stdin="x\n"
    )
    printed = succeeds(folder, "run.sh", "evaluate", "tupe_r")
    assert printed.count("translating the validation text with length penalty") == 2
    scores = dict(re.findall(r"length penalty (\S+): BLEU (\S+),", printed))
    chosen, *of = (run / "length_penalty").read_text().split()
    assert of == ["of", "0.2", "3"]
    assert set(scores) == {"0.2", "3"} and float(scores[chosen]) == max(map(float, scores.values()))
    assert not list(run.glob("valid.penalty*"))
    translations = (run / "test.de").read_text()
    succeeds(folder, "run.sh", "report")
    assert f"| tupe_r | {chosen} |" in (folder / "runs" / "RESULTS.md").read_text()
    changed(folder, 'LENGTH_PENALTIES="0.2 3 4" BEAM=4\n')  # others than it was chosen from
    assert "no length penalty is chosen" in fails(folder, "run.sh", "translate", "tupe_r", stdin="x\n")
    changed(folder, f"LENGTH_PENALTY={chosen} BEAM=4\n")
    succeeds(folder, "run.sh", "generate", "tupe_r")
    assert (run / "test.de").read_text() == translations
    changed(folder, "")


def a_run_goes_on_and_flags_reach_fairseq(folder):
    # not preloaded, as a user runs it
    succeeds(folder, "run.sh", "train", "sinusoidal", "--max-update", "5", "--log-interval", "2", PRELOADED="")
    run = folder / "runs" / "sinusoidal-seed1"
    assert "Loaded checkpoint" in (run / "output.txt").read_text()
    assert '"train_num_updates": "5"' in (run / "train.log").read_text()
    assert "average.pt is older than the training" in fails(folder, "run.sh", "generate", "sinusoidal")


STEPS = [
    without_files_the_toy_grammar_is_prepared_and_nothing_is_done_twice,
    what_has_to_come_first_is_named,
    a_comparison_ends_in_a_report,
    a_finished_comparison_does_nothing_again,
    packed_runs_count_as_finished_where_they_are_unpacked,
    scores_are_those_of_the_sacrebleu_command,
    text_is_translated_line_by_line_and_bad_text_is_named,
    other_dictionaries_than_those_of_the_training_are_refused,
    weights_are_averaged_and_the_signature_is_kept,
    checkpoints_of_different_models_are_refused_and_nothing_is_written,
    scores_of_another_decoding_or_text_are_not_reported,
    a_length_penalty_is_chosen_on_the_validation_text,
    a_run_goes_on_and_flags_reach_fairseq,
]


# --- which length penalty is taken ---

#: in place of fairseq-generate: a penalty of 2 is the better one for the validation text, 0.6 for the test set
GENERATE = """\
import sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
is_good = (flags["--gen-subset"] == "valid") == (flags["--lenpen"] == "2")
print("T-0\tdie Katze arbeitet heute hier")
print("H-0\t-1\t" + ("die Katze arbeitet heute hier" if is_good else "die Katze schläft"))
"""


def test_a_length_penalty_is_the_best_of_the_validation_text(tmp_path, monkeypatch):
    for name in ("data/text", "run"):
        (tmp_path / name).mkdir(parents=True)
    for name, text in {"sources.txt": "", "text/test.en": "The cat works\n", "test.en-de.en.idx": ""}.items():
        (tmp_path / "data" / name).write_text(text)
    (tmp_path / "generate.py").write_text(GENERATE, encoding="utf-8")
    script = translations(monkeypatch, tmp_path / "data")
    script["generate"](tmp_path / "run", ["0.6", "2"], sys.executable, str(tmp_path / "generate.py"))
    assert (tmp_path / "run" / "length_penalty").read_text() == "2 of 0.6 2\n"
    assert (tmp_path / "run" / "test.de").read_text(encoding="utf-8") == "die Katze schläft\n"


# --- which checkpoints scripts/average_checkpoints.py takes ---


def test_the_last_are_those_with_most_updates(tmp_path):
    script = runpy.run_path(str(ROOT / "scripts" / "average_checkpoints.py"))
    for name in ("checkpoint_1_90.pt", "checkpoint_2_100.pt", "checkpoint_2_1000.pt", "checkpoint_last.pt"):
        (tmp_path / name).touch()
    assert [path.name for path in script["last"](tmp_path, 2)] == ["checkpoint_2_100.pt", "checkpoint_2_1000.pt"]
