"""Encodings that read x, the layer's input: alone, and in every way in which a layer runs."""

import pytest
import torch
from loops import CASES, check_against_loops, scale_up_positions
from small_models import NO_DROPOUT, roberta, sentences, stack_of

from fairseq_relpos.encodings import ENCODINGS, Dims, PositionEncoding, build
from fairseq_relpos.encodings.base import normal_table
from fairseq_relpos.layers import torch_compile
from fairseq_relpos.positions import Positions
from fairseq_relpos.terms import Terms, full_precision


class Forgetting(PositionEncoding):
    """e_ij = s q_i.k_j + u_h.x_i + c_i - c_j, c_i = sum_{t <= i} log sigmoid(w_h.x_t)."""

    def __init__(self, dims):
        super().__init__(dims)
        self.u = normal_table(dims.num_heads, dims.embed_dim)
        self.w = normal_table(dims.num_heads, dims.embed_dim)

    def terms(self, q_BHTD, k_BHSD, pos):
        log_f_BSH = pos.of_keys("log_f", lambda x: torch.nn.functional.logsigmoid(full_precision(x @ self.w.mT)))
        c_BHS = log_f_BSH.cumsum(1).mT
        queries_BHT = c_BHS[..., -pos.tgt_len :] + full_precision(pos.x @ self.u.mT).mT
        return Terms(q_BHTD, k_BHSD, self.scale, bias=queries_BHT[..., None] - c_BHS[:, :, None])


@pytest.fixture(autouse=True)
def forgetting(monkeypatch):
    Forgetting.name = "forgetting"
    monkeypatch.setitem(ENCODINGS, "forgetting", Forgetting)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths, padding", CASES)
def test_an_encoding_with_gates_of_its_own_meets_its_equation(lengths, padding, causal):
    encoding = build("forgetting", Dims(12, 3, 9, causal))
    x_BSE = torch.randn(2, lengths[1], 12, dtype=torch.float64)
    skipped = [0, 0] if padding is None else padding.sum(1).tolist()

    def oracle(q, k, head, i, j, sentence):
        x = x_BSE[sentence, skipped[sentence] :]
        gates = [torch.log(torch.sigmoid(encoding.w[head] @ x[t])) for t in range(len(x))]
        c = [sum(gates[: t + 1]) for t in range(len(x))]
        return q[i] @ k[j] / 2 + encoding.u[head] @ x[i] + c[i] - c[j]

    check_against_loops(encoding, oracle, *lengths, padding, whole=True, x_BSE=x_BSE)


def test_reading_x_where_there_is_none_says_what_to_give():
    q = torch.randn(1, 3, 4, 4)
    with pytest.raises(ValueError, match=r"reads the layer's input x.*Positions.of\(\.\.\., x=x_BSE\)"):
        build("forgetting", Dims(12, 3, 9)).logits(q, q, Positions.of(4, 4))
    with pytest.raises(ValueError, match="log_f is known of 3 tokens, but there are 4 keys"):
        build("forgetting", Dims(12, 3, 9)).logits(q[:, :, :1], q, Positions.of(1, 4, x=torch.randn(1, 3, 12)))


def test_an_encoding_that_does_not_read_x_computes_none():
    pos = Positions.of(4, 4)
    q = torch.randn(1, 3, 4, 4)
    with pos.in_layer(lambda: pytest.fail("x was computed")):
        build("t5", Dims(12, 3, 9)).terms(q, q, pos)


def trained(**settings):
    model = roberta("roberta_none", position_encoding="forgetting", **NO_DROPOUT, **settings).train()
    scale_up_positions(stack_of(model))
    tokens = sentences()
    out = model(tokens)[0][tokens.ne(1)]
    out.float().square().mean().backward()
    return out, {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", ["checkpoint_activations", "unpad", "torch_compile", "checkpoint_activations unpad"]
)
def test_however_a_layer_runs_it_reads_the_same_x(settings, monkeypatch):
    torch.manual_seed(3)
    expected = trained()
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **kwargs: compile(f, backend="aot_eager", **kwargs))
    torch_compile._compiled.cache_clear()
    torch.manual_seed(3)
    torch.testing.assert_close(trained(**dict.fromkeys(settings.split(), True)), expected, atol=1e-5, rtol=1e-4)
    torch_compile._compiled.cache_clear()
    assert all(expected[1][f"encoder.sentence_encoder.layers.2.self_attn.position_encoding.{x}"].any() for x in "uw")
