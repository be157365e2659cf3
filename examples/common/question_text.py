"""Questions, their texts and answers -> the data of a model that asks them. A text is SQuAD's JSON, or PREFIX.src and
PREFIX.tgt."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import corpus
from making import (
    SPLITS,
    VOCABULARY_FILES,
    binarise,
    digest,
    make,
    number,
    readable,
    setting,
    vocabulary_lines,
    vocabulary_of,
)
from messages import fail, say

from fairseq_relpos.command_line import Parser


def prepare(arguments):
    parser = Parser(prog="prepare.sh")
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, default=Path(setting("DATA")))
    parser.add_argument("--vocabulary", metavar="FOLDER", type=vocabulary_of)
    for split in SPLITS:
        parser.add_argument(f"--{split}", metavar="TEXT")
        parser.add_argument(f"--{split}-titles", metavar="FILE", type=readable)
    given = parser.parse_args(arguments)
    texts = {split: vars(given)[split] for split in SPLITS if vars(given)[split]}
    titles = {split: vars(given)[f"{split}_titles"] for split in SPLITS if vars(given)[f"{split}_titles"]}
    data = QuestionData(texts, titles, given.vocabulary)
    make(given.out, data.sources(), data.build, given.vocabulary)


class QuestionData:
    """The data of these texts with the settings of the recipe. titles: of the articles that are taken. vocabulary: the
    folder that has it; None: one is learned."""

    def __init__(self, texts, titles, vocabulary):
        self.texts, self.titles, self.vocabulary = texts, titles, vocabulary
        self.files = {split: files_of(text) for split, text in texts.items()}
        for split in titles.keys() - texts.keys():
            fail(f"--{split}-titles without --{split}")
        if not {"train", "valid"} <= texts.keys():
            fail("no text for training or validation; usage: prepare.sh [OUT] --train TEXT --valid TEXT [--test TEXT]")
        self.longest = number("MAX_SOURCE"), number("MAX_TARGET")

    def sources(self):
        """Returns a line for each file and setting that the data are made of."""
        if self.vocabulary:
            lines = vocabulary_lines(self.vocabulary, ("dict.txt", *VOCABULARY_FILES))
        else:
            coverage = setting("CHARACTER_COVERAGE")
            lines = [f"vocabulary {setting('VOCAB_SIZE')} {setting('NORMALIZATION')} coverage {coverage}"]
        lines += [f"source {setting('MAX_SOURCE')} question {setting('MAX_TARGET')} tokens"]
        for split, text in self.texts.items():
            files = [*self.files[split], *([self.titles[split]] if split in self.titles else [])]
            lines += [f"{digest(*files)} {split} {Path(text).name}"]
        return lines

    def build(self, work):
        from fairseq_relpos.finetuning import questions

        vocabulary, kept = work / "vocabulary", work / "made" / "text"
        vocabulary.mkdir()
        kept.mkdir()
        for split, text in self.texts.items():
            questions.read(text, work / split, self.titles.get(split))
        if self.vocabulary:
            self.copy_vocabulary(vocabulary)
        else:
            self.learn_vocabulary(work, vocabulary)
        for split in self.texts:
            questions.encode(work / split, vocabulary, *self.longest, training=split == "train")
            os.replace(work / f"{split}.questions", kept / f"{split}.questions")
        self.binarise(work, vocabulary / "dict.txt")
        for path in vocabulary.iterdir():
            os.replace(path, work / "made" / path.name)

    def copy_vocabulary(self, folder):
        from fairseq_relpos.tasks.span_windows import load_dictionary

        for name in VOCABULARY_FILES:
            if (self.vocabulary / name).exists():
                shutil.copy(self.vocabulary / name, folder)
        load_dictionary(str(self.vocabulary)).save(str(folder / "dict.txt"))  # with <mask>

    def learn_vocabulary(self, work, folder):
        size = setting("VOCAB_SIZE")
        say(f"vocabulary of {size} pieces, learned from the texts and questions of the training")
        lines = corpus.drawn([work / f"train.{side}" for side in ("src", "tgt")], 0)
        coverage = float(setting("CHARACTER_COVERAGE"))
        corpus.learn(work / "spm.model", lines, int(size), setting("NORMALIZATION"), coverage)
        corpus.write_dictionaries(work, 1, ["src", "tgt"])
        os.replace(work / "spm.model", folder / "spm.model")
        os.replace(work / "dict.src.txt", folder / "dict.txt")

    def binarise(self, work, dictionary):
        flags = ["--source-lang", "src", "--target-lang", "tgt", "--srcdict", dictionary, "--joined-dictionary"]
        for split in self.texts:
            flags += [f"--{split}pref", work / f"{split}.pieces"]
        binarise(work, *flags, "--workers", setting("WORKERS"))


def files_of(text):
    """Returns the JSON file, or the two files of a PREFIX."""
    if re.search(r"\.json(\.xz|\.gz)?$", text):
        if not os.access(text, os.R_OK):
            fail(f"no readable file {text}: get SQuAD or CMRC 2018 first")
        return [text]
    with contextlib.suppress(SystemExit):
        return [corpus.find(text, side) for side in ("src", "tgt")]
    fail(
        f"no {text}.src and {text}.tgt (or .xz, .gz): "
        "give SQuAD's JSON, whose name ends in .json, or PREFIX of these two"
    )
