"""Text -> pieces of a vocabulary, each with the place in the text that it stands for."""

import bisect
import itertools
import json
from collections.abc import Callable
from typing import Protocol

import sentencepiece
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

from .. import vocabulary_files
from .fast_tokenizer import fast_tokenizer
from .vocabulary import Vocabulary

#: the pieces, and where each begins and ends in the text, in characters
Pieces = tuple[list[str], list[int], list[int]]


class Tokenizer(Protocol):
    def __call__(self, text: str) -> Pieces: ...


def tokenizer_of(folder: str) -> Tokenizer:
    """Returns the tokenizer whose files are in the folder: spm.model (SentencePiece), encoder.json and vocab.bpe (the
    BPE of GPT-2), or tokenizer.json. Where the pretraining's text was changed before, texts are changed in the same
    way."""
    tokenizer = _tokenizer_of(folder)
    words = Vocabulary(folder)
    return ChangedText(tokenizer, words.changed) if words.lowercase or words.moses else tokenizer


def _tokenizer_of(folder):
    kind, paths = vocabulary_files.find(folder)
    if not kind:
        raise FileNotFoundError(
            f"no vocabulary in {folder}: give the folder of the pretraining's data, with dict.txt and "
            f"{vocabulary_files.ACCEPTED}"
        )
    tokenizers = {"sentencepiece": SentencePieces, "gpt2": Gpt2Pieces, "tokenizers": FastPieces}
    return tokenizers[kind](*map(str, paths))


class SentencePieces:
    def __init__(self, path: str) -> None:
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_file=path)
        except (RuntimeError, OSError) as error:
            raise ValueError(f"{path} is no SentencePiece model: copy it again from the pretraining's data") from error

    def __call__(self, text: str) -> Pieces:
        found = self.processor.encode(text, return_type="proto").pieces
        # SentencePiece counts bytes of UTF-8
        places = Characters(text)
        spans = [places.span(piece.begin, piece.end) for piece in found]
        return [piece.piece for piece in found], [start for start, _ in spans], [end for _, end in spans]


class Gpt2Pieces:
    def __init__(self, encoder: str, merges: str) -> None:
        try:
            self.bpe = get_encoder(encoder, merges)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{encoder} and {merges} are not GPT-2's BPE ({error}): copy them again") from error

    def __call__(self, text: str) -> Pieces:
        pieces, lengths = [], []
        for word in self.bpe.pat.findall(text):  # all of the text: each is a part of it
            letters = "".join(self.bpe.byte_encoder[byte] for byte in word.encode("utf-8"))
            for part in self.bpe.bpe(letters).split(" "):
                if part not in self.bpe.encoder:
                    raise ValueError(f"encoder.json lacks {part!r}, which vocab.bpe makes: take both from one place")
                pieces.append(str(self.bpe.encoder[part]))
                lengths.append(len(part))  # a letter for each byte
        ends = list(itertools.accumulate(lengths))
        places = Characters(text)
        spans = [places.span(end - length, end) for end, length in zip(ends, lengths)]
        return pieces, [start for start, _ in spans], [end for _, end in spans]


class FastPieces:
    """Pieces of the library tokenizers, which counts characters itself."""

    def __init__(self, path: str) -> None:
        self.tokenizer = fast_tokenizer(path)

    def __call__(self, text: str) -> Pieces:
        found = self.tokenizer.encode(text, add_special_tokens=False)
        return found.tokens, [start for start, _ in found.offsets], [end for _, end in found.offsets]


class Characters:
    """Places in the UTF-8 bytes of a text -> places in its characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *itertools.accumulate(len(character.encode("utf-8")) for character in text)]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Returns the characters that these bytes are in, without white space around them."""
        first = bisect.bisect_right(self.starts, start) - 1
        last = bisect.bisect_left(self.starts, end)
        while first < last and self.text[first].isspace():
            first += 1
        while first < last and self.text[last - 1].isspace():
            last -= 1
        return first, last


class ChangedText:
    """Pieces of the changed text (in lower case, with spaces around marks), and where they stand in the text itself."""

    def __init__(self, tokenizer: Tokenizer, change: Callable[[str], str]) -> None:
        self.tokenizer, self.change = tokenizer, change

    def __call__(self, text: str) -> Pieces:
        changed = self.change(text)
        pieces, starts, ends = self.tokenizer(changed)
        places = places_of(changed, text)
        spans = [[place for place in places[start:end] if place is not None] for start, end in zip(starts, ends)]
        # a piece without characters of the text stands after those before it
        found, at = [], 0
        for span in spans:
            found.append((span[0], span[-1] + 1) if span else (at, at))
            at = found[-1][1]
        return pieces, [start for start, _ in found], [end for _, end in found]


def places_of(changed: str, text: str) -> list[int | None]:
    """Returns for each character of the changed text which one of the text it comes from; None for spaces and control
    characters, of which the change may make more or fewer."""
    # a few characters are two in another case, and the small sigma has two forms
    letters = [
        (letter, place) for place, character in enumerate(text) if _shows(character) for letter in character.casefold()
    ]
    places: list[int | None] = []
    at = 0
    for character in changed:
        wanted = character.casefold() if _shows(character) else ""
        if wanted != "".join(letter for letter, _ in letters[at : at + len(wanted)]):
            raise ValueError(f"the text cannot be changed as that of the pretraining was, from {text[:40]!r} on")
        places.append(letters[at][1] if wanted else None)
        at += len(wanted)
    return places


def _shows(character):
    return character.isprintable() and not character.isspace()
