"""The files of a vocabulary of pieces, which stand beside dict.txt."""

from pathlib import Path

#: kind -> its files
KINDS = {"sentencepiece": ("spm.model",), "gpt2": ("encoder.json", "vocab.bpe"), "tokenizers": ("tokenizer.json",)}
ACCEPTED = "spm.model, or encoder.json and vocab.bpe, or tokenizer.json"


def find(folder: str | Path) -> tuple[str, list[Path]]:
    """Returns the kind of the vocabulary in a folder, and its files; "" and none if there is no vocabulary."""
    for kind, names in KINDS.items():
        paths = [Path(folder, name) for name in names]
        if all(path.exists() for path in paths):
            return kind, paths
    return "", []
