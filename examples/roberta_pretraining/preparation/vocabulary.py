"""Sentences of the training text -> the vocabulary and fairseq's dictionary: spm.model and dict.txt."""

import zlib
from collections import Counter
from functools import lru_cache, partial
from pathlib import Path

import corpus
from messages import fail

from . import storage

MODEL, DICTIONARY = "spm.model", "dict.txt"
#: those of RoBERTa, which prepare.sh fetches
GPT2_FILES = ("encoder.json", "vocab.bpe")
FAIRSEQS_OWN = 5  # <s>, <pad>, </s>, <unk> and <mask>, which the task adds
SENTENCEPIECES_OWN = 3  # <unk>, <s>, </s>


def sample(work, megabytes):
    """Yields sentences for training: all, or a part that depends on their text alone."""
    total = sum(storage.read_json(path)["train bytes"] for path in (work / "sentences").glob("*.json"))
    every = -(-total // (megabytes * 1_000_000))
    for path in sorted((work / "sentences").glob("*.train")):
        for line in storage.lines_of(path):
            for sentence in line.split("\t"):
                if sentence and zlib.crc32(sentence.encode()) % every == 0:
                    yield sentence


def learn(work, settings):
    """Writes MODEL and DICTIONARY into work."""
    pieces = settings.vocab_size - FAIRSEQS_OWN
    lines, coverage = sample(work, settings.vocab_megabytes), settings.character_coverage
    if settings.merges:
        room = pieces - settings.merges
        if room < 1:
            fail(f"MERGES={settings.merges} leaves no room for letters in VOCAB_SIZE={settings.vocab_size}")
        alphabet = most_frequent(lines, room)
        lines, coverage = (within(alphabet, sentence) for sentence in sample(work, settings.vocab_megabytes)), 1.0
    corpus.learn(work / MODEL, lines, pieces + SENTENCEPIECES_OWN, "nmt_nfkc", coverage)
    corpus.write_vocabulary(work, work / DICTIONARY)
    return {"dictionary": FAIRSEQS_OWN + sum(1 for _ in storage.lines_of(work / DICTIONARY))}


def most_frequent(sentences, count):
    """Returns so many characters, with that for the beginning of a word among them."""
    found = Counter()
    for sentence in sentences:
        found.update(sentence)
    del found[" "]
    ranked = sorted(found, key=lambda character: (-found[character], character))
    return frozenset(ranked[: count - 1])


def within(alphabet, sentence):
    """Returns the sentence without the characters that are not in the alphabet."""
    return "".join(character for character in sentence if character in alphabet or character == " ")


@lru_cache(1)
def pieces_of(work, settings):
    """Returns a function from text to pieces."""
    if settings.vocabulary == "gpt2":
        from fairseq_relpos.finetuning.vocabulary import Gpt2Pieces

        return Gpt2Pieces(*(str(Path(work, name)) for name in GPT2_FILES)).pieces
    return partial(corpus.processor_of(work).encode, out_type=str)
