"""Text <-> SentencePiece pieces, for prepare.py and for the translation of text. Files are written atomically."""

import contextlib
import io
import itertools
import os
import random
import subprocess
from collections import Counter
from pathlib import Path

from messages import fail

from fairseq_relpos.atomic_files import NO_ROOM, UNPACKING_ERRORS, forms_of, opened, whole_file
from fairseq_relpos.vocabulary_files import sentencepiece_of, split_by_merges

LONGEST_LINE = 1_000_000  # bytes; SentencePiece's own limit of 4,192 would skip some


def find(prefix, language):
    """Returns PREFIX.LANGUAGE, or the same with .xz or .gz."""
    found = forms_of(f"{prefix}.{language}")
    if len(found) == 1:
        return found[0]
    fail(f"{' and '.join(found)}: keep one of them" if found else f"no file {prefix}.{language} (or .xz, .gz)")


def lines_of(path):
    """Yields the lines as text. A file that is cut short or not UTF-8 ends the program."""
    try:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.rstrip(b"\r\n").decode("utf-8")
                except UnicodeDecodeError as error:
                    convert = "convert it, for example with iconv -f latin1 -t utf-8"
                    fail(f"{path}, line {number}: not UTF-8 ({error.reason}); {convert}")
    except UNPACKING_ERRORS as error:
        if getattr(error, "filename", None):
            raise
        fail(f"{path} cannot be read to its end: is it cut short? ({error})")


@contextlib.contextmanager
def writing(*paths):
    """Files that get their names when everything has been written."""
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(whole_file(path)) for path in paths]
        yield [stack.enter_context(open(part, "w", encoding="utf-8", newline="\n")) for part in parts]


def copy(paths, file, tidy=lambda line: line):
    """Copies the lines of files into an open one. Returns their number."""
    lines, empty = 0, True
    for path in paths:
        for line in map(tidy, lines_of(path)):
            file.write(line + "\n")
            lines += 1
            empty = empty and not line.strip()
    if empty:
        fail(f"{' '.join(map(str, paths))} holds no text: every line is empty")
    return lines


def one_line(text):
    """Without characters that other programs take for the end of a line."""
    return " ".join(text.split())


def learn(model, lines, size, normalization, coverage=0.9995, byte_fallback=False):
    """Learns a BPE vocabulary. ``byte_fallback``: 256 of its pieces are the bytes, which spell rare characters."""
    import sentencepiece  # here, so that a Python without it is told what it lacks (stopping.need_fairseq)

    written = io.BytesIO()  # SentencePiece itself does not notice a full disk
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=written,
            vocab_size=size,
            model_type="bpe",
            normalization_rule_name=normalization,
            character_coverage=coverage,
            byte_fallback=byte_fallback,
            max_sentence_length=LONGEST_LINE,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        remedy = "give more text or set a smaller VOCAB_SIZE"
        fail(f"no vocabulary of {size} pieces from the training text: {remedy} ({reason})")
    with whole_file(model) as part:
        Path(part).write_bytes(written.getvalue())


def drawn(paths, count):
    """Yields ``count`` random lines, the same every time; 0: all. SentencePiece's own choice has no seed."""
    total = sum(1 for path in paths for _ in lines_of(path)) if count else 0
    chosen = bytearray(total)
    for number in random.Random(1).sample(range(total), count) if 0 < count < total else range(total):
        chosen[number] = 1
    lines = itertools.chain.from_iterable(map(lines_of, paths))
    return (line for line, wanted in zip(lines, chosen) if wanted) if count else lines


def processor_of(folder):
    return sentencepiece_of(Path(folder, "spm.model"))


def write_vocabulary(folder, path):
    """Writes the pieces of a model as a dictionary of fairseq. A dictionary counted in the text would also hold every
    rare character that the vocabulary lacks."""
    processor = processor_of(folder)
    with writing(path) as (file,):
        for piece in range(processor.get_piece_size()):
            if not processor.is_control(piece) and not processor.is_unknown(piece):
                file.write(f"{processor.id_to_piece(piece)} 1\n")


def write_dictionaries(work, threshold, *groups):
    """Writes for each group of languages the pieces that its training text uses: what fairseq-preprocess would count,
    except characters that the model lacks."""
    import fairseq_relpos

    fairseq_relpos.register()  # before fairseq is imported, so that its log lines do not reach the screen
    from fairseq.data import Dictionary

    processor = processor_of(work)
    for group in groups:
        counts = Counter()
        for language in group:
            for line in lines_of(work / f"train.{language}"):
                counts.update(processor.encode(line, out_type=str))
        found = Dictionary()
        for piece, count in counts.items():
            if count >= threshold and not processor.is_unknown(processor.piece_to_id(piece)):
                found.add_symbol(piece, count)
        found.finalize(padding_factor=8)  # as fairseq-preprocess does, for tensor cores
        for language in group:
            with whole_file(work / f"dict.{language}.txt") as part:
                found.save(part)


class Encoder:
    """Splits text into the pieces of a dictionary: a piece that is too rare for it is split again."""

    def __init__(self, folder, language):
        self.processor = processor_of(folder)
        with open(Path(folder, f"dict.{language}.txt"), encoding="utf-8") as file:
            self.known = {line.rsplit(" ", 1)[0] for line in file}
        self.language = language
        self.tokens = self.unknown = 0

    def __call__(self, line):
        return [part for piece in self.processor.encode(line, out_type=str) for part in self.split(piece)]

    def split(self, piece):
        return split_by_merges(piece, self.known, self.score)

    def score(self, piece):
        number = self.processor.piece_to_id(piece)
        return -float("inf") if self.processor.is_unknown(number) else self.processor.get_score(number)

    def count(self, pieces):
        self.tokens += len(pieces) + 1  # </s>, which fairseq adds to every line
        self.unknown += sum(piece not in self.known for piece in pieces)


def encode(folder, split, processor, counted):
    """Encodes text, in words if there is no processor. Returns what is counted for a language model, whose text is its
    words with one blank between them, and a line end after each line:

        lines, tokens    a token is a unit or a line end, which a model is scored on
        words            a line end counts as a word, as in the papers
        bytes            of the text that the pieces spell, a line end is one; null for words, as <unk> has no bytes
    """
    counts = {"lines": 0, "tokens": 0, "words": 0, "bytes": 0 if processor else None}
    with writing(Path(folder, f"{split}.pieces")) as (file,):
        for line in lines_of(Path(folder, f"{split}.txt")):
            words = units = line.split()
            if processor:
                units = processor.encode(" ".join(words) if counted else line.strip(), out_type=str)
                counts["bytes"] += len(processor.decode(units).encode()) + 1 if counted else 0
            counts["lines"] += 1
            counts["words"] += len(words) + 1
            counts["tokens"] += len(units) + 1
            file.write(" ".join(units) + "\n")
    print(f"{split}: {', '.join(f'{count:,} {name}' for name, count in counts.items() if count)}")
    return counts


def preprocess(log, *flags):
    """Runs fairseq-preprocess, whose output goes to the log."""
    with open(log, "w") as file:
        done = subprocess.run(["fairseq-preprocess", *map(str, flags)], stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines()
        full = map(os.strerror, NO_ROOM)
        if not lines or any(reason in line for reason in full for line in lines):
            fail(f"fairseq-preprocess failed: no room to write in {log.parent}: make room and run this again")
        fail(f"fairseq-preprocess failed: {lines[-1].strip()} (all of it in {log})")


def refuse_unknown_words(dictionary, folder, splits):
    """fairseq would make <unk> of them, which is easy to predict."""
    with open(dictionary, encoding="utf-8") as file:
        known = {line.rsplit(" ", 1)[0] for line in file} | {"<unk>"}
    for split in splits:
        for number, line in enumerate(lines_of(Path(folder, f"{split}.pieces")), 1):
            unknown = next((word for word in line.split() if word not in known), None)
            if unknown:
                fail(
                    f"{split}, line {number}: the word {unknown!r} is not in the training text: "
                    "set VOCABULARY=pieces, or write <unk> for rare words"
                )
