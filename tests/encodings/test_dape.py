"""DAPE against its equation in loops, and against the authors' code."""

import pytest
import torch
from loops import LENGTHS, check_against_loops, golden
from torch.nn.functional import softplus

from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions

#: bias -> its value for a head at an offset, with the stack part
BIASES = {
    "kerple_log": lambda part, h, offset: -softplus(part.r[0, h]) * torch.log(1 + softplus(part.r[1, h]) * abs(offset)),
    "alibi": lambda part, h, offset: torch.tensor(-abs(offset) * [2**-4, 2**-8, 2**-2][h]),
    "t5": lambda part, h, offset: part.b[abs(offset) + 16 * (offset > 0), h],
    "tisa": lambda part, h, offset: (
        part.a[:, h] * torch.exp(-part.b[:, h].abs() * (offset - part.c[:, h]) ** 2)
    ).sum(),
}


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("bias", BIASES)
def test_dape_adapts_the_bias_to_the_logits_of_all_heads(bias, lengths):
    encoding = build("dape", Dims(12, 3, 9), bias=bias, hidden=5)

    def oracle(q, k, head, i, j, sentence):
        a = [q[h, i] @ k[h, j] / 2 for h in range(3)]
        b = [BIASES[bias](encoding.stack, h, j - i) for h in range(3)]
        x = encoding.inner.weight @ torch.stack([*a, *b]).double() + encoding.inner.bias
        return a[head] + b[head] + encoding.outer.weight[head] @ torch.where(x > 0, x, 0.01 * x)

    check_against_loops(encoding, oracle, *lengths, whole="heads")


@pytest.mark.parametrize("bias", ["alibi", "kerple_log"])
def test_the_authors_dape(bias):
    g = golden("dape.npz", bias)
    _, heads, length, width = g["q"].shape
    encoding = build("dape", Dims(heads * width, heads, length, causal=True), bias=bias)
    weights = {name: g[name] for name in ("inner.weight", "inner.bias", "outer.weight")}
    if bias == "kerple_log":
        weights["stack.r"] = g["r"].expm1().log()  # softplus of it is theirs
    encoding.load_state_dict(weights)
    logits = encoding.logits(g["q"], g["k"], Positions.of(length, length))
    future = torch.ones(length, length).triu(1).bool()
    # log-probabilities: their result has one more number for each head
    found, expected = (
        x.masked_fill(future, -torch.inf).log_softmax(-1).masked_fill(future, 0) for x in (logits, g["e"])
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
