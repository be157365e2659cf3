"""The vocabulary of a pretraining: text -> pieces, where they stand in the text, and ids."""

import bisect
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary

from .. import vocabulary_files
from ..version import install

#: the first character of a piece in the text, and the one after its last
Span = tuple[int, int]


class Vocabulary:
    """dict.txt, and spm.model (SentencePiece), encoder.json and vocab.bpe (GPT-2's BPE) or tokenizer.json. Where a
    manifest.json says how the text was changed before (in lower case, in Moses' tokens), texts are changed in the
    same way."""

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        if not (folder / "dict.txt").exists():
            raise ValueError(f"no dict.txt in {folder}: give the folder of the pretraining's data")
        self.dictionary = Dictionary.load(str(folder / "dict.txt"))
        kind, paths = vocabulary_files.find(folder)
        if not kind:
            raise ValueError(
                f"no vocabulary in {folder}: copy the files of the pretraining's there ({vocabulary_files.ACCEPTED})"
            )
        self.tokenizer: Any = TOKENIZERS[kind](*map(str, paths))
        settings = vocabulary_files.text_settings(folder)
        if settings.get("tupe_compat"):  # 1.0.0rc1 wrote other words than are made here
            raise ValueError(
                f"{folder} was prepared with --tupe-compat, which was removed: prepare the text again without it"
            )
        self.lowercase = settings.get("lowercase", False)
        self.moses: Any = None
        if settings.get("moses_tokens"):
            from sacremoses import MosesTokenizer

            self.moses = MosesTokenizer("en")

    def changed(self, text: str) -> str:
        """The text as the pretraining has read it."""
        if self.moses is not None:
            text = self.moses.tokenize(text, return_str=True, escape=False)
        return text.lower() if self.lowercase else text

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text, which is changed first."""
        return self.tokenizer.pieces(self.changed(text))

    def encode(self, text: str) -> torch.Tensor:
        """The ids of a sentence, and that of </s>."""
        ids = [self.dictionary.index(piece) for piece in self.pieces(text)]
        return torch.tensor([*ids, self.dictionary.eos()])

    def text_of(self, pieces: Sequence[str]) -> str:
        return self.tokenizer.text_of(pieces)

    def placed(self, text: str) -> tuple[list[str], list[Span]]:
        """The pieces of a text, and the characters of the text itself that each stands for."""
        changed = self.changed(text)
        pieces, spans = self.tokenizer.placed(changed)
        return pieces, spans if changed == text else spans_before_change(spans, changed, text)


def refuse_unknown(share: float, what: str, folder: str | Path) -> None:
    """Raises ValueError where most tokens are unknown: pieces and dictionary are of two vocabularies."""
    if share > 0.5:
        raise ValueError(
            f"{share:.0%} of the {what} are not in {folder}/dict.txt: give the vocabulary and the dictionary of one "
            "pretraining"
        )


class SentencePieces:
    def __init__(self, path: str):
        self.processor = vocabulary_files.sentencepiece_of(path)

    def pieces(self, text: str) -> list[str]:
        return self.processor.encode(text, out_type=str)

    def text_of(self, pieces: Sequence[str]) -> str:
        return self.processor.decode(list(pieces))

    def placed(self, text: str) -> tuple[list[str], list[Span]]:
        found = self.processor.encode(text, return_type="proto").pieces
        return [piece.piece for piece in found], in_characters(text, [(piece.begin, piece.end) for piece in found])


class Gpt2Pieces:
    """GPT-2's BPE, whose pieces are called by their numbers."""

    def __init__(self, encoder: str, merges: str):
        from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

        try:
            self.bpe = get_encoder(encoder, merges)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{encoder} and {merges} are not GPT-2's BPE ({error}): copy them again") from error

    def pieces(self, text: str) -> list[str]:
        return [str(number) for number in self.bpe.encode(text)]

    def text_of(self, pieces: Sequence[str]) -> str:
        # <unk> and the like are no numbers of pieces
        return self.bpe.decode([int(piece) for piece in pieces if piece.isdecimal()])

    def placed(self, text: str) -> tuple[list[str], list[Span]]:
        pieces = self.pieces(text)
        lengths = [len(self.bpe.decoder[int(piece)]) for piece in pieces]  # a letter for each byte of the text
        ends = itertools.accumulate(lengths)
        return pieces, in_characters(text, [(end - length, end) for end, length in zip(ends, lengths)])


class FastPieces:
    """Pieces of the library tokenizers, as a model has them that was imported from transformers. A special symbol in a
    text is text."""

    def __init__(self, path: str):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ValueError(f"{path} needs the library tokenizers: {install('hf')}") from None
        try:
            self.tokenizer = Tokenizer.from_file(path)
        except Exception as error:  # the library raises Exception itself
            raise ValueError(f"{path} is no file of the library tokenizers ({error}): copy it again") from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True

    def pieces(self, text: str) -> list[str]:
        return self.tokenizer.encode(text, add_special_tokens=False).tokens

    def text_of(self, pieces: Sequence[str]) -> str:
        numbers = map(self.tokenizer.token_to_id, pieces)
        return self.tokenizer.decode([number for number in numbers if number is not None])

    def placed(self, text: str) -> tuple[list[str], list[Span]]:
        found = self.tokenizer.encode(text, add_special_tokens=False)
        return found.tokens, found.offsets


TOKENIZERS = {"sentencepiece": SentencePieces, "gpt2": Gpt2Pieces, "tokenizers": FastPieces}


def in_characters(text: str, spans: Sequence[Span]) -> list[Span]:
    """Spans of the UTF-8 bytes of a text -> those of the characters that these bytes are in, without white space around
    them."""
    begins = [0, *itertools.accumulate(len(character.encode("utf-8")) for character in text)]
    found = []
    for start, end in spans:
        first = bisect.bisect_right(begins, start) - 1
        last = bisect.bisect_left(begins, end)
        while first < last and text[first].isspace():
            first += 1
        while first < last and text[last - 1].isspace():
            last -= 1
        found.append((first, last))
    return found


def spans_before_change(spans: Sequence[Span], changed: str, text: str) -> list[Span]:
    """Spans of the changed text (in lower case, with spaces around marks) -> those of the text itself. A piece without
    characters of the text stands after those before it."""
    places = places_of(changed, text)
    found, at = [], 0
    for start, end in spans:
        own = [place for place in places[start:end] if place is not None]
        found.append((own[0], own[-1] + 1) if own else (at, at))
        at = found[-1][1]
    return found


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
