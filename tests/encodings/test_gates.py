"""FoX, PaTH and PoPE against their equations in loops, and against public code."""

import math

import pytest
import torch
from loops import CASES, LENGTHS, check_against_loops, golden
from torch.nn.functional import logsigmoid, softplus

from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions

DIMS = Dims(12, 3, 9)
CAUSAL = Dims(12, 3, 9, causal=True)


def real(x_SE, padding_BS, sentence):
    return x_SE if padding_BS is None else x_SE[~padding_BS[sentence]]


@pytest.mark.parametrize("lengths, padding", CASES)
def test_fox_adds_the_logs_of_the_gates_between_key_and_query(lengths, padding):
    encoding = build("fox", CAUSAL)
    x_BSE = torch.randn(2, lengths[1], 12, dtype=torch.float64)

    def oracle(q, k, head, i, j, sentence):
        x = real(x_BSE[sentence], padding, sentence)
        logs = [logsigmoid(encoding.w[head] @ x[t] + encoding.b[head]) for t in range(j + 1, i + 1)]
        return q[i] @ k[j] / 2 + sum(logs)

    check_against_loops(encoding, oracle, *lengths, padding, whole=True, x_BSE=x_BSE)


@pytest.mark.parametrize("lengths, padding", CASES)
def test_path_reflects_the_key_by_every_token_up_to_the_query(lengths, padding):
    encoding = build("path", CAUSAL)
    x_BSE = torch.randn(2, lengths[1], 12, dtype=torch.float64)

    def oracle(q, k, head, i, j, sentence):
        x = real(x_BSE[sentence], padding, sentence)
        moved = k[j]
        for t in range(j + 1, i + 1):
            w = encoding.W[4 * head : 4 * head + 4] @ x[t]
            w = w / w.norm()
            moved = moved - 2 * torch.sigmoid(encoding.u[head] @ x[t] + encoding.b[head]) * (w @ moved) * w
        return q[i] @ moved / 2

    check_against_loops(encoding, oracle, *lengths, padding, whole=True, x_BSE=x_BSE)


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("base", [10000, 50])
def test_pope_has_the_position_in_angles_alone(base, lengths, dims):
    encoding = build("pope", dims, base=base)

    def oracle(q_i, k_j, head, i, j, sentence):
        delta = encoding.delta[head].clamp(-2 * math.pi, 0)
        angle = (j - i) * torch.tensor([base ** (-c / 4) for c in range(4)], dtype=torch.float64) + delta
        return softplus(q_i) * softplus(k_j) @ angle.cos() / 2

    check_against_loops(encoding, oracle, *lengths)


def test_the_gates_of_fox_keep_their_digits_far_into_a_long_text():
    """As differences of two sums of 4,000 logs, of which float32 would keep three digits."""
    encoding = build("fox", Dims(8, 2, 4000, causal=True))
    torch.nn.init.normal_(encoding.w, 0, 0.5)
    x_BSE = torch.randn(1, 4000, 8)
    q, k = torch.zeros(1, 2, 4, 4), torch.zeros(1, 2, 4000, 4)
    found = encoding.logits(q, k, Positions.of(4, 4000, x=x_BSE))
    for back in range(1, 4):  # of the last query; the keys just before it
        logs = logsigmoid(x_BSE[0, -back:] @ encoding.w.mT).sum(0)
        torch.testing.assert_close(found[0, :, -1, -1 - back], logs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["fox", "path"])
def test_flash_linear_attentions_reference(name):
    g = golden("gates.npz", name)
    q, k, v = (g[key].transpose(1, 2) for key in "qkv")
    length, width = g["x"].shape[1:]
    encoding = build(name, Dims(width, q.size(1), length, causal=True))
    encoding.load_state_dict({key: g[key] for key in encoding.state_dict()})
    logits = encoding.logits(q, k, Positions.of(length, length, x=g["x"]))
    future = torch.ones(length, length).triu(1).bool()
    out = logits.masked_fill(future, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(out.transpose(1, 2), g["out"], atol=1e-5, rtol=0)


def test_x_transformers_polar_positions():
    g = golden("gates.npz", "pope")
    heads, length, width = g["q"].shape[1:]
    encoding = build("pope", Dims(heads * width, heads, length))
    encoding.load_state_dict({"delta": g["delta"]})
    logits = encoding.logits(g["q"], g["k"], Positions.of(length, length))
    torch.testing.assert_close(logits.softmax(-1), g["probs"], atol=1e-5, rtol=0)
