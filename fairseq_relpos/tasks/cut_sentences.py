"""Sentences as the model was pretrained to read them: <s> A </s>, or <s> A </s></s> B </s>."""

from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Token counts of two sentences after truncation to ``room`` tokens in total. The longer one loses its last
    token until they fit; of equal ones the second does."""
    if first + second <= room:
        return first, second
    small = min(first, second)
    if small <= room // 2:
        return (small, room - small) if first == small else (room - small, small)
    return room - room // 2, room // 2


class CutSentences(FairseqDataset):
    """One or two sentences a sample, which end in </s> in the data. A sample of more than
    ``longest`` tokens is truncated, never dropped."""

    def __init__(self, first: Any, second: Any, bos: int, eos: int, longest: int):
        self.first, self.second = first, second
        self.ends = torch.tensor([bos]), torch.tensor([eos])
        # without <s> and every </s>
        lengths = [np.asarray(part.sizes) - 1 for part in (first, second) if part is not None]
        self.special = 2 * len(lengths)
        room = longest - self.special
        if room < 2:
            raise ValueError(f"--max-positions {longest} has no room for the words of a sample: give 6 or more")
        if second is None:
            self.kept = np.minimum(lengths[0], room)[:, None]
        else:
            self.kept = np.array([longest_first(int(a), int(b), room) for a, b in zip(*lengths)]).reshape(-1, 2)
        self.sizes = self.kept.sum(1) + self.special
        self.shortened = int((self.kept.sum(1) < sum(lengths)).sum())

    def __getitem__(self, index: int) -> torch.Tensor:
        bos, eos = self.ends
        first = [bos, self.first[index][: self.kept[index, 0]].long(), eos]
        if self.second is None:
            return torch.cat(first)
        return torch.cat([*first, eos, self.second[index][: self.kept[index, 1]].long(), eos])

    def __len__(self) -> int:
        return len(self.kept)

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    size = num_tokens
