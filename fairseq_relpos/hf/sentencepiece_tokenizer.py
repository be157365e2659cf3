"""The tokenizer in Python for SentencePiece and a fairseq dictionary that do not fit a fast tokenizer."""

import itertools
import json
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor
from transformers import PreTrainedTokenizer

from .fast_tokenizer import BLANK


class RelPosSentencePieceTokenizer(PreTrainedTokenizer):
    """SentencePiece cuts a text into pieces, and the dictionary gives them their ids, as in fairseq: a piece that the
    dictionary lacks is ``<unk>``, and so is a run of characters that SentencePiece does not know.

    vocab_file: the ids of the symbols. lowercase: text is put in lower case first. prompts: a text begins with the
    first symbol and stays open at its end, for language models. Otherwise it becomes ``<s> A </s>``, and a pair
    ``<s> A </s></s> B </s>``. As in every tokenizer in Python, there are no offsets.

    Examples:
        >>> tokenizer = RelPosSentencePieceTokenizer.from_pretrained("model")
        >>> tokenizer.decode(tokenizer("why it does so").input_ids)
        '<s> why it does so</s>'
    """

    vocab_files_names = {"spm_file": "spm.model", "vocab_file": "vocab.json"}
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, spm_file: str, vocab_file: str, lowercase: bool = False, prompts: bool = False, **kwargs: Any):
        self.spm_proto = Path(spm_file).read_bytes()
        self.spm = SentencePieceProcessor(model_proto=self.spm_proto)
        self.vocab: dict[str, int] = json.loads(Path(vocab_file).read_text(encoding="utf-8"))
        self.symbols = {number: symbol for symbol, number in self.vocab.items()}
        self.lowercase = lowercase
        kwargs.setdefault("clean_up_tokenization_spaces", False)
        super().__init__(
            lowercase=lowercase,
            prompts=prompts,
            special_tokens_pattern="prefix_suffix" if prompts else "cls_double_sep",
            token_type_ids_pattern="all_zeros",
            **kwargs,
        )

    @property
    def prefix_tokens(self) -> list[int]:
        return [self.bos_token_id]

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)

    def get_vocab(self) -> dict[str, int]:
        return {**self.vocab, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **unused: Any) -> list[str]:
        return self.spm.encode(text.lower() if self.lowercase else text, out_type=str)

    def _convert_token_to_id(self, token: str) -> int:
        return self.vocab.get(token, self.vocab["<unk>"])

    def _convert_id_to_token(self, index: int) -> str:
        return self.symbols[index]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        text, added = "", self._added_tokens_encoder
        for is_added, run in itertools.groupby(tokens, added.__contains__):
            pieces = list(run)
            # SentencePiece leaves out the first blank
            blank = " " if text and pieces[0].startswith(BLANK) else ""
            text += "".join(pieces) if is_added else blank + self.spm.decode(pieces)
        return text

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        start = f"{filename_prefix}-" if filename_prefix else ""
        spm, vocab = (Path(save_directory, start + name) for name in self.vocab_files_names.values())
        spm.write_bytes(self.spm_proto)
        vocab.write_text(json.dumps(self.vocab, indent=2) + "\n", encoding="utf-8")
        return str(spm), str(vocab)
