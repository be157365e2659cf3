"""SentencePiece's pieces that a dictionary lacks: the translation recipes split them, fairseq-preprocess does not."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import dataset_exists

from ..vocabulary_files import sentencepiece_of, sentencepiece_proto

#: texts of the data that tokenizers are compared on
TEXTS = 2000


def sentences_of(
    data: Path, languages: Sequence[str], side: int, dictionary: Dictionary
) -> Iterator[list[torch.Tensor]]:
    """The first sentences of each split of the binarised data, as ids. side: 0 for the source, 1 for the target."""
    for split in ("valid", "test", "train"):
        path = str(data / f"{split}.{'-'.join(languages)}.{languages[side]}")
        if dataset_exists(path, None):
            dataset = data_utils.load_indexed_dataset(path, dictionary)
            yield [dataset[number].long() for number in range(min(TEXTS, len(dataset)))]


def data_is_split(data: Path, languages: Sequence[str], dictionaries: Sequence[Dictionary], model: Any) -> bool:
    """Whether the data has pieces in the place of one that the dictionary lacks, as the translation recipes write it,
    where SentencePiece and fairseq-preprocess alone give <unk>."""
    for side, dictionary in enumerate(dictionaries):
        for row in itertools.chain.from_iterable(sentences_of(data, languages, side, dictionary)):
            text = model.decode([dictionary[i] for i in row.tolist() if i != dictionary.eos()])
            pieces = model.encode(text, out_type=str)
            if dictionary.unk() not in row and any(piece not in dictionary.indices for piece in pieces):
                return True
    return False


def model_that_splits(path: Path, data: Path, languages: Sequence[str], dictionaries: Sequence[Dictionary]) -> bytes:
    """The SentencePiece model in a file. If the data is split, it is a model that splits the pieces which the
    dictionary of the source lacks by itself: they are marked as unused."""
    if not data_is_split(data, languages, dictionaries, sentencepiece_of(path)):
        return path.read_bytes()
    proto = sentencepiece_proto(path)
    for piece in proto.pieces:
        if piece.type == piece.NORMAL and len(piece.piece) > 1 and piece.piece not in dictionaries[0].indices:
            piece.type = piece.UNUSED
    model: bytes = proto.SerializeToString()
    return model
