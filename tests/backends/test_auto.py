"""The choice of auto, and that it says so."""

import logging

import pytest
import torch
from compilers import needs_compiler
from loops import random_qk

from fairseq_relpos.backends import Auto, Mask, fused, select
from fairseq_relpos.backends.triton import Triton
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.gated import compiled
from fairseq_relpos.positions import Positions
from fairseq_relpos.rows import Clipped
from fairseq_relpos.terms import Bias


def call(name, tgt_len, src_len, dropout_p=0.0, need_weights=False, auto=None):
    encoding = build(name, Dims(8, 2, src_len))
    q, k = random_qk(encoding.dims, tgt_len, src_len, batch=1, dtype=torch.float32)
    q.requires_grad_(torch.is_grad_enabled())
    terms = encoding.terms(q, k, Positions.of(tgt_len, src_len))
    auto = auto or select("auto")
    out, weights = auto(terms, k.clone(), Mask(), dropout_p, need_weights)
    assert (weights is not None) == need_weights
    return auto.choose(terms, Mask(), dropout_p, need_weights)[0].name


@pytest.fixture
def not_compiled(monkeypatch):
    """A machine without a compiler."""
    monkeypatch.setenv("FAIRSEQ_RELPOS_COMPILE", "0")
    for cached in (compiled.library, fused.unavailable):
        cached.cache_clear()
    yield
    for cached in (compiled.library, fused.unavailable):
        cached.cache_clear()


#: encoding, queries, keys and dropout of a call in training; what computes it, and what does so without a compiler
CALLS = [
    ("none", 300, 300, 0.0, "sdpa", "sdpa"),
    ("none", 300, 300, 0.1, "sdpa", "sdpa"),
    ("alibi", 300, 300, 0.0, "fused", "sdpa"),
    ("alibi", 300, 300, 0.1, "fused", "lean"),
    ("alibi", 30, 30, 0.1, "eager", "eager"),
    ("t5", 30, 30, 0.0, "eager", "eager"),
    ("t5", 64, 64, 0.0, "fused", "eager"),
    ("t5", 300, 300, 0.0, "fused", "lean"),
    ("t5", 1, 5000, 0.1, "sdpa", "sdpa"),
    ("shaw", 1, 5000, 0.1, "eager", "eager"),
    ("shaw", 30, 30, 0.0, "eager", "eager"),
    ("shaw", 300, 300, 0.1, "fused", "lean"),
    ("shaw", 100, 900, 0.1, "fused", "lean"),
    ("tupe_r", 128, 128, 0.1, "fused", "eager"),
    ("m3", 300, 300, 0.0, "fused", "eager"),
    ("m3", 30, 30, 0.1, "eager", "eager"),
]


@needs_compiler
@pytest.mark.parametrize("name, tgt_len, src_len, dropout_p, expected, without_compiler", CALLS)
def test_a_cpu_computes_in_compiled_code(name, tgt_len, src_len, dropout_p, expected, without_compiler):
    assert call(name, tgt_len, src_len, dropout_p) == expected


@pytest.mark.parametrize("name, tgt_len, src_len, dropout_p, with_compiler, expected", CALLS)
def test_a_cpu_without_a_compiler(not_compiled, name, tgt_len, src_len, dropout_p, with_compiler, expected):
    assert call(name, tgt_len, src_len, dropout_p) == expected


def test_float64_is_left_to_the_others():
    q = torch.randn(1, 2, 300, 4, dtype=torch.float64)
    terms = build("shaw", Dims(8, 2, 300)).double().terms(q, q, Positions.of(300, 300))
    assert Auto().choose(terms, Mask(), 0.0, False)[0].name == "lean"


def test_without_a_compiler_one_line_says_so_and_results_are_right(not_compiled, caplog):
    for _ in range(2):
        assert call("t5", 300, 300) == call("shaw", 300, 300) == "lean"
    lines = [x.getMessage() for x in caplog.records if x.levelno == logging.WARNING]
    assert lines == ["attention on the CPU is computed in Python (lean), slower: FAIRSEQ_RELPOS_COMPILE=0"]


def test_a_gate_is_computed_again_only_where_it_is_compiled(monkeypatch):
    monkeypatch.setattr(fused, "unavailable", lambda: "another reason")
    assert call("m3", 300, 300) == ("eager" if compiled.library() is None else "lean")
    monkeypatch.setattr(compiled, "library", lambda: None)
    assert call("m3", 300, 300) == "eager"


@pytest.mark.parametrize(
    "name, length, expected", [("t5", 300, "sdpa"), ("tupe_r", 30, "sdpa"), ("m4m", 300, "lean"), ("m4m", 30, "eager")]
)
def test_without_gradients(not_compiled, name, length, expected):
    with torch.no_grad():
        assert call(name, length, length) == expected


def test_pads_and_a_fixed_bias_on_a_gpu(monkeypatch):
    """Together they are a tensor [B, H, T, S] that sdpa keeps for backward."""
    monkeypatch.setattr(Triton, "refuses", lambda *_: None)
    q = torch.randn(2, 2, 30, 8, requires_grad=True)
    terms = build("alibi", Dims(16, 2, 30)).terms(q, q, Positions.of(30, 30))
    terms.q_BHTD = q.to("meta")  # a device that is no CPU
    pads = Mask(torch.zeros(2, 30, dtype=torch.bool))
    choose = lambda mask: Auto().choose(terms, mask, 0.0, False)[0].name  # noqa: E731
    assert (choose(Mask()), choose(pads)) == ("sdpa", "triton")
    with torch.no_grad():
        assert choose(pads) == "sdpa"
    monkeypatch.setattr(Triton, "refuses", lambda *_: "an old GPU")
    assert choose(pads) == "sdpa"


def test_a_gate_on_a_gpu_is_refused_with_what_it_costs():
    """Before the training begins; by name, a backend serves it."""
    q = torch.randn(1, 2, 2, 8)
    m3, m4 = (build(name, Dims(16, 2, 2)).terms(q, q, Positions.of(2, 2)) for name in ("m3", "m4"))
    with pytest.raises(ValueError, match="177 times .*512 tokens.*triton or eager") as error:
        Auto().check(m3, torch.device("cuda"))
    assert "\n" not in str(error.value)
    Auto().check(m3, torch.device("cpu"))
    Auto().check(m4, torch.device("cuda"))
    select("eager").check(m3, torch.device("cuda"))


def test_weights_come_from_eager():
    assert call("t5", 300, 300, need_weights=True) == "eager"


def test_each_kind_of_choice_is_logged_once_with_its_reason(not_compiled, caplog):
    auto = select("auto")
    with caplog.at_level(logging.INFO, "fairseq_relpos.backends"):
        for length in (300, 310, 30, 40):
            call("t5", length, length, auto=auto)
    chosen = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert chosen == [
        "attention backend: lean (a learned bias in training, long)",
        "attention backend: eager (a learned bias in training, short)",
    ]


@needs_compiler
def test_a_bias_that_compiled_code_reads_stays_as_it_is():
    rows = build("t5", Dims(8, 2, 300)).rows
    bias = Bias(rows, torch.randn(2, rows.count), torch.randn(1, 2, 300, 300), torch.randn(2, 2))
    auto = select("auto")
    assert auto.prepare_bias(bias, Positions.of(300, 300)) is bias
    wide = Bias(rows, bias.bias_row.double())
    assert auto.prepare_bias(wide, Positions.of(300, 300)).bias is not None
    assert auto.prepare_bias(Bias(rows, bias.bias_row), Positions.of(1, 5000)).bias is not None


def test_a_long_learned_bias_stays_one_value_an_offset(not_compiled):
    rows = build("t5", Dims(8, 2, 300)).rows
    bias = Bias(rows=rows, bias_row=torch.randn(2, rows.count, requires_grad=True))
    auto = select("auto")
    assert auto.prepare_bias(bias, Positions.of(300, 300)).bias is None
    assert auto.prepare_bias(bias, Positions.of(30, 30)).bias is not None
    with torch.no_grad():
        assert auto.prepare_bias(bias, Positions.of(300, 300)).bias is not None


def test_sdpa_leaves_a_causal_mask_alone_to_the_kernel(monkeypatch):
    seen = []
    sdpa = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *a, **k: seen.append(k) or sdpa(*a, **k)
    )
    q, k = random_qk(Dims(8, 2, 7), 7, 7, dtype=torch.float32)
    terms = build("none", Dims(8, 2, 7)).terms(q, k, Positions.of(7, 7))
    mask = Mask(causal=True)
    found, expected = (select(b)(terms, k, mask, 0.0, False)[0] for b in ("sdpa", "eager"))
    torch.testing.assert_close(found, expected)
    assert seen[0]["is_causal"] and seen[0]["attn_mask"] is None
    select("sdpa")(terms, k, Mask(torch.zeros(2, 7).bool(), causal=True), 0.0, False)
    assert not seen[1]["is_causal"] and seen[1]["attn_mask"].dim() == 4


def test_a_bias_is_made_dense_once_a_pass(monkeypatch):
    bias, made = Bias(rows=Clipped(5), bias_row=torch.zeros(2, 11), reset=torch.zeros(2, 2)), []
    dense = Bias.dense
    monkeypatch.setattr(Bias, "dense", lambda self, *lengths: made.append(1) or dense(self, *lengths))
    Auto().prepare_bias(bias, Positions.of(7, 7))
    assert len(made) == 1
