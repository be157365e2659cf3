"""Products of half precision with float32 results, in lean and eager."""

import logging
from dataclasses import replace

import pytest
import torch
from half_products import count_half_products
from test_terms import CASES, ROWS

from fairseq_relpos import terms as module
from fairseq_relpos.backends import Mask, select
from fairseq_relpos.terms import Half, Terms, dot

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
B, H, D = 2, 3, 4


@pytest.fixture
def products(monkeypatch):
    return count_half_products(monkeypatch)


def make(case, tgt_len, src_len, dtype):
    def table(name, x):
        # a gain about 1 and a gate about 1: the size of a sum says how exact it can be
        return (x + (name in ("gain", "gate"))).to(DEVICE, dtype).requires_grad_()

    tables = {name: table(name, x) if torch.is_tensor(x) else x for name, x in CASES[case].items()}
    lengths = tgt_len, src_len, src_len
    q, k, v = (torch.randn(B, H, length, D, device=DEVICE).to(dtype).requires_grad_() for length in lengths)
    return Terms(q, k, 0.3, rows=ROWS, **tables), v


def in_type(terms, v, dtype):
    tables = {name: x.detach().to(dtype).requires_grad_() for name, x in terms.tensors().items()}
    return replace(terms, **tables), v.detach().to(dtype).requires_grad_()


def outcome(backend, terms, v, mask=Mask()):
    """Name -> output and gradients of one pass."""
    inputs = {**terms.tensors(), "v": v}
    out, _ = select(backend)(terms, v, mask, 0.0, False)
    weights = torch.linspace(-1, 1, out.numel(), device=DEVICE).view_as(out).to(out.dtype)
    gradients = torch.autograd.grad((weights * out).sum(), list(inputs.values()))
    return {"out": out.detach(), **dict(zip(inputs, gradients))}


def errors(found, exact):
    return {name: float((found[name].double() - x).norm() / x.norm().clamp(min=1e-3)) for name, x in exact.items()}


def padding(src_len):
    hidden = torch.zeros(B, src_len, dtype=torch.bool, device=DEVICE)
    hidden[1, src_len // 2 :] = True
    return Mask(padding_BS=hidden)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("lengths", [(7, 7), (5, 70), (1, 9), (130, 130)], ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["lean", "eager"])
def test_results_are_as_exact_as_their_operands(backend, case, lengths, dtype, products, monkeypatch):
    terms, v = make(case, *lengths, dtype)
    found = outcome(backend, terms, v, padding(lengths[1]))
    assert {x.dtype for x in found.values()} == {dtype}
    assert products and set(products) == {dtype}
    exact = outcome("eager", *in_type(terms, v, torch.float64), padding(lengths[1]))
    with monkeypatch.context() as patch:
        patch.setattr(Half, "of", lambda *operands, **settings: None)
        in_float32 = errors(outcome(backend, terms, v, padding(lengths[1])), exact)
    # rounded gradients of logits, which sum to 0 over the keys, may leave little of a sum that is small
    for name, error in errors(found, exact).items():
        assert error <= 1.5 * in_float32[name] + 8 * torch.finfo(dtype).eps, name


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["lean", "eager"])
def test_float32_tables_beside_half_precision_get_float32_gradients(backend, case, products):
    """As under --amp: the tables are rounded for the products alone."""
    terms, v = make(case, 20, 20, torch.float16)
    tables = {name: x for name, x in terms.tensors().items() if name not in ("q_BHTD", "k_BHSD")}
    wide = {name: (x.detach().float() + 1e-5).requires_grad_() for name, x in tables.items()}
    found = outcome(backend, replace(terms, **wide), v)
    assert all(found[name].dtype == torch.float32 for name in wide)
    exact = outcome("eager", *in_type(replace(terms, **wide), v, torch.float64))
    # over 60 draws of tables and tokens at most 1.6e-3, of the product of three 6e-3
    assert all(error <= (2e-2 if terms.product else 4e-3) for error in errors(found, exact).values())


@pytest.mark.parametrize("backend", ["lean", "eager"])
def test_heads_of_another_layout_are_multiplied_as_they_are(backend, products):
    """As attention has them: q, k, v [T, B H, D] in memory."""
    terms, v = make("everything", 20, 20, torch.float16)
    terms.gate = None

    def as_projected(x):
        return x.detach().permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3).requires_grad_()

    expected = outcome(backend, terms, v)
    moved = replace(terms, q_BHTD=as_projected(terms.q_BHTD), k_BHSD=as_projected(terms.k_BHSD))
    found = outcome(backend, moved, as_projected(v))
    for name, x in expected.items():
        torch.testing.assert_close(found[name], x, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("backend", ["lean", "eager"])
def test_a_gradient_may_be_one_number_in_memory(backend, products):
    """As that of a sum, with strides of 0."""
    terms, v = make("A + C", 20, 20, torch.float16)
    out, _ = select(backend)(terms, v, Mask(), 0.0, False)
    one = torch.ones((), device=DEVICE, dtype=out.dtype)
    inputs = [*terms.tensors().values(), v]
    found = torch.autograd.grad(out, inputs, one.expand_as(out), retain_graph=True)
    for x, y in zip(found, torch.autograd.grad(out, inputs, torch.ones_like(out)), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backend", ["lean", "eager"])
def test_queries_and_keys_of_two_types_are_multiplied_in_float32(backend, products):
    """Some encodings add float32 to q."""
    terms, v = make("A + C", 20, 20, torch.float16)
    terms.q_BHTD = terms.q_BHTD.detach().float().requires_grad_()
    found = outcome(backend, terms, v)
    exact = outcome("eager", *in_type(terms, v, torch.float64))
    assert all(error <= 2e-3 for error in errors(found, exact).values())


@pytest.mark.parametrize("backend", ["lean", "eager"])
def test_products_of_three_do_not_overflow_half_precision(backend, products):
    """Large q.k and k.C, and q.A = 0: its gradient is their product."""
    terms, v = make("A x C", 7, 7, torch.float16)
    large = {name: (80 * getattr(terms, name)).detach() for name in ("q_BHTD", "k_BHSD", "C")}
    A = torch.zeros_like(terms.A, dtype=torch.float32, requires_grad=True)
    terms = replace(terms, **large, A=A)

    def gradient(terms, v):
        out, _ = select(backend)(terms, v, Mask(), 0.0, False)
        return torch.autograd.grad(out.float().square().sum(), terms.A)[0]

    found, exact = gradient(terms, v), gradient(*in_type(terms, v, torch.float64))
    assert exact.abs().max() > torch.finfo(torch.float16).max
    assert (found - exact).norm() <= 1e-2 * exact.norm()


def test_gradients_are_scaled_after_their_product(products):
    """The smallest number of float16 is 2^-24; an eighth of it would be 0."""
    x, y = (torch.ones(1, 1, 8, 8, device=DEVICE, requires_grad=True) for _ in range(2))
    gradient = torch.full((1, 1, 8, 8), 2.0**-24, device=DEVICE)
    for grad in torch.autograd.grad(dot(x, y, Half(torch.float16, scale=0.125)), (x, y), gradient):
        assert (grad == 2.0**-24).all()  # 8 of them, each an eighth


@pytest.mark.parametrize("backend", ["lean", "eager"])
def test_small_gradients_of_queries_keep_their_bits(backend, products):
    """With scale 1/8, gradients of the logits that are rounded after it would lose three bits."""
    terms, v = make("A + C", 20, 20, torch.float16)
    terms.scale = 0.125
    small = (2.0**-9 * v).detach()  # gradients near the smallest normal number, 2^-14

    def gradients(terms, v):
        out, _ = select(backend)(terms, v, Mask(), 0.0, False)
        return torch.autograd.grad(2.0**-7 * out.double().sum(), (terms.q_BHTD, terms.A, terms.C))

    # gradients in float32, to see what is lost before them
    wide = {name: x.detach().float().requires_grad_() for name, x in terms.tensors().items() if name in ("A", "C")}
    found = gradients(replace(terms, **wide), small)
    exact = gradients(*in_type(terms, small, torch.float64))
    for x, y in zip(found[1:], exact[1:]):
        assert (x - y).norm() <= 0.02 * y.norm()


def test_a_torch_without_such_products_multiplies_in_float32(monkeypatch, caplog):
    class Device:
        type = "cuda"

    def without(*args, **kwargs):
        raise TypeError("baddbmm() got an unexpected keyword argument 'out_dtype'")

    monkeypatch.setattr(module, "multiply_half", without)
    monkeypatch.setattr(torch, "ones", lambda *shape, dtype, device: torch.empty(shape, dtype=dtype))
    with caplog.at_level(logging.INFO, logger=module.logger.name):
        assert not module.sums_in_float32.__wrapped__(torch.float16, Device)
    assert "are computed in float32" in caplog.text
    caplog.clear()
    monkeypatch.setattr(module, "multiply_half", lambda out, x, y, scale: out.fill_(3))
    with caplog.at_level(logging.INFO, logger=module.logger.name):
        assert not module.sums_in_float32.__wrapped__(torch.float16, Device)
    assert "computes others wrongly here" in caplog.text
    monkeypatch.undo()
    x = torch.ones(2, 2)
    assert Half.of(x.double()) is None and Half.of(x.half()) is None and Half.of(x.half(), x) is None


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_gpu_multiplies_half_precision_into_float32(dtype):
    assert module.sums_in_float32(dtype, torch.device(DEVICE))
    x, y = torch.randn(2, 3, 70, 64, device=DEVICE, dtype=dtype), torch.randn(2, 3, 64, 33, device=DEVICE, dtype=dtype)
    found = Half(dtype, scale=0.3).product(x, y)
    exact = 0.3 * (x.double() @ y.double())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)
