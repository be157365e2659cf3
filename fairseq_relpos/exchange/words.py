"""The vocabulary of the data in an export: text -> ids, by fairseq and by the new tokenizer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils

from .. import vocabulary_files
from ..finetuning.vocabulary import Vocabulary
from ..hf import RelPosSentencePieceTokenizer, fast_tokenizer
from .dictionaries import load_dictionary
from .split_pieces import TEXTS

#: what texts of the data rarely have
ODD_TEXTS = (
    "",
    " ",
    "  two  blanks ",
    "\ttab\nline\r\n",
    "a\x00b\x07c\x1c\x1dd\x85e\xa0f",
    "\u2581x \u2581\u2581 y",
    "x" * 3000,
    "\U0001f600 \U0001f469\u200d\U0001f680 flags \U0001f1e9\U0001f1ea",
    "Don't we'LL I've",
    "\ufb01ne \xbd \u2116 e\u0301 \xe9",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "\u039f\u0394\u039f\u03a3 \u2581",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627",
)


class Words:
    """The vocabulary of the data: text -> ids, by fairseq and by the new tokenizer.

    start: the symbol that a text of a language model begins with; its dictionary has no <mask>."""

    def __init__(self, data: str | Path, size: int, checkpoint: Path, start: str | None = None):
        self.data, self.start = Path(data), start
        self.dictionary = load_dictionary(self.data, "dict.txt", size, checkpoint, with_mask=start is None)
        self.vocabulary: Vocabulary | None = None
        if vocabulary_files.find(self.data)[0]:
            self.vocabulary = Vocabulary(self.data)
        else:
            refuse_pieces(self.data / "dict.txt", self.dictionary.symbols[4:])
        #: Moses' tokens, into which texts have to be cut first
        self.moses = self.vocabulary is not None and self.vocabulary.moses is not None
        self.lowercase = self.vocabulary is not None and self.vocabulary.lowercase
        self.fast: Any = None
        try:
            self.fast, self.kind = fast_tokenizer.from_folder(self.data, self.dictionary.symbols, self.lowercase)
        except fast_tokenizer.NotFast as reason:
            self.kind = f"SentencePiece in Python: {reason}"
        if start is not None and self.fast is not None:
            fast_tokenizer.for_prompts(self.fast, start)
        if self.vocabulary is not None:
            self.vocabulary.moses = None

    def save(self, folder: Path, longest: int) -> None:
        """Writes the tokenizer's files. longest: tokens of an input."""
        if self.fast is not None:
            for name, text in fast_tokenizer.files_of(self.fast, longest, self.start).items():
                (folder / name).write_text(text, encoding="utf-8")
            return
        vocabulary = folder / "vocab.json"
        vocabulary.write_text(json.dumps(self.dictionary.indices), encoding="utf-8")
        tokenizer = RelPosSentencePieceTokenizer(
            str(self.data / "spm.model"),
            str(vocabulary),
            lowercase=self.lowercase,
            prompts=self.start is not None,
            model_max_length=longest,
            padding_side="right" if self.start is None else "left",
            **fast_tokenizer.special_tokens(self.start),
        )
        tokenizer.save_pretrained(folder)

    def ids(self, text: str) -> list[int]:
        """The ids that fairseq gives the text."""
        if self.vocabulary is None:
            ids = self.dictionary.encode_line(text, add_if_not_exist=False)
        else:
            ids = self.vocabulary.encode(text)
        if self.start is not None:  # fairseq puts </s> at the end
            return [self.dictionary.index(self.start), *ids.tolist()[:-1]]
        return [self.dictionary.bos(), *ids.tolist()]

    def texts(self) -> list[str]:
        """Texts of the data, if it has been binarised, and odd ones; without special symbols, which the new tokenizer
        reads as such."""
        texts = [*ODD_TEXTS, *self.of_data()]
        return [text for text in texts if not any(token in text for token in fast_tokenizer.SPECIAL.values())]

    def of_data(self) -> Iterator[str]:
        places = [place / split for place in (self.data, self.data / "input0") for split in ("valid", "test", "train")]
        found = next((path for path in places if path.with_suffix(".idx").exists()), None)
        if found is None:
            return
        dataset = data_utils.load_indexed_dataset(str(found), self.dictionary)
        for number in range(min(TEXTS, len(dataset))):
            ids = [i for i in dataset[number].tolist() if i >= self.dictionary.nspecial]
            if self.fast is not None:
                yield self.fast.decode(ids)
            elif self.vocabulary is not None:
                yield self.vocabulary.text_of([self.dictionary[i] for i in ids])


def refuse_pieces(path: Path, symbols: list[str]) -> None:
    """Raises ValueError if these symbols of a dictionary are pieces of words, whose vocabulary is not there."""
    marks = {
        "pieces of SentencePiece": (lambda symbol: symbol.startswith(fast_tokenizer.BLANK), "spm.model"),
        "the numbers of a byte-level BPE": (str.isdigit, " and ".join(vocabulary_files.KINDS["gpt2"])),
        "pieces of a byte-level BPE": (lambda symbol: symbol.startswith("Ġ"), "tokenizer.json"),
        "pieces of WordPiece": (lambda symbol: symbol.startswith("##"), "tokenizer.json"),
        "pieces of subword-nmt, which are not served": (lambda symbol: symbol.endswith("@@"), "another vocabulary"),
    }
    for what, (is_piece, file) in marks.items():
        # some words of a text may look like pieces; a frequent blank is one of a vocabulary of characters
        is_frequent = fast_tokenizer.BLANK in symbols[: max(100, len(symbols) // 20)]
        if sum(map(is_piece, symbols)) > len(symbols) / 20 or is_piece(fast_tokenizer.BLANK) and is_frequent:
            raise ValueError(
                f"{path} has {what}: give the folder that has {file} beside this {path.name} (that of the "
                "pretraining's data, or of import-hf)"
            )


def compare_ids(tokenizer: Any, words: Words, texts: list[str]) -> None:
    """Raises ValueError if a text gets other ids. SentencePiece's unigram adds scores in single precision: where two
    ways to cut a text have the same score, ``tokenizers`` may take the other one."""
    for text, theirs in zip(texts, tokenizer(texts, verbose=False)["input_ids"]):
        ours = words.ids(text)
        if theirs != ours and not are_equally_good(words, theirs, ours):
            shown = text if len(text) <= 60 else text[:57] + "..."
            raise ValueError(
                f"the exported tokenizer gives {shown!r} other ids ({theirs[:12]}) than fairseq ({ours[:12]}): "
                "nothing is written; please report this, or leave out --data to export the model alone"
            )


def are_equally_good(words: Words, theirs: list[int], ours: list[int]) -> bool:
    if words.kind != "SentencePiece unigram":
        return False
    scores = [score for _, score in json.loads(words.fast.to_str())["model"]["vocab"]]
    return abs(sum(scores[i] for i in theirs) - sum(scores[i] for i in ours)) < 1e-3


def real_rows(words: Words, texts: list[str], longest: int) -> list[torch.Tensor]:
    """The ids of the last of these texts that are not too long."""
    rows = [torch.tensor(words.ids(text)) for text in texts[-256:]]
    return [row for row in rows if 2 < len(row) <= longest][-8:]
