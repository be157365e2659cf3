"""Parallel text -> the data of a translation. A text is PREFIX.en and PREFIX.de; each test text is its own split."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import corpus
from fetching import fetch
from making import HERE, SPLITS, binarise, described, digest, folder_of, make, number, numbered, setting
from messages import fail, say

from fairseq_relpos.atomic_files import write_text
from fairseq_relpos.command_line import Parser
from fairseq_relpos.vocabulary_files import text_settings


def prepare(arguments, own_texts):
    """own_texts: returns the texts of the recipe, for a call without any."""
    parser = Parser(prog="prepare.sh")
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, default=Path(setting("DATA")))
    if own_texts is wmt_texts:
        parser.add_argument("--offline", metavar="FOLDER", type=folder_of)
    for split in SPLITS:
        parser.add_argument(f"--{split}", nargs="+", action="extend", default=[], metavar="PREFIX")
    given = parser.parse_args(arguments)
    texts = {split: vars(given)[split] for split in SPLITS}
    offline = getattr(given, "offline", None)
    if not any(texts.values()):
        texts = own_texts(given.out / "own", offline)
    elif offline:
        fail("--offline is for the texts that are downloaded, and texts were given")
    if not all(texts.values()):
        fail("a text is missing: give --train, --valid and --test, as the first lines of prepare.sh show")
    if len(texts["valid"]) > 1:
        fail(f"two texts for validation, {' and '.join(texts['valid'])}: give one")
    data = ParallelData(**texts)
    make(given.out, data.sources(), data.build, data.vocabulary)


class ParallelData:
    """The data of these texts with the settings of the recipe."""

    def __init__(self, train, valid, test):
        self.languages = [setting("SOURCE"), setting("TARGET")]
        self.texts = {"train": train, "valid": valid}
        self.texts |= {numbered("test", place): [prefix] for place, prefix in enumerate(test)}
        self.joined = {numbered("test", len(test) + place): times for place, times in enumerate(joined_lengths())}
        self.tests = [split for split in (*self.texts, *self.joined) if split.startswith("test")]
        self.vocabulary = given_vocabulary()
        self.one_dictionary = setting("JOINED_DICTIONARY", "yes", "no") == "yes"

    def sources(self):
        """Returns a line for each file and setting that the data are made of."""
        if self.vocabulary:
            vocabulary = digest(self.vocabulary / "spm.model", self.vocabulary / "dict.txt")
        else:
            vocabulary = (
                f"{setting('VOCAB_SIZE')} {setting('NORMALIZATION')} coverage {setting('CHARACTER_COVERAGE')} "
                f"sentences {setting('VOCAB_SENTENCES')} threshold {setting('VOCAB_THRESHOLD')} "
                f"joined {setting('JOINED_DICTIONARY')}"
            )
        lines = [f"vocabulary {vocabulary}", f"filter {setting('MAX_PIECES')} pieces {setting('MAX_RATIO')} : 1"]
        for split, prefixes in self.texts.items():
            lines += [described(split, corpus.find(prefix, side)) for prefix in prefixes for side in self.languages]
        first = Path(self.texts["test"][0]).name
        lines += [f"joined {split} {first}-joined{times}.{self.languages[0]}" for split, times in self.joined.items()]
        return lines

    def build(self, work):
        self.copy_texts(work)
        if self.vocabulary:
            self.copy_vocabulary(work)
        else:
            self.learn_vocabulary(work)
        self.encode(work)
        self.binarise(work)
        self.keep_for_scores(work)

    def copy_texts(self, work):
        for split, prefixes in self.texts.items():
            with corpus.writing(*(work / f"{split}.{side}" for side in self.languages)) as files:
                for prefix in prefixes:
                    copy_pair([corpus.find(prefix, side) for side in self.languages], files)

    def copy_vocabulary(self, work):
        say(f"vocabulary of {self.vocabulary} for {' and '.join(self.languages)}")
        shutil.copy(self.vocabulary / "spm.model", work)
        for side in self.languages:
            shutil.copy(self.vocabulary / "dict.txt", work / f"dict.{side}.txt")

    def learn_vocabulary(self, work):
        size = setting("VOCAB_SIZE")
        say(f"vocabulary of {size} pieces for {' and '.join(self.languages)} together, learned from the training text")
        lines = corpus.drawn([work / f"train.{side}" for side in self.languages], int(setting("VOCAB_SENTENCES")))
        coverage = float(setting("CHARACTER_COVERAGE"))
        corpus.learn(work / "spm.model", lines, int(size), setting("NORMALIZATION"), coverage)
        groups = [self.languages] if self.one_dictionary else [[side] for side in self.languages]
        corpus.write_dictionaries(work, int(setting("VOCAB_THRESHOLD")), *groups)

    def encode(self, work):
        limits = float(setting("MAX_PIECES")), float(setting("MAX_RATIO"))
        self.encode_split(work, "train", limits)
        for split, times in self.joined.items():
            self.join(work, split, times)
        for split in ("valid", *self.tests):
            self.encode_split(work, split)

    def encode_split(self, work, split, limits=None):
        """limits: those of ``unfit``, in training. A test set is never shortened: a longer sentence is refused, which
        fairseq would do when the training is over."""
        from fairseq_relpos.finetuning.vocabulary import refuse_unknown  # imports torch

        encoders = [corpus.Encoder(work, side) for side in self.languages]
        dropped, kept, most = Counter(), 0, number("MAX_POSITIONS")
        with corpus.writing(*(work / f"{split}.pieces.{side}" for side in self.languages)) as files:
            for pair in self.pairs(work, split):
                sides = [encoder(line) for encoder, line in zip(encoders, pair)]
                if limits and (reason := unfit(*map(len, sides), *limits)):
                    dropped[reason] += 1
                    continue
                kept += 1
                if not limits and (needed := 1 + max(map(len, sides))) > most:
                    fail(f"{split}: pair {kept:,} has {needed:,} tokens, and MAX_POSITIONS={most}: set a larger one")
                for encoder, pieces, file in zip(encoders, sides, files):
                    encoder.count(pieces)
                    file.write(" ".join(pieces) + "\n")
        if not kept:
            fail(f"{split}: no pair passes the filter; set a larger MAX_PIECES or MAX_RATIO")
        counts = [f"{e.language} {e.tokens:,} tokens, {e.unknown:,} unknown" for e in encoders]
        left_out = [f"left out: {count:,} {reason}" for reason, count in dropped.items()]
        print("; ".join([f"{split}: {kept:,} pairs", *counts, *left_out]))
        for one in encoders if self.vocabulary else []:
            refuse_unknown(one.unknown / one.tokens, f"pieces of {split}.{one.language}", self.vocabulary)

    def pairs(self, work, split):
        """Yields the source and the target of each sentence."""
        return zip(*(corpus.lines_of(work / f"{split}.{side}") for side in self.languages))

    def join(self, work, split, times):
        """Joins sentences of the first test set until their source is longer than ``times`` the longest one in
        training. The rest at the end is not used."""
        encoders = [corpus.Encoder(work, side) for side in self.languages]
        longest = max(len(line.split()) for line in corpus.lines_of(work / f"train.pieces.{self.languages[0]}"))
        wanted, most = times * longest, number("MAX_POSITIONS")
        kept, parts, length = 0, [], 0
        with corpus.writing(*(work / f"{split}.{side}" for side in self.languages)) as files:
            for pair in filter(all, self.pairs(work, "test")):
                parts.append(pair)
                length += len(encoders[0](pair[0]))
                if length <= wanted:
                    continue
                lines = [" ".join(side) for side in zip(*parts)]
                needed = 1 + max(len(encoder(line)) for encoder, line in zip(encoders, lines))
                if needed > most:
                    fail(
                        f"JOINED={times}: joined sentences of {needed:,} tokens, and MAX_POSITIONS={most}: set a "
                        f"larger one, or a smaller JOINED (the longest source of the training has {longest:,} pieces)"
                    )
                for line, file in zip(lines, files):
                    file.write(line + "\n")
                kept, parts, length = kept + 1, [], 0
            if not kept:
                fail(
                    f"JOINED={times}: the sentences of test together are no longer than {wanted:,} pieces, {times} x "
                    "the longest source of the training: give a longer test text, or a smaller JOINED"
                )
        print(f"{split}: {kept:,} pairs, joined from test, with sources of more than {wanted:,} pieces")

    def binarise(self, work):
        source, target = self.languages
        flags = ["--source-lang", source, "--target-lang", target, "--srcdict", work / f"dict.{source}.txt"]
        flags += ["--joined-dictionary"] if self.one_dictionary else ["--tgtdict", work / f"dict.{target}.txt"]
        flags += ["--trainpref", work / "train.pieces", "--validpref", work / "valid.pieces"]
        flags += ["--testpref", ",".join(str(work / f"{split}.pieces") for split in self.tests)]
        binarise(work, *flags, "--workers", setting("WORKERS"))

    def keep_for_scores(self, work):
        """Keeps the texts of the tests, with which translations are compared, and the vocabulary."""
        (work / "made" / "text").mkdir()
        for split, side in itertools.product(self.tests, self.languages):
            os.replace(work / f"{split}.{side}", work / "made" / "text" / f"{split}.{side}")
        os.replace(work / "spm.model", work / "made" / "spm.model")


def unfit(source, target, longest, ratio):
    """Returns why a pair of so many pieces is not trained on; None if it is."""
    short, long = sorted((source, target))
    if not short:
        return "with an empty side"
    if long > longest:
        return f"longer than {longest:.0f} pieces"
    if long > ratio * short:
        return f"with lengths beyond {ratio:g} : 1"
    return None


def joined_lengths():
    """Returns for each test set of joined sentences how many times the longest source of the training theirs exceed."""
    lengths = setting("JOINED").split()
    if not all(re.fullmatch("[1-9][0-9]*", times) for times in lengths):
        fail(f'JOINED={setting("JOINED")}: give whole numbers of 1 or more, such as "1 2"')
    return list(map(int, lengths))


def given_vocabulary():
    """Returns the folder of VOCABULARY; None where one is learned."""
    if not setting("VOCABULARY"):
        return None
    folder = Path(setting("VOCABULARY"))
    if not all((folder / name).exists() for name in ("spm.model", "dict.txt")):
        fail(f"no spm.model and dict.txt in VOCABULARY={folder}: give a folder that prepare.sh of a recipe has written")
    changed = [name for name in ("lowercase", "moses_tokens") if text_settings(folder).get(name)]
    if changed:
        fail(f"VOCABULARY={folder} is of text that was changed ({', '.join(changed)}), which this recipe does not do")
    return folder


def copy_pair(paths, files):
    """Copies both sides of a text, whose lines must correspond."""
    source, target = (corpus.copy([path], file, corpus.one_line) for path, file in zip(paths, files))
    if source != target:
        fail(
            f"{paths[0]} has {source:,} lines and {paths[1]} has {target:,}: line N of one has to be the "
            "translation of line N of the other"
        )


def toy_texts(folder, _):
    """The toy grammar of translation_small."""
    say(f"no texts given: sentences of a toy grammar, with the settings in {setting('SETTINGS')}")
    counts = {"train": "TOY_TRAIN", "valid": "TOY_VALID", "test": "TOY_TEST", "long": "TOY_TEST"}
    given = [f"{name}={setting(count)}" for name, count in counts.items()]
    grammar = [sys.executable, HERE / "toy_grammar.py", folder, setting("TOY_SEED"), setting("TOY_LONGEST"), *given]
    if subprocess.call(list(map(str, grammar))):
        sys.exit(1)
    return {"train": [folder / "train"], "valid": [folder / "valid"], "test": [folder / "test", folder / "long"]}


def wmt_texts(folder, offline):
    """The texts of WMT that the settings name. For TEXT=tokenised the validation and test texts are tokenised as the
    training text of WMT17 is."""
    languages = [setting("SOURCE"), setting("TARGET")]
    train, valid, tests = (setting(name).split() for name in ("TRAIN_TEXTS", "VALID_TEXT", "TEST_TEXTS"))
    tokenised = setting("TEXT", "raw", "tokenised") == "tokenised"
    models = [f"truecase-model.{side}" for side in languages] if tokenised else []
    # the small ones first: a missing one is then known soon
    names = [f"{text}.{side}" for text in (*valid, *tests, *train) for side in languages]
    fetch(HERE / "downloads.txt", folder, offline, [*models, *names])
    place = folder / "tokenised" if tokenised else folder
    if tokenised:
        place.mkdir(exist_ok=True)
        for side in languages:
            tokenise(folder, place, side, [*valid, *tests])
    places = {"train": folder, "valid": place, "test": place}
    return {
        split: [places[split] / text for text in of_split] for split, of_split in zip(SPLITS, (train, valid, tests))
    }


def tokenise(folder, target, language, texts):
    """Tokenises texts as WMT17 did: normalised, hyphens split, truecased."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer, MosesTruecaser

    normalise = MosesPunctNormalizer(lang=language).normalize
    split = MosesTokenizer(lang=language).tokenize
    truecase = MosesTruecaser(load_from=f"{folder}/truecase-model.{language}").truecase
    for name in (f"{text}.{language}" for text in texts):
        with open(folder / name, encoding="utf-8", newline="\n") as file:
            tokens = [split(normalise(line.strip()), aggressive_dash_splits=True, return_str=True) for line in file]
        write_text(target / name, "".join(truecase(line, return_str=True) + "\n" for line in tokens))
