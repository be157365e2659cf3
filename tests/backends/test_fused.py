"""Compiled attention: every form of the terms in several tiles, dropout, threads, and machines that cannot compile."""

import math
import time
from statistics import median

import pytest
import torch
import torch.nn.functional as F
from compilers import needs_compiler
from test_terms import CASES, B, D, H, LargestTensor
from tiled import FUSED, Way, check, exact, made, pads, results, use_onednn

from fairseq_relpos.backends import Mask, fused, processor, select
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions
from fairseq_relpos.rows import ByLayer, Clipped, LogBuckets, QueryMinusKey
from fairseq_relpos.terms import Terms, evaluate

pytestmark = needs_compiler
EAGER = Way("eager", torch.float32, 0.0, ())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", ["content", "everything", "gate"])
def test_tiles_outside_the_window_are_not_read(case, causal, monkeypatch):
    """Numbers that are missing there reach no query but those that see their tile."""
    monkeypatch.setattr(fused, "SMALLEST", 32)
    terms, v, tensors = made(case, 160, 192)
    mask = Mask(causal=causal, window=20)
    expected = results(FUSED(terms, v, mask), tensors)
    with torch.no_grad():
        for x in (terms.k_BHSD, v):
            x[:, :, 160:] = math.nan  # seen by queries from 96 on, which see keys from 96 on
    out, *gradients = results(FUSED(terms, v, mask), tensors)
    for found, known in zip((out, *gradients[:3]), expected):
        assert torch.equal(found[:, :, :96], known[:, :, :96]) and found[:, :, -1].isnan().all()


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_a_narrow_window_makes_long_sequences_four_times_as_fast(causal):
    q, k, v, grad = (torch.randn(1, 2, 4096, 64, requires_grad=True) for _ in range(4))

    def seconds(window):
        begin = time.process_time()
        out = FUSED(Terms(q, k, 0.1), v, Mask(causal=causal, window=window))
        torch.autograd.grad(out, [q, k, v], grad)
        return time.process_time() - begin

    rounds = [(seconds(None), seconds(128)) for _ in range(4)]
    whole, narrow = (min(times) for times in zip(*rounds[1:]))
    assert whole >= 4 * narrow, (whole, narrow)


def test_the_dropout_mask_does_not_depend_on_lengths():
    long, short = fused.keep_mask(3, (1, 4, 90, 200), 0.3), fused.keep_mask(3, (1, 4, 50, 70), 0.3)
    assert torch.equal(long[..., :50, :70], short)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


#: row functions whose rows are shared by many neighbouring offsets, or by few, or come back; their numbers of rows
SHARED_ROWS = {
    "clipped": (Clipped(3), 7),
    "by layer": (ByLayer(5, 3), 11),
    "log buckets": (LogBuckets(12, 60), 12),
    "log buckets of DeBERTa": (QueryMinusKey(40, 16), 32),
    "one row": (torch.zeros_like, 1),
    "not monotone": (lambda offset: offset.abs().div(9, rounding_mode="floor") % 3, 3),
    "another row each time": (lambda offset: offset % 3, 3),
}


@pytest.mark.parametrize("form", ["product", "gain and other rows of keys"])
@pytest.mark.parametrize("name", SHARED_ROWS)
def test_offsets_may_share_a_row(name, form, threads, room):
    rows, count = SHARED_ROWS[name]
    calls = [((37, 37), 1, Mask(causal=True), 0.2), ((33, 151), H, Mask(pads(151)), 0.0), ((75, 41), 1, Mask(), 0.1)]
    for (tgt_len, src_len), heads, mask, dropout_p in calls:
        q, k, v = (torch.randn(B, H, n, D) for n in (tgt_len, src_len, src_len))
        tables = {"A": torch.randn(heads, count, D), "C": torch.randn(heads, count, D)}
        more = {"rows": rows, "product": form == "product"}
        if form.startswith("gain"):
            tables |= {"gain": torch.randn(heads, count), "C": torch.randn(heads, 9, D)}
            more["C_rows"] = Clipped(4)
        tensors = [x.requires_grad_() for x in (q, k, v, *tables.values())]
        terms = Terms(q, k, 0.3, **tables, **more)
        torch.manual_seed(5)
        seed = int(torch.randint(2**62, ()))
        keep = 1 - round(dropout_p * 2**16) / 2**16
        kept = fused.keep_mask(seed, (B, H, tgt_len, src_len), dropout_p) / keep
        expected = exact(terms, v, tensors, mask, kept)
        for number in (1, 2):
            threads(number)
            torch.manual_seed(5)
            check(results(FUSED(terms, v, mask, dropout_p), tensors), expected)


@pytest.mark.parametrize(("rows", "products"), [(Clipped(16), 33), (Clipped(299), 599), (lambda x: x // 100 % 2, 6)])
def test_a_row_that_neighbouring_offsets_share_is_multiplied_once(rows, products):
    q = torch.zeros(1, 1, 300, D)
    tables = fused.by_run(Terms(q, q, 0.3, rows=rows, A=torch.zeros(1, 599, D)))
    assert tables["A"].size(1) == products and "C" not in tables


@pytest.mark.parametrize("name", ["A", "C"])
def test_the_gradient_of_a_row_that_most_offsets_share_is_as_exact_as_eagers(name):
    torch.manual_seed(1)
    tensors = [torch.randn(16, 1, 256, 64, requires_grad=True) for _ in "qkv"]
    tensors.append(torch.randn(1, 3, 64, requires_grad=True))
    q, k, v, table = tensors
    terms = Terms(q, k, 0.1, rows=Clipped(1), **{name: table})
    true = exact(terms, v, tensors)[-1]
    errors = [(results(run(terms, v), tensors)[-1] - true).norm() for run in (FUSED, EAGER)]
    assert errors[0] <= 2 * errors[1]


@pytest.mark.parametrize("case", ["everything", "A x C", "bias_row reset", "gate"])
def test_ten_runs_have_the_same_bits_and_threads_the_same_result(case, threads, room):
    terms, v, tensors = made(case)

    def run():
        torch.manual_seed(2)
        return results(FUSED(terms, v, dropout_p=0.1), tensors)

    one = run()
    for number in (1, 2, 5, 16):
        threads(number)
        first = run()
        check(first, one, 1e-5)
        assert torch.equal(first[0], one[0])
        for _ in range(9):
            assert all(map(torch.equal, run(), first))


def test_missing_numbers_stay_in_their_own_row():
    terms, v, _ = made("content", learned=False)
    terms.q_BHTD[0, 1, 3] = float("nan")
    out = FUSED(terms, v)
    bad = ~out.isfinite()
    assert bad[0, 1, 3].all() and bad.sum() == D


def test_no_tensor_of_the_size_of_the_logits_is_made():
    length, heads = 300, 4
    for name in ("t5", "m1", "m3", "m4m", "deberta"):
        encoding = build(name, Dims(16, heads, length))
        q, k, v = (torch.randn(4, heads, length, 4, requires_grad=True) for _ in range(3))
        with LargestTensor() as largest:
            out = FUSED(encoding.terms(q, k, Positions.of(length, length)), v, Mask(causal=True), 0.1)
            out.sum().backward()
        assert largest.elements < length**2


def test_operands_may_lie_anywhere_in_memory():
    terms, v, tensors = made("A + C")
    expected = results(FUSED(terms, v), tensors)
    with torch.no_grad():
        moved = [x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3) for x in tensors[:2]]
        values = torch.stack([v, v], -1)[..., 0]
    copy = Terms(**{**vars(terms), "q_BHTD": moved[0].requires_grad_(), "k_BHSD": moved[1].requires_grad_()})
    values.requires_grad_()
    found = results(FUSED(copy, values), [*moved, values, *tensors[3:]])
    assert all(map(torch.equal, found, expected))


def test_weights_below_the_smallest_normal_number_are_zero():
    """CPUs are slow with denormal numbers. Nothing changes beyond 1e-38 of the values."""
    q, k = torch.zeros(1, 1, 40, 4), torch.zeros(1, 1, 40, 4)
    bias = -3.0 * torch.arange(40.0).expand(1, 1, 40, 40)
    v = torch.eye(40)[None, None].clone()
    weights = FUSED(Terms(q, k, 1.0, bias=bias), v)[0, 0, 0]
    exactly = (bias[0, 0, 0].double()).softmax(-1)
    tiny = torch.finfo(torch.float32).tiny
    assert ((weights == 0) | (weights >= tiny)).all() and (weights == 0).any()
    assert (weights - exactly).abs().max() < 2e-7 and (weights - exactly)[weights == 0].abs().max() < 2e-38


def test_float64_and_other_devices_are_refused_in_one_line():
    terms, v, _ = made("A")
    terms.q_BHTD = terms.q_BHTD.double()
    with pytest.raises(ValueError, match="attention backend fused: .*float64"):
        FUSED(terms, v)
    assert "CPU" in fused.Fused().refuses(terms, False, torch.device("cuda"))


def assert_equals_eager(terms, v, tensors):
    check(*(results(run(terms, v), tensors) for run in (FUSED, EAGER)))


def test_tensors_may_be_expanded_or_transposed():
    """Rows that share their memory, and tables in any order of dimensions."""
    S = 70
    q, v, A = torch.randn(B, H, 1, D), torch.randn(B, H, 1, D), torch.randn(H, 1, D)
    gate = torch.randn(2 * S - 1, H, D)
    leaves = [x.requires_grad_() for x in (q, v, A, gate)]
    k, expanded_v = torch.randn(B, H, S, D), v.expand(B, H, S, D)
    assert_equals_eager(Terms(q.expand(B, H, S, D), k, 0.3, A=A.expand(H, 2 * S - 1, D)), expanded_v, leaves[:3])
    assert_equals_eager(Terms(k, k, 0.3, gate=gate.transpose(0, 1)), expanded_v, [v, gate])


def test_the_gradient_of_the_output_may_be_expanded():
    terms, v, tensors = made("A + C")
    found, expected = (torch.autograd.grad(run(terms, v).sum(2).sin().sum(), tensors) for run in (FUSED, EAGER))
    check(found, expected)


@pytest.mark.parametrize("shape", [(1, 1, 40, 1), (1, H, 1, 70), (B, 1, 1, 1)])
def test_a_bias_may_have_one_column_or_row(shape):
    terms, v, tensors = made("content")
    assert_equals_eager(Terms(terms.q_BHTD, terms.k_BHSD, 0.3, bias=torch.randn(shape)), v, tensors)


def test_a_window_of_more_queries_than_keys():
    """The queries are the last slots, so the first of them come before all keys."""
    q, k = torch.randn(B, H, 6, D), torch.randn(B, H, 3, D)
    far_TS = torch.tensor([[abs(j - (i - 3)) > 2 for j in range(3)] for i in range(6)])
    expected = EAGER(Terms(q, k, 0.3), k, Mask(extra=far_TS))
    for backend in ("fused", "eager", "lean", "sdpa"):
        found, _ = select(backend)(Terms(q, k, 0.3), k, Mask(window=2), 0.0, False)
        torch.testing.assert_close(found[:, :, 1:], expected[:, :, 1:])  # no key is near the first one


@pytest.mark.parametrize("case", ["content", "everything"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_under_autocast_has_the_gradients_of_float32(case, dtype, room):
    """As under --amp, where q, k and v come from products in bfloat16, and with --bf16 or --fp16."""
    terms, v, tensors = made(case)
    small = [x.detach().to(dtype).requires_grad_() for x in (terms.q_BHTD, terms.k_BHSD, v)]
    terms.q_BHTD, terms.k_BHSD, v = small
    tensors = [*small, *tensors[3:]]
    with torch.autocast("cpu", torch.bfloat16):
        out = FUSED(terms, v)
    assert out.dtype == dtype
    found = results(out, tensors)
    assert [x.dtype for x in found] == [dtype, *(x.dtype for x in tensors)]
    # what is rounded at the end, and the gradient of a rounded output
    check([x.float() for x in found], exact(terms, v, tensors), 2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("maker, found", [("AuthenticAMD", True), ("GenuineIntel", False), ("", False)])
def test_the_processors_maker(maker, found, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nvendor_id\t: {maker}\nflags\t\t: fpu avx512f avx512dq\n")
    assert processor.has_avx512_but_is_not_intel(cpuinfo) == found
    cpuinfo.write_text(f"processor : 0\nvendor_id\t: {maker}\nflags\t\t: fpu avx2\n")
    assert not processor.has_avx512_but_is_not_intel(cpuinfo)
    assert not processor.has_avx512_but_is_not_intel(tmp_path / "none")


def test_without_onednn_the_products_are_those_of_the_blas():
    """Nor with other lengths than multiples of 32: torch never frees the kernel of a set of sizes."""
    with torch.backends.mkldnn.flags(enabled=False):
        assert not {fused.products(True, 64, 64)[name] for name in ("brgemm", "half_brgemm")} - {None}
    assert not {fused.products(True, 64, 65)[name] for name in ("brgemm", "half_brgemm")} - {None}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_that_onednn_refuses_is_an_error(monkeypatch, threads):
    use_onednn(monkeypatch, "half_brgemm")
    x = torch.randn(2, 2, 64, 64).bfloat16()
    before, switched = torch.get_num_threads(), fused.products

    def too_late(*args):
        found = switched(*args)
        torch._C._set_mkldnn_enabled(False)
        return found

    monkeypatch.setattr(fused, "products", too_late)
    torch.set_num_threads(threads)
    try:
        with pytest.raises(RuntimeError, match="oneDNN"):
            FUSED(Terms(x, x, 1.0), x)
    finally:
        torch._C._set_mkldnn_enabled(True)
        torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES)
def test_products_of_bfloat16_keep_what_bfloat16_keeps(case, monkeypatch):
    use_onednn(monkeypatch, "half_brgemm")
    torch.manual_seed(1)
    terms, v, tensors = made(case)
    small = [x.detach().bfloat16().requires_grad_() for x in (terms.q_BHTD, terms.k_BHSD, v)]
    terms.q_BHTD, terms.k_BHSD, v = small
    tensors = [*small, *tensors[3:]]
    found = results(FUSED(terms, v), tensors)
    # the operands of each product are rounded; with ``product`` three rounded factors make a logit
    times = 8 if terms.product else 4
    check([x.float() for x in found], exact(terms, v, tensors), times * torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("scale", [0.125, 128**-0.5])
def test_products_of_bfloat16_are_as_exact_as_torchs_own(monkeypatch, scale):
    """Without positions, beside scaled_dot_product_attention, also where the scale is no power of 2."""
    use_onednn(monkeypatch, "half_brgemm")
    torch.manual_seed(1)
    q, k, v = ((1.7 * torch.randn(B, H, 130, 64)).bfloat16().requires_grad_() for _ in range(3))
    expected = [x.detach() for x in exact(Terms(q, k, scale), v, [q, k, v], Mask())]
    mine, torchs = (
        [(x.detach().float() - y).norm().item() for x, y in zip(results(out, [q, k, v]), expected)]
        for out in (FUSED(Terms(q, k, scale), v), F.scaled_dot_product_attention(q, k, v, scale=scale))
    )
    assert all(x <= 1.2 * y for x, y in zip(mine, torchs)), (mine, torchs)


def errors(name, seed):
    """{tensor: [squared error of fused, of plain PyTorch]} of the output and of all gradients, against float64."""
    torch.manual_seed(seed)
    encoding = build(name, Dims(64, 8, 64))
    inputs = torch.randn(4, 2, 8, 64, 8)

    def results(attend, encoding, inputs):
        q, k, v = (x.clone().requires_grad_() for x in inputs[:3])
        out = attend(encoding.terms(q, k, Positions.of(64, 64)), v)
        named = {"q": q, "k": k, "v": v, **dict(encoding.named_parameters())}
        return {"out": out.detach(), **dict(zip(named, torch.autograd.grad(out, named.values(), inputs[3])))}

    def plain(terms, v):
        return evaluate(terms).softmax(-1) @ v

    found = (results(FUSED, encoding, inputs), results(plain, encoding, inputs))
    expected = results(plain, encoding.double(), inputs.double())
    return {name: [float((each[name] - x).square().sum()) for each in found] for name, x in expected.items()}


FEW_NUMBERS = [pytest.param(name, 45, marks=pytest.mark.slow) for name in ("at5", "fire")]


@pytest.mark.parametrize("name, draws", [*FEW_NUMBERS, ("t5", 3), ("tupe_r", 3), ("m4", 1), ("m3", 1)])
def test_errors_are_at_most_twice_those_of_plain_pytorch(name, draws):
    """In the median over draws: a gradient of few numbers, such as at5's gamma (one a head), is a long sum whose parts
    cancel. In one draw the error of such a sum is a matter of luck for both, and their ratio anything from 0.03 to
    30."""
    pairs = {}
    for seed in range(draws):
        for tensor, pair in errors(name, seed).items():
            pairs.setdefault(tensor, []).append(pair)
    for tensor, found in pairs.items():
        mine, plain = map(median, zip(*found))
        assert mine <= 2**2 * plain, (tensor, (mine / plain) ** 0.5)
