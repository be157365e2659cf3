"""lean in slices and fused in tiles of several sizes, and the definition in float64 with which both are compared."""

import math
from dataclasses import dataclass

import pytest
import torch
from test_terms import CASES, ROWS, B, D, H

from fairseq_relpos.backends import Mask, fused, lean, select
from fairseq_relpos.terms import Terms, evaluate


@dataclass
class Way:
    """A backend, in the type, at the lengths and to the difference with which it is compared."""

    backend: str
    dtype: torch.dtype
    tolerance: float
    lengths: tuple

    def __call__(self, terms, v, mask=Mask(), dropout_p=0.0):
        return select(self.backend)(terms, v, mask, dropout_p, False)[0]

    @property
    def keep_mask(self):
        return {"lean": lean, "fused": fused}[self.backend].keep_mask


LEAN = Way("lean", torch.float64, 1e-11, ((7, 7), (5, 9)))
FUSED = Way("fused", torch.float32, 2e-5, ((40, 70), (37, 37)))
#: elements of a slice
SLICES = {"one slice": 10**9, "sentences": 100, "queries": 1}
TILES = ["one tile", "tiles", "oneDNN", "oneDNN, tiles"]


def set_slices(monkeypatch, kind):
    monkeypatch.setattr(lean, "SLICE_ON_CPU", SLICES[kind])
    monkeypatch.setattr(lean, "LEAST_ROWS", 4)
    return LEAN


def set_tiles(monkeypatch, kind):
    """Few queries and keys in a tile, so that even short calls have several; and the products of oneDNN, which serve
    large calls on some processors."""
    if kind.startswith("oneDNN"):
        use_onednn(monkeypatch, "brgemm")
    if kind.endswith("tiles"):
        for name, size in {"ROWS": 3, "COLUMNS": 32, "GATED_ROWS": 3, "GATED_COLUMNS": 32}.items():
            monkeypatch.setattr(fused, name, size)
    return FUSED


def use_onednn(monkeypatch, *products):
    """These of its products for every call, whatever the processor's maker."""
    monkeypatch.setattr(fused, "has_avx512_but_is_not_intel", lambda: True)
    fused.faster_products.cache_clear()
    found = fused.faster_products()
    fused.faster_products.cache_clear()
    if not {*products} <= found:
        pytest.skip(f"torch has no {' and '.join(products)} for this processor")
    monkeypatch.setattr(fused, "faster_products", lambda: {*products})
    monkeypatch.setattr(fused, "LARGE", 0)
    monkeypatch.setattr(fused, "MULTIPLE", 1)


def made(case, tgt_len=40, src_len=70, learned=True, dtype=torch.float32):
    """Terms of a form, by default with several tiles of keys, the values, and all tensors: operands first."""
    tables = {name: x.to(dtype).clone() if torch.is_tensor(x) else x for name, x in CASES[case].items()}
    q, k, v = (torch.randn(B, H, n, D, dtype=dtype) for n in (tgt_len, src_len, src_len))
    tensors = [q, k, v, *(x for x in tables.values() if torch.is_tensor(x))]
    for x in tensors:
        x.requires_grad_(learned)
    return Terms(q, k, 0.3, rows=ROWS, **tables), v, tensors


def pads(src_len):
    padding_BS = torch.zeros(B, src_len, dtype=torch.bool)
    padding_BS[1, src_len // 2 :] = True
    return padding_BS


def poison(monkeypatch):
    """New memory has missing numbers in it."""

    def poisoned(make):
        def new(*args, **kwargs):
            x = make(*args, **kwargs)
            return x.fill_(float("nan") if x.is_floating_point() else 77)

        return new

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))


def results(out, tensors):
    """The output and the gradients of a weighted sum of it."""
    torch.manual_seed(3)
    weights = torch.randn(out.shape)
    return [out, *torch.autograd.grad((weights * out).sum(), tensors)]


def check(found, expected, tolerance=FUSED.tolerance):
    for x, y in zip(found, expected, strict=True):
        assert (x - y).abs().max() <= tolerance * max(1, y.abs().max())


def exact(terms, v, tensors, mask=Mask(), kept=None):
    """The results of the definition in float64."""
    copies = {id(x): x.detach().double().requires_grad_() for x in (*tensors, mask.extra) if x is not None}
    copy = Terms(**{name: copies.get(id(x), x) for name, x in vars(terms).items()})
    inside = Mask(mask.padding_BS, mask.causal, copies.get(id(mask.extra)), mask.documents_BS)
    e = evaluate(copy)
    hidden = inside.additive(copy, torch.float64)
    e = e if hidden is None else e + hidden.clamp(min=torch.finfo(torch.float32).min / 2)
    if mask.window is not None:
        e = e.masked_fill(outside(mask.window, *e.shape[2:]), -math.inf)
    weights = e.softmax(-1)
    if kept is not None:
        weights = weights * kept
    out = (weights @ copies[id(v)]).to(torch.promote_types(v.dtype, torch.float32))
    return results(out, [copies[id(x)] for x in tensors])


def outside(window, tgt_len, src_len):
    """True where the key is more than ``window`` slots away from the query, by loops."""
    first = src_len - tgt_len
    return torch.tensor([[abs(j - first - i) > window for j in range(src_len)] for i in range(tgt_len)])
