"""T5, T5-NoB and BERT-R against their equations in loops, and the authors' numbers."""

import math

import pytest
import torch
from loops import CAUSAL, DIMS, LENGTHS, check_against_loops, clip, golden

from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions


def t5_bucket(offset, num_buckets, max_distance, causal):
    """Raffel et al.'s function for one offset, in floating point."""
    start = 0
    if not causal:
        num_buckets //= 2
        start = num_buckets if offset > 0 else 0
        distance = abs(offset)
    else:
        distance = max(0, -offset)
    exact = num_buckets // 2
    if distance < exact:
        return start + distance
    ratio = math.log(distance / exact + 1e-12) / math.log(max_distance / exact)
    return start + min(num_buckets - 1, exact + int(ratio * (num_buckets - exact)))


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "hparams",
    [
        {},
        {"num_buckets": 6, "max_distance": 5},
        {"scale": "none"},
        {"scale_bias": True},
        {"heads": "shared"},
        {"per_layer": True},
    ],
)
@pytest.mark.parametrize("name", ["t5", "t5_nob"])
def test_bias_is_added_to_the_scaled_content(name, hparams, lengths, dims):
    if name == "t5_nob":
        hparams = {k: v for k, v in hparams.items() if k != "num_buckets"}
    encoding = build(name, dims, **hparams)
    b = encoding.stack.b
    s = 1 if hparams.get("scale") == "none" else 1 / math.sqrt(dims.head_dim)
    bias_scale = s if hparams.get("scale_bias") else 1

    def oracle(q_i, k_j, head, i, j, sentence):
        if name == "t5":
            row = t5_bucket(j - i, encoding.hparams["num_buckets"], encoding.hparams["max_distance"], dims.causal)
        else:
            k = encoding.hparams["max_distance"]
            row = clip(j - i, k) + k
        column = 0 if hparams.get("heads") == "shared" else head
        return s * (q_i @ k_j) + bias_scale * b[row, column]

    check_against_loops(encoding, oracle, *lengths)


def test_t5_nob_equals_the_authors_bias():
    g = golden("at5.npz", "t5nob")
    heads, length = g["bias"].shape[:2]
    stack = build("t5_nob", Dims(4 * heads, heads, length)).stack
    with torch.no_grad():
        stack.b.copy_(g["table"][1:])  # their row 0 of 2n is unused
    bias = stack.share(Positions.of(length, length)).dense(length, length).bias[0]
    torch.testing.assert_close(bias.detach(), g["bias"], atol=1e-5, rtol=0)


def test_bert_r_is_learned_at_the_input_and_t5_in_attention():
    encoding = build("bert_r", DIMS)
    b = encoding.stack.b

    def oracle(q_i, k_j, head, i, j, sentence):
        return q_i @ k_j / 2 + b[t5_bucket(j - i, 32, 128, False), head]

    tokens = torch.tensor([[0, 5, 6], [0, 5, 1]])
    assert encoding.embed(tokens)[0, 1].equal(encoding.stack.weight[3])
    check_against_loops(encoding, oracle, 7, 7)
