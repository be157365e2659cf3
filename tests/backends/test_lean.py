"""Promises of the lean backend beside eager's results: nothing kept, exact dropout."""

import pytest
import torch
from test_terms import ROWS, D, H, LargestTensor
from tiled import LEAN, Way, check, made, pads, results
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from fairseq_relpos.backends import Mask, lean, select
from fairseq_relpos.backends.base import normal
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.nn import RelPosSelfAttention
from fairseq_relpos.positions import Positions
from fairseq_relpos.rows import Clipped, Distance, LogBuckets, QueryMinusKey
from fairseq_relpos.terms import Terms

EAGER = Way("eager", torch.float64, 0.0, ())
SEVEN = {"tgt_len": 7, "src_len": 7, "dtype": torch.float64}


@pytest.mark.parametrize("case", ["A x C", "bias_row reset"])
def test_gradcheck(case):
    terms, v, tensors = made(case, **SEVEN)
    names = list(terms.tensors())

    def output(v, *tensors):
        made_of = dict(zip(names, tensors))
        return LEAN(Terms(scale=0.3, rows=ROWS, product=terms.product, **made_of), v, Mask(pads(7)))

    assert torch.autograd.gradcheck(output, (v, *terms.tensors().values()))


def test_recomputed_layers_meet_the_same_dropout():
    terms, v, tensors = made("content", **SEVEN)
    found = []
    for run in (lambda f, *x: f(*x), lambda f, *x: checkpoint(f, *x, use_reentrant=False)):
        torch.manual_seed(5)
        out = run(lambda v: LEAN(terms, v, dropout_p=0.3), v)
        found.append(results(out, tensors))
    check(*found, LEAN.tolerance)


@pytest.mark.parametrize("name", ["t5", "tupe_r", "m1", "m3", "m4m", "deberta"])
def test_nothing_of_the_size_of_the_logits_is_kept_or_made(name, monkeypatch):
    length, heads = 64, 4
    monkeypatch.setattr(lean, "SLICE_ON_CPU", 2 * length**2)
    encoding = build(name, Dims(16, heads, length))
    q, k, v = (torch.randn(4, heads, length, 4, requires_grad=True) for _ in range(3))
    saved = []
    with LargestTensor() as largest:
        with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
            terms = encoding.terms(q, k, Positions.of(length, length))
            out = LEAN(terms, v, dropout_p=0.1)
        out.sum().backward()
    assert max(saved) <= heads * length**2
    assert largest.elements <= heads * length**2


@pytest.mark.parametrize("name", ["t5", "shaw", "m1", "m4m"])
def test_a_long_sequence_is_cut_into_slices_of_queries(name, monkeypatch):
    length = 256
    monkeypatch.setattr(lean, "SLICE_ON_CPU", 2**13)
    encoding = build(name, Dims(4, 1, length))
    q, k, v = (torch.randn(1, 1, length, 4, requires_grad=True) for _ in range(3))
    with LargestTensor() as largest:
        LEAN(encoding.terms(q, k, Positions.of(length, length)), v, dropout_p=0.1).sum().backward()
    assert largest.elements <= 3 * 2**13  # of a slice with what its band adds


@pytest.mark.parametrize("name", ["t5", "transformer_xl"])
def test_a_mask_that_learns_and_a_bias_have_gradients_of_their_own(name, monkeypatch):
    length = 16
    monkeypatch.setattr(lean, "SLICE_ON_CPU", length**2)  # a head of a sentence
    found = {}
    for backend in ("eager", "lean"):
        torch.manual_seed(1)
        attention = RelPosSelfAttention(8, 2, name, max_len=length, backend=backend).double()
        x, mask = torch.randn(3, length, 8).double(), torch.randn(length, length).double().requires_grad_()
        out = attention(x, attn_mask=mask)[0]
        (out * torch.randn_like(out)).sum().backward()
        found[backend] = [mask.grad, *(parameter.grad for parameter in attention.parameters())]
    for ours, theirs in zip(found["lean"], found["eager"]):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_without_gradients_the_output_is_the_same_and_needs_none():
    terms, v, _ = made("everything", **SEVEN)
    with torch.no_grad():
        out = LEAN(terms, v)
    assert not out.requires_grad
    assert torch.equal(out, LEAN(terms, v))


def test_attention_under_autocast_is_in_full_precision():
    terms, v, tensors = made("everything", 7, 7)
    expected = results(LEAN(terms, v), tensors)
    with torch.autocast("cpu", torch.bfloat16):
        found = results(LEAN(terms, v), tensors)
    check(found, expected, 1e-6)


def test_a_batch_of_one_and_queries_at_the_end():
    terms, v, _ = made("everything", **SEVEN, learned=False)
    few = Terms(**{**vars(terms), "q_BHTD": terms.q_BHTD[:1, :, -3:], "k_BHSD": terms.k_BHSD[:1]})
    few.q_BHTD.requires_grad_()
    found, expected = (results(each(few, v[:1]), [few.q_BHTD]) for each in (LEAN, EAGER))
    check(found, expected, LEAN.tolerance)


def test_slices_draw_the_mask_of_the_whole():
    """The bits of a sentence and head depend on the seed alone, however work is sliced."""
    whole = lean.keep_mask(3, (4, 2, 5, 7), 0.3)
    mask = lean._DropoutMask(3, round(0.3 * 2**16), "cpu")
    for head in range(2):
        for first in (0, 2):
            part = mask.next(torch.empty(2, 1, 5, 7))
            assert torch.equal(part, whole[first : first + 2, head : head + 1])


@pytest.mark.parametrize("dropout_p", [0.0, 0.1])
def test_numbers_below_the_smallest_normal_one_are_zero_and_nothing_else_changes(dropout_p, monkeypatch):
    """alibi, whose far keys have such weights."""
    monkeypatch.setattr(lean, "SLICE_ON_CPU", 10**9)
    length, tiny = 420, torch.finfo(torch.float32).tiny
    q, k, v = (torch.randn(1, 4, length, 8, requires_grad=True) for _ in range(3))
    encoding = build("alibi", Dims(32, 4, length))
    cleared = []

    def attention(clear):
        monkeypatch.setattr(lean, "without_denormals", clear)
        torch.manual_seed(5)  # of dropout
        return results(LEAN(encoding.terms(q, k, Positions.of(length, length)), v, dropout_p=dropout_p), [q, k, v])

    def clear(x, real=lean.without_denormals):
        before = x.clone()
        assert real(x) is x
        small = before.abs() <= tiny
        cleared.append(int((small & (before != 0)).sum()))
        assert not x[small].any() and torch.equal(x[~small], before[~small])
        return x

    found, expected = attention(clear), attention(lambda x: x)
    assert min(cleared) > 0  # weights in both directions, and gradients of logits
    largest = max(float(x.detach().abs().max()) for x in (q, k, v))
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=10 * largest * length * tiny)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_eager_clears_weights_and_gradients_of_logits_too(dtype):
    tiny = torch.finfo(dtype).tiny
    x = torch.tensor([1.0, tiny, -tiny / 4, float("nan")], dtype=dtype, requires_grad=True)
    found = normal(x)
    assert str(found.tolist()) == "[1.0, 0.0, 0.0, nan]"
    found.backward(torch.tensor([tiny / 8, 3.0, 2.0, 1.0], dtype=dtype))
    assert x.grad.tolist() == [0.0, 3.0, 2.0, 1.0]


def test_the_far_keys_of_alibi_cost_eager_no_denormal_numbers(monkeypatch):
    length, tiny = 420, torch.finfo(torch.float32).tiny
    q, k, v = (torch.randn(1, 4, length, 8, requires_grad=True) for _ in range(3))
    terms = build("alibi", Dims(32, 4, length)).terms(q, k, Positions.of(length, length))
    out, weights = select("eager")(terms, v, Mask(), 0.0, True)
    assert not ((weights != 0) & (weights < tiny)).any() and (weights == 0).any()
    found = results(out, [q, k, v])
    monkeypatch.setattr("fairseq_relpos.backends.eager.normal", lambda x: x)
    plain, weights = select("eager")(terms, v, Mask(), 0.0, True)
    assert ((weights != 0) & (weights < tiny)).any()
    largest = max(float(x.detach().abs().max()) for x in (q, k, v))
    for x, y in zip(found, results(plain, [q, k, v]), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=10 * largest * length * tiny)


def test_nan_is_not_cleared():
    x = torch.tensor([float("nan"), 1e-40, -1e-40, 1.0])
    assert str(lean.without_denormals(x).tolist()) == "[nan, 0.0, 0.0, 1.0]"


def clipped_terms(case, tgt_len, src_len, rows, C_rows=None):
    """Terms of a form with tables that are clipped, and v."""
    draw = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=draw).requires_grad_()

    q, k, v = random(2, H, tgt_len, D), random(2, H, src_len, D), random(2, H, src_len, D)
    tables = {name: random(H, rows.count, D) for name in ("A", "C") if name in case}
    return Terms(q, k, 0.3, rows=rows, C_rows=C_rows, product="x" in case, **tables), v


@pytest.mark.parametrize("room", [10**9, 2**13], ids=["one slice", "queries"])
@pytest.mark.parametrize("case", ["A + C", "A x C"])
@pytest.mark.parametrize("rows", [Clipped(3), LogBuckets(8, 20), LogBuckets(8, 20, causal=True), Distance(90)])
@pytest.mark.parametrize("lengths", [(150, 150), (70, 200), (200, 70)])
def test_far_keys_of_clipped_tables_are_exact(case, rows, lengths, room, monkeypatch):
    monkeypatch.setattr(lean, "SLICE_ON_CPU", room)
    terms, v = clipped_terms(case, *lengths, rows)
    inputs = [*terms.tensors().values(), v]
    found, expected = (results(each(terms, v), inputs) for each in (LEAN, EAGER))
    check(found, expected, LEAN.tolerance)


def test_key_rows_of_their_own_have_far_keys_of_their_own():
    terms, v = clipped_terms("A + C", 140, 150, Clipped(3), C_rows=QueryMinusKey(3))
    terms.C = terms.C[:, :6].detach().requires_grad_()
    inputs = [*terms.tensors().values(), v]
    found, expected = (results(each(terms, v), inputs) for each in (LEAN, EAGER))
    check(found, expected, LEAN.tolerance)


def test_far_keys_of_clipped_tables_cost_one_product_a_query():
    def operations(case, rows):
        terms, v = clipped_terms(case, 512, 512, rows)
        with FlopCounterMode(display=False) as counter:
            LEAN(terms, v).sum().backward()
        return counter.get_total_flops()

    assert operations("A", Clipped(16)) < 1.15 * operations("no table", Clipped(16))
