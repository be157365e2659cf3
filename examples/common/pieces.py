"""Text <-> SentencePiece pieces, for the prepare.sh of small recipes.

    python pieces.py unpack TEXT FILE...                          FILE: plain, .xz or .gz
    python pieces.py vocabulary TEXT PREFIX SIZE NORMALIZATION [bytes]    -> PREFIX.model
    python pieces.py encode MODEL TEXT PIECES
    python pieces.py dictionary MODEL DICT                        -> fairseq's dict.txt

With `bytes`, 256 pieces of the vocabulary are the bytes, which spell every character that no other piece has.
What is written has its name only when it is whole.
"""

import io
import os
import sys
from pathlib import Path

import sentencepiece
from full_disk import in_one_line

from fairseq_relpos.atomic_files import UNPACKING_ERRORS, opened, whole_file

LONGEST_PARAGRAPH = 1_000_000  # bytes; SentencePiece's own limit of 4,192 would skip many


def unpack(text, *files):
    with whole_file(text) as part, open(part, "wb") as target:
        for file in files:
            for block in blocks_of(file):
                target.write(block)


def blocks_of(path):
    try:
        with opened(path) as file:
            while block := file.read(1 << 20):
                yield block
    except UNPACKING_ERRORS as error:
        sys.exit(f"pieces.py: error: {path} cannot be unpacked: is it cut short? ({error})")


def vocabulary(text, prefix, size, normalization, rare="unknown"):
    check(text)
    model = io.BytesIO()  # by itself SentencePiece is content with half a file on a full disk
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=text,
            model_writer=model,
            vocab_size=int(size),
            model_type="bpe",
            normalization_rule_name=normalization,
            character_coverage=0.9995,
            byte_fallback=rare == "bytes",
            max_sentence_length=LONGEST_PARAGRAPH,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        sys.exit(
            f"pieces.py: error: no vocabulary of {size} pieces from {text}: give more text or set "
            f"a smaller VOCAB_SIZE in settings.sh ({str(error).strip().splitlines()[-1]})"
        )
    with whole_file(f"{prefix}.model") as part:
        Path(part).write_bytes(model.getvalue())


def check(text):
    """SentencePiece and fairseq fail late, or not at all, on text that is not text."""
    empty = True
    with open(text, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                empty = not line.decode("utf-8").strip() and empty
            except UnicodeDecodeError as error:
                sys.exit(
                    f"pieces.py: error: {text}, line {number}: not UTF-8 ({error.reason}); convert "
                    "it, for example with iconv -f latin1 -t utf-8"
                )
    if empty:
        sys.exit(f"pieces.py: error: {text} holds no text: every line is empty")


def encode(model, text, pieces):
    check(text)
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    lines = tokens = 0
    with open(text, encoding="utf-8", newline="\n") as source, whole_file(pieces) as part:
        with open(part, "w", encoding="utf-8") as target:
            for line in source:
                found = processor.encode(line.strip(), out_type=str)
                lines += 1
                tokens += len(found) + 1  # </s>, which fairseq adds to every line
                target.write(" ".join(found) + "\n")
    split = os.path.splitext(os.path.basename(text))[0]
    print(f"{split}: {lines:,} lines, {tokens:,} tokens (a </s> after each line included)")


def dictionary(model, path):
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    with whole_file(path) as part, open(part, "w", encoding="utf-8") as file:
        for piece in range(processor.get_piece_size()):
            if not processor.is_control(piece) and not processor.is_unknown(piece):
                file.write(f"{processor.id_to_piece(piece)} 1\n")


if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    steps = {"unpack": unpack, "vocabulary": vocabulary, "encode": encode, "dictionary": dictionary}
    with in_one_line("pieces.py", os.path.dirname(arguments[-1] if step == "dictionary" else arguments[0]) or "."):
        steps[step](*arguments)
