"""The fused kernels against eager, outputs and gradients: on a GPU, or in Triton's interpreter."""

import math
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from loops import dims_for, positions_of, random_qk, scale_up
from test_terms import LargestTensor
from tiled import poison

from fairseq_relpos.backends import Mask, self_check
from fairseq_relpos.backends import triton as backend
from fairseq_relpos.backends.eager import Eager
from fairseq_relpos.backends.lean import groups
from fairseq_relpos.backends.triton import Triton
from fairseq_relpos.encodings import ENCODINGS, build
from fairseq_relpos.rows import Clipped, LogBuckets
from fairseq_relpos.terms import Terms, by_offset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def interpreter():
    """Without a GPU, Triton is made to interpret its kernels, which it decides on import. For
    these tests alone: elsewhere the backend refuses to run on a CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cpu":
            patch.setenv("TRITON_INTERPRET", "1")
        yield


with interpreter():
    triton = pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")
    import triton.language as tl

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
        import dropout_statistics

    from fairseq_relpos.backends import triton_kernels as kernels

    @triton.jit
    def write_kept(out, call, M: tl.constexpr):
        b, h = tl.program_id(0), tl.program_id(1)
        t, s = tl.arange(0, M)[:, None], tl.arange(0, M)[None, :]
        T, S = kernels.tgt_len(call), kernels.src_len(call)
        at = ((b * call.heads + h) * T + t) * S + s
        inside = (t < T) & (s < S)
        keep = kernels.keeps(call, b.to(tl.int64), h, t, s)
        tl.store(out + at, tl.where(keep, 1 / (1 - call.dropout), 0.0), mask=inside)


def set_tiles(monkeypatch, forward, backward=None):
    """Sets tiles of so many queries in forward and in backward."""
    sizes = [forward, *[backward or forward] * 3]
    tiles = dict(zip(backend.KERNELS, map(backend.Tile, sizes)))
    monkeypatch.setattr(backend, "tiles", lambda *arguments: tiles)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    if DEVICE == "cpu":  # where time goes by the number of tiles
        set_tiles(monkeypatch, 32)
    with interpreter():
        yield


H, D, DV = 2, 8, 6
ROWS, OTHER_ROWS = Clipped(5), LogBuckets(8, 20)


def table(*shape):
    return torch.randn(*shape, device=DEVICE, requires_grad=True)


def vectors(heads=H, rows=ROWS):
    return table(heads, rows.count, D)


FORMS = {
    "content": lambda B, T, S: {},
    "bias of an offset": lambda B, T, S: {"bias_row": table(H, ROWS.count)},
    "bias of a pair, reset": lambda B, T, S: {"bias": table(1, H, T, S), "reset": table(2, H)},
    "gain": lambda B, T, S: {"gain": table(1, ROWS.count)},
    "query rows": lambda B, T, S: {"A": vectors(), "bias_row": table(H, ROWS.count)},
    "key rows of their own": lambda B, T, S: {"C": vectors(1, OTHER_ROWS), "C_rows": OTHER_ROWS},
    "gate": lambda B, T, S: {"gate": vectors(1)},
    "gate of each head, all but a reset": lambda B, T, S: {
        "gate": vectors(),
        "A": vectors(),
        "C": vectors(),
        "gain": table(1, ROWS.count),
        "bias_row": table(H, ROWS.count),
    },
    "sum of all": lambda B, T, S: {
        "A": vectors(1),
        "C": vectors(),
        "gain": table(H, ROWS.count),
        "reset": table(2, H),
        "bias_row": table(H, ROWS.count),
        "bias": table(B, H, T, S),
    },
    "product": lambda B, T, S: {"A": vectors(1), "C": vectors(1), "gain": table(1, ROWS.count), "product": True},
}

#: forms that have all parts between them
TOGETHER = ["gate of each head, all but a reset", "sum of all", "product"]


def make(form, tgt_len, src_len, batch=1, dtype=torch.float32):
    def rows(length, width):
        x = torch.randn(batch, H, length, width, device=DEVICE)
        return x.to(dtype).requires_grad_()

    q, k, v = rows(tgt_len, D), rows(src_len, D), rows(src_len, DV)
    return Terms(q, k, 0.3, rows=ROWS, **FORMS[form](batch, tgt_len, src_len)), v


def padding(src_len):
    """The mask of two sentences, one padded to the left, the other to the right."""
    hidden = torch.zeros(2, src_len, dtype=torch.bool, device=DEVICE)
    hidden[0, : src_len // 3] = True
    hidden[1, src_len - src_len // 3 :] = True
    return hidden


def outcome(run, terms, v, mask=Mask(), dropout_p=0.0):
    """Name -> output and gradients of one pass."""
    inputs = {name: x for name, x in {**terms.tensors(), "v": v}.items() if x.requires_grad}
    out, _ = run(terms, v, mask, dropout_p, False)
    weights = torch.linspace(-1, 1, out.numel(), device=DEVICE).view_as(out).to(out.dtype)
    gradients = torch.autograd.grad((weights * out).sum(), list(inputs.values()))
    return {"out": out.detach(), **dict(zip(inputs, gradients))}


def error(found, expected):
    """The largest difference, as a share of the largest value where that is above 1."""
    return ((found.double() - expected.double()).abs().max() / max(1, expected.abs().max())).item()


def assert_equal(found, expected, tolerance=2e-5):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert not found[name].isnan().any(), name
        assert error(found[name], value) <= tolerance, (name, error(found[name], value), tolerance)


def assert_equals_eager(terms, v, mask=Mask(), tolerance=2e-5):
    assert_equal(outcome(Triton(), terms, v, mask), outcome(Eager(), terms, v, mask), tolerance)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_every_encoding_equals_eager_beside_padding(name):
    dims = dims_for(name, embed_dim=8, num_heads=2, max_len=9)
    encoding = scale_up(build(name, dims)).to(DEVICE)
    q, k = (x.to(DEVICE).requires_grad_() for x in random_qk(dims, 7, 7, dtype=torch.float32))
    v = torch.randn_like(k).requires_grad_()
    mask = Mask(padding(7))
    inputs = {"q": q, "k": k, "v": v, **dict(encoding.named_parameters())}

    def run(backend):
        terms = encoding.terms(q, k, positions_of(dims, 7, 7, mask.padding_BS))
        out, _ = backend(terms, v, mask, 0.0, False)
        grads = torch.autograd.grad(out.square().sum(), list(inputs.values()), allow_unused=True)
        return {"out": out, **{n: g for n, g in zip(inputs, grads) if g is not None}}

    terms = encoding.terms(q, k, positions_of(dims, 7, 7, mask.padding_BS))
    assert Triton().refuses(terms, False) is None
    assert_equal(run(Triton()), run(Eager()))


def test_documents_stay_apart():
    documents = torch.tensor([[1] * 5 + [2] * 9 + [3] * 6, [4] * 20], device=DEVICE)
    terms, v = make("query rows", 20, 20, batch=2)
    assert_equals_eager(terms, v, Mask(causal=True, documents_BS=documents))
    terms, v = make("content", 8, 20, batch=2)
    assert_equals_eager(terms, v, Mask(padding(20), documents_BS=documents))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_equals_eager_where_queries_follow_a_memory(form):
    assert_equals_eager(*make(form, 20, 45))


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (2, H)])
def test_a_bias_may_be_one_for_all_sentences_or_heads(shape):
    terms, v = make("content", 7, 7, batch=2)
    terms.bias = table(*shape, 7, 7)
    assert_equals_eager(terms, v)


def test_operands_may_lie_in_memory_as_they_like():
    terms, v = make("query rows", 7, 9, batch=2)
    results = []
    for lay_out in (lambda x: x, lambda x: x.detach().mT.contiguous().mT.requires_grad_()):
        q, k, v = map(lay_out, (terms.q_BHTD, terms.k_BHSD, v))
        results.append(outcome(Triton(), replace(terms, q_BHTD=q, k_BHSD=k), v))
    assert_equal(*results, tolerance=0)


@pytest.mark.parametrize(
    "form, lengths",
    [
        *((form, (n, n)) for form in ("sum of all", "product") for n in (1, 7)),
        ("sum of all", (1, 7)),
        ("sum of all", (63, 63)),
        ("query rows", (63, 63)),
    ],
)
def test_odd_lengths(form, lengths):
    assert_equals_eager(*make(form, *lengths))


@pytest.mark.parametrize("form", ["bias of an offset", "query rows"])
def test_a_causal_stack_leaves_out_tiles(form, monkeypatch):
    if DEVICE == "cpu":
        set_tiles(monkeypatch, 64)
    assert_equals_eager(*make(form, 130, 130), Mask(causal=True))


def test_a_causal_bias_of_each_pair_leaves_out_tiles(monkeypatch):
    set_tiles(monkeypatch, 16)
    assert_equals_eager(*make("bias of a pair, reset", 20, 36, batch=2), Mask(causal=True))


@pytest.mark.parametrize("tiles", [(16, 16), (64, 32), (64, 64)])
def test_any_tile_size(tiles, monkeypatch):
    if tiles == (64, 64) and DEVICE == "cuda":
        room = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
        if room < 160 * 1024:
            pytest.skip(f"backward tiles of 64 need 149 KiB of shared memory, this GPU has {room // 1024}")
    set_tiles(monkeypatch, *tiles)
    assert_equals_eager(*make("sum of all", 7, 40))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", ["bias of an offset", "bias of a pair, reset"])
def test_padding_on_either_side(form, causal):
    """Also for queries that see no key at all: the first ones of a causal stack."""
    assert_equals_eager(*make(form, 33, 33, batch=2), Mask(padding(33), causal))


def test_a_cls_that_is_not_in_slot_0():
    terms, v = make("sum of all", 9, 12, batch=2)
    terms.cls_BS = torch.zeros(2, 12, dtype=torch.bool, device=DEVICE)
    terms.cls_BS[0, 2] = terms.cls_BS[1, 5] = True
    assert_equals_eager(terms, v)


@pytest.mark.parametrize(
    "extra",
    [
        torch.rand(7, 7) < 0.3,
        torch.randn(7, 7).masked_fill(torch.rand(7, 7) < 0.3, float("-inf")),
        torch.randn(2 * H, 7, 7),
    ],
    ids=["hidden", "added", "for each head"],
)
def test_any_other_mask(extra):
    assert_equals_eager(*make("bias of an offset", 7, 7, batch=2), Mask(extra=extra.to(DEVICE)))


def test_a_mask_that_learns_is_refused():
    terms, v = make("bias of an offset", 7, 7)
    mask = Mask(extra=torch.randn(7, 7, device=DEVICE, requires_grad=True))
    with pytest.raises(ValueError, match="a mask that requires a gradient, its kernels make none; use auto"):
        Triton()(terms, v, mask, 0.0, False)
    with torch.no_grad():
        assert Triton()(terms, v, mask, 0.0, False)[0].isfinite().all()


def test_pads_of_one_sentence_are_those_of_all():
    assert_equals_eager(*make("bias of an offset", 7, 7, batch=2), Mask(padding(7)[1:]))


def test_a_tile_of_keys_may_be_hidden_by_its_bias():
    terms, v = make("bias of an offset", 64, 64)
    offsets = torch.arange(-63, 64, device=DEVICE)
    local = torch.zeros(1, 127, device=DEVICE).masked_fill(offsets.abs() > 5, float("-inf"))
    assert_equals_eager(replace(terms, rows=None, bias_row=local), v)


def test_a_table_of_one_row():
    terms, v = make("content", 100, 100)
    assert_equals_eager(replace(terms, rows=lambda offset: 0 * offset, A=table(1, 1, D)), v)


def test_more_sentences_than_a_grid_holds_are_refused():
    terms, _ = make("content", 1, 1)
    many = terms.q_BHTD.expand(65536, -1, -1, -1)
    assert "65,535 sentences" in backend.why_not_these(replace(terms, q_BHTD=many, k_BHSD=many))


def test_torch_compile_calls_it_as_it_is():
    terms, v = make("bias of an offset", 7, 7)
    found = torch.compile(lambda v: 2 * Triton()(terms, v, Mask(), 0.0, False)[0], backend="eager")(v)
    torch.testing.assert_close(found, 2 * Triton()(terms, v, Mask(), 0.0, False)[0])


def test_heads_of_another_layout_and_of_two_dtypes():
    """As attention has them: q, k, v [T, B H, D] in memory; some encodings add float32 to q."""
    terms, v = make("query rows", 7, 7, batch=2)

    def as_projected(x, dtype):
        x = x.detach().permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
        return x.to(dtype).requires_grad_()

    terms.q_BHTD = as_projected(terms.q_BHTD, torch.float32)
    terms.k_BHSD = as_projected(terms.k_BHSD, torch.float16)
    assert_equals_eager(terms, as_projected(v, torch.float16), tolerance=2e-3)


@pytest.mark.parametrize("form", TOGETHER)
def test_half_precision_is_accumulated_in_float32(form):
    terms, v = make(form, 7, 40, dtype=torch.float16)
    reference = replace(terms, q_BHTD=terms.q_BHTD.float(), k_BHSD=terms.k_BHSD.float())
    assert_equal(outcome(Triton(), terms, v), outcome(Eager(), reference, v.float()), 1e-2)


@pytest.mark.skipif(DEVICE == "cpu", reason="Triton's interpreter cannot multiply bfloat16")
@pytest.mark.parametrize("form", ["bias of an offset", "query rows", "gate"])
def test_bfloat16(form):
    terms, v = make(form, 7, 40, dtype=torch.bfloat16)
    reference = replace(terms, q_BHTD=terms.q_BHTD.float(), k_BHSD=terms.k_BHSD.float())
    assert_equal(outcome(Triton(), terms, v), outcome(Eager(), reference, v.float()), 5e-2)


def test_products_of_three_do_not_overflow_half_precision():
    """Large q.k and k.C, and q.A = 0: its gradient is their product."""
    terms, v = make("product", 7, 7, dtype=torch.float16)
    A = torch.zeros_like(terms.A, requires_grad=True)
    terms = replace(terms, q_BHTD=60 * terms.q_BHTD, k_BHSD=60 * terms.k_BHSD, A=A)
    found, expected = (
        torch.autograd.grad(run(terms, v, Mask(), 0.0, False)[0].float().square().sum(), A)[0]
        for run in (Triton(), Eager())
    )
    assert expected.abs().max() > torch.finfo(torch.float16).max
    assert (found - expected).abs().max() <= 1e-2 * expected.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize(
    "form, pairs", [("product", 1), ("product", 2), ("product", 3), ("gate of each head, all but a reset", 2)]
)
def test_tables_have_their_gradient_whatever_there_is_room_for_at_a_time(form, pairs, monkeypatch):
    """Groups of three sentences and two heads: each alone, two and one, and all of one head."""
    terms, v = make(form, 20, 17, batch=3)
    set_tiles(monkeypatch, 16)
    monkeypatch.setattr(backend.Launch, "groups", lambda self, tables: [(h, groups(3, pairs)) for h in groups(H, 1)])
    keep = what_dropout_keeps(terms, v, 0.3)
    hidden = Mask(torch.arange(17, device=DEVICE)[None] >= torch.tensor([[17], [12], [5]], device=DEVICE))
    found = outcome(Triton(), terms, v, hidden, dropout_p=0.3)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda weights, p: weights * keep)
    assert_equal(found, outcome(Eager(), terms, v, hidden, dropout_p=0.3))


def test_groups_are_as_large_as_there_is_room(monkeypatch):
    terms, v = make("product", 20, 17, batch=3)
    terms = by_offset(terms)
    set_tiles(monkeypatch, 16)
    settings = backend.Settings.of(terms, v, Mask(), 0.0)
    launch = backend.Launch(settings, terms.q_BHTD, terms.k_BHSD, v, *(getattr(terms, x) for x in backend.POSITIONS))
    pair = 2 * 2 * 3 * 16**2 * 4  # bytes: two tables, blocks of 16 in 2 rows and 3 columns, in float32
    for room, heads, sentences in ((1, 1, 1), (2 * pair, 1, 2), (5 * pair, 1, 3), (6 * pair, 2, 3)):
        monkeypatch.setattr(backend, "ROOM", room)
        found = launch.groups(["A", "C"])
        assert max(backend.length_of(chosen) for chosen, _ in found) == heads
        assert max(backend.length_of(chosen) for chosen in found[0][1]) == sentences


@pytest.mark.parametrize(
    "form, lengths, mask",
    [
        *((form, (32, 32), Mask()) for form in TOGETHER),
        ("sum of all", (16, 48), Mask(causal=True)),
        ("query rows", (32, 32), Mask(causal=True)),
        ("bias of a pair, reset", (32, 32), Mask(padding(32), True)),
        ("bias of an offset", (32, 32), Mask(extra=torch.ones(32, 32, device=DEVICE).tril())),
    ],
)
def test_whole_tiles(form, lengths, mask, monkeypatch):
    """Lengths and widths without a rest are computed without asking what is inside."""
    set_tiles(monkeypatch, 16)
    monkeypatch.setattr(sys.modules[__name__], "D", 16)
    monkeypatch.setattr(sys.modules[__name__], "DV", 16)
    terms, v = make(form, *lengths, batch=1 if mask.padding_BS is None else 2)
    assert_equals_eager(replace(terms, scale=0.05), v, mask)


@pytest.mark.skipif(DEVICE == "cpu", reason="the tiles are those of a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_the_tiles_of_this_gpu(form, dtype, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "D", 64)
    monkeypatch.setattr(sys.modules[__name__], "DV", 64)
    for length in (192, 200):
        terms, v = make(form, length, length, batch=2, dtype=dtype)
        # the kernels multiply tables in half precision: these are the same in it. A product of three would have other
        # logits otherwise, and outputs that differ by up to 0.3
        names = [name for name in backend.TABLES if getattr(terms, name) is not None]
        tables = {name: getattr(terms, name).detach().to(dtype).float().requires_grad_() for name in names}
        terms = replace(terms, scale=0.05, **tables)
        exact = replace(terms, q_BHTD=terms.q_BHTD.float(), k_BHSD=terms.k_BHSD.float())
        expected = outcome(Eager(), exact, v.float())
        # a gradient of a product of three has an error of 0.008 in float16, and bfloat16 has an eighth of its precision
        tolerance = 0.1 if form == "product" and dtype == torch.bfloat16 else 0.02
        for name, value in outcome(Triton(), terms, v).items():
            assert (value.float() - expected[name]).abs().max() <= tolerance * expected[name].abs().max(), name


@pytest.mark.parametrize(
    "terms, rows, C_rows, lengths, mask, few",
    [
        ("A C gain bias_row reset", LogBuckets(8, 8, causal=True), Clipped(2), (36, 36), Mask(), 0),
        ("A C product", ROWS, None, (36, 36), Mask(), 64),
        ("A C", ROWS, None, (20, 52), Mask(causal=True), 0),
        ("A C", ROWS, None, (20, 52), Mask(causal=True), 64),
        ("A C", ROWS, None, (20, 70), Mask(window=20), 0),
        ("A C", ROWS, None, (20, 70), Mask(window=9), 64),
        ("bias_row gain", lambda offset: offset.abs() % 3 * (offset.abs() < 4), None, (36, 36), Mask(), 64),
    ],
    ids=["all", "product of few rows", "memory", "memory, few rows", "window", "window, few rows", "rows of any order"],
)
def test_tiles_far_from_the_diagonal_equal_eager(terms, rows, C_rows, lengths, mask, few, monkeypatch):
    """An encoding whose offsets beyond some share a row of each table."""
    set_tiles(monkeypatch, 16)
    monkeypatch.setattr(backend, "FAR_FROM", 0)
    monkeypatch.setattr(backend, "FEW", few)
    monkeypatch.setattr(sys.modules[__name__], "H", 1)
    monkeypatch.setattr(backend, "ROOM", 1)
    batch, names = 1 + (terms == "A C"), terms.split()
    shapes = {"gain": (), "bias_row": (), "A": (D,), "C": (D,)}
    counts = {**dict.fromkeys(shapes, getattr(rows, "count", 3)), **({"C": C_rows.count} if C_rows else {})}
    tables = {x: table(1, counts[x], *shapes[x]) for x in shapes if x in names}
    if "reset" in names:
        tables["reset"] = table(2, 1)
    q, k, v = (table(batch, 1, length, width) for length, width in zip((*lengths, lengths[1]), (D, D, DV)))
    found = Terms(q, k, 0.3, rows=rows, C_rows=C_rows, product="product" in names, **tables)
    near = backend.near_offsets(found)
    assert near is not None and 4 * len(near) < sum(lengths)
    expected = outcome(Eager(), found, v, mask)
    poison(monkeypatch)
    assert_equal(outcome(Triton(), found, v, mask), expected)


@pytest.mark.parametrize(
    "form, lengths, mask",
    [
        ("sum of all", (20, 50), Mask(window=5)),
        ("gate", (17, 33), Mask(causal=True, window=3)),
        ("bias of a pair, reset", (33, 33), Mask(padding(33), True, window=1)),
    ],
)
def test_a_window_leaves_out_tiles(form, lengths, mask, monkeypatch):
    set_tiles(monkeypatch, 16)
    terms, v = make(form, *lengths, batch=1 if mask.padding_BS is None else 2)
    expected = outcome(Eager(), terms, v, mask)
    poison(monkeypatch)
    assert_equal(outcome(Triton(), terms, v, mask), expected)


def test_keys_outside_the_window_are_not_read(monkeypatch):
    """Numbers that are missing there reach no query but those that see their tile."""
    set_tiles(monkeypatch, 16)
    terms, v = make("query rows", 64, 64)
    mask = Mask(window=10)
    known = outcome(Triton(), terms, v, mask)
    with torch.no_grad():
        for x in (terms.k_BHSD, v):
            x[:, :, 48:] = math.nan  # seen by queries from 32 on, which see keys from 16 on
    found = outcome(Triton(), terms, v, mask)
    for name, clean in (("out", 32), ("q_BHTD", 32), ("k_BHSD", 16), ("v", 16)):
        assert torch.equal(found[name][:, :, :clean], known[name][:, :, :clean])
        assert found[name][:, :, -1].isnan().all()


def test_causal_queries_without_any_key_attend_to_all():
    """As the reference has it where there are more queries than keys."""
    assert_equals_eager(*make("query rows", 40, 9), Mask(causal=True))


def test_one_gradient_alone():
    terms, v = make("sum of all", 20, 17)
    tensors = {**terms.tensors(), "v": v}
    every = outcome(Triton(), terms, v)
    for name in tensors:
        frozen = {key: x.detach().requires_grad_(key == name) for key, x in tensors.items()}
        values = frozen.pop("v")
        found = outcome(Triton(), replace(terms, **frozen), values)
        assert found.keys() == {"out", name}
        assert_equal(found, {key: every[key] for key in found}, tolerance=0)


def test_no_sentences_have_no_gradient():
    terms, v = make("query rows", 7, 7)
    none = replace(terms, q_BHTD=terms.q_BHTD[:0], k_BHSD=terms.k_BHSD[:0])
    out, _ = Triton()(none, v[:0], Mask(), 0.0, False)
    assert out.shape == (0, H, 7, DV)
    assert not torch.autograd.grad(out.sum(), terms.A)[0].any()


@pytest.mark.slow
def test_the_kernels_check_themselves_in_all_kinds_of_calls(monkeypatch, capsys):
    assert self_check.main(lengths=(16,), width=16) == 0
    count = 16 if DEVICE == "cpu" else 24  # bfloat16
    assert capsys.readouterr().out.splitlines()[-1] == f"those of triton agree with lean in {count} kinds of calls"
    call = Triton.__call__
    monkeypatch.setattr(Triton, "__call__", lambda self, *call_: (1.5 * call(self, *call_)[0], None))
    assert self_check.main(lengths=(16,), width=16) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("a bias by offset, float32, 16 tokens: its output is off")


@pytest.mark.parametrize("shared_kib", [227, 163, 99])
def test_the_kernels_check_each_of_them(shared_kib, monkeypatch):
    """All that there are, and the loops of far tiles."""
    monkeypatch.undo()  # the tiles of a GPU
    monkeypatch.setattr(backend, "shared_memory", lambda device: shared_kib)
    started, far = set(), set()

    def start(launch, kernel, grid, arguments, constants):
        started.add(kernel.fn.__name__)
        if launch.near is not None and "D" in constants:
            tile = backend.Tile(constants["M"])
            if len(launch.near_tiles(tile)) < 2 * tile.count(launch.src_len) - 1:
                far.add((kernel.fn.__name__, launch.few is None))

    monkeypatch.setattr(backend.Launch, "start", start)
    for _, terms, v in self_check.calls(torch.device(DEVICE)):
        out, _ = Triton()(terms, v, Mask(), 0.1, False)
        torch.autograd.grad(out.sum(), [x for x in terms.tensors().values() if x.requires_grad])
    every = {name for name in vars(kernels) if name.startswith("backward_")}
    assert started == {"forward", *every}
    assert far >= {(name, few) for name in ("forward", "backward_queries", "backward_keys") for few in (True, False)}


# --- dropout ---


def what_dropout_keeps(terms, v, dropout_p):
    """[B, H, T, S] of 0 and 1 / (1 - p), for the seed that the next call will draw."""
    state = torch.get_rng_state()
    settings = backend.Settings.of(terms, v, Mask(), dropout_p)
    torch.set_rng_state(state)
    launch = backend.Launch(settings, terms.q_BHTD, terms.k_BHSD, v, *[None] * 7)
    out = torch.full((*terms.q_BHTD.shape[:3], terms.k_BHSD.size(2)), -1.0, device=DEVICE)
    write_kept[out.shape[:2]](out, launch.call, M=backend.padded(max(out.shape[2:])))
    return out


@pytest.mark.parametrize("form", ["bias of a pair, reset", "query rows"])
def test_dropout_equals_eager_with_the_same_weights_kept(form, monkeypatch):
    terms, v = make(form, 7, 40, batch=2)
    keep = what_dropout_keeps(terms, v, 0.3)
    found = outcome(Triton(), terms, v, dropout_p=0.3)
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda weights, p: weights * keep)
    assert_equal(found, outcome(Eager(), terms, v, dropout_p=0.3))


def test_dropout_keeps_independently_and_as_often_as_asked():
    terms, v = make("content", 60, 64, batch=2)
    keep = what_dropout_keeps(terms, v, 0.3) > 0
    assert abs(keep.float().mean() - 0.7) < 4 * (0.21 / keep.numel()) ** 0.5
    for axis in range(4):  # sentences, heads, queries and keys each have their own
        kept_again = (keep & keep.roll(1, axis)).float().mean()
        assert abs(kept_again - 0.49) < 0.02
    torch.manual_seed(1)
    assert (what_dropout_keeps(terms, v, 0.3) > 0).ne(keep).any()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_no_two_places_of_a_dropout_mask_are_correlated(p):
    size = SimpleNamespace(seeds=2, sentences=2, heads=2, length=256)
    for row in dropout_statistics.measure(p, size):
        assert row["z"] < 1.1 * row["bound"], row
        assert row["scores"] < 1000 or abs(row["spread"] - 1) < 0.01, row


def test_all_weights_may_be_dropped():
    terms, v = make("bias of an offset", 7, 9)
    found = outcome(Triton(), terms, v, dropout_p=1.0)
    assert all((x == 0).all() for x in found.values())


def test_the_same_seed_gives_the_same_bits():
    terms, v = make("query rows", 7, 40)
    first, second, other = (
        (torch.manual_seed(seed), outcome(Triton(), terms, v, dropout_p=0.2))[1] for seed in (3, 3, 4)
    )
    assert all(first[name].equal(second[name]) for name in first)
    assert not any(first[name].equal(other[name]) for name in first)


# --- memory ---


def test_nothing_is_left_of_what_was_in_memory_before(monkeypatch):
    # two tiles of queries, which do not meet the same offsets
    set_tiles(monkeypatch, 16)
    terms, v = make("sum of all", 20, 20)
    expected = outcome(Eager(), terms, v)
    poison(monkeypatch)
    assert_equal(outcome(Triton(), terms, v), expected)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["bias of an offset", "query rows", "bias of a pair, reset"])
def test_no_tensor_has_an_element_for_each_pair_and_sentence(form, monkeypatch):
    length, batch = 33, 2
    # of the gradients by offset, which are kept for as many heads and sentences as there is room for
    monkeypatch.setattr(backend, "ROOM", 1)
    set_tiles(monkeypatch, 16)
    terms, v = make(form, length, length, batch)
    with LargestTensor(torch.is_floating_point) as largest:  # the interpreter counts bytes
        outcome(Triton(), terms, v, Mask(padding(length)), dropout_p=0.1)
    assert largest.elements < batch * H * length**2
