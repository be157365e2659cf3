"""TUPE, its ablations and BERT-A^d against the papers' equations in loops."""

import math

import pytest
import torch
from loops import CASES, DIMS, LEFT_PADDING, check_against_loops, scale_up

from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions
from fairseq_relpos.rows import LogBuckets
from fairseq_relpos.terms import evaluate


def projected(stack, row, linear, head):
    """LayerNorm(p_row) times a projection, for one head."""
    p = stack.p[row]
    mean, variance = p.mean(), ((p - p.mean()) ** 2).mean()
    norm = stack.layer_norm
    p = (p - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias
    d = DIMS.head_dim
    weight, bias = linear.weight[head * d : (head + 1) * d], linear.bias[head * d : (head + 1) * d]
    return weight @ p + bias


def correlation(stack, row_i, row_j, head):
    q, k = projected(stack, row_i, stack.u_q, head), projected(stack, row_j, stack.u_k, head)
    return (q @ k) / math.sqrt(2 * DIMS.head_dim)


def content(q_i, k_j, terms=2):
    return q_i @ k_j / math.sqrt(terms * DIMS.head_dim)


def bucket_of(offset, num_buckets=32, max_distance=128):
    return int(LogBuckets(num_buckets, max_distance)(torch.tensor(offset)))


@pytest.mark.parametrize("lengths, padding", CASES)
@pytest.mark.parametrize(
    "name, hparams",
    [
        ("tupe_a", {}),
        ("tupe_a", {"theta": "free"}),
        ("tupe_r", {}),
        ("tupe_r", {"cls_reset": "paper"}),
        ("tupe_r", {"theta": "free"}),
        ("tupe_r", {"theta": "free", "cls_reset": "paper", "num_buckets": 8, "max_distance": 6}),
    ],
)
def test_untied_cls_follows_equations_10_and_11(name, hparams, lengths, padding):
    """[CLS] is the first real token."""
    encoding = build(name, DIMS, **hparams)
    stack = encoding.stack
    free = hparams.get("theta") == "free"
    relative, paper = name == "tupe_r", hparams.get("cls_reset") == "paper"
    buckets = (hparams.get("num_buckets", 32), hparams.get("max_distance", 128))

    def theta(which, head):
        return stack.theta[which, head] if free else correlation(stack, which, which, head)

    def oracle(q_i, k_j, head, i, j, sentence):
        first_row = 0 if free else 1
        if i == 0 or j == 0:
            value = theta(0 if i == 0 else 1, head)
            if relative and not paper:
                value = value + stack.b[buckets[0] // 2 if i == 0 else buckets[0], head]
        else:
            value = correlation(stack, first_row + i, first_row + j, head)
            if relative:
                value = value + stack.b[bucket_of(j - i, *buckets), head]
        return content(q_i, k_j) + value

    check_against_loops(encoding, oracle, *lengths, padding)


@pytest.mark.parametrize("name", ["tupe_a_tie_cls", "tupe_r_tie_cls"])
@pytest.mark.parametrize("padding", [None, LEFT_PADDING])
def test_tied_cls_has_no_reset_and_counts_real_tokens(name, padding):
    encoding = build(name, DIMS)
    stack = encoding.stack

    def oracle(q_i, k_j, head, i, j, sentence):
        value = content(q_i, k_j) + correlation(stack, i, j, head)
        return value + (stack.b[bucket_of(j - i), head] if name == "tupe_r_tie_cls" else 0)

    check_against_loops(encoding, oracle, 7, 7, padding)


@pytest.mark.parametrize("padding", [None, LEFT_PADDING])
def test_bert_ad_keeps_the_cross_terms(padding):
    encoding = build("bert_ad", DIMS)
    stack = encoding.stack

    def oracle(q_i, k_j, head, i, j, sentence):
        q = q_i + projected(stack, i, stack.u_q, head)
        k = k_j + projected(stack, j, stack.u_k, head)
        return content(q, k, terms=4)

    check_against_loops(encoding, oracle, 7, 7, padding)


@pytest.mark.parametrize("name", ["tupe_a", "tupe_r"])
def test_a_decoder_has_no_cls_and_stays_tied(name):
    causal = Dims(8, 2, 9, causal=True)
    shapes = {k: v.shape for k, v in build(name, causal).stack.state_dict().items()}
    tied = {k: v.shape for k, v in build(f"{name}_tie_cls", causal).stack.state_dict().items()}
    assert shapes == tied


def test_a_source_without_cls_is_tied_unless_told_otherwise():
    source = Dims(8, 2, 9, has_cls=False)
    assert build("tupe_a", source).stack.p.size(0) == 9
    assert build("tupe_a", source, cls="first").stack.p.size(0) == 10


def test_right_padding_leaves_one_table_for_the_whole_batch():
    right = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    bias = build("tupe_r", DIMS).stack.evaluate(Positions.of(7, 7, right))
    assert bias.dense(7, 7).bias.shape == (1, 2, 7, 7)
    left = build("tupe_r", DIMS).stack.evaluate(Positions.of(7, 7, LEFT_PADDING))
    assert left.dense(7, 7).bias.shape == (2, 2, 7, 7)


@pytest.mark.parametrize("name", ["tupe_a", "tupe_r"])
def test_a_head_is_lost_where_theta_2_exceeds_every_other_score_by_ln_t_and_5(name):
    encoding = build(name, DIMS, theta="free")
    stack, length = encoding.stack, DIMS.max_len
    scale_up(encoding)
    terms = encoding.terms(
        torch.zeros(1, 2, length, 4), torch.zeros(1, 2, length, 4), Positions.of(length, length, cls=False)
    )
    largest_H = evaluate(terms)[0].amax((1, 2))
    with torch.no_grad():
        stack.theta[1] = largest_H + math.log(length) + torch.tensor([5.01, 4.99])
        if name == "tupe_r":
            stack.theta[1] -= stack.b[32]
    assert stack.lost_heads() == [1]
    assert build(f"{name}_tie_cls", DIMS).stack.lost_heads() == []
