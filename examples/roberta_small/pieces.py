"""Text <-> SentencePiece pieces, for prepare.sh.

    python pieces.py vocabulary TEXT PREFIX SIZE NORMALIZATION    -> PREFIX.model
    python pieces.py encode MODEL TEXT PIECES
    python pieces.py dictionary MODEL DICT                        -> fairseq's dict.txt
"""

import os
import sys

import sentencepiece

LONGEST_PARAGRAPH = 1_000_000  # bytes; SentencePiece's own limit of 4,192 would skip many


def vocabulary(text, prefix, size, normalization):
    check(text)
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=text,
            model_prefix=f"{prefix}.tmp",
            vocab_size=int(size),
            model_type="bpe",
            normalization_rule_name=normalization,
            character_coverage=0.9995,
            max_sentence_length=LONGEST_PARAGRAPH,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        sys.exit(
            f"pieces.py: error: no vocabulary of {size} pieces from {text}: give more text or set "
            f"a smaller VOCAB_SIZE in settings.sh ({str(error).strip().splitlines()[-1]})"
        )
    os.remove(f"{prefix}.tmp.vocab")
    os.replace(f"{prefix}.tmp.model", f"{prefix}.model")


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
    with open(text, encoding="utf-8", newline="\n") as source:
        with open(f"{pieces}.tmp", "w", encoding="utf-8") as target:
            for line in source:
                found = processor.encode(line.strip(), out_type=str)
                lines += 1
                tokens += len(found) + 1  # </s>, which fairseq adds to every line
                target.write(" ".join(found) + "\n")
    os.replace(f"{pieces}.tmp", pieces)
    split = os.path.splitext(os.path.basename(text))[0]
    print(f"{split}: {lines:,} lines, {tokens:,} tokens (a </s> after each line included)")


def dictionary(model, path):
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    with open(path, "w", encoding="utf-8") as file:
        for piece in range(processor.get_piece_size()):
            if not processor.is_control(piece) and not processor.is_unknown(piece):
                file.write(f"{processor.id_to_piece(piece)} 1\n")


if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    {"vocabulary": vocabulary, "encode": encode, "dictionary": dictionary}[step](*arguments)
