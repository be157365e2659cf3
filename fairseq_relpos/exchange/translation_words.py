"""The vocabularies of an encoder-decoder model: text -> ids of the source and of the target, by fairseq and by the new
tokenizers."""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary

from ..hf import fast_tokenizer
from ..vocabulary_files import find, sentencepiece_proto, split_by_merges, text_settings
from .dictionaries import load_dictionary
from .split_pieces import data_is_split, sentences_of
from .words import ODD_TEXTS, Words, compare_ids, refuse_pieces

#: the folder of the target's tokenizer, where one tokenizer cannot have both
TARGET = "target"


class TwoVocabularies:
    """dict.SOURCE.txt and dict.TARGET.txt of the data, and spm.model beside them, or words with blanks between.

    SentencePiece becomes a ``RelPosTranslationTokenizer``, which has a vocabulary for the source and one for the
    target. Words of one dictionary become a fast tokenizer for both; of two dictionaries, one in the folder and one in
    its folder ``target``.
    """

    def __init__(self, data: str | Path, languages: Sequence[str], sizes: Sequence[int], checkpoint: Path):
        self.data = Path(data)
        changed = text_settings(self.data)
        self.lowercase, self.moses = (bool(changed.get(name)) for name in ("lowercase", "moses_tokens"))
        self.languages = [*languages]
        names = [f"dict.{language}.txt" for language in languages]
        self.dictionaries = [load_dictionary(self.data, name, size, checkpoint) for name, size in zip(names, sizes)]
        self.joined = self.dictionaries[0].symbols == self.dictionaries[1].symbols
        #: one for each file that is written
        self.different = self.dictionaries[:1] if self.joined else self.dictionaries
        self.sentencepiece = (self.data / "spm.model").exists()
        if self.sentencepiece:
            self.pieces = Pieces(self.data / "spm.model")
            self.splits = data_is_split(self.data, languages, self.dictionaries, self.pieces.model)
            self.kind = (
                "SentencePiece as in the translation recipes (a piece that the dictionary lacks is split, and each "
                "character that SentencePiece does not know is one <unk>)"
                if self.splits
                else "SentencePiece as in fairseq-preprocess (a piece that the dictionary lacks is one <unk>, because "
                "no sentence of the data shows one that was split)"
            )
        elif find(self.data)[0]:
            raise ValueError(
                f"--task translation is served with spm.model or with whole words, and {self.data} has another "
                "vocabulary: leave out --data, which exports the model without a tokenizer"
            )
        else:
            for name, dictionary in zip(names, self.dictionaries):
                refuse_pieces(self.data / name, dictionary.symbols[4:])
            self.kind = "words with blanks between"
        if not self.joined:
            self.kind += ", a vocabulary for each language"

    def save(self, folder: Path, longest: int) -> None:
        """Writes the tokenizers' files. longest: tokens of a source."""
        if not self.sentencepiece:
            for place, dictionary in zip((folder, folder / TARGET), self.different):
                place.mkdir(exist_ok=True)
                tokenizer = fast_tokenizer.words(dictionary.symbols)
                if self.lowercase:
                    fast_tokenizer.put_in_lower_case(tokenizer)
                fast_tokenizer.for_sources(tokenizer)
                for name, text in fast_tokenizer.files_of(tokenizer, longest).items():
                    (place / name).write_text(text, encoding="utf-8")
            return
        settings: dict[str, Any] = {
            "tokenizer_class": "RelPosTranslationTokenizer",
            "model_max_length": longest,
            "separate_vocabs": not self.joined,
            **({"lowercase": True} if self.lowercase else {}),
            **{f"{name}_lang": language for name, language in zip(("source", "target"), self.languages)},
            **{name: fast_tokenizer.SPECIAL[name] for name in ("eos_token", "pad_token", "unk_token")},
        }
        files = {}
        for at, dictionary in zip(("", "target_"), self.different):
            if self.splits:
                settings[f"{at}splits"] = self.pieces.splits(dictionary)
            files[f"{at}vocab.json"] = dictionary.indices
        for name, content in {"tokenizer_config.json": settings, **files}.items():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        for name in ("source.spm", "target.spm"):
            shutil.copyfile(self.pieces.path, folder / name)

    def ids(self, text: str, side: int) -> list[int]:
        """The ids that fairseq gives the text. side: 0 for the source, 1 for the target."""
        dictionary = self.dictionaries[side]
        text = text.lower() if self.lowercase else text
        if not self.sentencepiece:
            return dictionary.encode_line(text, add_if_not_exist=False).tolist()
        pieces = self.pieces.model.encode(text, out_type=str)
        if self.splits:
            pieces = [part for piece in pieces for part in self.pieces.split(piece, dictionary)]
        return [*map(dictionary.index, pieces), dictionary.eos()]

    def text(self, ids: Sequence[int], side: int) -> str:
        symbols = [self.dictionaries[side][i] for i in ids if i != self.dictionaries[side].eos()]
        return self.pieces.model.decode(symbols) if self.sentencepiece else " ".join(symbols)

    def of_data(self, side: int) -> list[torch.Tensor]:
        """Ids of sentences, if the data has been binarised, of the validation text where it is there."""
        splits = sentences_of(self.data, self.languages, side, self.dictionaries[side])
        return next((rows for rows in splits if rows), [])

    def pairs(self, *longest: int) -> list[tuple[torch.Tensor, ...]]:
        """Sources and targets of the data, as ids, that are no longer than this."""
        both = zip(*map(self.of_data, (0, 1)))
        return [pair for pair in both if all(2 < len(row) <= most for row, most in zip(pair, longest))]

    def compare(self, folder: Path) -> int:
        """Raises ValueError if a text of the data, or an odd one, gets other ids from the new tokenizers. Returns the
        number of texts."""
        from transformers import AutoTokenizer

        texts = 0
        for side, name in enumerate(("text", "text_target")):
            place = folder / TARGET if side and (folder / TARGET).exists() else folder
            tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True)
            wanted = {text: self.ids(text, side) for text in ODD_TEXTS}
            for row in self.of_data(side):
                ids = row.tolist()
                if self.dictionaries[side].unk() not in ids:
                    wanted[self.text(ids, side)] = ids
            found = tokenizer(**{name: list(wanted)}, verbose=False)["input_ids"]
            for (text, ours), theirs in zip(wanted.items(), found):
                if theirs != ours:
                    shown = text if len(text) <= 60 else text[:57] + "..."
                    raise ValueError(
                        f"the exported tokenizer gives {shown!r} other ids ({theirs[:12]}) than the data "
                        f"({ours[:12]}): nothing is written; leave out --data to export the model alone"
                    )
            texts += len(wanted)
        return texts


class DenoisedText(Words):
    """The vocabulary of a BART, for which source and target are the same text: ``<s> A </s>``, as in a RoBERTa."""

    def pairs(self, *longest: int) -> list[tuple[torch.Tensor, ...]]:
        """Texts of the data, as ids, twice."""
        rows = [torch.tensor(self.ids(text)) for text in self.of_data()]
        return [(row, row) for row in rows if 2 < len(row) <= min(longest)]

    def compare(self, folder: Path) -> int:
        """As in ``TwoVocabularies``."""
        from transformers import AutoTokenizer

        texts = self.texts()
        compare_ids(AutoTokenizer.from_pretrained(folder, local_files_only=True), self, texts)
        return len(texts)


class Pieces:
    """SentencePiece, whose pieces that a dictionary lacks are split as the translation recipes do it."""

    def __init__(self, path: Path):
        from sentencepiece import SentencePieceProcessor

        self.path, proto = path, sentencepiece_proto(path)
        self.model = SentencePieceProcessor(model_proto=proto.SerializeToString())
        self.scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == piece.NORMAL}

    def splits(self, dictionary: Dictionary) -> dict[str, list[str]]:
        """For each piece that the dictionary lacks, what stands for it."""
        lost = [piece for piece in self.scores if piece not in dictionary.indices and len(piece) > 1]
        return {piece: self.split(piece, dictionary) for piece in lost}

    def split(self, piece: str, dictionary: Dictionary) -> list[str]:
        return split_by_merges(piece, dictionary.indices, lambda part: self.scores.get(part, -math.inf))
