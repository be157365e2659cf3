"""The normal form against loops over its definition; its memory law."""

import pytest
import torch
from loops import LENGTHS, logits_in_loops

from fairseq_relpos.backends import Mask, select
from fairseq_relpos.rows import Clipped, LogBuckets, Spread
from fairseq_relpos.terms import (
    Bias,
    Terms,
    by_offset,
    ends_of_runs,
    evaluate,
    full_precision,
    over_offsets,
    reset_at_cls,
    toeplitz,
    weighted_values,
)

B, H, D = 2, 3, 4


#: of its own: what other files draw while they are imported changes nothing here
GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


def table(rows, *tail, heads=H):
    return randn(heads, rows.count, *tail)


ROWS, OTHER_ROWS = Clipped(3), LogBuckets(4, 9)
CASES = {
    "content": {},
    "A": {"A": table(ROWS, D)},
    "shared A": {"A": table(ROWS, D, heads=1)},
    "A + C": {"A": table(ROWS, D), "C": table(ROWS, D)},
    "A x C": {"A": table(ROWS, D), "C": table(ROWS, D), "product": True},
    "C with its own rows": {"A": table(ROWS, D), "C": table(OTHER_ROWS, D), "C_rows": OTHER_ROWS},
    "gate": {"gate": table(ROWS, D)},
    "shared gate": {"gate": table(ROWS, D, heads=1)},
    "gain": {"gain": table(ROWS)},
    "gain, A + C": {"gain": table(ROWS), "A": table(ROWS, D), "C": table(ROWS, D)},
    "bias_row": {"bias_row": table(ROWS)},
    "bias_row reset": {"bias_row": table(ROWS), "reset": randn(2, H)},
    "everything": {
        "A": table(ROWS, D),
        "C": table(ROWS, D),
        "gate": table(ROWS, D),
        "gain": table(ROWS),
        "bias_row": table(ROWS),
        "reset": randn(2, H),
    },
}


def make_terms(case, tgt_len, src_len):
    q = torch.randn(B, H, tgt_len, D, dtype=torch.float64)
    k = torch.randn(B, H, src_len, D, dtype=torch.float64)
    return Terms(q, k, 0.3, rows=ROWS, **CASES[case])


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("case", CASES)
def test_evaluate_equals_the_definition(case, lengths):
    terms = make_terms(case, *lengths)
    expected = logits_in_loops(terms)
    torch.testing.assert_close(evaluate(terms), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("batch", [1, B])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_dense_bias_equals_the_definition(lengths, batch):
    terms = make_terms("bias_row reset", *lengths)
    terms.bias = torch.randn(batch, H, *lengths, dtype=torch.float64)
    expected = logits_in_loops(terms)
    torch.testing.assert_close(evaluate(terms), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_toeplitz_has_the_right_gradient(lengths):
    tgt_len, src_len = lengths
    values = torch.randn(2, tgt_len + src_len - 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: toeplitz(x, tgt_len), values)
    out = toeplitz(values, tgt_len)
    assert out.shape == (2, tgt_len, src_len)
    assert out[1, tgt_len - 1, 0] == values[1, 0] and out[0, 0, -1] == values[0, -1]


def test_queries_win_the_corner_of_a_reset():
    theta = torch.tensor([[1.0], [2.0]])
    out = reset_at_cls(torch.zeros(1, 1, 3, 3), theta)[0, 0]
    assert out.tolist() == [[1, 1, 1], [2, 0, 0], [2, 0, 0]]


@pytest.mark.parametrize("name", ["eager", "lean", "fused"])
def test_a_reset_of_more_queries_than_keys_is_refused(name):
    """The first of them would stand before all keys."""
    cls_BS = torch.zeros(1, 3, dtype=torch.bool)
    terms = Terms(*(torch.randn(1, H, n, D) for n in (5, 3)), 0.5, reset=torch.randn(2, H), cls_BS=cls_BS)
    with pytest.raises(ValueError, match="5 queries and 3 keys|more queries than keys|not compiled"):
        select(name)(terms, torch.randn(1, H, 3, D), Mask(), 0.0, False)


def test_a_reset_without_any_bias_is_a_bias():
    theta = torch.tensor([[1.0], [2.0]])
    assert Bias(reset=theta).dense(2, 2).bias[0, 0].tolist() == [[1, 1], [2, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logits_are_float32_under_half_precision_and_autocast(dtype):
    terms = make_terms("A x C", 7, 7)
    for name in ("q_BHTD", "k_BHSD", "A", "C"):
        setattr(terms, name, getattr(terms, name).to(dtype))
    exact = evaluate(Terms(**{name: x.double() if torch.is_tensor(x) else x for name, x in vars(terms).items()}))
    with torch.autocast("cpu", torch.bfloat16):
        found = evaluate(terms)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, atol=1e-4, rtol=1e-5)


class LargestTensor(torch.utils._python_dispatch.TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation makes, of those that count."""

    def __init__(self, counts=torch.is_tensor):
        super().__init__()
        self.counts, self.elements = counts, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if torch.is_tensor(tensor) and self.counts(tensor) and tensor.untyped_storage().nbytes():
                stored = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.elements = max(self.elements, stored)
        return result


@pytest.mark.parametrize("case", CASES)
def test_no_tensor_has_time_twice_and_the_head_dimension(case):
    length, width = 20, 64
    wide = {
        k: torch.randn(*v.shape[:2], *([width] * (v.dim() == 3))) if torch.is_tensor(v) else v
        for k, v in CASES[case].items()
    }
    q = torch.randn(B, H, length, width, requires_grad=True)
    with LargestTensor() as largest:
        evaluate(Terms(q, q, 0.3, rows=ROWS, **wide)).sum().backward()
    assert largest.elements <= B * H * length * max(2 * length, width)
    assert largest.elements < length * length * width


@pytest.mark.parametrize("heads", [1, H])
def test_values_need_no_such_tensor_either(heads):
    length, width = 150, 64
    q, values = torch.randn(B, H, length, width), torch.randn(heads, ROWS.count, width, requires_grad=True)
    weights = torch.rand(B, H, length, length, requires_grad=True)
    with LargestTensor() as largest:
        weighted_values(Terms(q, q, 0.3, rows=ROWS, values=values), weights).sum().backward()
    assert largest.elements <= 2 * B * H * length * length


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_full_precision_is_float32_at_least_and_leaves_masks_and_row_numbers_alone(dtype):
    assert full_precision(torch.ones(2, dtype=dtype)).dtype == torch.float32
    for same in (torch.float64, torch.bool, torch.int64):
        assert full_precision(torch.ones(2, dtype=same)).dtype == same
    both = full_precision(torch.ones(2, dtype=dtype), torch.ones(2, dtype=torch.float64))
    assert [x.dtype for x in both] == [torch.float64, torch.float64]


class Alternating:
    """Rows that come back: 0 for even offsets, 1 for odd ones."""

    count = 2

    def __call__(self, offset):
        return offset % 2


@pytest.mark.parametrize("lengths", [(5, 5), (2, 7), (1, 4)])
@pytest.mark.parametrize("rows", [Clipped(3), Clipped(100), LogBuckets(4, 9), Alternating()])
def test_a_spread_bias_is_the_same_bias_with_the_same_gradient(rows, lengths):
    bias_row = table(rows).requires_grad_()
    bias = Bias(rows=rows, bias_row=bias_row)
    spread = bias.spread(*lengths)
    offset_L = torch.arange(1 - lengths[1], lengths[0])
    assert spread.bias_row.shape == (H, len(offset_L))
    # rows are equal where they were
    mine, before = spread.rows(offset_L), rows(offset_L)
    assert torch.equal(mine[:, None] == mine, before[:, None] == before)
    grad = randn(1, H, *lengths)
    for way in (spread, Bias(rows=lambda offset: spread.rows(offset), bias_row=spread.bias_row)):
        assert torch.equal(way.dense(*lengths).bias, bias.dense(*lengths).bias)
        (found,) = torch.autograd.grad(way.dense(*lengths).bias, bias_row, grad, retain_graph=True)
        (expected,) = torch.autograd.grad(bias.dense(*lengths).bias, bias_row, grad)
        torch.testing.assert_close(found, expected)


def test_a_spread_bias_has_the_same_far_offsets_and_is_not_read_again_for_the_others():
    rows, (tgt_len, src_len) = LogBuckets(8, 20), (50, 60)
    bias = Bias(rows=rows, bias_row=randn(H, rows.count))
    spread = bias.spread(tgt_len, src_len)
    first, last = ends_of_runs(rows, tgt_len, src_len)
    assert (first, last) == ends_of_runs(spread.rows, tgt_len, src_len)
    q, k = randn(1, H, tgt_len, D), randn(1, H, src_len, D)
    found, expected = (
        by_offset(Terms.with_bias(q, k, 0.5, x), range(first, last + 1)).bias_row for x in (spread, bias)
    )
    assert found.equal(expected)
    assert found.untyped_storage().data_ptr() == spread.bias_row.untyped_storage().data_ptr()


def test_rows_that_may_change_are_asked_again():
    class Own:
        __hash__ = None
        k = 2

        def __call__(self, offset):
            return offset.clamp(-self.k, self.k) + self.k

    rows = Own()
    assert [ends_of_runs(x, 20, 20) for x in (rows, Spread(rows, 20, 20))] == [(-2, 2)] * 2
    rows.k = 3
    assert ends_of_runs(rows, 20, 20) == (-3, 3)


def test_rows_that_nothing_clips_are_not_copied():
    values = table(Clipped(6), D)
    found = over_offsets(values, Clipped(6), 4, 7)
    assert found.untyped_storage().data_ptr() == values.untyped_storage().data_ptr()
    assert torch.equal(found, values[:, Clipped(6)(torch.arange(-6, 4))])
