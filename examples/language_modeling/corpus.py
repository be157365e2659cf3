"""Text -> what fairseq-preprocess reads, with counts: for prepare.sh.

    python corpus.py pieces MODEL FOLDER SPLIT    FOLDER/SPLIT.txt -> SPLIT.units and SPLIT.counts.json
    python corpus.py words - FOLDER SPLIT         the same, a unit a word
    python corpus.py closed DICT FOLDER SPLIT...  an error, unless every word is in the dictionary
    python corpus.py counts - FOLDER SPLIT...     SPLIT.counts.json of all -> FOLDER/counts.json

The text is its words with one blank between them, and a line end after each line. What is counted of it:

    lines, tokens    a token is a unit or a line end: what a model is scored on
    words            a line end counts as a word, as in the papers
    bytes            of the text that the pieces spell, a line end is one; null where units are words, as <unk> has none
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
import pieces  # noqa: E402
from full_disk import fail, in_one_line  # noqa: E402

from fairseq_relpos.atomic_files import whole_file  # noqa: E402


def write_json(path, content):
    with whole_file(path) as part:
        Path(part).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def encode(kind, model, folder, split):
    text = Path(folder, f"{split}.txt")
    pieces.check(text)
    processor = pieces.sentencepiece.SentencePieceProcessor(model_file=model) if kind == "pieces" else None
    counts = {"lines": 0, "tokens": 0, "words": 0, "bytes": 0 if processor else None}
    with open(text, encoding="utf-8", newline="\n") as source, whole_file(Path(folder, f"{split}.units")) as part:
        with open(part, "w", encoding="utf-8", newline="\n") as target:
            for line in source:
                words = units = line.split()
                if processor:
                    units = processor.encode(" ".join(words), out_type=str)
                    counts["bytes"] += len(processor.decode(units).encode()) + 1
                counts["lines"] += 1
                counts["words"] += len(words) + 1
                counts["tokens"] += len(units) + 1
                target.write(" ".join(units) + "\n")
    write_json(Path(folder, f"{split}.counts.json"), counts)
    print(f"{split}: {', '.join(f'{count:,} {name}' for name, count in counts.items() if count is not None)}")


def closed(dictionary, folder, *splits):
    """fairseq would make <unk> of other words, which is easy to predict."""
    with open(dictionary, encoding="utf-8") as file:
        known = {line.rsplit(" ", 1)[0] for line in file} | {"<unk>"}
    for split in splits:
        with open(Path(folder, f"{split}.units"), encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                unknown = next((word for word in line.split() if word not in known), None)
                if unknown:
                    fail(
                        f"{split}, line {number}: the word {unknown!r} is not in the training text: "
                        "set VOCABULARY=pieces, or write <unk> for rare words"
                    )


def merge(folder, *splits):
    read = {split: json.loads(Path(folder, f"{split}.counts.json").read_text(encoding="utf-8")) for split in splits}
    write_json(Path(folder, "counts.json"), read)


if __name__ == "__main__":
    action, given, folder, *splits = sys.argv[1:]
    with in_one_line("corpus.py", folder):
        if action == "closed":
            closed(given, folder, *splits)
        elif action == "counts":
            merge(folder, *splits)
        else:
            encode(action, given, folder, *splits)
