"""The backends, which compute softmax(logits) V. They know Terms, never an encoding's name.

Examples:
    >>> list(BACKENDS)
    ['eager', 'lean', 'fused', 'sdpa', 'triton']
"""

import logging

import torch

from ..gated import compiled
from ..positions import Positions
from ..tensors import plain
from ..terms import Bias, Terms
from .base import Backend, Mask
from .eager import Eager
from .fused import Fused, compilable, unavailable
from .lean import Lean
from .sdpa import SDPA
from .self_check import difference, kind_of
from .triton import Triton, why_not_this_mask

logger = logging.getLogger(__name__)

BACKENDS = {backend.name: backend for backend in (Eager, Lean, Fused, SDPA, Triton)}


class Strict(Backend):
    """A backend asked for by name: it serves every call or says why it cannot."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.name = backend.name

    def prepare_bias(self, bias: Bias, pos: Positions) -> Bias:
        return self.backend.prepare_bias(bias, pos)

    def check(self, terms: Terms, device: torch.device | None = None) -> None:
        # weights are asked for only to be looked at, so the reference computes them
        reason = self.backend.refuses(terms, False, device)
        if reason is not None:
            able = [n for n, b in BACKENDS.items() if b().refuses(terms, False, device) is None]
            raise ValueError(f"attention backend {self.name}: {reason}; use {' or '.join(['auto', *able])}")

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        self.check(terms)
        backend = Eager() if need_weights else self.backend
        return backend(terms, v_BHSD, mask, dropout_p, need_weights)


#: pairs T S of one head from which compiled code is faster than tensor operations
COMPILED_FROM = 64 * 64
#: pairs T S of one head beyond which computing the logits again costs no more than keeping them
LONG = 256 * 256


class Auto(Backend):
    """Picks a backend for each call, and logs each kind of choice once.

    On a CPU torch's fused attention takes neither dropout nor a mask with a gradient: it falls
    back to code that is slower than eager. ``fused`` serves all that has positions, from T about 64 on, and computes
    in float32. Where it is not compiled, lean is as fast as eager or faster from T about 256, and needs a
    third of its memory. eager alone serves positions that are added to the values. On a GPU triton serves what is
    learned, where its kernels run, and a
    fixed bias of a padded batch in training; any other fixed bias is torch's own
    (benchmarks/RESULTS.md). Before triton
    serves a kind of call for the first time, its result is compared with that of lean.
    """

    name = "auto"

    def __init__(self):
        self.logged = set()
        self.tried = set()
        self.distrusted = None

    def check(self, terms: Terms, device: torch.device) -> None:
        if terms.gate is not None and device.type != "cpu":
            raise ValueError(
                "attention backend auto: a gate for each dimension takes hundreds of times as long on a GPU as "
                "attention without positions (177 times on an H100 at 512 tokens); use triton or eager by name to "
                "train it nevertheless, or another encoding"
            )

    def prepare_bias(self, bias: Bias, pos: Positions) -> Bias:
        """One dense tensor for all layers, but as it is where ``fused`` serves them, and one value per offset where
        the bias is learned and the sequences are long."""
        tensors = [x for x in vars(bias).values() if torch.is_tensor(x)]
        if all(compilable(x) for x in tensors) and serves_pairs(pos.tgt_len, pos.src_len) and unavailable() is None:
            return bias
        kept = Lean().prepare_bias(bias, pos)
        if kept is not bias or pos.tgt_len * pos.src_len > LONG and learned(kept.bias_row):
            return kept.spread(pos.tgt_len, pos.src_len)
        return super().prepare_bias(bias, pos)

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        backend, why = self.choose(terms, mask, dropout_p, need_weights)
        if isinstance(backend, Triton):
            reason = self.try_out(backend, terms, v_BHSD, mask, dropout_p)
            if reason is not None:
                backend, why = self.choose(terms, mask, dropout_p, need_weights, reason)
        if not torch.compiler.is_compiling() and (backend.name, why) not in self.logged:
            self.logged.add((backend.name, why))
            logger.info("attention backend: %s (%s)", backend.name, why)
        return backend(terms, v_BHSD, mask, dropout_p, need_weights)

    @torch._disable_dynamo
    def try_out(self, backend: Backend, terms: Terms, v_BHSD: torch.Tensor, mask: Mask, dropout_p: float) -> str | None:
        """Why this machine's Triton kernels are not to be used, or None where they agree with lean. Each kind
        of call is compared once."""
        kind = kind_of(terms, v_BHSD, mask, dropout_p)
        if kind not in self.tried:
            try:
                self.distrusted = difference(backend, Lean(), terms, v_BHSD, mask, dropout_p)
            except torch.cuda.OutOfMemoryError:
                return "no memory left to try it"  # says nothing of the kernels
            self.tried.add(kind)
            if self.distrusted is not None:
                logger.warning(
                    "attention backend: triton does not compute here what lean does (%s), so auto "
                    "leaves it alone; please report this with what `fairseq-relpos doctor` prints",
                    self.distrusted,
                )
        return self.distrusted

    def choose(
        self, terms: Terms, mask: Mask, dropout_p: float, need_weights: bool, against: str | None = None
    ) -> tuple[Backend, str]:
        """The backend for this call, and why: by what is asked for, terms, mask, device, dropout and length.
        against: the reason why this call cannot have triton."""
        if need_weights:
            return Eager(), "attention weights are asked for"
        if terms.values is not None:
            return Eager(), "positions are added to the values"
        tgt_len, src_len = terms.q_BHTD.size(2), terms.k_BHSD.size(2)
        biases = [x for x in (terms.bias, terms.bias_row, terms.reset) if x is not None]
        if not terms.is_additive_bias:
            kind = "positions depend on the content"
        elif not biases and mask.window is None:
            # stock fairseq's own call: the same bits, dropout included
            return SDPA(), "no position in the logits"
        elif mask.window is not None:
            kind = "a window"
        else:
            kind = "a learned bias in training" if learned(*biases) else "a fixed bias"
        if tgt_len == 1:
            return SDPA() if terms.is_additive_bias else Eager(), f"one query, {kind}"
        if not plain(*terms.tensors().values()):
            return SDPA() if terms.is_additive_bias else Eager(), f"{kind}, traced by torch"
        device = terms.q_BHTD.device.type
        if device == "cpu" and serves_pairs(tgt_len, src_len) and Fused().refuses(terms, need_weights) is None:
            return Fused(), f"{kind}, dropout" if dropout_p else kind
        if kind == "a fixed bias":
            # bias and pads together are one tensor [B, H, T, S], kept for backward in each layer
            per_sentence = mask.padding_BS is not None or mask.documents_BS is not None
            kept = per_sentence and torch.is_grad_enabled()
            if not (dropout_p if device == "cpu" else kept):
                return SDPA(), kind
            kind += "" if device == "cpu" else " and pads"
        if dropout_p:
            kind += ", dropout"
        if device != "cpu":
            reason = (
                Triton().refuses(terms, need_weights) or why_not_this_mask(terms, mask) or self.distrusted or against
            )
            if reason is None:
                return Triton(), kind
            if terms.is_additive_bias:
                return SDPA(), f"{kind}; triton: {reason}"
        if terms.gate is not None and (device != "cpu" or compiled.library() is None):
            # not compiled, it costs most of all to compute again; and it keeps nothing as it is
            return Eager(), "a gate for each dimension"
        if tgt_len * src_len > LONG:
            return Lean(), f"{kind}, long"
        return Eager(), f"{kind}, short"


def serves_pairs(tgt_len: int, src_len: int) -> bool:
    """Whether ``fused`` is faster at these lengths. One query is a row of numbers, which is made faster as tensors."""
    return tgt_len > 1 and tgt_len * src_len >= COMPILED_FROM


def learned(*tensors: torch.Tensor | None) -> bool:
    """Whether this call computes a gradient for one of them."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def select(name: str) -> Backend:
    """The backend of this name; ``auto`` picks one for each call.

    Examples:
        >>> select("lean").name
        'lean'
    """
    if name == "auto":
        return Auto()
    if name not in BACKENDS:
        raise ValueError(f"attention backend {name!r} is not known; choose from {' '.join(names())}")
    return Strict(BACKENDS[name]())


def names() -> list[str]:
    """The names that ``select`` takes.

    Examples:
        >>> names()
        ['auto', 'eager', 'lean', 'fused', 'sdpa', 'triton']
    """

    return ["auto", *BACKENDS]


__all__ = ["BACKENDS", "Backend", "Mask", "names", "select"]
