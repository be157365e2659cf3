"""Shared by every backend: the mask of one attention call, and the interface."""

from dataclasses import dataclass

import torch

from ..positions import Positions
from ..terms import Bias, Terms


@dataclass
class Mask:
    """The keys that queries may not see. padding_BS: True at padded keys. causal: no key after the
    query. extra: any other mask, boolean (True = hidden) or additive, [T, S] or
    [B * H, T, S]. documents_BS: the document of each key; those of other documents are hidden.
    window: keys that are more than so many slots away on either side are hidden. made: ``Positions.made``, where
    the layers of a pass share the tensor that ``additive`` returns.

    Examples:
        >>> from fairseq_relpos.terms import Terms
        >>> terms = Terms(*torch.randn(2, 1, 1, 3, 8), scale=1.0)
        >>> Mask(causal=True).additive(terms, torch.float32) < 0
        tensor([[False,  True,  True],
                [False, False,  True],
                [False, False, False]])
    """

    padding_BS: torch.Tensor | None = None
    causal: bool = False
    extra: torch.Tensor | None = None
    documents_BS: torch.Tensor | None = None
    window: int | None = None
    made: dict | None = None

    def additive(self, terms: Terms, dtype: torch.dtype) -> torch.Tensor | None:
        """As ``make``, once for all layers of a pass."""
        if self.made is None or self.extra is not None:
            return self.make(terms, dtype)
        key = (dtype, self.padding_BS is None, self.causal, self.window)
        if key not in self.made:
            self.made[key] = self.make(terms, dtype)
        return self.made[key]

    def make(self, terms: Terms, dtype: torch.dtype) -> torch.Tensor | None:
        """One tensor to add to the logits, broadcastable to [B, H, T, S]; None where nothing is hidden. A
        hidden key gets half of the smallest number, not -inf: a row without any key is then no NaN, and the sum
        with a bias stays finite in half precision. Keys outside the window get the smallest number itself, so a query
        whose other keys are hidden, too, attends to those within the window alone; backends need not read others."""
        lowest = torch.finfo(dtype).min / 2
        batch, heads, tgt_len, _ = terms.q_BHTD.shape
        src_len, device = terms.k_BHSD.size(2), terms.k_BHSD.device
        total = None
        for hidden in self._hidden(tgt_len, src_len, device):
            part = torch.zeros(hidden.shape, dtype=dtype, device=device)
            part.masked_fill_(hidden, lowest)
            total = part if total is None else torch.minimum(total, part)
        if self.extra is not None:
            extra = self.extra
            if extra.dtype in (torch.bool, torch.uint8):
                extra = torch.zeros(extra.shape, dtype=dtype, device=device).masked_fill_(extra.bool(), lowest)
            extra = extra.to(dtype).clamp(min=lowest)
            if extra.dim() == 3 and extra.size(0) == batch * heads:
                extra = extra.view(batch, heads, tgt_len, src_len)
            total = extra if total is None else (total + extra).clamp(min=lowest)
        if self.window is not None:
            far_TS = self._too_far(tgt_len, src_len, device)
            total = torch.zeros(far_TS.shape, dtype=dtype, device=device) if total is None else total
            total = total.masked_fill(far_TS, torch.finfo(dtype).min)
        return total

    def only_causal(self, terms: Terms) -> bool:
        """Whether this is a full pass in which only keys to the right are hidden."""
        square = terms.q_BHTD.size(2) == terms.k_BHSD.size(2)
        others = (self.padding_BS, self.extra, self.documents_BS, self.window)
        return self.causal and square and all(x is None for x in others)

    def _hidden(self, tgt_len, src_len, device):
        if self.padding_BS is not None:
            yield self.padding_BS[:, None, None, :]
        if self.documents_BS is not None:
            queries_BT = self.documents_BS[:, src_len - tgt_len :]
            yield (queries_BT[:, :, None] != self.documents_BS[:, None, :])[:, None]
        if self.causal and tgt_len > 1:
            ones = torch.ones(tgt_len, src_len, dtype=torch.bool, device=device)
            yield ones.triu(src_len - tgt_len + 1)

    def _too_far(self, tgt_len, src_len, device):
        slot_T, slot_S = (torch.arange(src_len - x, src_len, device=device) for x in (tgt_len, src_len))
        return (slot_S - slot_T[:, None]).abs() > self.window


#: why a backend refuses terms with values
NO_VALUES = "positions are added to the values, which only eager computes"


class Backend:
    """Computes softmax(e + mask) V from Terms. It knows no encoding's name.

    Examples:
        >>> from fairseq_relpos.terms import Terms
        >>> q_BHTD, k_BHSD, v_BHSD = torch.randn(3, 1, 4, 9, 16)
        >>> terms, backend = Terms(q_BHTD, k_BHSD, scale=0.25), select("auto")
        >>> backend(terms, v_BHSD, Mask(), dropout_p=0.0, need_weights=False)[0].shape
        torch.Size([1, 4, 9, 16])
    """

    name: str

    def refuses(self, terms: Terms, need_weights: bool, device: torch.device | None = None) -> str | None:
        """The reason why this backend cannot serve the call, or None. device: where the call will be made, if
        not where the terms are."""
        return None

    def check(self, terms: Terms, device: torch.device) -> None:
        """Raises ValueError where no call with such terms could be served on ``device``."""

    def prepare_bias(self, bias: Bias, pos: Positions) -> Bias:
        """Prepares a bias that all layers share, once per forward pass."""
        return bias.dense(pos.tgt_len, pos.src_len)

    def __call__(
        self, terms: Terms, v_BHSD, mask: Mask, dropout_p: float, need_weights: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the output [B, H, T, D] in v's dtype, and the weights [B, H, T, S] in float32 where they are
        asked for. dropout_p is 0 outside training."""
        raise NotImplementedError


def without_denormals(x: torch.Tensor) -> torch.Tensor:
    """Makes numbers below the smallest normal one 0, in place: a CPU multiplies them several times more slowly. The
    weights of far keys in alibi are such numbers, and those of keys that a trained bias hides."""
    if x.device.type == "cpu":
        torch.hardshrink(x, torch.finfo(x.dtype).tiny, out=x)
    return x


class _Normal(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.hardshrink(x, torch.finfo(x.dtype).tiny)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return torch.hardshrink(grad, torch.finfo(grad.dtype).tiny)


def normal(x: torch.Tensor) -> torch.Tensor:
    """Returns x, on a CPU with numbers below the smallest normal one made 0, there and in its gradient."""
    return _Normal.apply(x) if x.device.type == "cpu" else x
