"""The positions of the queries and keys of one attention call.

Shape suffixes, used in every name of this package:
B batch, T query length, S key length, H heads, D head dim, E model dim,
R table rows, L consecutive offsets (L = T + S - 1), N layers.

A *relative position* is always j - i, key minus query: positive to the right.
A *slot* is a column of the padded batch, a *token position* counts real tokens.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch

#: prefix of the cache keys for what an encoding computes from a layer's input
KEPT = "position_"


class Positions:
    """The positions of ``src_len`` keys, the last ``tgt_len`` of which are the queries.

    One rule serves a full pass (tgt_len == src_len), one decoding step
    (tgt_len == 1) and attention over a memory (tgt_len < src_len).

    Padding to the right moves no real token, so it is the same as no padding.
    Where a real token follows a pad (left padding), token positions differ from
    slots and become per sentence; only absolute terms ask for them.

    Token positions may be given (``position_ids``), as where documents are packed into one
    sequence and each begins at 0 again. Then the relative position of a pair is the difference of
    its ids. ``document_ids`` keep attention within a document; without ids of their own, positions
    then count the real tokens of each document.

    Examples:
        >>> Positions.of(tgt_len=2, src_len=5).offset_TS()
        tensor([[-3, -2, -1,  0,  1],
                [-4, -3, -2, -1,  0]])
    """

    def __init__(
        self,
        tgt_len: int,
        src_len: int,
        padding_BS: torch.Tensor | None = None,
        cls: bool | None = None,
        device: torch.device | str | None = None,
        memory: dict | None = None,
        x: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
    ):
        if not 0 < tgt_len <= src_len:
            raise ValueError(
                f"tgt_len={tgt_len}, src_len={src_len}: the queries are the last tgt_len of "
                "src_len keys, so 1 <= tgt_len <= src_len"
            )
        self.tgt_len = tgt_len
        self.src_len = src_len
        self.cls = cls
        given = next((x for x in (padding_BS, position_ids, document_ids) if x is not None), None)
        self.device: torch.device | None = None if device is None else torch.device(device)
        if given is not None:
            self.device = given.device
        #: what the stack part evaluated once for this forward pass
        self.shared: Any = None
        #: what one generation keeps from step to step; None in a full pass
        self.memory: dict | None = memory
        #: the Segment that the queries are, where the keys before them are remembered
        self.segment: Any = None
        self._padding_BS: Any = None if padding_BS is None else padding_BS.bool()
        self._x: Callable[[], torch.Tensor] | None = None if x is None else lambda: x
        self._kept: dict | None = None
        #: where attention is to stay within a document, the number of that of each key
        self.documents_BS: Any = None
        self._ids_BS: torch.Tensor | None = None
        self._span = src_len
        self._moved_offset_BTS: torch.Tensor | None | Literal[False] = False
        if document_ids is not None:
            self.documents_BS = self._checked("document ids", document_ids)
            self._ids_BS = self._counted_in_documents()
        if position_ids is not None:
            self._ids_BS = self._checked("position ids", position_ids).masked_fill(~self._real_BS(position_ids), 0)
            if (self._ids_BS < 0).any():
                raise ValueError(f"position ids count from 0, but one of these is {int(self._ids_BS.min())}")
        if self._ids_BS is not None and self._ids_BS.numel():
            self._span = int(self._ids_BS.max()) + 1
        self._left_padded: bool | None = None
        #: what the layers of the pass share, by what has made it: results of ``once``, and masks
        self.made: dict = {}

    @classmethod
    def of(
        cls_,
        tgt_len: int,
        src_len: int,
        padding_BS: torch.Tensor | None = None,
        cls: bool | None = None,
        device: torch.device | str | None = None,
        memory: dict | None = None,
        x: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
    ) -> "Positions":
        """``padding_BS`` is True at pads. ``cls=False`` says that this call has no [CLS];
        None leaves it to the encoding (a non-causal stack has one). ``memory``: a dict that
        lives as long as one generation. ``x`` [B, S, E]: the layer's input at every key, for
        encodings that read it outside a model; in a model attention hands it over. ``position_ids`` and
        ``document_ids`` [B, S], integers: see the class. Those of pads are ignored."""
        return cls_(tgt_len, src_len, padding_BS, cls, device, memory, x, position_ids, document_ids)

    def _checked(self, what, ids_BS):
        wanted = "(B, S)" if self._padding_BS is None else tuple(self._padding_BS.shape)
        shape = tuple(ids_BS.shape)
        if shape != wanted and (self._padding_BS is not None or len(shape) != 2 or shape[1] != self.src_len):
            raise ValueError(
                f"{what} of shape {shape}: one for each of the {self.src_len} keys is needed, of shape {wanted}"
            )
        if ids_BS.is_floating_point() or ids_BS.is_complex() or ids_BS.dtype == torch.bool:
            raise ValueError(f"{what} of type {ids_BS.dtype}: integers are needed")
        return ids_BS.to(self.device, torch.long)

    def _real_BS(self, like_BS):
        if self._padding_BS is None:
            return torch.ones(like_BS.shape, dtype=torch.bool, device=self.device)
        return ~self._padding_BS.bool()

    def _counted_in_documents(self):
        """The number of real tokens of the same document before each key, 0 at pads."""
        real_BS = self._real_BS(self.documents_BS)
        same_BSS = self.documents_BS[:, :, None] == self.documents_BS[:, None, :]
        return (same_BSS & real_BS[:, None, :]).tril(-1).sum(-1).masked_fill(~real_BS, 0)

    @property
    def span(self) -> int:
        """The length that tables must serve: every token position of these keys is below it."""
        return self._span

    @property
    def given(self) -> bool:
        """Whether positions or documents were given, so that token positions may differ from slots."""
        return self._ids_BS is not None

    @contextlib.contextmanager
    def in_layer(self, x: Callable[[], torch.Tensor], kept: dict | None = None) -> Iterator[None]:
        """The context in which one layer makes its terms. x: computes the layer's input [B, T, E]; it is called
        only where an encoding reads it. kept: the layer's cache from step to step of a generation, which is
        reordered with the beam."""
        before = self._x, self._kept
        self._x, self._kept = x, kept
        try:
            yield
        finally:
            self._x, self._kept = before

    @property
    def x(self) -> torch.Tensor:
        """The layer's input at the queries, [B, T, E], from which q, k and v are projected. While decoding,
        this is the newest token alone; ``of_keys`` also serves earlier tokens."""
        return self._input()[:, -self.tgt_len :]

    def _input(self):
        if self._x is None:
            raise ValueError(
                "this position encoding reads the layer's input x, which these positions lack: "
                "give Positions.of(..., x=x_BSE), or use it in a model"
            )
        return self._x()

    def of_keys(self, name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """make(x) at every key: [B, S, ..] from [B, .., E]. ``make`` treats each token by itself, as a gate
        does.

        In a full pass it is computed at once. While decoding it is computed for the newest token and
        joins what earlier steps kept under ``name`` in this layer.
        """
        if self._kept is None:
            out: Any = make(self._input())
        else:
            key = f"{KEPT}{name}"
            out = self._kept.get(key)
            if out is None or out.size(1) < self.src_len:
                out = make(self.x) if out is None else torch.cat([out, make(self.x)], 1)
                self._kept[key] = out
        if out.size(1) != self.src_len:
            raise ValueError(f"{name} is known of {out.size(1)} tokens, but there are {self.src_len} keys")
        return out

    @property
    def decoding(self) -> bool:
        """Whether layers keep something from step to step (``of_keys``, ``carried``)."""
        return self._kept is not None

    def carried(self, name: str, change: Callable[[torch.Tensor | None], torch.Tensor]) -> torch.Tensor:
        """While decoding: change(what the steps before have kept under ``name`` in this layer, None at the first),
        which is kept in its turn, [B, S, ..]."""
        kept: Any = self._kept
        key = f"{KEPT}{name}"
        before = kept.get(key)
        known = 0 if before is None else before.size(1)
        if known + self.tgt_len != self.src_len:
            raise ValueError(f"{name} is known of {known} tokens and {self.tgt_len} follow: {self.src_len} keys")
        kept[key] = change(before)
        return kept[key]

    def remember(self, owner: Any, make: Callable[[int], Any]) -> Any:
        """make(n) for an n >= span: a value for n positions that does not change while one sequence grows.

        In a full pass n is the span (the number of keys, unless positions are given). While decoding
        the result is kept for ``owner`` until the span exceeds n, and n grows by doubling, so that a
        step costs no projection.
        """
        if self.memory is None:
            return make(self.span)
        length, value = self.memory.get(owner, (0, None))
        if length < self.span:
            length = max(self.FIRST_ROOM, 1 << (self.span - 1).bit_length())
            value = make(length)
            self.memory[owner] = length, value
        return value

    #: positions that a generation makes room for at its start
    FIRST_ROOM = 64

    def offset_TS(self) -> torch.Tensor:
        """The difference j - i of the slots of every query i and key j."""
        key_S = torch.arange(self.src_len, device=self.device)
        return key_S[None, :] - key_S[self.src_len - self.tgt_len :, None]

    def offset_BTS(self) -> torch.Tensor:
        """The relative position j - i of every query i and key j, [1|B, T, S], from the slots or from the given
        positions."""
        if self._ids_BS is None:
            return self.offset_TS()[None]
        return self._ids_BS[:, None, :] - self._ids_BS[:, self.src_len - self.tgt_len :, None]

    def moved_offset_BTS(self) -> torch.Tensor | None:
        """The relative positions where they differ from those of the slots. None where they agree for all pairs
        that may attend, as in packed documents whose positions count their own tokens."""
        if self._moved_offset_BTS is False:
            self._moved_offset_BTS = None
            if self._ids_BS is not None:
                offset_BTS = self.offset_BTS()
                queries = slice(self.src_len - self.tgt_len, self.src_len)
                real_BS = self._real_BS(self._ids_BS)
                meet_BTS = real_BS[:, queries, None] & real_BS[:, None, :]
                if self.documents_BS is not None:
                    meet_BTS &= self.documents_BS[:, queries, None] == self.documents_BS[:, None, :]
                if ((offset_BTS != self.offset_TS()) & meet_BTS).any():
                    self._moved_offset_BTS = offset_BTS
        return self._moved_offset_BTS

    @property
    def left_padded(self) -> bool:
        """Whether some real token follows a pad: the only case in which counted token positions differ from
        slots. The check reads the data, so only absolute terms ask for it."""
        if self._left_padded is None:
            padding_BS = self._padding_BS
            self._left_padded = padding_BS is not None and bool((padding_BS[:, :-1] & ~padding_BS[:, 1:]).any())
        return self._left_padded

    def key_BS(self) -> torch.Tensor:
        """Token positions of the keys, from 0: [1, S], or [B, S] where left padding
        moves them or they are given. A pad to the left has position 0."""
        if self._ids_BS is not None:
            return self._ids_BS
        if not self.left_padded:
            return torch.arange(self.src_len, device=self.device)[None]
        return ((~self._padding_BS).long().cumsum(1) - 1).clamp(min=0)

    def query_BT(self) -> torch.Tensor:
        """Token positions of the queries, [1|B, T]."""
        return self.key_BS()[:, self.src_len - self.tgt_len :]

    @property
    def slots_say_tokens(self) -> bool:
        """Whether the token position of each real token is its slot."""
        return not self.given and not self.left_padded

    def cls_BS(self) -> torch.Tensor | None:
        """True at [CLS], the first real token (of each document, where there are several). None where that is
        slot 0 of every sentence. Where positions are given without documents, [CLS] is at position 0."""
        if self.given:
            first_BS = self._ids_BS if self.documents_BS is None else self._counted_in_documents()
            return (first_BS == 0) & self._real_BS(first_BS)
        if not self.left_padded:
            return None
        real_BS = ~self._padding_BS
        return real_BS & (real_BS.cumsum(1) == 1)

    def once(self, make: Callable[[torch.Tensor | None], Any]) -> Any:
        """make(padding_BS), computed once for all layers of the pass."""
        if make not in self.made:
            self.made[make] = make(self._padding_BS)
        return self.made[make]

    def real_lengths_B(self) -> torch.Tensor:
        """The number of real tokens of each sentence, [1|B]."""
        if self._padding_BS is None:
            return torch.full((1,), self.src_len, device=self.device)
        return (~self._padding_BS).sum(1)

    def document_lengths_BS(self) -> torch.Tensor:
        """The number of real tokens in the document of each key."""
        same_BSS = self.documents_BS[:, :, None] == self.documents_BS[:, None, :]
        return (same_BSS & self._real_BS(self.documents_BS)[:, None, :]).sum(-1)


def random_positions(padding_BS: torch.Tensor, span: int, first_at_0: bool = False) -> torch.Tensor:
    """For the real tokens of each sentence, distinct random positions of 0 .. span - 1 in rising order, [B, S]
    (Ruoss et al. 2023, Sec. 4.1): every choice has the same probability. Pads get any. first_at_0: the first token
    remains at position 0."""
    real_BS = ~padding_BS
    counts_B1 = real_BS.sum(1, keepdim=True)
    longest = int(counts_B1.max())
    if longest > span:
        raise ValueError(f"--randomized-positions {span}: a sample has {longest} tokens, give {longest} or more")
    order = torch.rand(len(padding_BS), span, device=padding_BS.device)
    if first_at_0:
        order[:, 0] = -1
    drawn = order.argsort(1)[:, : padding_BS.size(1)]
    beyond = torch.arange(drawn.size(1), device=padding_BS.device) >= counts_B1
    rising = drawn.masked_fill(beyond, span).sort(1).values
    return rising.gather(1, (real_BS.cumsum(1) - 1).clamp(min=0))


class CurrentPass(threading.local):
    """Hands the Positions of the running forward pass from a stack to its layers.

    It belongs to the pass, not to the model: each thread has its own, and a copy of the model (EMA, deepcopy, pickle)
    starts with an empty one.
    """

    #: the places of the packed tokens in their batch, while --unpad runs a layer
    real_tokens: Any = None
    #: what a layer remembers of earlier segments, [M, B, E], while it runs (layers/memory.py)
    past_MBE: torch.Tensor | None = None

    def __init__(self) -> None:
        self.positions: Positions | None = None
        #: position_ids and document_ids for the passes to come, as ``Positions.of`` takes them
        self.given: dict = {}
        #: where the rows of the passes to come are in their streams (``segments.Place``)
        self.place: Any = None

    def __deepcopy__(self, memo):
        memo[id(self)] = copy = CurrentPass()
        return copy

    def __getstate__(self):
        return vars(CurrentPass()).copy()


__all__ = ["Positions"]
