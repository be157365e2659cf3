"""AT5 and AT5-NoB against their equations in loops, and the authors' TensorFlow numbers."""

import math

import pytest
import torch
from loops import CAUSAL, DIMS, LENGTHS, check_against_loops, clip, golden

from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions

ACTIVATIONS = {
    "relu": lambda x: x * (x > 0),
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "tanh": lambda x: (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x)),
}


def mlp_in_loops(mlp, x, head, activation):
    layer = x[None]
    for step, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases)):
        layer = layer @ weight[head] + bias[head]
        if step < 2:
            layer = ACTIVATIONS[activation](layer)
    return layer[0]


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "hparams", [{}, {"activation": "tanh", "hidden": "6,4"}, {"activation": "sigmoid"}, {"length": "20"}]
)
def test_at5_follows_equations_17_to_20(hparams, lengths, dims):
    encoding = build("at5", dims, **hparams)
    stack, n = encoding.stack, int(hparams.get("length", dims.max_len))
    activation = hparams.get("activation", "relu")

    def oracle(q_i, k_j, head, i, j, sentence):
        side = "positive" if j > i else "negative"
        gamma = stack.gamma[side][head]
        x = 1 - torch.exp(-gamma * (gamma > 0) * abs(j - i) / n)
        return q_i @ k_j / 2 + mlp_in_loops(stack.mlp[side], x, head, activation)

    check_against_loops(encoding, oracle, *lengths)


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
def test_at5_nob_follows_its_table(dims):
    encoding = build("at5_nob", dims, max_distance=4)
    stack = encoding.stack

    def oracle(q_i, k_j, head, i, j, sentence):
        x = 1 / (1 + torch.exp(-stack.t[clip(j - i, 4) + 4, head]))
        return q_i @ k_j / 2 + mlp_in_loops(stack.mlp, x, head, "relu")

    check_against_loops(encoding, oracle, 7, 7)


def test_length_input_counts_the_real_tokens_of_each_sentence():
    encoding = build("at5", DIMS, length="input")
    stack = encoding.stack
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])

    def oracle(q_i, k_j, head, i, j, sentence):
        side = "positive" if j > i else "negative"
        x = 1 - torch.exp(-stack.gamma[side][head] * abs(j - i) / (7, 4)[sentence])
        return q_i @ k_j / 2 + mlp_in_loops(stack.mlp[side], x, head, "relu")

    check_against_loops(encoding, oracle, 7, 7, padding)


def test_length_input_with_a_sentence_of_pads_alone_has_finite_gradients():
    encoding = build("at5", DIMS, length="input")
    padding = torch.tensor([[False] * 4, [True] * 4])
    encoding.stack.share(encoding.stack.positions(4, 4, padding_BS=padding)).bias[0].sum().backward()
    assert all(p.grad.isfinite().all() for p in encoding.stack.parameters())


def load_mlp(mlp, g, prefix=""):
    for step in (1, 2, 3):
        mlp.weights[step - 1].copy_(g[f"{prefix}w{step}"])
        mlp.biases[step - 1].copy_(g[f"{prefix}b{step}"])


@pytest.mark.parametrize("mode", ["bi", "causal"])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_at5_equals_the_authors_bias(activation, mode):
    g = golden("at5.npz", f"at5_{activation}_{mode}")
    heads, length = g["bias"].shape[:2]
    dims = Dims(4 * heads, heads, length, causal=mode == "causal")
    stack = build("at5", dims, activation=activation, hidden="6,4").stack
    with torch.no_grad():
        for side, short in (("negative", "neg"), ("positive", "pos")):
            if side in stack.gamma:
                stack.gamma[side].copy_(g[f"gamma_{short}"])
                load_mlp(stack.mlp[side], g, f"{short}_")
        bias = stack.share(Positions.of(length, length)).dense(length, length).bias[0]
    seen = torch.tril if dims.causal else torch.clone
    torch.testing.assert_close(seen(bias), seen(g["bias"]), atol=1e-5, rtol=0)


def test_at5_nob_equals_the_authors_bias():
    g = golden("at5.npz", "at5nob_mt")
    heads, length = g["bias"].shape[:2]
    stack = build("at5_nob", Dims(4 * heads, heads, length), hidden="6,4").stack
    with torch.no_grad():
        stack.t.copy_(g["table"][1:])
        load_mlp(stack.mlp, g)
        bias = stack.share(Positions.of(length, length)).dense(length, length).bias[0]
    torch.testing.assert_close(bias, g["bias"], atol=1e-5, rtol=0)


def test_a_fresh_mlp_has_glorots_weights_and_gamma_the_range_that_is_given():
    stack = build("at5", Dims(4000, 1000, 8), gamma_min=2, gamma_max=6, hidden="6,4").stack
    for gamma, mlp in ((stack.gamma[side], stack.mlp[side]) for side in ("negative", "positive")):
        assert 2 <= gamma.min() < 2.1 and 5.9 < gamma.max() <= 6 and abs(gamma.mean() - 4) < 0.2
        for weight, sizes in zip(mlp.weights, ((1, 6), (6, 4), (4, 1)), strict=True):
            largest = math.sqrt(6 / sum(sizes))
            assert 0.99 * largest < weight.abs().max() <= largest and abs(weight.mean()) < 0.05 * largest


@pytest.mark.parametrize("name", ["at5", "at5_nob"])
def test_the_mlp_drops_hidden_units_in_training_alone(name):
    """Without biases the result is a sum over paths of two units, which are kept with probability 0.75 each and then
    count 1 / 0.75 each: in the mean it is that of the evaluation."""
    stack = build(name, DIMS, mlp_dropout=0.25).stack
    mlp = stack.mlp["negative"] if name == "at5" else stack.mlp
    x_HR = torch.ones(DIMS.num_heads, 40_000)
    for weight in mlp.weights:
        weight.data.abs_()
    whole, dropped = mlp.eval()(x_HR), mlp.train()(x_HR)
    assert torch.equal(whole, mlp.eval()(x_HR)) and len(whole.unique()) == DIMS.num_heads
    assert dropped.std() > 0.05 * whole.mean()
    torch.testing.assert_close(dropped.mean(1), whole.mean(1), atol=0, rtol=0.02)
    pos = Positions.of(7, 7)
    biases = [stack.train(training).share(pos).dense(7, 7).bias for training in (True, True, False, False)]
    assert not torch.equal(*biases[:2]) and torch.equal(*biases[2:])


def test_a_fresh_bias_is_large_enough_to_matter():
    torch.manual_seed(0)
    bias = build("at5", Dims(64, 8, 128)).stack.share(Positions.of(128, 128)).dense(128, 128).bias
    assert bias.std() > 0.01
