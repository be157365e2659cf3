"""Where the queries and keys of one attention call stand.

Shape suffixes, used in every name of this package:
B batch, T query length, S key length, H heads, D head dim, E model dim,
R table rows, L consecutive offsets (L = T + S - 1), N layers.

A *relative position* is always j - i, key minus query: positive to the right.
A *slot* is a column of the padded batch, a *token position* counts real tokens.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .unpadding import RealTokens

#: begins the names under which a layer keeps what an encoding made of its input
KEPT = "position_"


class Positions:
    """The queries are the last ``tgt_len`` of ``src_len`` keys.

    One rule serves a full pass (tgt_len == src_len), one decoding step
    (tgt_len == 1) and attention over a memory (tgt_len < src_len).

    Padding to the right moves no real token, so it is the same as no padding.
    Where a real token follows a pad (left padding), token positions differ from
    slots and become per sentence; only absolute terms ask for them.
    """

    def __init__(self, tgt_len, src_len, padding_BS=None, cls=None, device=None, memory=None, x=None):
        if not 0 < tgt_len <= src_len:
            raise ValueError(
                f"tgt_len={tgt_len}, src_len={src_len}: the queries are the last tgt_len of "
                "src_len keys, so 1 <= tgt_len <= src_len"
            )
        self.tgt_len = tgt_len
        self.src_len = src_len
        self.cls = cls
        self.device = padding_BS.device if padding_BS is not None else device and torch.device(device)
        #: what the stack part evaluated once for this forward pass
        self.shared: Any = None
        #: what one generation keeps from step to step; None in a full pass
        self.memory: dict | None = memory
        self._padding_BS = padding_BS
        self._x: Callable[[], torch.Tensor] | None = None if x is None else lambda: x
        self._kept: dict | None = None
        self._left_padded: bool | None = None
        self._real_tokens: RealTokens | None = None

    @classmethod
    def of(cls_, tgt_len, src_len, padding_BS=None, cls=None, device=None, memory=None, x=None) -> "Positions":
        """``padding_BS`` is True at pads. ``cls=False`` says that this call has no [CLS];
        None leaves it to the encoding (a non-causal stack has one). ``memory``: a dict that
        lives as long as one generation. ``x`` [B, S, E]: the layer's input at every key, for
        encodings that read it outside a model; in a model attention hands it over."""
        return cls_(tgt_len, src_len, padding_BS, cls, device, memory, x)

    @contextlib.contextmanager
    def in_layer(self, x: Callable[[], torch.Tensor], kept: dict | None = None):
        """While one layer makes its terms: ``x()`` is that layer's input [B, T, E], computed only where an
        encoding reads it. kept: what the layer keeps from step to step of a generation, which is
        reordered with the beam."""
        before = self._x, self._kept
        self._x, self._kept = x, kept
        try:
            yield
        finally:
            self._x, self._kept = before

    @property
    def x(self) -> torch.Tensor:
        """The layer's input at the queries, [B, T, E]: what its q, k and v are projected from. While
        decoding that is the newest token alone; ``of_keys`` has what earlier ones left."""
        if self._x is None:
            raise ValueError(
                "this position encoding reads the layer's input x, which these positions lack: "
                "give Positions.of(..., x=x_BSE), or use it in a model"
            )
        return self._x()[:, -self.tgt_len :]

    def of_keys(self, name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """make(x) at every key, [B, S, ..] from [B, .., E], token by token: gates, for example.

        In a full pass it is computed at once. While decoding it is computed for the newest token and
        joins what earlier steps kept under ``name`` in this layer.
        """
        if self._kept is None:
            self.x  # noqa: B018  says so where there is none
            out = make(self._x())
        else:
            key = f"{KEPT}{name}"
            out = self._kept.get(key)
            if out is None or out.size(1) < self.src_len:
                out = make(self.x) if out is None else torch.cat([out, make(self.x)], 1)
                self._kept[key] = out
        if out.size(1) != self.src_len:
            raise ValueError(f"{name} is known of {out.size(1)} tokens, but there are {self.src_len} keys")
        return out

    def remember(self, owner, make: Callable[[int], Any]):
        """make(n), n >= src_len: what does not change while one sequence grows, for n keys.

        In a full pass n is src_len. While decoding the result is kept for ``owner`` until
        src_len exceeds n, and n grows by doubling, so that a step costs no projection.
        """
        if self.memory is None:
            return make(self.src_len)
        length, value = self.memory.get(owner, (0, None))
        if length < self.src_len:
            length = max(self.FIRST_ROOM, 1 << (self.src_len - 1).bit_length())
            value = make(length)
            self.memory[owner] = length, value
        return value

    #: keys that a generation makes room for at its start
    FIRST_ROOM = 64

    def offset_TS(self) -> torch.Tensor:
        """j - i for every query i and key j."""
        key_S = torch.arange(self.src_len, device=self.device)
        return key_S[None, :] - key_S[self.src_len - self.tgt_len :, None]

    @property
    def left_padded(self) -> bool:
        """Whether some real token follows a pad: the only case in which token positions
        and slots differ. Costs a look at the data, so only absolute terms ask."""
        if self._left_padded is None:
            padding_BS = self._padding_BS
            self._left_padded = padding_BS is not None and bool((padding_BS[:, :-1] & ~padding_BS[:, 1:]).any())
        return self._left_padded

    def key_BS(self) -> torch.Tensor:
        """Token positions of the keys, from 0: [1, S], or [B, S] where left padding
        moves them. A pad to the left has position 0."""
        if not self.left_padded:
            return torch.arange(self.src_len, device=self.device)[None]
        return ((~self._padding_BS).long().cumsum(1) - 1).clamp(min=0)

    def query_BT(self) -> torch.Tensor:
        """Token positions of the queries, [1|B, T]."""
        return self.key_BS()[:, self.src_len - self.tgt_len :]

    def cls_BS(self) -> torch.Tensor | None:
        """True at the first real token; None where that is slot 0 of every sentence."""
        if not self.left_padded:
            return None
        real_BS = ~self._padding_BS
        return real_BS & (real_BS.cumsum(1) == 1)

    def real_tokens(self) -> RealTokens:
        """Of a padded batch; found once for all layers."""
        if self._real_tokens is None:
            self._real_tokens = RealTokens(self._padding_BS)
        return self._real_tokens

    def real_lengths_B(self) -> torch.Tensor:
        """Number of real tokens of each sentence, [1|B]."""
        if self._padding_BS is None:
            return torch.full((1,), self.src_len, device=self.device)
        return (~self._padding_BS).sum(1)


class CurrentPass:
    """Hands the Positions of the running forward pass from a stack to its layers.

    It belongs to the pass, not to the model: a copy of the model (EMA, deepcopy,
    pickle) starts with an empty one.
    """

    def __init__(self):
        self.positions: Positions | None = None

    def __deepcopy__(self, memo):
        memo[id(self)] = copy = CurrentPass()
        return copy

    def __getstate__(self):
        return {"positions": None}
