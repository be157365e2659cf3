"""Segment memory (Dai et al. 2019): what the layers remember of a text while they read it segment by segment.

A batch holds the next segment of several streams of text. A layer's keys and values are those of its segment and of
what it remembers: its own input at the last M tokens before. That input is kept without its gradient; its keys and
values are projected anew, so W^K and W^V learn from it, too. Nothing of it is in a checkpoint.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .once import log_once

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """The places of a batch's rows in their streams. stream: the number of the first row's stream. The rows of later
    batches with this number are of the same streams; at the end, the last rows may be missing. step: the number of
    the segments in their streams, from 0. goes_on: for each row, whether it goes on with the text of the segment
    before; if not, the row has nothing to remember."""

    stream: int
    step: int
    goes_on: tuple[bool, ...]


class SegmentMemory:
    """The last segments of all streams, for training and for evaluation apart: a validation does not disturb a
    training. length, eval_length: M. same_length: each query sees M keys, itself included, so that its context does
    not depend on its place in the segment."""

    def __init__(self, length: int, eval_length: int, same_length: bool = False):
        self.length = length
        self.eval_length = eval_length
        self.same_length = same_length
        #: training or not -> number of the first stream -> the segment that was read last
        self.last: dict[bool, dict[int, Segment]] = {True: {}, False: {}}

    def __deepcopy__(self, memo):
        memo[id(self)] = copy = SegmentMemory(self.length, self.eval_length, self.same_length)
        return copy

    def __reduce__(self):
        return SegmentMemory, (self.length, self.eval_length, self.same_length)

    def begin(self, place: Place, padding_BT: torch.Tensor, training: bool) -> "Segment | None":
        """The segment that a forward pass over these tokens reads; None where nothing is to be remembered.
        padding_BT: True at pads."""
        if training:
            self.last[False].clear()  # the evaluation is over, and its memory may be large
        length = self.length if training else self.eval_length
        if not length:
            return None
        last = self.last[training].get(place.stream)
        segment = Segment(place.step, padding_BT, length, self.same_length)
        if not any(place.goes_on):
            pass  # empty, not zeros
        elif last is not None and last.step == place.step:
            segment.remember_as(last)  # the same batch once more, as after an overflow
        elif last is not None and last.step == place.step - 1:
            segment.remember(last, place.goes_on)
        else:
            log_once(
                logger,
                "the segment memory is empty in the middle of a text, as after a resume inside an epoch: the next "
                f"{length} tokens of each stream see fewer tokens before them",
            )
        self.last[training][place.stream] = segment
        return segment


class Segment:
    """One segment and what its layers remember. Its inputs never change, so a layer may be computed again."""

    def __init__(self, step: int, padding_BT: torch.Tensor, length: int, same_length: bool):
        self.step = step
        self.length = length
        self.same_length = same_length
        self.own_padding_BT = padding_BT
        self.past_padding_BM = padding_BT[:, :0]
        #: layer -> its remembered input [M, B, E], and its input in this segment [T, B, E]
        self.past: dict[Any, torch.Tensor] = {}
        self.entered: dict[Any, torch.Tensor] = {}
        self._hidden: tuple[torch.Tensor | None] | None = None

    def remember(self, last: "Segment", goes_on: tuple[bool, ...]) -> None:
        """Takes what is to be remembered after the segment ``last``."""
        rows = len(goes_on)
        padding_BS = last.padding_BS[:rows, -self.length :]
        stays_B = torch.tensor(goes_on, device=padding_BS.device)
        self.past_padding_BM = padding_BS | ~stays_B[:, None]
        for layer, x_TBE in last.entered.items():
            whole = torch.cat([last.past[layer], x_TBE]) if layer in last.past else x_TBE
            self.past[layer] = whole[-self.length :, :rows]

    def remember_as(self, other: "Segment") -> None:
        """Takes what ``other`` remembers."""
        self.past, self.past_padding_BM = other.past, other.past_padding_BM

    @property
    def padding_BS(self) -> torch.Tensor:
        """True at the keys that no token may see: pads, and what is remembered of another text."""
        return torch.cat([self.past_padding_BM, self.own_padding_BT], 1)

    def hidden_BS(self) -> torch.Tensor | None:
        """``padding_BS``, or None where it hides nothing."""
        if self._hidden is None:
            padding_BS = self.padding_BS
            self._hidden = (padding_BS if bool(padding_BS.any()) else None,)
        return self._hidden[0]

    @property
    def window(self) -> int | None:
        """How far a key may be that --same-length does not hide; None without it."""
        return self.length - 1 if self.same_length else None

    def enter(
        self, layer: Any, x_TBE: torch.Tensor, norm: Callable[[torch.Tensor], torch.Tensor] | None
    ) -> torch.Tensor | None:
        """Notes a layer's input. Returns what the layer remembers, [M, B, E], ready for its projections, or None.
        norm: what a pre-norm layer does with its input before."""
        self.entered.setdefault(layer, x_TBE.detach())
        past = self.past.get(layer)
        if past is None:
            return None
        past = past.to(x_TBE.dtype)
        return past if norm is None else norm(past)
