"""The vocabulary of a pretraining, from the folder of its data: text -> ids."""

import json
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary

from .. import vocabulary_files
from .fast_tokenizer import fast_tokenizer


class Vocabulary:
    """dict.txt, and spm.model (SentencePiece), encoder.json and vocab.bpe (GPT-2's BPE) or tokenizer.json. Where a
    manifest.json says how the text was changed before (in lower case, in Moses' tokens), sentences are changed in the
    same way."""

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        if not (folder / "dict.txt").exists():
            raise ValueError(f"no dict.txt in {folder}: give the folder of the pretraining's data")
        self.dictionary = Dictionary.load(str(folder / "dict.txt"))
        #: text -> pieces, and pieces -> text
        self.pieces, self.text_of = self._pieces(folder)
        manifest = folder / "manifest.json"
        settings = json.loads(manifest.read_text(encoding="utf-8"))["settings"] if manifest.exists() else {}
        if settings.get("tupe_compat"):
            raise ValueError(
                f"{folder} was prepared with --tupe-compat, whose words are not made here: use data prepared without it"
            )
        self.lowercase = settings.get("lowercase", False)
        self.moses: Any = None
        if settings.get("moses_tokens"):
            from sacremoses import MosesTokenizer

            self.moses = MosesTokenizer("en")

    def _pieces(self, folder):
        kind, paths = vocabulary_files.find(folder)
        if kind == "sentencepiece":
            import sentencepiece

            model = sentencepiece.SentencePieceProcessor(model_file=str(paths[0]))
            return lambda text: model.encode(text, out_type=str), model.decode
        if kind == "gpt2":
            from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

            encoder = get_encoder(*map(str, paths))
            return (
                lambda text: map(str, encoder.encode(text)),
                # <unk> and the like are no numbers of pieces
                lambda pieces: encoder.decode([int(piece) for piece in pieces if piece.isdecimal()]),
            )
        if kind == "tokenizers":
            fast = fast_tokenizer(paths[0])
            number = fast.token_to_id
            return (
                lambda text: fast.encode(text, add_special_tokens=False).tokens,
                lambda pieces: fast.decode([number(piece) for piece in pieces if number(piece) is not None]),
            )
        raise ValueError(
            f"no vocabulary in {folder}: copy the files of the pretraining's there ({vocabulary_files.ACCEPTED})"
        )

    def changed(self, text: str) -> str:
        """The text as the pretraining has read it."""
        if self.moses is not None:
            text = self.moses.tokenize(text, return_str=True, escape=False)
        return text.lower() if self.lowercase else text

    def encode(self, text: str) -> torch.Tensor:
        """The ids of a sentence, and that of </s>."""
        pieces = self.pieces(self.changed(text))
        ids = [self.dictionary.index(piece) for piece in pieces]
        return torch.tensor([*ids, self.dictionary.eos()])
