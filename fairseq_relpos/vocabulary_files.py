"""The files of a vocabulary of pieces, which stand beside dict.txt, and how a piece that dict.txt lacks is split."""

import json
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

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


def text_settings(folder: str | Path) -> dict[str, Any]:
    """Returns how the text of prepared data was changed, by their manifest.json: ``lowercase`` and ``moses_tokens``."""
    manifest = Path(folder, "manifest.json")
    found = json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else {}
    return found.get("settings", {}) if isinstance(found, dict) else {}


def sentencepiece_of(path: str | Path) -> Any:
    """Returns the SentencePiece model in a file. Raises ValueError, one line, if there is none."""
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError):
        raise ValueError(f"{path} is no SentencePiece model: copy it again") from None


def sentencepiece_proto(path: str | Path) -> Any:
    """A SentencePiece model as the message of its file."""
    from sentencepiece import sentencepiece_model_pb2

    spm = vars(sentencepiece_model_pb2)["ModelProto"]()
    try:
        spm.ParseFromString(Path(path).read_bytes())
    except Exception as error:  # protobuf's DecodeError, whose place differs from version to version
        raise ValueError(f"{path} is no SentencePiece model ({error}): copy it again") from None
    return spm


def split_by_merges(piece: str, known: Container[str], score: Callable[[str], float]) -> list[str]:
    """Splits a piece that is not known into the two that were merged into it, and these likewise. ``score``: that of a
    piece in SentencePiece's BPE, -inf for other text. Frequent pieces were merged first and have the higher scores;
    single characters were there before."""
    pieces, left_over = [], [piece]
    while left_over:
        piece = left_over.pop()
        if piece in known or len(piece) == 1:
            pieces.append(piece)
            continue
        halves = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        left, right = max(halves, key=lambda pair: min(0 if len(part) == 1 else score(part) for part in pair))
        left_over += [right, left]
    return pieces
