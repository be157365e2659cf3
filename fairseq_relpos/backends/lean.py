"""softmax(e + mask) V of a few sentences and heads at a time, or of some queries, recomputed in backward.

Autograd keeps several [B, H, T, S] tensors from forward to backward. Here only inputs and
output are kept, with the seed of the dropout mask. Backward evaluates the logits of a slice
again. With P = softmax(e + mask), M the dropout mask over its keep probability and
dO the gradient of O = (P * M) V,

    dV = (P * M)^T dO,   dP = (dO V^T) * M,   de = P * (dP - rowsum(dO * O)).

From de on, autograd goes through the slice's own evaluation, so every form of Terms is
served. Gradients of tensors that all sentences share are summed in one buffer.
"""

from dataclasses import replace

import torch

from ..positions import Positions
from ..tensors import once_differentiable, outside_autocast
from ..terms import EVERY, Bias, Ends, Half, Terms, by_offset, by_pair, ends_of_runs, logits, of_queries, part
from .base import NO_VALUES, Backend, without_denormals
from .eager import Eager

#: logits of one slice: on a CPU what its caches hold, elsewhere enough to fill the device
SLICE_ON_CPU, SLICE = 2**19, 2**25
#: queries of a slice at least: products with fewer are slow
LEAST_ROWS = 16
#: a dropout probability is rounded to a multiple of 1 / LEVELS
LEVELS = 2**16


class Lean(Backend):
    name = "lean"

    def refuses(self, terms: Terms, need_weights: bool, device: torch.device | None = None) -> str | None:
        return None if terms.values is None else NO_VALUES

    def prepare_bias(self, bias: Bias, pos: Positions) -> Bias:
        """Keeps one value per offset as it is, because its gradient is then as small."""
        if bias.bias is None and bias.reset is None:
            return bias
        return super().prepare_bias(bias, pos)

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        if 0 in v_BHSD.shape or 0 in terms.q_BHTD.shape:
            return Eager()(terms, v_BHSD, mask, dropout_p, need_weights)
        if round(dropout_p * LEVELS) == LEVELS:
            v_BHSD, dropout_p = 0 * v_BHSD, 0.0
        with outside_autocast(v_BHSD.device.type):
            terms = replace(by_offset(terms), ends=equal_ends(terms))
            hidden = mask.additive(terms, torch.promote_types(terms.q_BHTD.dtype, torch.float32))
            tensors = {**terms.tensors(), "v_BHSD": v_BHSD}
            if hidden is not None:
                tensors["hidden"] = hidden[(None,) * (4 - hidden.dim())]
            call = _Call(replace(terms, **dict.fromkeys(terms.tensors())), tuple(tensors), dropout_p)
            return _Attention.apply(call, *tensors.values()), None


class _Call:
    """The parts of one attention call that are no tensors, and the names of its tensors in order."""

    def __init__(self, terms: Terms, names, dropout_p):
        self.terms = terms
        self.names = names
        self.dropped = round(dropout_p * LEVELS)
        self.keep = 1 - self.dropped / LEVELS
        # on the CPU, where asking for a number stops no device
        self.seed = int(torch.randint(2**62, ())) if self.dropped else None

    def arranged(self, tensors):
        """The tensors as terms, v and the mask."""
        at = dict(zip(self.names, tensors))
        v_BHSD, hidden = at.pop("v_BHSD"), at.pop("hidden", None)
        return replace(self.terms, **at), v_BHSD, hidden

    def hidden(self, hidden, sentences, heads, queries):
        """That slice of the mask."""
        if hidden is None:
            return None
        mine = part("hidden", hidden, sentences, heads)
        return mine[:, :, queries] if mine.size(2) > 1 else mine

    def dropout_mask(self, device):
        return _DropoutMask(self.seed, self.dropped, device) if self.dropped else None


def equal_ends(terms: Terms) -> dict[str, Ends]:
    """How many offsets at either end share a row of A and of C, which clipped tables have many of."""
    tgt_len, src_len = terms.q_BHTD.size(2), terms.k_BHSD.size(2)
    ends = {}
    for name, rows in {"A": terms.rows, "C": terms.C_rows or terms.rows}.items():
        if getattr(terms, name) is not None and rows is not None:
            last, first = ends_of_runs(rows, tgt_len, src_len)
            ends[name] = last + src_len, tgt_len - first
    return ends


def slices(q_BHTD: torch.Tensor, src_len: int) -> list[tuple[slice, slice, list[slice]]]:
    """The slices of a call, (heads, queries, [sentences, ..]): a few heads of all sentences, or one head of a few,
    or some queries of one head and sentence. On other devices a slice has whole heads."""
    batch, heads, tgt_len, _ = q_BHTD.shape
    on_cpu = q_BHTD.device.type == "cpu"
    pairs = (SLICE_ON_CPU if on_cpu else SLICE) // (tgt_len * src_len)
    if pairs or not on_cpu:
        pairs = max(1, pairs)
        every = slice(0, tgt_len)
        return [(chosen, every, groups(batch, pairs)) for chosen in groups(heads, max(1, pairs // batch))]
    # a multiple of 4, for the dropout mask
    rows = max(LEAST_ROWS, SLICE_ON_CPU // src_len // 4 * 4)
    queries = [slice(first, min(first + rows, tgt_len)) for first in range(0, tgt_len, rows)]
    return [(head, some, [sentence]) for head in groups(heads, 1) for sentence in groups(batch, 1) for some in queries]


def groups(count: int, size: int) -> list[slice]:
    """Splits 0 .. count - 1 into slices of about the same length, at most ``size``."""
    runs = -(-count // size)
    borders = [count * run // runs for run in range(runs + 1)]
    return [slice(*pair) for pair in zip(borders, borders[1:])]


class _DropoutMask:
    """A dropout mask of 1 (kept) and 0, the same in forward and backward.

    Each weight gets 16 random bits of the generator's 64-bit numbers, which is several times
    cheaper than torch's dropout on a CPU. There the bits of a sentence and head depend on the
    seed alone, however the work is sliced.
    """

    def __init__(self, seed, dropped, device):
        self.threshold = dropped - LEVELS // 2
        self.generator = torch.Generator(device).manual_seed(seed)

    def next(self, like_BHTS):
        batch, heads, tgt_len, src_len = like_BHTS.shape
        words = -(-tgt_len * src_len // 4)
        bits = torch.empty(heads, batch, words, dtype=torch.int64, device=like_BHTS.device)
        # int16 reads all 64 of them; without the bounds the sign would always be 0
        bits.random_(-(2**63), None, generator=self.generator)
        kept = bits.view(torch.int16).ge_(self.threshold)[..., : tgt_len * src_len]
        return kept.to(like_BHTS.dtype).view(heads, batch, tgt_len, src_len).transpose(0, 1)


def keep_mask(seed: int, shape: tuple[int, ...], dropout_p: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The dropout mask [B, H, T, S] of an attention call with this seed: 1 where a weight is kept. The kept
    weights are then divided by the keep probability."""
    mask = _DropoutMask(seed, round(dropout_p * LEVELS), "cpu")
    return mask.next(torch.empty(shape, dtype=dtype))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, *tensors):
        ctx.call = call
        terms, v, hidden = call.arranged(tensors)
        q, mask = terms.q_BHTD, call.dropout_mask(v.device)
        # as the output projection reads it: [T, B, H, D] in memory
        out = v.new_empty(q.size(2), *q.shape[:2], v.size(3)).permute(1, 2, 0, 3)
        for heads, queries, sentence_groups in slices(q, v.size(2)):
            shared = by_pair(terms.part(heads=heads).of_queries(queries))
            for sentences in sentence_groups:
                e = logits(shared.part(sentences))
                weights = softmax(e, call.hidden(hidden, sentences, heads, queries))
                values = v[sentences, heads]
                if mask is not None:
                    weights.mul_(mask.next(weights))
                    values = values / call.keep
                out[sentences, heads, queries] = weights.to(v.dtype) @ values
        ctx.save_for_backward(out, *tensors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_BHTD):
        with outside_autocast(grad_BHTD.device.type):
            return _Attention.gradients(ctx, grad_BHTD)

    @staticmethod
    def gradients(ctx, grad_BHTD):
        call, (out, *tensors) = ctx.call, ctx.saved_tensors
        needed = dict(zip(call.names, ctx.needs_input_grad[1:]))
        terms, v, hidden = call.arranged(tensors)
        lengths = terms.q_BHTD.size(2), v.size(2)
        grads = _Gradients(dict(zip(call.names, tensors)), lengths)
        mask = call.dropout_mask(v.device)
        half = Half.of(grad_BHTD, v)
        for heads, queries, sentence_groups in slices(terms.q_BHTD, v.size(2)):
            mine = leaves(terms.part(heads=heads).of_queries(queries), needed)
            with torch.enable_grad():
                shared = by_pair(mine)
            learned = [name for name, x in shared.tensors().items() if x.requires_grad]
            # gradients of what by_pair has made are summed over the sentences, then go back through it
            spread = {name: x for name in learned if (x := getattr(shared, name)) is not getattr(mine, name)}
            sums = _Gradients(spread)
            for sentences in sentence_groups:
                piece = leaves(shared.part(sentences), dict.fromkeys(learned, True))
                with torch.enable_grad():
                    e = logits(piece)
                weights = softmax(e.detach(), call.hidden(hidden, sentences, heads, queries))
                grad, o = grad_BHTD[sentences, heads, queries], out[sentences, heads, queries]
                delta = (grad.to(weights.dtype) * o).sum(-1, keepdim=True)
                if mask is None:
                    kept = weights
                else:
                    grad, kept = grad / call.keep, weights * mask.next(weights)
                if needed["v_BHSD"]:
                    grads.add("v_BHSD", kept.to(v.dtype).mT @ grad, sentences, heads)
                values = v[sentences, heads]
                de = (grad @ values.mT).to(weights.dtype) if half is None else half.product(grad, values.mT)
                if mask is None:
                    de.sub_(delta).mul_(weights)
                else:
                    de.mul_(kept).sub_(weights.mul_(delta))
                without_denormals(de)
                if needed.get("hidden"):
                    grads.add("hidden", de, sentences, heads, queries)
                if e.requires_grad:
                    found = torch.autograd.grad(e, [getattr(piece, x) for x in learned], de)
                    for name, gradient in zip(learned, found):
                        if name in spread:
                            sums.add(name, gradient, sentences)
                        else:
                            grads.add(name, gradient, sentences, heads, queries)
            if spread:
                below = {
                    name: x
                    for name, x in mine.tensors().items()
                    if x.requires_grad and (name in spread or name not in learned)
                }
                found = torch.autograd.grad(list(spread.values()), list(below.values()), [sums.of[x] for x in spread])
                for name, gradient in zip(below, found):
                    grads.add(name, gradient, heads=heads, queries=queries)
        return None, *(grads.of.get(name) for name in call.names)


class _Gradients:
    """Gradients of whole tensors, summed from those of their slices."""

    def __init__(self, tensors, lengths=None):
        self.tensors = tensors
        self.lengths = lengths
        self.of = {}
        #: names whose gradient may be that of another name, too: it is copied before something is added to it
        self.shared = set()

    def add(self, name, gradient, sentences=EVERY, heads=EVERY, queries=EVERY):
        whole = self.tensors[name]
        if name not in self.of:
            if gradient.shape == whole.shape:
                self.of[name] = gradient
                self.shared.add(name)
                return
            self.of[name] = torch.zeros_like(whole)
        elif name in self.shared:
            self.shared.remove(name)
            self.of[name] = self.of[name].clone()
        mine = part(name, self.of[name], sentences, heads)
        if queries != EVERY:
            mine = of_queries(name, mine, queries, *self.lengths)
        mine += gradient.sum_to_size(mine.shape)


def leaves(terms: Terms, needed: dict[str, bool]) -> Terms:
    """Detached copies of the terms; ``needed`` ones require a gradient."""
    return replace(
        terms, **{name: x.detach().requires_grad_(needed.get(name, False)) for name, x in terms.tensors().items()}
    )


def softmax(e_BHTS: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
    """Softmax of one slice's logits, in place, after adding that slice of the mask."""
    if hidden is not None:
        e_BHTS += hidden
    return without_denormals(e_BHTS.softmax(-1))
