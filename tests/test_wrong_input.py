"""Wrong calls and damaged data: one line that says what to do, and nothing left behind."""

import logging
import os
import re
import resource
import shutil
import struct
import types
from contextlib import contextmanager
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import make_builder
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.file_io import PathManager
from fairseq_data import USER_DIR, WORDS, masked_lm, translation, write_corpus
from refusals import assert_refused

from fairseq_relpos.mends.wrong_input.data import check_files

OFFICIAL_TUPE = Path(__file__).parent / "fixtures" / "golden" / "tupe_a"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("wrong_input")


def run(command, log, *arguments, **environment):
    """(exit code, lines) of a command in a forked process."""
    process = forked.Run(arguments, log, command=command, **environment)
    return process.wait(), process.printed().strip().splitlines()


def preprocess(log, *arguments):
    return run("preprocess", log, "--user-dir", USER_DIR, *arguments)


def assert_one_line(done, *what):
    code, lines = done
    errors = [line for line in lines if line.startswith("fairseq_relpos: error: ")]
    assert code == 1 and len(errors) == 1 and lines[-1] == errors[0], "\n".join(lines)
    assert not any("Traceback" in line or line.startswith("usage:") for line in lines)
    for part in what:
        assert str(part) in errors[0], errors[0]


@pytest.fixture(scope="module")
def dictionary(folder):
    path = folder / "dict.txt"
    path.write_text("".join(f"{word} 1\n" for word in WORDS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def texts(folder):
    for seed, name in enumerate(("train.a", "train.b", "valid.a", "valid.b")):
        write_corpus(folder / name, 40, seed)
    return folder


@pytest.fixture(scope="module")
def data(texts, dictionary):
    done = preprocess(
        texts / "log",
        *f"--only-source --trainpref {texts}/train.a --validpref {texts}/valid.a".split(),
        *f"--srcdict {dictionary} --destdir {texts}/data".split(),
    )
    assert done[0] == 0, done
    return texts / "data"


@pytest.fixture(scope="module")
def pairs(texts, dictionary):
    done = preprocess(
        texts / "log",
        *f"--source-lang a --target-lang b --trainpref {texts}/train".split(),
        *f"--validpref {texts}/valid --testpref {texts}/valid --srcdict {dictionary}".split(),
        *f"--joined-dictionary --destdir {texts}/pairs".split(),
    )
    assert done[0] == 0, done
    return texts / "pairs"


@pytest.fixture(scope="module")
def checkpoints(folder, data, pairs):
    """A stock RoBERTa, which the plugin's errors do not know, and a transformer of the plugin."""
    forked.train(masked_lm(data, folder / "stock", "--max-update", 1, arch="roberta_base"), folder / "log")
    forked.train(translation(pairs, folder / "t5", "--max-update", 1, arch="transformer_t5"), folder / "log")
    roberta, transformer = (folder / name / "checkpoint_last.pt" for name in ("stock", "t5"))
    return types.SimpleNamespace(roberta=roberta, transformer=transformer)


def copied(folder, to):
    shutil.copytree(folder, to)
    return to


def train(tmp_path, data, *more, arch="roberta_t5", **environment):
    arguments = masked_lm(data, tmp_path / "run", "--max-update", 2, *more, arch=arch)
    return run("train", tmp_path / "log", *arguments, **environment)


def without(arguments, flag):
    at = arguments.index(flag)
    return [*arguments[:at], *arguments[at + 2 :]]


# flags


@pytest.fixture(scope="module")
def said(folder, data):
    """A parser's message for these flags, added to those of a training."""

    def say(*more, parser=options.get_training_parser, leave_out=None):
        arguments = masked_lm(data, folder / "parsed", *more, arch="roberta_t5")
        if leave_out:
            arguments = without(arguments, leave_out)
        with pytest.raises(SystemExit) as end:
            options.parse_args_and_arch(parser(), arguments)
        assert isinstance(end.value.code, str) and "\n" not in end.value.code
        return end.value.code

    return say


@pytest.mark.parametrize(
    "given, nearest",
    [
        (("--arch", "roberta_tupe"), "--arch roberta_tupe is not known: the nearest of .* roberta_tupe_[ar]"),
        (("--task", "maskedlm"), "--task maskedlm .* masked_lm"),
        (("--criterion", "maskedlm"), "--criterion maskedlm .* masked_lm"),
        (("--optimizer", "adem"), "--optimizer adem .* choose from .* adam"),
        (("--lr-scheduler", "polynomial"), "--lr-scheduler polynomial .* choose from .* polynomial_decay"),
        (("--arch", "qqqqqqq"), "none of the .* names is like it; `fairseq-relpos list`"),
        (("--max-updates", "3"), r"no flag --max-updates \(in: --max-updates 3\): the nearest: --max-update"),
        (("--position-hparam=x=3",), "the nearest: --position-hparams"),
        (("--max-epoch", "three"), "--max-epoch: .*'three'"),
        (("--lr", "x"), "--lr: .*'x'"),
        (("stray",), "stray is the value of no flag"),
    ],
)
def test_an_unknown_name_or_flag_is_one_line_with_the_nearest(given, nearest, said, capsys):
    assert re.search(nearest, said(*given))
    assert "usage" not in capsys.readouterr().err


def test_a_missing_arch_and_a_missing_task_are_named(said):
    assert "no --arch is given" in said(leave_out="--arch")
    with pytest.raises(SystemExit, match="no --task is given: name that of the training"):
        options.parse_args_and_arch(options.get_validation_parser(), ["data", "--path", "x.pt"])


def test_a_stack_without_layers_is_refused(data, pairs, tmp_path):
    assert_one_line(train(tmp_path, data, "--encoder-layers", 0), "--encoder-layers 0: give 1 or more")
    arguments = translation(pairs, tmp_path / "run", "--decoder-layers=-1", arch="transformer_t5")
    assert_one_line(run("train", tmp_path / "log", *arguments), "--decoder-layers -1: give 1 or more")


# where a training starts


def restored(**settings):
    """The path that fairseq would read with these settings."""

    class Trainer:
        checkpoint_suffix = ""

        def load_checkpoint(self, path, *args, **kwargs):
            raise KeyboardInterrupt(path)

    with pytest.raises(KeyboardInterrupt) as asked:
        checkpoint_utils.load_checkpoint(CheckpointConfig(**settings), Trainer())
    return str(asked.value)


def test_a_missing_file_to_start_from_is_an_error_and_a_missing_last_checkpoint_is_none(tmp_path):
    save_dir, gone = str(tmp_path / "run"), str(tmp_path / "gone.pt")
    last = os.path.join(save_dir, "checkpoint_last.pt")
    with pytest.raises(ValueError, match="--restore-file .*gone.pt does not exist: .*trains from scratch$"):
        restored(save_dir=save_dir, restore_file=gone)
    with pytest.raises(ValueError, match="--finetune-from-model .*gone.pt does not exist"):
        restored(save_dir=save_dir, finetune_from_model=gone)
    with pytest.raises(ValueError, match="--continue-once .*gone.pt does not exist"):
        restored(save_dir=save_dir, continue_once=gone)
    with pytest.raises(ValueError, match="is a folder: give a .pt file"):
        restored(save_dir=save_dir, restore_file=str(tmp_path))
    # a job that is started again and again with one command
    assert restored(save_dir=save_dir) == restored(save_dir=save_dir, restore_file=last) == last
    shutil.copy(__file__, gone)
    assert restored(save_dir=save_dir, restore_file=gone) == gone
    assert restored(save_dir=save_dir, finetune_from_model=gone) == gone


def test_a_run_that_has_a_last_checkpoint_does_not_need_the_one_it_began_with(data, tmp_path):
    assert train(tmp_path, data)[0] == 0
    assert train(tmp_path, data, "--finetune-from-model", "gone.pt")[0] == 0
    last = tmp_path / "run" / "checkpoint_last.pt"
    before = last.read_bytes()
    assert_one_line(train(tmp_path, data, "--restore-file", "gone.pt"), f"without the flag resumes from {last}")
    assert last.read_bytes() == before


# data


def damage(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


DAMAGES = {
    "half a .bin": ("train.bin", lambda b: b[: len(b) // 2], "train.bin is cut short or damaged"),
    "a .bin without its last byte": ("train.bin", lambda b: b[:-1], "train.bin is cut short or damaged"),
    "an empty .bin": ("train.bin", lambda b: b"", "train.bin is cut short or damaged (0 of"),
    "a longer .bin": ("train.bin", lambda b: b + b"12", "they are of two different runs"),
    "a junk .idx": ("train.idx", lambda b: b"Not an index. " * 60, "begins with b'Not an in' and is no index"),
    "an empty .idx": ("train.idx", lambda b: b"", "train.idx is empty and is no index"),
    "half an .idx": ("train.idx", lambda b: b[: len(b) // 2], "train.idx is cut short or damaged"),
    "a piece of a header": ("train.idx", lambda b: b[:20], "train.idx is cut short or damaged (20 bytes)"),
    "an unknown type": ("train.idx", lambda b: b[:17] + b"\x77" + b[18:], "no type of number has the code 119"),
    "an offset outside": ("train.idx", lambda b: b[:-8] + struct.pack("<q", 10**9), "not one after the other"),
    "a negative offset": ("train.idx", lambda b: b[:-8] + struct.pack("<q", -4), "not one after the other"),
    "another offset inside": ("train.idx", lambda b: b[:-8] + struct.pack("<q", 4), "not one after the other"),
    "a negative size": ("train.idx", lambda b: b[:26] + struct.pack("<i", -4) + b[30:], "not one after the other"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_data_is_named_and_not_read(kind, data, tmp_path):
    name, change, problem = DAMAGES[kind]
    folder = copied(data, tmp_path / "data")
    damage(folder, name, change)
    with pytest.raises(ValueError) as error:
        data_utils.load_indexed_dataset(str(folder / "train"), Dictionary.load(str(folder / "dict.txt")))
    assert problem in str(error.value) and "\n" not in str(error.value)
    assert str(folder / name) in str(error.value) and "fairseq-preprocess" in str(error.value)


@pytest.mark.parametrize("gone", ["bin", "idx"])
def test_half_a_split_is_named_and_a_missing_one_is_fairseqs_business(gone, data, tmp_path):
    folder = copied(data, tmp_path / "data")
    (folder / f"train.{gone}").unlink()
    with pytest.raises(ValueError, match=f"is there and .*train.{gone} is not"):
        data_utils.load_indexed_dataset(str(folder / "train"))
    assert data_utils.load_indexed_dataset(str(folder / "test")) is None


def test_damaged_data_ends_training_and_translating_in_one_line(data, pairs, checkpoints, tmp_path):
    folder = copied(data, tmp_path / "data")
    damage(folder, *DAMAGES["half a .bin"][:2])
    assert_one_line(train(tmp_path, folder), folder / "train.bin", "is cut short or damaged")
    assert os.listdir(tmp_path / "run") == []
    folder = copied(pairs, tmp_path / "pairs")
    damage(folder, "test.a-b.a.bin", DAMAGES["half a .bin"][1])
    how = ["--user-dir", USER_DIR, "--path", checkpoints.transformer, "--cpu", "--batch-size", 8]
    assert_one_line(run("generate", tmp_path / "log", folder, *how), folder / "test.a-b.a.bin", "is cut short")


def fewer_words(folder, count, *names):
    for name in names:
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:-count]))
    return folder


@pytest.mark.parametrize("count", [1, 20])
def test_an_id_beyond_the_dictionary_is_refused_before_the_first_update(count, data, tmp_path):
    """With one word less the id is that of <mask>, which masked_lm adds."""
    folder = fewer_words(copied(data, tmp_path / "data"), count, "dict.txt")
    known = 44 - count
    done = train(tmp_path, folder, "--num-workers", 1, arch="roberta_base")
    assert_one_line(done, "holds the token id 43", f"has {known} words, ids 0 to {known - 1}", "another dict.txt")


def test_a_translation_with_an_id_beyond_its_dictionary_is_refused(pairs, tmp_path):
    folder = fewer_words(copied(pairs, tmp_path / "pairs"), 1, "dict.a.txt", "dict.b.txt")
    arguments = translation(folder, tmp_path / "run", arch="transformer_t5")
    assert_one_line(run("train", tmp_path / "log", *arguments), "holds the token id 43", "has 43 words")


def written(prefix, ids, impl="mmap"):
    """A data set of one sentence, as fairseq writes it."""
    builder = make_builder(f"{prefix}.bin", impl, vocab_size=50)
    builder.add_item(torch.IntTensor(ids))
    builder.finalize(f"{prefix}.idx")


def test_data_are_whole_and_the_dictionary_has_their_words(tmp_path):
    words = Dictionary()
    for i in range(6):
        words.add_symbol(f"w{i}")  # ids 0 to 9
    prefix = str(tmp_path / "train")

    def load():
        return data_utils.load_indexed_dataset(prefix, words)

    written(prefix, [4, 5, 9])
    assert len(load()) == 1
    damage(tmp_path, "train.bin", lambda b: b[:-1])
    with pytest.raises(ValueError, match="train.bin is cut short or damaged"):
        load()
    written(prefix, [4, 5, 12])
    with pytest.raises(ValueError, match="holds the token id 12, but the dictionary has 10 words"):
        load()
    damage(tmp_path, "train.idx", lambda b: b[:-1])
    with pytest.raises(ValueError, match="train.idx is cut short or damaged"):
        load()


def test_other_formats_of_data_load_as_in_fairseq(tmp_path):
    written(str(tmp_path / "train"), [4, 5, 6], "cached")
    assert len(data_utils.load_indexed_dataset(str(tmp_path / "train"), Dictionary(), "cached")) == 1


def test_ids_of_words_that_a_task_adds_beside_mask_pass(tmp_path):
    words = tmp_path / "dict.txt"
    words.write_text("a 1\n")
    for added, is_right in (("<mask>",), False), (("<sep>", "<mask>"), True):
        dictionary = Dictionary.load(str(words))
        for word in added:
            dictionary.add_symbol(word)
        written(str(tmp_path / "train"), [4, 5])
        if is_right:
            assert len(data_utils.load_indexed_dataset(str(tmp_path / "train"), dictionary)) == 1
            written(str(tmp_path / "train"), [4, 7])
        with pytest.raises(ValueError, match=f"the dictionary has {7 if is_right else 5} words"):
            data_utils.load_indexed_dataset(str(tmp_path / "train"), dictionary)


def test_a_file_that_only_fairseqs_path_manager_sees_is_there(monkeypatch, tmp_path):
    (tmp_path / "dict.txt").write_text("a 1\n")
    written(str(tmp_path / "train"), [4, 2])

    def near(path):
        return path.replace("far://", f"{tmp_path}/")

    monkeypatch.setattr(PathManager, "exists", lambda path: os.path.exists(near(path)))
    monkeypatch.setattr(PathManager, "get_local_path", near)
    assert len(Dictionary.load("far://dict.txt")) == 5
    check_files("far://train")


def test_negative_ids_are_refused(tmp_path):
    prefix = str(tmp_path / "train")
    written(prefix, [4, 5, 3])
    index = (tmp_path / "train.idx").read_bytes()
    (tmp_path / "train.idx").write_bytes(index[:17] + b"\x03" + index[18:])  # int16
    (tmp_path / "train.bin").write_bytes(np.array([4, -5, 3], np.int16).tobytes())
    with pytest.raises(ValueError, match="holds the token id -5"):
        data_utils.load_indexed_dataset(prefix, Dictionary())


def test_a_checkpoint_of_another_dictionary_is_refused_also_of_a_stock_model(data, pairs, checkpoints, tmp_path):
    folder = copied(data, tmp_path / "data")
    (folder / "dict.txt").write_text((folder / "dict.txt").read_text() + "another 1\n")
    what = "the checkpoint was trained with a dictionary of 45 words, the data's has 46"
    more = ("--restore-file", checkpoints.roberta)
    assert_one_line(train(tmp_path, folder, *more, arch="roberta_base"), what)
    how = ["--user-dir", USER_DIR, "--cpu", "--batch-size", 8]
    done = run("validate", tmp_path / "log", folder, *how, "--task", "masked_lm", "--path", checkpoints.roberta)
    assert_one_line(done, what)
    folder = fewer_words(copied(pairs, tmp_path / "pairs"), 3, "dict.a.txt", "dict.b.txt")
    done = run("generate", tmp_path / "log", folder, *how, "--path", checkpoints.transformer)
    assert_one_line(done, "with a dictionary of 44 words, the data's has 41")
    assert "TUPE" not in done[1][-1]  # whose code adds 3 words, too, but to those of a RoBERTa


def test_loglevel_debug_shows_where_an_error_was_raised(data, tmp_path):
    folder = copied(data, tmp_path / "data")
    damage(folder, *DAMAGES["half a .bin"][:2])
    code, lines = train(tmp_path, folder, LOGLEVEL="DEBUG", before=lambda: logging.root.setLevel("DEBUG"))
    assert code == 1 and "is cut short" in lines[-1]
    assert any("Traceback" in line for line in lines)


# fairseq-preprocess


@pytest.fixture
def wrong(tmp_path):
    """Text files that are no text."""
    (tmp_path / "good").write_text("a b c\nd e\n")
    (tmp_path / "latin").write_bytes(b"a b\n" * 9 + "schön\n".encode("latin-1"))
    (tmp_path / "empty").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "given, what",
    [
        ("--only-source --trainpref latin", "latin is not UTF-8, in line 10: convert it, for example with `iconv"),
        ("--only-source --trainpref latin --workers 2", "latin is not UTF-8, in line 10"),
        ("--only-source --trainpref good --validpref good,latin", "latin is not UTF-8, in line 10"),
        ("--only-source --trainpref empty", "empty is empty: give a text"),
        ("--only-source --trainpref good --testpref empty", "empty is empty: give a text"),
        ("--only-source --trainpref gone", "gone does not exist: give the text"),
        ("--only-source --trainpref .", "is a folder: give the text"),
        ("--source-lang a --target-lang b --trainpref good", "good.a does not exist"),
        ("--source-lang a --target-lang a --trainpref good", "both a"),
        ("--trainpref good", "give --only-source for one text, or --source-lang and --target-lang"),
        ("--only-source --trainpref good --task maskedlm", "--task maskedlm is not known"),
        ("--onlysource --trainpref good", "no flag --onlysource (in: --onlysource): the nearest: --only-source"),
    ],
)
def test_preprocess_refuses_what_is_no_text_before_it_writes_anything(given, what, wrong):
    before = sorted(os.listdir(wrong))
    here = os.path.abspath(USER_DIR)
    process = forked.Run(
        ["--user-dir", here, *given.split(), "--destdir", "out"],
        wrong.parent / "preprocess.log",
        before=lambda: os.chdir(wrong),
        command="preprocess",
    )
    assert_one_line((process.wait(), process.printed().strip().splitlines()), what)
    assert sorted(os.listdir(wrong)) == before


def test_preprocess_names_the_dictionary_that_is_there_already(wrong):
    how = ("--only-source", "--trainpref", wrong / "good", "--destdir", wrong / "out")
    assert preprocess(wrong / "log", *how)[0] == 0
    assert_one_line(preprocess(wrong / "log", *how), wrong / "out" / "dict.txt")
    assert preprocess(wrong / "log", *how, "--srcdict", wrong / "out" / "dict.txt")[0] == 0


# a full disk


@contextmanager
def files_no_larger_than(size):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [0, 20_000])
@pytest.mark.parametrize("command", ["warm-start", "import-tupe"])
def test_a_full_disk_is_one_line_and_spoils_no_file(command, size, checkpoints, tmp_path, capsys):
    source, more = checkpoints.roberta, ["--arch", "roberta_t5"]
    if command == "import-tupe":
        source, more = OFFICIAL_TUPE / "checkpoint.pt", []
    (tmp_path / "out.pt").write_bytes(b"an earlier one")
    with files_no_larger_than(size):
        what = ["out.pt cannot be written: File too large", "make room"]
        assert_refused([command, source, tmp_path / "out.pt", *more], what, capsys, tmp_path)
