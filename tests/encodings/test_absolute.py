"""Encodings that leave the logits alone, against s q.k in loops."""

import math

import pytest
import torch
from loops import LENGTHS, check_against_loops

from fairseq_relpos.encodings import Dims, build


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", ["none", "learned", "sinusoidal", "shape"])
def test_attention_sees_content_only(name, lengths, causal):
    def oracle(q_i, k_j, head, i, j, sentence):
        return q_i @ k_j / 2

    check_against_loops(build(name, Dims(8, 2, 9, causal=causal)), oracle, *lengths)


PAD = 1
#: two sentences, one padded on each side
TOKENS = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, PAD, PAD], [PAD, PAD, 5, 6, 7]])


def check_added(encoding, position, atol):
    """Compares the vectors added to the embeddings with loops. position(b, n): that of the n-th real token of
    sentence b, counted as fairseq does, from the pad's index on."""
    added = encoding.embed(TOKENS).double()
    for b, sentence in enumerate(TOKENS.tolist()):
        n = 0
        for t, token in enumerate(sentence):
            n += token != PAD
            for c in range(added.size(2)):
                expected = 0.0 if token == PAD else position(b, PAD + n, c)
                assert abs(float(added[b, t, c]) - float(expected)) <= atol, (b, t, c)


def sinusoid(i, c, dim):
    half = dim // 2
    angle = i * 10000 ** (-(c % half) / (half - 1))
    return math.sin(angle) if c < half else math.cos(angle)


def test_sinusoids_in_loops():
    """The table is fairseq's to the last bit, so in float32."""
    check_added(build("sinusoidal", Dims(8, 2, 9)), lambda b, i, c: sinusoid(i, c, 8), 1e-6)


def test_learned_positions_in_loops():
    encoding = build("learned", Dims(8, 2, 9)).double()
    check_added(encoding, lambda b, i, c: encoding.stack.weight[i, c], 0)


def test_shape_shifts_each_sentence_in_training_alone():
    encoding = build("shape", Dims(8, 2, 9), max_shift=20)
    torch.manual_seed(3)
    encoding.train()
    state = torch.random.get_rng_state()
    shifts = torch.randint(21, (3, 1))[:, 0].tolist()
    torch.random.set_rng_state(state)
    assert len(set(shifts)) == 3
    check_added(encoding, lambda b, i, c: sinusoid(i + shifts[b], c, 8), 1e-5)
    check_added(encoding.eval(), lambda b, i, c: sinusoid(i, c, 8), 1e-6)
    encoding.train()
    seen = {round(float(torch.atan2(*encoding.embed(TOKENS[:1])[0, 0, [0, 4]])), 3) for _ in range(300)}
    assert len(seen) == 21  # every shift from 0 to 20
