"""RoPE, ALiBi, KERPLE, Sandwich, FIRE and TISA against their equations in loops."""

import math
from dataclasses import replace

import pytest
import torch
from loops import CASES, LENGTHS, check_against_loops, random_qk

from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.encodings.alibi import slopes
from fairseq_relpos.positions import Positions

DIMS = Dims(embed_dim=12, num_heads=3, max_len=9)
CAUSAL = Dims(embed_dim=12, num_heads=3, max_len=9, causal=True)


EIGHT = Dims(embed_dim=24, num_heads=3, max_len=9)  # dimensions a head
#: hyperparameters, the angle of each pair that turns at position 1, how far apart the two of a pair are
ROTATIONS = [
    ({"base": 10000}, [10000 ** (-c / 4) for c in range(4)], 4),
    ({"base": 50}, [50 ** (-c / 4) for c in range(4)], 4),
    # for 4 times the length
    ({"scaling": "interpolation", "factor": 4}, [10000 ** (-c / 4) / 4 for c in range(4)], 4),
    ({"scaling": "ntk", "factor": 4}, [(10000 * 4 ** (8 / 6)) ** (-c / 4) for c in range(4)], 4),
    # within 2048 tokens the pairs turn 326, 33, 3.3 and 0.3 times. The ramp goes from 1.01, where it is 32 turns, down
    # to 1, to 2.51, where it is one, up to 3
    (
        {"scaling": "yarn", "factor": 4, "trained_length": 2048},
        [1, 10000**-0.25, 10000**-0.5 * (1 / 2 + 1 / 2 / 4), 10000**-0.75 / 4],
        4,
    ),
    # half of the dimensions: two pairs
    ({"fraction": 0.5, "kind": "partial"}, [10000 ** (-c / 2) for c in range(2)], 2),
    ({"fraction": 0.5, "kind": "proportional"}, [10000 ** (-c / 4) for c in range(2)], 4),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("hparams, angles, apart", ROTATIONS, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_rope_rotates_pairs_by_their_position(hparams, angles, apart, lengths, causal):
    size = 0.1 * math.log(4) + 1 if hparams.get("scaling") == "yarn" else 1

    def rotated(x, p):
        out = list(x)
        for c, angle in enumerate(angles):
            a, b = x[c], x[c + apart]
            out[c] = a * math.cos(p * angle) - b * math.sin(p * angle)
            out[c + apart] = a * math.sin(p * angle) + b * math.cos(p * angle)
        return out

    def oracle(q_i, k_j, head, i, j, sentence):
        return size**2 * sum(a * b for a, b in zip(rotated(q_i, i), rotated(k_j, j))) / math.sqrt(8)

    check_against_loops(build("rope", replace(EIGHT, causal=causal), **hparams), oracle, *lengths)


@pytest.mark.parametrize("kind", ["partial", "proportional"])
def test_all_dimensions_turn_at_fraction_1_and_more_than_the_pairs_are_refused(kind):
    plain, whole = build("rope", EIGHT), build("rope", EIGHT, fraction=1.0, kind=kind)
    for one, other in zip(plain.rotation(9, torch.device("cpu")), whole.rotation(9, torch.device("cpu"))):
        assert torch.equal(one, other)
    assert plain.signature == "pe:rope|base:10000"  # that of the checkpoints from before fractions
    assert build("rope", EIGHT, fraction=0.5).signature == "pe:rope|base:10000|fraction:0.5"
    for fraction in (0, -0.5, 1.25, 0.3, 0.125):
        with pytest.raises(ValueError, match=f"fraction={fraction:g} of a head of 8 .*0.25, 0.5, 0.75, 1$"):
            build("rope", EIGHT, fraction=fraction, kind=kind)


@pytest.mark.parametrize("name", ["rope", "pope"])
def test_a_training_may_use_the_angles_that_an_inference_has_computed(name):
    """Also in float64, in which they are multiplied as they are."""
    q, k = (x.requires_grad_() for x in random_qk(DIMS, 7, 7))
    encoding = build(name, DIMS, base=7654).double()  # of no other test, so that the angles are not known before
    with torch.inference_mode():
        encoding.logits(q, k, Positions.of(7, 7))
    encoding.logits(q, k, Positions.of(7, 7)).sum().backward()
    assert q.grad.any() and k.grad.any()


@pytest.mark.parametrize("kind", ["partial", "proportional"])
def test_a_fraction_turns_as_in_transformers(kind):
    from transformers import GPTNeoXConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.gpt_neox import modeling_gpt_neox as neox

    rope = {"rope_theta": 100.0, "partial_rotary_factor": 0.25, "rope_type": "default"}
    if kind == "proportional":
        rope["rope_type"] = "proportional"
        assert "proportional" in ROPE_INIT_FUNCTIONS
    config = GPTNeoXConfig(hidden_size=48, num_attention_heads=3, rope_parameters=rope)
    q, k = random_qk(Dims(48, 3, 9), 9, 9)
    angles = neox.GPTNeoXRotaryEmbedding(config)(q, torch.arange(9)[None])
    theirs_q, theirs_k = neox.apply_rotary_pos_emb(q, k, *angles)
    terms = build("rope", Dims(48, 3, 9), base=100.0, fraction=0.25, kind=kind).terms(q, k, Positions.of(9, 9))
    torch.testing.assert_close(terms.q_BHTD, theirs_q, atol=2e-6, rtol=0)  # their angles are float32
    torch.testing.assert_close(terms.k_BHSD, theirs_k, atol=2e-6, rtol=0)


@pytest.mark.parametrize("trained_length", [1, 4, 6, 7, 64])
def test_yarn_interpolates_all_pairs_but_the_first_where_none_turned_once_in_training(trained_length):
    plain = build("rope", EIGHT).rotation(2, torch.device("cpu"))
    scaled = build("rope", EIGHT, scaling="yarn", factor=4, trained_length=trained_length)
    cos, sin = scaled.rotation(2, torch.device("cpu"))
    angle = torch.atan2(sin, cos)[1] / torch.atan2(plain[1], plain[0])[1]
    assert angle[0] == 1 and (angle[1:] < 1).all() and angle[-1] == pytest.approx(0.25), angle


def test_slopes_follow_the_authors_rule():
    assert slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert slopes(3).tolist() == [2.0**-4, 2.0**-8, 2.0**-2]
    assert slopes(12)[8:].tolist() == [2.0 ** -(h / 2) for h in (1, 3, 5, 7)]


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("form", ["symmetric", "asymmetric", "trained"])
def test_alibi_falls_with_the_distance(form, lengths, dims):
    encoding = build("alibi", dims, form=form)
    rule = [2.0**-4, 2.0**-8, 2.0**-2]

    def oracle(q_i, k_j, head, i, j, sentence):
        distance = abs(j - i)
        if form == "trained":
            slope = encoding.stack.slope[head, 1 if j > i else 0]
        else:
            slope = rule[head]
            distance += 0.5 if form == "asymmetric" and j > i else 0
        return q_i @ k_j / 2 - slope * distance

    check_against_loops(encoding, oracle, *lengths)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_slopes_of_alibi_have_the_models_precision_and_float32_at_least(dtype):
    encoding, wide = build("alibi", Dims(32, 16, 900)).to(dtype), torch.promote_types(dtype, torch.float32)
    q, k = torch.zeros(1, 16, 1, 2, dtype=dtype), torch.zeros(1, 16, 900, 2, dtype=dtype)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = encoding.logits(q, k, Positions.of(1, 900))[0, :, 0]
    finally:
        torch.set_default_dtype(before)
    wanted = -slopes(16)[:, None] * torch.arange(899, -1, -1)
    torch.testing.assert_close(found, wanted.to(wide), rtol=torch.finfo(wide).eps, atol=0)


def test_trained_slopes_start_at_the_rule():
    assert build("alibi", DIMS, form="trained").stack.slope.tolist() == [[m, m] for m in (2.0**-4, 2.0**-8, 2.0**-2)]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("per_layer", [True, False])
@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_kerple_is_a_logarithm_or_a_power(name, per_layer, lengths):
    encoding = build(name, DIMS, per_layer=per_layer)

    def oracle(q_i, k_j, head, i, j, sentence):
        raw1, raw2 = encoding.stack.r[:, head]
        r1 = torch.log(1 + torch.exp(raw1))
        if name == "kerple_log":
            penalty = torch.log(1 + torch.log(1 + torch.exp(raw2)) * abs(j - i))
        else:
            penalty = torch.exp(2 / (1 + torch.exp(-raw2)) * math.log(abs(j - i))) if i != j else 0
        return q_i @ k_j / 2 - r1 * penalty

    check_against_loops(encoding, oracle, *lengths)


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("width", [128, 6])
def test_sandwich_is_the_product_of_two_sinusoidal_vectors(width, lengths, dims):
    def vector(p):
        angles = [p / 10000 ** (2 * c / width) for c in range(width // 2)]
        return [f(angle) for f in (math.sin, math.cos) for angle in angles]

    def oracle(q_i, k_j, head, i, j, sentence):
        product = sum(a * b for a, b in zip(vector(i), vector(j)))
        return q_i @ k_j / 2 + (product - width / 2) / ((head + 1) * 8 / 3)

    check_against_loops(build("sandwich", dims, width=width), oracle, *lengths)


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths, padding", CASES)
@pytest.mark.parametrize("threshold", [4, 4000])
def test_fire_normalises_the_distance(threshold, lengths, padding, dims):
    encoding = build("fire", dims, threshold=threshold, hidden=5)
    stack = encoding.stack

    def oracle(q_i, k_j, head, i, j, sentence):
        c, limit = stack.c[0].abs(), threshold * stack.factor[0]
        x = [torch.log(c * abs(j - i) + 1) / torch.log(c * max(limit, i, j) + 1)]
        if not dims.causal:
            x.append((j > i) - (j < i))
        hidden = [
            sum(w * v for w, v in zip(weights, x)) + b for weights, b in zip(stack.inner.weight, stack.inner.bias)
        ]
        hidden = [value * (value > 0) for value in hidden]
        bias = sum(w * v for w, v in zip(stack.outer.weight[head], hidden)) + stack.outer.bias[head]
        return q_i @ k_j / 2 + bias

    check_against_loops(encoding, oracle, *lengths, padding)


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
@pytest.mark.parametrize("drawn", [0.0, 1.0])
def test_kerple_starts_finite_from_every_number_that_can_be_drawn(name, drawn, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda tensor, *bounds: tensor.fill_(drawn))
    assert build(name, Dims(8, 2, max_len=8)).stack.r.isfinite().all()


@pytest.mark.parametrize("factor", [-1e-3, 0.0, -1.0])
@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
def test_fire_stays_finite_where_its_threshold_has_been_learned_away(dims, factor):
    encoding = build("fire", dims, threshold=4)
    encoding.stack.factor.data.fill_(factor)
    q, k = random_qk(dims, 7, 7, dtype=torch.float32)
    logits = encoding.logits(q, k, Positions.of(7, 7))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in encoding.parameters())


@pytest.mark.parametrize("name, most1, most2", [("kerple_log", 2, 1), ("kerple_power", 1, 2)])
def test_kerple_starts_where_the_authors_do(name, most1, most2):
    raw1, raw2 = build(name, Dims(4000, 1000, 8)).stack.r
    r1 = torch.nn.functional.softplus(raw1)
    r2 = torch.nn.functional.softplus(raw2) if name == "kerple_log" else 2 * raw2.sigmoid()
    for r, most in ((r1, most1), (r2, most2)):
        assert 0.95 * most < r.max() <= most and 0.45 * most < r.mean() < 0.55 * most


def test_fire_starts_with_the_threshold_and_the_c_that_are_given():
    stack = build("fire", DIMS, c=0.3, threshold=9).stack
    assert stack.c.item() == pytest.approx(0.3) and (stack.factor.item(), stack.threshold) == (1, 9)
    assert build("fire", DIMS).stack.c.item() == pytest.approx(0.1)


def test_fire_is_one_value_an_offset_while_no_token_is_beyond_its_threshold():
    stack = build("fire", DIMS, threshold=8).stack
    assert stack.share(Positions.of(9, 9)).bias_row.shape == (3, 17)
    assert stack.share(Positions.of(10, 10)).bias.shape == (1, 3, 10, 10)


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kernels, per_layer", [(5, True), (2, False)])
def test_tisa_is_a_sum_of_bells(kernels, per_layer, lengths, dims):
    encoding = build("tisa", dims, kernels=kernels, per_layer=per_layer)

    def oracle(q_i, k_j, head, i, j, sentence):
        a, b, c = (x[:, head] for x in (encoding.stack.a, encoding.stack.b, encoding.stack.c))
        return q_i @ k_j / 2 + sum(a[s] * torch.exp(-abs(b[s]) * (j - i - c[s]) ** 2) for s in range(kernels))

    check_against_loops(encoding, oracle, *lengths)


def test_tisa_starts_where_the_authors_do():
    stack = build("tisa", Dims(4000, 1000, 8)).stack
    for start, mean, std in ((stack.a, 0.1, 0.01), (stack.b, 0.1, 0.01), (stack.c, 0, 5)):
        assert abs(start.mean() - mean) < 0.1 * std and abs(start.std() / std - 1) < 0.05
