"""Every backend against eager, which evaluates the definition: outputs and all gradients, for
every registered encoding, at lengths and under masks where indices go wrong."""

import copy

import pytest
import torch
from compilers import needs_compiler
from loops import dims_for, positions_of, random_qk, scale_up

from fairseq_relpos.backends import BACKENDS, Mask, select
from fairseq_relpos.encodings import ENCODINGS, Dims, build

# (T, S), padding on the side, causal, an additive mask of the caller's
CALLS = [
    ((1, 1), None, False, False),
    ((7, 7), "left", False, False),
    ((63, 63), "right", True, False),
    ((63, 63), "left", True, False),
    ((7, 63), "right", False, True),
    ((1, 130), "left", False, False),
    ((130, 130), None, True, False),
    ((130, 130), "right", False, False),
]


def attention(backend, encoding, lengths, padding, causal, extra, dtype, window=None):
    """[output, gradients of q, k, v and of every parameter]. extra: a mask, or True for one that is added."""
    torch.manual_seed(1)
    # the same numbers in every type
    q, k = random_qk(encoding.dims, *lengths, dtype=torch.float32)
    q, k, v = q.to(dtype), k.to(dtype), torch.randn_like(k).to(dtype)
    for x in (q, k, v):
        x.requires_grad_()
    src_len = lengths[1]
    padding_BS = torch.zeros(2, src_len, dtype=torch.bool)
    if padding == "right":
        padding_BS[1, src_len // 2 + 1 :] = True
    elif padding == "left":
        padding_BS[1, : src_len // 2] = True
    if extra is True:
        extra = torch.randn(lengths).to(dtype)
    mask = Mask(padding_BS, causal, extra if torch.is_tensor(extra) else None, window=window)
    encoding.zero_grad()
    out, _ = select(backend)(
        encoding.terms(q, k, positions_of(encoding.dims, *lengths, padding_BS)), v, mask, 0.0, False
    )
    # a pad to the left sees no key at all: every backend makes a mean of all values, and torch's
    # fused ones have no gradient for it. No loss reads it.
    seen_BT = ~padding_BS[:, src_len - lengths[0] :]
    out = out * seen_BT[:, None, :, None]
    out.square().sum().backward()
    return [out, *(x.grad for x in (q, k, v, *encoding.parameters()) if x.grad is not None)]


def is_refused(backend, encoding, dtype):
    """Whether the backend does not serve the encoding; it says so in one line."""
    q, k = random_qk(encoding.dims, 2, 2, dtype=dtype)
    terms = encoding.terms(q, k, positions_of(encoding.dims, 2, 2))
    if BACKENDS[backend]().refuses(terms, False) is None:
        return False
    with pytest.raises(ValueError, match=f"^attention backend {backend}: .*use auto or"):
        select(backend)(terms, k, Mask(), 0.0, False)
    return True


@pytest.mark.parametrize("name", sorted(ENCODINGS))
@pytest.mark.parametrize("backend", ["sdpa", "lean"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_outputs_and_gradients_are_eagers(name, backend, dtype):
    tolerance = 1e-10 if dtype == torch.float64 else 5e-5
    for lengths, padding, causal, extra in CALLS:
        encoding = scale_up(build(name, dims_for(name, 24, 3, 130, causal)), 0.3).to(dtype)
        if is_refused(backend, encoding, dtype):
            return
        call = (encoding, lengths, padding, causal, extra, dtype)
        for found, expected in zip(attention(backend, *call), attention("eager", *call), strict=True):
            size = max(1, expected.abs().max())
            assert (found - expected).abs().max() <= tolerance * size, (lengths, padding, causal)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
@pytest.mark.parametrize("backend", ["eager", "sdpa", "lean", pytest.param("fused", marks=needs_compiler)])
def test_a_window_is_a_plain_mask(name, backend, monkeypatch):
    monkeypatch.setattr("fairseq_relpos.backends.fused.SMALLEST", 32)  # several tiles
    dtype = torch.float32 if backend == "fused" else torch.float64
    for lengths, padding, causal, window in ((63, 63), "left", False, 4), ((80, 130), "right", True, 33):
        encoding = scale_up(build(name, dims_for(name, 24, 3, 130, causal)), 0.3).to(dtype)
        if is_refused(backend, encoding, dtype):
            return
        # position of the first query: tgt_len queries are the last of src_len keys
        first = lengths[1] - lengths[0]
        far = [[abs(j - first - i) > window for j in range(lengths[1])] for i in range(lengths[0])]
        found = attention(backend, encoding, lengths, padding, causal, False, dtype, window)
        expected = attention(backend, encoding, lengths, padding, causal, torch.tensor(far), dtype)
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            # tiles of other sizes round their gradients otherwise; some are 0, as the sum of many that cancel
            in_float32 = 5e-5 if number else 1e-6
            tolerance = 1e-10 if dtype == torch.float64 else in_float32
            assert (one - other).abs().max() <= tolerance * max(1, other.abs().max()), (lengths, padding, causal)


@needs_compiler
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_compiled_attention_is_as_exact_as_eager(name):
    """Both in float32, against eager in float64. Sums are in another order here, so where eager loses bits the two
    need not agree."""
    for lengths, padding, causal, extra in CALLS:
        encoding = scale_up(build(name, dims_for(name, 24, 3, 130, causal)), 0.3)
        runs = []
        for backend, dtype in (("fused", torch.float32), ("eager", torch.float32), ("eager", torch.float64)):
            call = (copy.deepcopy(encoding).to(dtype), lengths, padding, causal, extra, dtype)
            runs.append(attention(backend, *call))
        for found, eagers, exact in zip(*runs, strict=True):
            error, eagers_error = ((x - exact).abs().max() for x in (found, eagers))
            assert error <= 2 * eagers_error + 5e-5 * max(1, exact.abs().max()), (lengths, padding, causal)


@pytest.mark.parametrize("name", ["t5", "tupe_r", "m2", "shaw", "m4_reset", "m4m", "deberta"])
@pytest.mark.parametrize("backend", ["lean", pytest.param("fused", marks=needs_compiler)])
def test_they_equal_eager_at_512(backend, name):
    call = (scale_up(build(name, Dims(16, 2, 512)), 0.3), (512, 512), "right", False, False)
    pairs = zip(attention(backend, *call, torch.float32), attention("eager", *call, torch.float32))
    for found, expected in pairs:
        assert (found - expected).abs().max() <= 1e-4 * max(1, expected.abs().max())


@pytest.mark.parametrize("backend", ["eager", "lean"])
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_bfloat16_is_at_most_twice_as_wrong_as_plain_attention_in_bfloat16(name, backend):
    std = 0.5 if name in ("m3", "m4m", "abs_m4m") else 1.0
    q, k, v = ((std * torch.randn(4, 3, 63, 8)).bfloat16().requires_grad_() for _ in range(3))
    weights = torch.randn(4, 3, 63, 8)
    encoding = scale_up(build(name, dims_for(name, 24, 3, 63)), 0.3).bfloat16()

    def plain(q, k, v):
        return (q @ k.mT * 8**-0.5).softmax(-1) @ v

    def positional(q, k, v):
        terms = encoding.to(q.dtype).terms(q, k, positions_of(encoding.dims, 63, 63))
        return select("eager" if q.dtype == torch.float64 else backend)(terms, v, Mask(), 0.0, False)[0]

    def results(attend, *inputs):
        out = attend(*inputs)
        return [out, *torch.autograd.grad((weights.to(out.dtype) * out).sum(), inputs)]

    def errors(attend):
        exact = results(attend, *(x.detach().double().requires_grad_() for x in (q, k, v)))
        return [(x.double() - y).abs().max() / y.abs().max() for x, y in zip(results(attend, q, k, v), exact)]

    for mine, plains in zip(errors(positional), errors(plain)):
        assert mine <= 2 * plains
