"""The tokenizer of an encoder-decoder model whose text was cut by SentencePiece."""

from typing import Any

from transformers import MarianTokenizer


class RelPosTranslationTokenizer(MarianTokenizer):
    """transformers' MarianTokenizer, which has a vocabulary for the source and one for the target (``text_target=``),
    for which ``>>xx<<`` at the beginning of a text is text.

    splits, target_splits: for text that is cut as in the translation recipes. They are what stands for pieces of
    SentencePiece that a vocabulary lacks, and each unknown character is one ``<unk>``. By default such a piece is
    ``<unk>``, and so is a run of unknown characters, as fairseq reads SentencePiece's pieces. lowercase: text is put in
    lower case first.

    Examples:
        >>> tokenizer = RelPosTranslationTokenizer.from_pretrained("translator")
        >>> tokenizer.decode(tokenizer("why it does so").input_ids)
        'why it does so</s>'
    """

    def __init__(
        self,
        *args: Any,
        splits: dict[str, list[str]] | None = None,
        target_splits: dict[str, list[str]] | None = None,
        lowercase: bool = False,
        **kwargs: Any,
    ):
        self.splits, self.target_splits, self.lowercase = splits, target_splits, lowercase
        super().__init__(*args, splits=splits, target_splits=target_splits, lowercase=lowercase, **kwargs)

    def _tokenize(self, text: str, **unused: Any) -> list[str]:
        is_source = self.current_encoder is self.encoder
        splits = self.splits if is_source else self.target_splits
        pieces = self.current_spm.encode(text.lower() if self.lowercase else text, out_type=str)
        if splits is None:
            return pieces
        return [part for piece in pieces for part in splits.get(piece) or self.known(piece)]

    def known(self, piece: str) -> list[str]:
        """The piece, or the unknown characters that SentencePiece has made one piece of."""
        return [piece] if piece in self.current_encoder else [*piece]
