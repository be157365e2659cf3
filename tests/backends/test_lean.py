"""What the lean backend promises beside eager's results: nothing kept, exact dropout."""

import pytest
import torch
from loops import dims_for, positions_of, scale_up
from test_terms import CASES, ROWS, LargestTensor
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from fairseq_relpos.backends import Mask, lean, select
from fairseq_relpos.backends.base import normal
from fairseq_relpos.encodings import ENCODINGS, Dims, build
from fairseq_relpos.positions import Positions
from fairseq_relpos.rows import Clipped, Distance, LogBuckets, QueryMinusKey
from fairseq_relpos.terms import Terms, evaluate

B, H, T, D = 3, 3, 7, 4
LEAN, EAGER = select("lean"), select("eager")


@pytest.fixture(params=[10**9, 100, 1], ids=["one slice", "sentences", "queries"])
def room(request, monkeypatch):
    monkeypatch.setattr(lean, "SLICE_ON_CPU", request.param)
    monkeypatch.setattr(lean, "LEAST_ROWS", 4)


def random_terms(case, dtype=torch.float64, learned=True):
    """Terms of a form, and its tensors: operands first."""
    tables = {name: x.to(dtype).clone() if torch.is_tensor(x) else x for name, x in CASES[case].items()}
    q, k, v = (torch.randn(B, H, T, D, dtype=dtype) for _ in range(3))
    tensors = [q, k, v, *(x for x in tables.values() if torch.is_tensor(x))]
    for x in tensors:
        x.requires_grad_(learned)
    return Terms(q, k, 0.3, rows=ROWS, **tables), v, tensors


def padding():
    padding_BS = torch.zeros(B, T, dtype=torch.bool)
    padding_BS[1, 4:] = True
    return padding_BS


def results(out, tensors):
    torch.manual_seed(3)
    weights = torch.randn(out.shape, dtype=out.dtype)
    return [out, *torch.autograd.grad((weights * out).sum(), tensors)]


def check(found, expected, tolerance=1e-11):
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    "mask",
    [Mask(), Mask(padding()), Mask(padding().flip(1), causal=True)],
    ids=["all seen", "padding", "rows without a key"],
)
@pytest.mark.parametrize("case", CASES)
def test_every_form_of_terms_has_eagers_gradients(case, mask, room):
    terms, v, tensors = random_terms(case)
    found, expected = (results(b(terms, v, mask, 0.0, False)[0], tensors) for b in (LEAN, EAGER))
    check(found, expected)


@pytest.mark.parametrize("cls", [False, True])
@pytest.mark.parametrize("shape", [(1, H), (B, H), (1, 1), (B, 1)])
def test_a_bias_may_be_one_for_all_sentences_or_heads(shape, cls, room):
    terms, v, tensors = random_terms("bias_row reset")
    terms.bias = torch.randn(*shape, T, T, dtype=torch.float64, requires_grad=True)
    if cls:
        terms.cls_BS = torch.eye(B, T).bool()
    tensors.append(terms.bias)
    found, expected = (results(b(terms, v, Mask(), 0.0, False)[0], tensors) for b in (LEAN, EAGER))
    check(found, expected)


@pytest.mark.parametrize("shape", [(T, T), (B * H, T, T)])
def test_a_callers_own_mask_may_be_learned(shape, room):
    terms, v, tensors = random_terms("A")
    mask = Mask(padding(), extra=torch.randn(shape, dtype=torch.float64, requires_grad=True))
    tensors.append(mask.extra)
    found, expected = (results(b(terms, v, mask, 0.0, False)[0], tensors) for b in (LEAN, EAGER))
    check(found, expected)


@pytest.mark.parametrize("case", ["A x C", "bias_row reset"])
def test_gradcheck(case):
    terms, v, tensors = random_terms(case)
    names = [name for name, x in terms.tensors().items()]

    def output(v, *tensors):
        return LEAN(
            Terms(scale=0.3, rows=ROWS, product=terms.product, **dict(zip(names, tensors))),
            v,
            Mask(padding()),
            0.0,
            False,
        )[0]

    assert torch.autograd.gradcheck(output, (v, *terms.tensors().values()))


@pytest.mark.parametrize("learned", ["q_BHTD", "A", "bias_row", "v"])
def test_a_frozen_input_is_left_alone(learned, room):
    terms, v, tensors = random_terms("everything", learned=False)
    x = v if learned == "v" else getattr(terms, learned)
    x.requires_grad_()
    found, expected = (results(b(terms, v, Mask(), 0.0, False)[0], [x]) for b in (LEAN, EAGER))
    check(found, expected)


@pytest.mark.parametrize("dropout_p", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("case", ["content", "bias_row reset", "everything"])
def test_dropout_is_eager_with_the_same_mask(case, dropout_p, room):
    terms, v, tensors = random_terms(case)
    torch.manual_seed(5)
    found = results(LEAN(terms, v, Mask(padding()), dropout_p, False)[0], tensors)
    torch.manual_seed(5)
    seed = int(torch.randint(2**62, ()))
    keep = 1 - round(dropout_p * 2**16) / 2**16
    kept = lean.keep_mask(seed, (B, H, T, T), dropout_p, torch.float64) if keep else 0.0
    e = evaluate(terms) + Mask(padding()).additive(terms, torch.float64)
    expected = results((e.softmax(-1) * kept / (keep or 1)) @ v, tensors)
    check(found, expected)


def test_the_dropout_mask_keeps_what_it_promises():
    n = 2**22
    for dropout_p in (0.1, 0.5, 2**-16):
        kept = lean.keep_mask(11, (8, 8, 256, 256), dropout_p)
        assert set(kept.unique().tolist()) == {0.0, 1.0}
        dropped = round(dropout_p * 2**16) / 2**16
        error = 5 * (dropped * (1 - dropped) / n) ** 0.5
        assert abs(1 - kept.mean().item() - dropped) < error
    # no bit is worse than the others, no sentence or head has another's mask
    kept = lean.keep_mask(12, (8, 8, 256, 256), 0.5)
    for dim in range(4):
        other = [d for d in range(4) if d != dim]
        assert (kept.mean(other) - 0.5).abs().max() < 5 * 0.5 / (n / kept.size(dim)) ** 0.5
    for step in range(4):
        assert abs(kept.flatten()[step::4].mean() - 0.5) < 5 * 0.5 / (n / 4) ** 0.5
    pairs = kept.flatten(0, 1).flatten(1) - 0.5
    correlation = 4 * (pairs @ pairs.mT / pairs.size(1)).fill_diagonal_(0)
    assert correlation.abs().max() < 5 / 256


def test_a_seed_decides_everything_and_each_call_draws_its_own():
    terms, v, tensors = random_terms("A + C", torch.float32)
    runs = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        both = [LEAN(terms, v, Mask(), 0.2, False)[0] for _ in range(2)]
        runs.append([results(out, tensors) for out in both])
    for x, y in zip(sum(runs[0], []), sum(runs[1], [])):
        assert torch.equal(x, y)
    assert not torch.equal(runs[0][0][0], runs[0][1][0])
    assert not torch.equal(runs[0][0][0], runs[2][0][0])


def test_recomputed_layers_meet_the_same_dropout():
    terms, v, tensors = random_terms("content")
    found = []
    for run in (lambda f, *x: f(*x), lambda f, *x: checkpoint(f, *x, use_reentrant=False)):
        torch.manual_seed(5)
        out = run(lambda v: LEAN(terms, v, Mask(), 0.3, False)[0], v)
        found.append(results(out, tensors))
    check(*found)


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
            out, _ = LEAN(terms, v, Mask(), 0.1, False)
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
        LEAN(encoding.terms(q, k, Positions.of(length, length)), v, Mask(), 0.1, False)[0].sum().backward()
    assert largest.elements <= 3 * 2**13  # of a slice with what its band adds


@pytest.mark.parametrize("case", CASES)
def test_unwritten_memory_never_shows(case, monkeypatch, room):
    terms, v, tensors = random_terms(case)
    expected = results(EAGER(terms, v, Mask(padding()), 0.0, False)[0], tensors)

    def poisoned(make):
        def made(*args, **kwargs):
            x = make(*args, **kwargs)
            return x.fill_(float("nan") if x.is_floating_point() else 77)

        return made

    monkeypatch.setattr(torch, "empty", poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poisoned(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty))
    check(results(LEAN(terms, v, Mask(padding()), 0.0, False)[0], tensors), expected)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_bfloat16_is_at_most_twice_as_wrong_as_plain_attention_in_bfloat16(name):
    std = 0.5 if name in ("m3", "m4m", "abs_m4m") else 1.0
    q, k, v = ((std * torch.randn(4, 3, 63, 8)).bfloat16().requires_grad_() for _ in range(3))
    encoding = scale_up(build(name, dims_for(name, 24, 3, 63)), 0.3).bfloat16()

    def plain(q, k, v):
        return (q @ k.mT * 8**-0.5).softmax(-1) @ v

    def positional(q, k, v):
        terms = encoding.to(q.dtype).terms(q, k, positions_of(encoding.dims, 63, 63))
        backend = EAGER if q.dtype == torch.float64 else LEAN
        return backend(terms, v, Mask(), 0.0, False)[0]

    def errors(attention):
        wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
        exact, found = results(attention(*wide), wide), results(attention(q, k, v), [q, k, v])
        return [(x.double() - y).abs().max() / y.abs().max() for x, y in zip(found, exact)]

    for mine, plains in zip(errors(positional), errors(plain)):
        assert mine <= 2 * plains


def test_without_gradients_the_output_is_the_same_and_needs_none():
    terms, v, _ = random_terms("everything")
    with torch.no_grad():
        out = LEAN(terms, v, Mask(), 0.0, False)[0]
    assert not out.requires_grad
    assert torch.equal(out, LEAN(terms, v, Mask(), 0.0, False)[0])


def test_weights_that_are_asked_for_are_eagers():
    terms, v, _ = random_terms("everything")
    out, weights = LEAN(terms, v, Mask(padding()), 0.0, True)
    torch.testing.assert_close(weights @ v, out)


def test_attention_under_autocast_is_in_full_precision():
    terms, v, tensors = random_terms("everything", torch.float32)
    expected = results(LEAN(terms, v, Mask(), 0.0, False)[0], tensors)
    with torch.autocast("cpu", torch.bfloat16):
        found = results(LEAN(terms, v, Mask(), 0.0, False)[0], tensors)
    check(found, expected, 1e-6)


def test_a_batch_of_one_and_queries_at_the_end():
    terms, v, _ = random_terms("everything", learned=False)
    few = Terms(**{**vars(terms), "q_BHTD": terms.q_BHTD[:1, :, -3:], "k_BHSD": terms.k_BHSD[:1]})
    few.q_BHTD.requires_grad_()
    found, expected = (results(b(few, v[:1], Mask(), 0.0, False)[0], [few.q_BHTD]) for b in (LEAN, EAGER))
    check(found, expected)


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
        out, _ = LEAN(encoding.terms(q, k, Positions.of(length, length)), v, Mask(), dropout_p, False)
        return results(out, [q, k, v])

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
    found, expected = (results(b(terms, v, Mask(), 0.0, False)[0], inputs) for b in (LEAN, EAGER))
    check(found, expected)


def test_key_rows_of_their_own_have_far_keys_of_their_own():
    terms, v = clipped_terms("A + C", 140, 150, Clipped(3), C_rows=QueryMinusKey(3))
    terms.C = terms.C[:, :6].detach().requires_grad_()
    inputs = [*terms.tensors().values(), v]
    found, expected = (results(b(terms, v, Mask(), 0.0, False)[0], inputs) for b in (LEAN, EAGER))
    check(found, expected)


def test_far_keys_of_clipped_tables_cost_one_product_a_query():
    def operations(case, rows):
        terms, v = clipped_terms(case, 512, 512, rows)
        with FlopCounterMode(display=False) as counter:
            LEAN(terms, v, Mask(), 0.0, False)[0].sum().backward()
        return counter.get_total_flops()

    assert operations("A", Clipped(16)) < 1.15 * operations("no table", Clipped(16))
