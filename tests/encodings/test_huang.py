"""M1 to M4, M4M and their variants against their equations in loops."""

import math

import pytest
import torch
from loops import LENGTHS, check_against_loops

from fairseq_relpos.encodings import Dims, build

DIMS = Dims(embed_dim=8, num_heads=2, max_len=9)
CAUSAL = Dims(embed_dim=8, num_heads=2, max_len=9, causal=True)


def clip(x, k):
    return max(-k, min(k, x))


def dot(*vectors):
    return sum(math.prod(values) for values in zip(*vectors))


OPTIONS = [{}, {"max_distance": 2}, {"heads": "each"}, {"scale_factor": 3}]


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("hparams", OPTIONS)
@pytest.mark.parametrize("name", ["m1", "m2"])
def test_m1_and_m2_multiply_by_a_scalar(name, hparams, lengths, dims):
    encoding = build(name, dims, **hparams)
    k = hparams.get("max_distance", 8)
    s = 1 / math.sqrt(hparams.get("scale_factor", 1) * dims.head_dim)

    def oracle(q_i, k_j, head, i, j, sentence):
        row = min(abs(j - i), k) if name == "m1" else clip(j - i, k) + k
        return s * dot(q_i, k_j) * encoding.table[row, head if "heads" in hparams else 0]

    check_against_loops(encoding, oracle, *lengths)


def vector(encoding, hparams, row, head):
    d = encoding.dims.head_dim
    start = head * d if "heads" in hparams else 0
    return encoding.table[row, start : start + d]


EQUATIONS = {
    "m3": lambda q, k, a: dot(q, k, a),
    "m4": lambda q, k, a: dot(q, k) + dot(q, a) + dot(k, a),
    "m4m": lambda q, k, a: dot(q, k) * dot(q, a) * dot(k, a),
    "abs_m4m": lambda q, k, a: dot(q, k) * dot(q, a) * dot(k, a),
}


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("hparams", OPTIONS)
@pytest.mark.parametrize("name", EQUATIONS)
def test_vectors_meet_query_and_key(name, hparams, lengths, dims):
    encoding = build(name, dims, **hparams)
    k = hparams.get("max_distance", 8)
    s = 1 / math.sqrt(hparams.get("scale_factor", 1) * dims.head_dim)

    def oracle(q_i, k_j, head, i, j, sentence):
        a = vector(encoding, hparams, clip(j - i, k) + k, head)
        return s * EQUATIONS[name](q_i, k_j, a)

    check_against_loops(encoding, oracle, *lengths)


LEFT_PADDING = torch.tensor([[False] * 7, [True] * 3 + [False] * 4])


@pytest.mark.parametrize("padding", [None, LEFT_PADDING])
def test_m4_reset_unties_cls(padding):
    encoding = build("m4_reset", DIMS)

    def oracle(q_i, k_j, head, i, j, sentence):
        if i == 0 or j == 0:
            return dot(q_i, k_j) / 2 + encoding.theta[0 if i == 0 else 1, head]
        a = vector(encoding, {}, j - i + 8, head)
        return EQUATIONS["m4"](q_i, k_j, a) / 2

    check_against_loops(encoding, oracle, 7, 7, padding)


def test_m4_reset_without_cls_is_m4():
    encoding = build("m4_reset", CAUSAL)
    assert "theta" not in dict(encoding.named_parameters())

    def oracle(q_i, k_j, head, i, j, sentence):
        return EQUATIONS["m4"](q_i, k_j, vector(encoding, {}, j - i + 8, head)) / 2

    check_against_loops(encoding, oracle, 7, 7)


def test_abs_m4m_adds_learned_positions_to_the_input():
    encoding = build("abs_m4m", DIMS)
    assert encoding.embed(torch.tensor([[0, 5, 1]]))[0, 1].equal(encoding.stack.weight[3])


@pytest.mark.parametrize("name", ["m1", "m2", "m3"])
def test_ones_start_as_attention_without_positions(name):
    encoding = build(name, DIMS, init="ones")
    from loops import random_qk

    from fairseq_relpos.positions import Positions

    q, k = random_qk(DIMS, 7, 7, dtype=torch.float32)
    torch.testing.assert_close(encoding.logits(q, k, Positions.of(7, 7)), q @ k.mT / 2)
