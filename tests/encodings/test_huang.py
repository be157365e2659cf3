"""M1 to M4, M4M and their variants against their equations in loops."""

import math

import pytest
import torch
from loops import CAUSAL, DIMS, LEFT_PADDING, LENGTHS, check_against_loops, clip, random_qk

from fairseq_relpos.encodings import build
from fairseq_relpos.positions import Positions


def dot(*vectors):
    return sum(math.prod(values) for values in zip(*vectors))


def entries(encoding, hparams, row, head, width=4):
    """The part of a table's row that is the head's."""
    start = head * width if "heads" in hparams else 0
    return encoding.table[row, start : start + width]


#: a: the entries of the offset, of which m1 and m2 have one
EQUATIONS = {
    "m1": lambda q, k, a: dot(q, k) * a[0],
    "m2": lambda q, k, a: dot(q, k) * a[0],
    "m3": lambda q, k, a: dot(q, k, a),
    "m4": lambda q, k, a: dot(q, k) + dot(q, a) + dot(k, a),
    "m4m": lambda q, k, a: dot(q, k) * dot(q, a) * dot(k, a),
    "abs_m4m": lambda q, k, a: dot(q, k) * dot(q, a) * dot(k, a),
}


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("hparams", [{}, {"max_distance": 2}, {"heads": "each"}, {"scale_factor": 3}])
@pytest.mark.parametrize("name", EQUATIONS)
def test_entries_of_the_offset_meet_query_and_key(name, hparams, lengths, dims):
    encoding = build(name, dims, **hparams)
    furthest = hparams.get("max_distance", 8)
    s = 1 / math.sqrt(hparams.get("scale_factor", 1) * dims.head_dim)

    def oracle(q_i, k_j, head, i, j, sentence):
        row = min(abs(j - i), furthest) if name == "m1" else clip(j - i, furthest) + furthest
        a = entries(encoding, hparams, row, head, width=1 if name in ("m1", "m2") else 4)
        return s * EQUATIONS[name](q_i, k_j, a)

    check_against_loops(encoding, oracle, *lengths)


@pytest.mark.parametrize("dims, padding", [(DIMS, None), (DIMS, LEFT_PADDING), (CAUSAL, None)])
def test_m4_reset_unties_cls_and_is_m4_where_there_is_none(dims, padding):
    encoding = build("m4_reset", dims)
    assert hasattr(encoding, "theta") != dims.causal

    def oracle(q_i, k_j, head, i, j, sentence):
        if not dims.causal and (i == 0 or j == 0):
            return dot(q_i, k_j) / 2 + encoding.theta[0 if i == 0 else 1, head]
        return EQUATIONS["m4"](q_i, k_j, entries(encoding, {}, j - i + 8, head)) / 2

    check_against_loops(encoding, oracle, 7, 7, padding)


def test_abs_m4m_adds_learned_positions_to_the_input():
    encoding = build("abs_m4m", DIMS)
    assert encoding.embed(torch.tensor([[0, 5, 1]]))[0, 1].equal(encoding.stack.weight[3])


@pytest.mark.parametrize("name", ["m1", "m2", "m3"])
def test_ones_start_as_attention_without_positions(name):
    q, k = random_qk(DIMS, 7, 7, dtype=torch.float32)
    logits = build(name, DIMS, init="ones").logits(q, k, Positions.of(7, 7))
    torch.testing.assert_close(logits, q @ k.mT / 2)
