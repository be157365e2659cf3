"""Transformer-XL and GCDF against their equations in loops."""

import math

import pytest
import torch
from loops import CAUSAL, DIMS, LENGTHS, check_against_loops, clip

from fairseq_relpos.encodings import build


def sinusoid(p, dim):
    angles = [p / 10000 ** (2 * c / dim) for c in range(dim // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


def gaussian(p, dim, scale):
    return [scale * 0.5 * (1 + math.erf(p / dim ** (c / dim) / math.sqrt(2))) for c in range(1, dim + 1)]


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "name, hparams",
    [
        ("transformer_xl", {}),
        ("transformer_xl", {"untie": True}),
        ("transformer_xl", {"clamp": 3}),
        ("gcdf", {}),
        ("gcdf", {"lambda": 2}),
        ("gcdf", {"clamp": 1}),
    ],
)
def test_a_projected_prior_meets_the_query(name, hparams, lengths, dims):
    encoding = build(name, dims, **hparams)
    owner = encoding if encoding.untie else encoding.stack
    d = dims.head_dim

    def oracle(q_i, k_j, head, i, j, sentence):
        distance = clip(i - j, hparams.get("clamp", 100))
        if name == "gcdf":
            prior = gaussian(distance, dims.embed_dim, hparams.get("lambda", 4))
        else:
            prior = sinusoid(distance, dims.embed_dim)
        prior = torch.tensor(prior, dtype=torch.float64)
        projected = encoding.w.weight[head * d : (head + 1) * d] @ prior
        u, v = owner.u[head], owner.v[head]
        return ((q_i + u) @ k_j + (q_i + v) @ projected) / math.sqrt(d)

    check_against_loops(encoding, oracle, *lengths)


def test_left_and_right_stay_apart_at_any_distance():
    for name in ("transformer_xl", "gcdf"):
        encoding = build(name, DIMS)
        rows = encoding.prior(400)
        assert not torch.allclose(rows[0], rows[-1])


def test_a_trained_model_may_be_evaluated_with_another_clamp():
    trained = build("transformer_xl", CAUSAL, untie=True)
    assert trained.signature == "pe:transformer_xl|untie:True"
    assert build("transformer_xl", CAUSAL, untie=True, clamp=400).signature == trained.signature
