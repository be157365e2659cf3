"""A task with one dictionary, and a data set in random order: the base of sequence_labels and span_prediction."""

from typing import Any

import numpy as np
from fairseq.data import Dictionary, FairseqDataset, data_utils

from .data_facts import KeepsDataFacts


class OneDictionaryTask(KeepsDataFacts):
    """A task whose targets are no words, so that it has a source dictionary alone."""

    dictionary: Dictionary

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> None:
        return None


class ShuffledSequences(FairseqDataset):
    """Sequences in a new random order in each epoch.

    lengths [N]: the tokens of each sequence. seed: that of the order; None: sorted by length.
    """

    def __init__(self, lengths: Any, seed: int | None) -> None:
        self.lengths, self.seed, self.epoch = lengths, seed, 1

    def __len__(self) -> int:
        return len(self.lengths)

    def num_tokens(self, index: int) -> int:
        return int(self.lengths[index])

    size = num_tokens

    @property
    def sizes(self) -> np.ndarray:
        return self.lengths

    def ordered_indices(self) -> np.ndarray:
        if self.seed is None:
            return np.argsort(self.lengths, kind="stable")
        with data_utils.numpy_seed(self.seed, self.epoch):
            return np.random.permutation(len(self))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return False
