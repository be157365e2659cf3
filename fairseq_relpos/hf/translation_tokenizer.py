"""The tokenizer of an encoder-decoder model whose text was cut by SentencePiece."""

from typing import Any

from transformers import MarianTokenizer


class RelPosTranslationTokenizer(MarianTokenizer):
    """transformers' MarianTokenizer, which has a vocabulary for the source and one for the target (``text_target=``),
    with the pieces of the translation recipes.

    splits, target_splits: what stands for pieces of SentencePiece that a vocabulary lacks; Marian reads these as <unk>.
    Each unknown character is one <unk>, and ``>>xx<<`` at the beginning of a text is text.
    """

    def __init__(
        self,
        *args: Any,
        splits: dict[str, list[str]] | None = None,
        target_splits: dict[str, list[str]] | None = None,
        **kwargs: Any,
    ):
        self.splits, self.target_splits = splits or {}, target_splits or {}
        super().__init__(*args, splits=self.splits, target_splits=self.target_splits, **kwargs)

    def _tokenize(self, text: str, **unused: Any) -> list[str]:
        is_source = self.current_encoder is self.encoder
        splits = self.splits if is_source else self.target_splits
        pieces = self.current_spm.encode(text, out_type=str)
        return [part for piece in pieces for part in splits.get(piece) or self.known(piece)]

    def known(self, piece: str) -> list[str]:
        """The piece, or the unknown characters that SentencePiece has made one piece of."""
        return [piece] if piece in self.current_encoder else [*piece]
