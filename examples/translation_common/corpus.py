"""Parallel text <-> SentencePiece pieces, for the scripts of the translation recipes.

    corpus.py unpack WORK/SPLIT LANGUAGES PREFIX...     -> WORK/SPLIT.en, WORK/SPLIT.de
    corpus.py vocabulary WORK SIZE NORMALIZATION COVERAGE SENTENCES LANGUAGES     -> WORK/spm.model
    corpus.py dictionary WORK THRESHOLD LANGUAGES       -> WORK/dict.en.txt, WORK/dict.de.txt
    corpus.py encode WORK SPLIT LANGUAGES [MAX_PIECES MAX_RATIO]     -> WORK/SPLIT.pieces.en, ...
    corpus.py join WORK SPLIT OUT LANGUAGES TIMES MAX_POSITIONS     -> WORK/OUT.en, WORK/OUT.de
    corpus.py pieces DATA LANGUAGE TEXT PIECES

LANGUAGES: en,de. PREFIX: PREFIX.en and PREFIX.de, plain, .xz or .gz. What is written has its
name only when it is whole.
"""

import contextlib
import io
import itertools
import os
import random
import sys
from collections import Counter
from pathlib import Path

import sentencepiece

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from full_disk import fail, in_one_line  # noqa: E402

from fairseq_relpos.atomic_files import OPENERS, UNPACKING_ERRORS, opened, whole_file  # noqa: E402

LONGEST_LINE = 1_000_000  # bytes; SentencePiece's own limit of 4,192 would skip some


def find(prefix, language):
    """PREFIX.en, PREFIX.en.xz or PREFIX.en.gz."""
    names = [f"{prefix}.{language}{ending}" for ending in OPENERS]
    found = [name for name in names if os.path.isfile(name)]
    if len(found) == 1:
        return found[0]
    fail(f"{' and '.join(found)}: keep one of them" if found else f"no file {names[0]} (or .xz, .gz)")


def lines_of(path):
    """The lines as text; a file that is cut short or not UTF-8 ends the program."""
    try:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.rstrip(b"\r\n").decode("utf-8")
                except UnicodeDecodeError as error:
                    fail(
                        f"{path}, line {number}: not UTF-8 ({error.reason}); convert it, for "
                        "example with iconv -f latin1 -t utf-8"
                    )
    except UNPACKING_ERRORS as error:
        fail(f"{path} cannot be read: {error}")


@contextlib.contextmanager
def writing(*paths):
    """Files that get their names when everything has been written."""
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(whole_file(path)) for path in paths]
        yield [stack.enter_context(open(part, "w", encoding="utf-8", newline="\n")) for part in parts]


def one_line(text):
    """Without characters that other programs take for the end of a line."""
    return " ".join(text.split())


def unpack(out, languages, *prefixes):
    languages = languages.split(",")
    total = 0
    with writing(*(f"{out}.{language}" for language in languages)) as files:
        for prefix in prefixes:
            paths = [find(prefix, language) for language in languages]
            counts = [copy(path, file) for path, file in zip(paths, files)]
            if len(set(counts)) != 1:
                fail(
                    f"{paths[0]} has {counts[0]:,} lines and {paths[1]} has {counts[1]:,}: line N of "
                    "one has to be the translation of line N of the other"
                )
            total += counts[0]
    print(f"{os.path.basename(out)}: {total:,} pairs")


def copy(path, file):
    lines, empty = 0, True
    for line in lines_of(path):
        line = one_line(line)
        file.write(line + "\n")
        lines += 1
        empty = empty and not line
    if empty:
        fail(f"{path} holds no text: give sentences, one a line")
    return lines


def vocabulary(work, size, normalization, coverage, sentences, languages):
    model = io.BytesIO()  # by itself SentencePiece is content with half a file on a full disk
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=drawn([f"{work}/train.{x}" for x in languages.split(",")], int(sentences)),
            model_writer=model,
            vocab_size=int(size),
            model_type="bpe",
            normalization_rule_name=normalization,
            character_coverage=float(coverage),
            max_sentence_length=LONGEST_LINE,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        fail(
            f"no vocabulary of {size} pieces from the training text: give more text or set a "
            f"smaller VOCAB_SIZE ({str(error).strip().splitlines()[-1]})"
        )
    with whole_file(f"{work}/spm.model") as part:
        Path(part).write_bytes(model.getvalue())


def drawn(paths, count):
    """So many lines by chance, the same every time; 0: all. SentencePiece's own choice has no seed."""
    total = sum(1 for path in paths for _ in lines_of(path))
    chosen = bytearray(total)
    for number in random.Random(1).sample(range(total), count) if 0 < count < total else range(total):
        chosen[number] = 1
    lines = itertools.chain.from_iterable(map(lines_of, paths))
    return (line for line, wanted in zip(lines, chosen) if wanted)


def dictionary(work, threshold, *groups):
    """For each group of languages the pieces that its training text uses: what
    fairseq-preprocess would count, but for characters that the model lacks."""
    import fairseq_relpos

    fairseq_relpos.register()  # before fairseq is imported, whose log lines it keeps off the screen
    from fairseq.data import Dictionary

    processor = sentencepiece.SentencePieceProcessor(model_file=f"{work}/spm.model")
    for group in groups:
        counts = Counter()
        for language in group.split(","):
            for line in lines_of(f"{work}/train.{language}"):
                counts.update(processor.encode(line, out_type=str))
        found = Dictionary()
        for piece, count in counts.items():
            if count >= int(threshold) and not processor.is_unknown(processor.piece_to_id(piece)):
                found.add_symbol(piece, count)
        found.finalize(padding_factor=8)  # as fairseq-preprocess does, for tensor cores
        for language in group.split(","):
            found.save(f"{work}/dict.tmp")
            os.replace(f"{work}/dict.tmp", f"{work}/dict.{language}.txt")


class Encoder:
    """Text into the pieces of its dictionary: a piece that is too rare for it is split again."""

    def __init__(self, work, language):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=f"{work}/spm.model")
        with open(f"{work}/dict.{language}.txt", encoding="utf-8") as file:
            self.known = {line.rsplit(" ", 1)[0] for line in file}
        self.language = language
        self.tokens = self.unknown = 0

    def __call__(self, line):
        return [part for piece in self.processor.encode(line, out_type=str) for part in self.split(piece)]

    def split(self, piece):
        """Into the two pieces that were merged into it, and these likewise."""
        if piece in self.known or len(piece) == 1:
            return [piece]
        halves = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        left, right = max(halves, key=lambda pair: min(map(self.rank, pair)))
        return self.split(left) + self.split(right)

    def rank(self, piece):
        """Frequent pieces were merged first and have the higher scores; single characters come
        after all merges, but were there before."""
        if len(piece) == 1:
            return 0
        number = self.processor.piece_to_id(piece)
        return -float("inf") if self.processor.is_unknown(number) else self.processor.get_score(number)

    def count(self, pieces):
        self.tokens += len(pieces) + 1  # </s>, which fairseq adds to every line
        self.unknown += sum(piece not in self.known for piece in pieces)


def encode(work, split, languages, *limits):
    """limits: of what training sees; a test set is never shortened."""
    encoders = [Encoder(work, language) for language in languages.split(",")]
    limits = [float(limit) for limit in limits]
    dropped = Counter()
    kept = 0
    texts = [lines_of(f"{work}/{split}.{encoder.language}") for encoder in encoders]
    with writing(*(f"{work}/{split}.pieces.{e.language}" for e in encoders)) as files:
        for lines in zip(*texts):
            sides = [encoder(line) for encoder, line in zip(encoders, lines)]
            reason = unfit(*map(len, sides), *limits) if limits else None
            if reason:
                dropped[reason] += 1
                continue
            kept += 1
            for encoder, pieces, file in zip(encoders, sides, files):
                encoder.count(pieces)
                file.write(" ".join(pieces) + "\n")
    if not kept:
        fail(f"{split}: no pair passes the filter; set a larger MAX_PIECES or MAX_RATIO")
    counts = [f"{e.language} {e.tokens:,} tokens, {e.unknown:,} unknown" for e in encoders]
    left_out = [f"left out: {count:,} {reason}" for reason, count in dropped.items()]
    print("; ".join([f"{split}: {kept:,} pairs", *counts, *left_out]))


def join(work, split, out, languages, times, max_positions):
    """Sentences of a test set, one after the other, until their source is longer than any in training: than ``times``
    the longest. What is left at the end stays out."""
    encoders = [Encoder(work, language) for language in languages.split(",")]
    source = encoders[0].language
    longest = max(len(line.split()) for line in lines_of(f"{work}/train.pieces.{source}"))
    wanted = int(times) * longest
    kept, parts, length = 0, [], 0
    with writing(*(f"{work}/{out}.{e.language}" for e in encoders)) as files:
        for pair in zip(*(lines_of(f"{work}/{split}.{e.language}") for e in encoders)):
            if not all(pair):
                continue
            parts.append(pair)
            length += len(encoders[0](pair[0]))
            if length <= wanted:
                continue
            lines = [" ".join(side) for side in zip(*parts)]
            needed = 1 + max(len(encoder(line)) for encoder, line in zip(encoders, lines))
            if needed > int(max_positions):
                fail(
                    f"JOINED={times}: joined sentences of {needed:,} tokens, and MAX_POSITIONS={max_positions}: set a "
                    f"larger one, or a smaller JOINED (the longest source of the training has {longest:,} pieces)"
                )
            for line, file in zip(lines, files):
                file.write(line + "\n")
            kept, parts, length = kept + 1, [], 0
        if not kept:
            fail(
                f"JOINED={times}: the sentences of {split} together are no longer than {wanted:,} pieces, {times} x "
                "the longest source of the training: give a longer test text, or a smaller JOINED"
            )
    print(f"{out}: {kept:,} pairs, joined from {split}, with sources of more than {wanted:,} pieces")


def pieces(data, language, text, path):
    """What fairseq-interactive reads, of one side. data: where prepare.sh has left its vocabulary."""
    encoder = Encoder(data, language)
    with writing(path) as (file,):
        for line in lines_of(text):
            file.write(" ".join(encoder(one_line(line))) + "\n")


def unfit(source, target, max_pieces, max_ratio):
    """Why a pair with so many pieces is left out of training; None: it stays."""
    short, long = sorted((source, target))
    if not short:
        return "with an empty side"
    if long > max_pieces:
        return f"longer than {max_pieces:.0f} pieces"
    if long > max_ratio * short:
        return f"with lengths beyond {max_ratio:g} : 1"
    return None


STEPS = {step.__name__: step for step in (unpack, vocabulary, dictionary, encode, join, pieces)}

if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    with in_one_line("corpus.py", os.path.dirname(arguments[-1]) if step == "pieces" else arguments[0]):
        STEPS[step](*arguments)
