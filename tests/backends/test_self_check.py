"""auto relies on kernels that a machine compiles for itself once they agree with lean."""

import logging
from dataclasses import replace

import pytest
import torch
from loops import random_qk
from torch.utils.checkpoint import checkpoint

from fairseq_relpos.backends import Auto, Mask
from fairseq_relpos.backends.lean import Lean
from fairseq_relpos.backends.self_check import KEEPS_ALL, difference, kind_of
from fairseq_relpos.backends.triton import Triton
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions
from fairseq_relpos.rows import Clipped, Spread
from fairseq_relpos.terms import Terms


class Kernels(Triton):
    """Stands in for triton: what lean computes, changed."""

    def __init__(self, change=lambda out: out):
        self.change, self.calls = change, 0

    def __call__(self, terms, v_BHSD, *more):
        self.calls += 1
        out, weights = Lean()(terms, v_BHSD, *more)
        return self.change(out), weights


class AutoOnAGPU(Auto):
    def __init__(self, kernels):
        super().__init__()
        self.kernels = kernels

    def choose(self, terms, mask, dropout_p, need_weights, against=None):
        reason = self.distrusted or against
        return (self.kernels, "a GPU") if reason is None else (Lean(), reason)


def terms_and_v(name="tupe_r", length=9):
    torch.manual_seed(0)
    encoding = build(name, Dims(8, 2, length))
    q, k = random_qk(encoding.dims, length, length, dtype=torch.float32)
    v = torch.randn_like(k).requires_grad_()
    return encoding.terms(q.requires_grad_(), k, Positions.of(length, length)), v


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out):
        return out.clone()

    @staticmethod
    def backward(ctx, grad):
        return 1.5 * grad


def fails(out):
    raise RuntimeError("ptxas: out of registers\nand more")


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda out: 1.5 * out, "its output is off by 0.5 of itself"),
        (lambda out: out * torch.nan, "its output is off by nan of itself"),
        (WrongGradient.apply, "is off by 0.5 of itself"),
        (fails, "RuntimeError: ptxas: out of registers"),
    ],
)
def test_kernels_that_do_not_agree_are_left_alone_aloud(change, reason, caplog):
    kernels = Kernels(change)
    auto = AutoOnAGPU(kernels)
    terms, v = terms_and_v()
    with caplog.at_level(logging.WARNING):
        out, _ = auto(terms, v, Mask(), 0.0, False)
        auto(terms, v, Mask(), 0.0, False)
    torch.testing.assert_close(out, Lean()(terms, v, Mask(), 0.0, False)[0])
    assert kernels.calls == 1
    (record,) = caplog.records
    assert reason in record.getMessage()


def test_half_precision_of_many_entries_is_compared(dtype=torch.float16):
    """2^17 of them: linspace in float16 is NaN there."""
    q, k, v = torch.randn(3, 4, 8, 64, 64, dtype=dtype).unbind()
    terms = build("t5", Dims(512, 8, 64)).terms(q.requires_grad_(), k, Positions.of(64, 64))
    assert difference(Kernels(), Lean(), terms, v, Mask(), 0.0) is None


class Moved(torch.autograd.Function):
    """Gives the gradient of each offset to another one."""

    @staticmethod
    def forward(ctx, bias_HL, place_L):
        ctx.place_L = place_L
        return bias_HL.clone()

    @staticmethod
    def backward(ctx, grad_HL):
        return torch.zeros_like(grad_HL).index_add(1, ctx.place_L, grad_HL), None


def test_copies_of_a_row_may_share_their_gradient_in_any_way():
    """As they do in triton, whose far tiles have one number for all of them."""
    length = 40
    encoding = build("t5", Dims(8, 2, length), num_buckets=8, max_distance=6)
    encoding.stack.prepare_bias = Triton().prepare_bias
    q, k = random_qk(encoding.dims, length, length, dtype=torch.float32)
    terms = encoding.terms(q, k, encoding.stack.positions(length, length, device="cpu"))
    assert isinstance(terms.rows, Spread)
    row_L = terms.rows(torch.arange(1 - length, length))

    class Moves(Kernels):
        def __call__(self, terms, *more):
            moved = Moved.apply(terms.bias_row, self.place_L)
            return super().__call__(replace(terms, bias_row=moved), *more)

    kernels = Moves()
    kernels.place_L = torch.stack([(row_L == row).nonzero().max() for row in row_L])  # the last copy
    assert difference(kernels, Lean(), terms, torch.randn_like(k), Mask(), 0.0) is None
    kernels.place_L = torch.arange(len(row_L)).roll(1)  # another row, where the next offset has one
    assert "bias_row is off" in difference(kernels, Lean(), terms, torch.randn_like(k), Mask(), 0.0)


@pytest.mark.parametrize("name", ["shaw", "m4_reset", "m1"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_an_evaluation_compares_outputs_alone(name, mode):
    encoding = build(name, Dims(8, 2, 9))
    with mode():
        q, k = random_qk(encoding.dims, 9, 9, dtype=torch.float32)
        terms = encoding.terms(q, k, Positions.of(9, 9))
        auto = AutoOnAGPU(Kernels())
        auto(terms, q, Mask(), 0.0, False)
    assert auto.distrusted is None


def test_a_lack_of_memory_is_no_verdict():
    """The call goes on without triton, and the next of its kind is a trial again."""

    def no_room(out):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    terms, v = terms_and_v()
    auto = AutoOnAGPU(Kernels(no_room))
    expected, _ = Lean()(terms, v, Mask(), 0.0, False)
    torch.testing.assert_close(auto(terms, v, Mask(), 0.0, False)[0], expected)
    assert auto.distrusted is None
    auto.kernels = Kernels(lambda out: 3 * out)
    torch.testing.assert_close(auto(terms, v, Mask(), 0.0, False)[0], expected)
    assert auto.distrusted == "its output is off by 2 of itself"


def test_each_kind_of_call_is_tried_once():
    kernels = Kernels()
    auto = AutoOnAGPU(kernels)
    terms, v = terms_and_v()
    auto(terms, v, Mask(), 0.0, False)
    assert kernels.calls == 2
    auto(terms, v, Mask(), 0.0, False)
    auto(*terms_and_v(length=7), Mask(), 0.0, False)
    assert kernels.calls == 4
    others = terms_and_v("m4m"), terms_and_v(length=20)
    for other in ((terms, v, Mask(causal=True), 0.0), *((*other, Mask(), 0.0) for other in others)):
        before = kernels.calls
        auto(*other, False)
        auto(*other, False)
        assert kernels.calls == before + 3


@pytest.mark.parametrize(
    "one, other",
    [
        ({"length": 31}, {"length": 32}),
        ({"length": 33}, {"length": 48}),
        ({"length": 80}, {"length": 128}),
        ({"queries": 16}, {"queries": 17}),
        ({"lay_out": lambda x: x}, {"lay_out": lambda x: x.mT.contiguous().mT}),
        ({"lay_out": lambda x: x}, {"lay_out": lambda x: torch.cat([x[..., :1], x], -1)[..., 1:]}),
    ],
    ids=["multiple of 16", "another multiple", "whole tiles", "16 queries", "transposed", "unaligned"],
)
def test_what_triton_compiles_once_more_for_is_another_kind(one, other):
    def kind(length=33, queries=20, batch=3, lay_out=lambda x: x):
        q, k, v = (lay_out(torch.zeros(batch, 2, n, 4)) for n in (queries, length, length))
        return kind_of(Terms(q, k, 1.0), v, Mask(), 0.0)

    assert kind(**one) != kind(**other)
    assert kind(length=35, queries=21, batch=5) == kind(length=37, queries=3, batch=16)


def test_calls_with_far_tiles_are_tried_for_themselves():
    """Those of longer sequences, or of tables that are clipped at a smaller distance."""

    def kind(length, k):
        q, k_BHSD = torch.zeros(2, 1, 2, length, 4)
        rows = Clipped(k)
        return kind_of(Terms(q, k_BHSD, 1.0, rows=rows, A=torch.zeros(1, rows.count, 4)), q, Mask(), 0.0)

    assert kind(256, 10) != kind(64, 10)
    assert kind(256, 4) != kind(256, 10)
    assert kind(256, 10) == kind(320, 12)


def test_kernels_are_tried_with_dropout_where_there_is_some():
    class DropsAll(Kernels):
        def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
            out, weights = super().__call__(terms, v_BHSD, mask, dropout_p, need_weights)
            return out / (dropout_p == 0), weights

    auto = AutoOnAGPU(DropsAll())
    terms, v = terms_and_v()
    state = torch.random.get_rng_state()
    assert auto.try_out(auto.kernels, terms, v, Mask(), 0.0) is None
    assert auto.try_out(auto.kernels, terms, v, Mask(), 0.1) is not None
    assert auto.distrusted == "its output under dropout is not finite"
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_kernels_that_are_compared_are_those_with_dropout():
    """They get a dropout that drops nothing: kernels without dropout would be compiled for the comparison alone."""

    class Notes(Kernels):
        def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
            asked.append(dropout_p)
            return super().__call__(terms, v_BHSD, mask, dropout_p, need_weights)

    for dropout_p in (0.1, 0.0):
        asked = []
        assert difference(Notes(), Lean(), *terms_and_v(), Mask(), dropout_p) is None
        assert asked == ([KEEPS_ALL, 0.1] if dropout_p else [0.0])


def test_nothing_is_left_behind_and_nothing_moved():
    terms, v = terms_and_v()
    auto = AutoOnAGPU(Kernels())
    state = torch.random.get_rng_state()
    out, _ = auto(terms, v, Mask(), 0.0, False)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert v.grad is None and terms.q_BHTD.grad is None
    out.sum().backward()
    assert v.grad is not None


def test_without_gradients_the_output_is_compared():
    with torch.no_grad():
        terms, v = terms_and_v()
        auto = AutoOnAGPU(Kernels(lambda out: 2 * out))
        auto(terms, v, Mask(), 0.0, False)
        assert auto.distrusted == "its output is off by 1 of itself"


def test_activation_checkpointing_counts_what_the_call_saves():
    terms, v = terms_and_v()
    auto = AutoOnAGPU(Kernels())
    out = checkpoint(lambda v: auto(terms, v, Mask(), 0.0, False)[0], v, use_reentrant=False)
    out.sum().backward()
    expected = torch.autograd.grad(Lean()(terms, v, Mask(), 0.0, False)[0].sum(), v)[0]
    torch.testing.assert_close(v.grad, expected)
