"""Duties of every registered encoding, whatever its paper. A new one is tested by
being registered."""

import ast
import re
import warnings
from pathlib import Path

import pytest
import torch
from loops import check_gradients, dims_for, logits_in_loops, positions_of, random_qk, scale_up

from fairseq_relpos.backends import BACKENDS, Mask, select
from fairseq_relpos.cli.docstrings import paragraphs
from fairseq_relpos.cli.params import count_at_bert_base
from fairseq_relpos.encodings import ENCODINGS, Dims, PositionEncoding, build, hyperparameters, parse_hparams, to_text
from fairseq_relpos.terms import evaluate

NAMES = sorted(ENCODINGS)
ORDERLESS = {"none"}
# positions are numbers of tokens that stand between: there is nothing to give
COUNTS_TOKENS = {"cope", "fox", "path"}
SIBLINGS = ["t5", "tupe_a", "tupe_r", "at5", "m1", "m4", "m4m"]
# of one stack and its 12 layers at BERT-base size; a change breaks published checkpoints
PARAMETERS = {
    "none": 0,
    "learned": 514 * 768,
    "sinusoidal": 0,
    "t5": 32 * 12,
    "t5_nob": 12_276,
    "at5": 2 * 12 * (1 + 32 + 32 + 32 * 4 + 4 + 4 + 1),
    "at5_nob": 1023 * 12 + 12 * (32 + 32 + 32 * 4 + 4 + 4 + 1),
    "tupe_a": 1_576_704,
    "tupe_r": 1_577_100,
    "tupe_a_tie_cls": 1_576_704 - 768,
    "tupe_r_tie_cls": 1_577_100 - 768 - 12,
    "bert_r": 514 * 768 + 32 * 12,
    "bert_ad": 1_576_704 - 768,
    "shaw": 785_664,
    "lfhc": 12 * 33 * 768,
    "m1": 6_144,
    "m2": 12_276,
    "m3": 785_664,
    "m4": 785_664,
    "m4_reset": 785_664 + 12 * 2 * 12,
    "m4m": 785_664,
    "abs_m4m": 785_664 + 514 * 768,
    "transformer_xl": 12 * 768 * 768 + 2 * 768,
    "gcdf": 12 * (768 * 768 + 2 * 768),
    "deberta": 1024 * 768 + 12 * (2 * 768 * 768 + 768),
    "rope": 0,
    "alibi": 0,
    "kerple_log": 12 * 2 * 12,
    "kerple_power": 12 * 2 * 12,
    "sandwich": 0,
    "fire": 1 + 1 + (2 * 32 + 32) + (32 * 12 + 12),
    "shape": 0,
    "cope": 12 * 64 * 64,
    "tisa": 12 * 3 * 5 * 12,
    "dape": 12 * (2 * 12 * 32 + 32 + 32 * 12 + 2 * 12),
    "fox": 12 * (768 + 1) * 12,
    "path": 12 * (768 * 768 + (768 + 1) * 12),
    "pope": 12 * 768,
}
#: parameters that start at 0
ZEROS = re.compile(r"(?:^|\.)(?:bias|biases\.\d)$|^(?:e|b|theta|delta)$")
#: encodings with parameters of other starts, and which these are; tests of their own look at most of them
OTHER_STARTS = {
    "at5": r"gamma|mlp\..*\.weights",
    "at5_nob": r"mlp\.weights",
    "dape": "",
    "fire": "",
    "kerple_log": "r",
    "kerple_power": "r",
    "tisa": "",
}


def dims(causal=False, max_len=16, name="none"):
    return dims_for(name, 24, 3, max_len, causal)


@pytest.mark.parametrize("name", NAMES)
def test_parameter_count_at_bert_base_size(name):
    assert count_at_bert_base(name)["model"] == PARAMETERS[name]


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_projections_start_as_normal_numbers_of_deviation_0_02_and_biases_at_0(name):
    for key, x in build(name, dims_for(name, 256, 4, 200)).named_parameters():
        if name in OTHER_STARTS and re.match(OTHER_STARTS[name], key.removeprefix("stack.")):
            continue
        if key.endswith("layer_norm.weight"):
            assert (x == 1).all(), key
        elif ZEROS.search(key):
            assert not x.any(), key
        else:
            assert abs(x.std() / 0.02 - 1) < 4 / (2 * x.numel()) ** 0.5, key
            assert abs(x.mean()) < 4 * 0.02 / x.numel() ** 0.5, key


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 7), (3, 8)])
def test_logits_have_the_promised_shape_and_type(name, causal, lengths):
    encoding = build(name, dims(causal, name=name))
    q, k = random_qk(encoding.dims, *lengths, dtype=torch.bfloat16)
    logits = encoding.logits(q, k, positions_of(dims(), *lengths))
    assert logits.shape == (2, 3, *lengths) and logits.dtype == torch.float32
    double = encoding.double().logits(q.double(), k.double(), positions_of(dims(), *lengths))
    assert double.dtype == torch.float64


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_parameter(name, causal):
    encoding = scale_up(build(name, dims(causal, name=name)))
    q, k = random_qk(encoding.dims, 7, 7, dtype=torch.float32)
    tokens = torch.tensor([[0, 5, 6, 7, 8, 9, 2]])
    logits = encoding.logits(q, k, positions_of(dims(), 7, 7))
    if causal:
        logits = logits.masked_fill(torch.ones(7, 7).triu(1).bool(), -1e4)
    loss = logits.softmax(-1).square().sum()
    added = encoding.embed(tokens)
    if added is not None:
        loss = loss + added.square().sum()
    if not list(encoding.parameters()):
        assert not loss.requires_grad
        return
    loss.backward()
    # the shift of all of a head's logits is invisible to the softmax
    invisible = {"biases.2"}
    for key, parameter in encoding.named_parameters():
        assert parameter.grad is not None, key
        if not any(key.endswith(end) for end in invisible):
            assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("lengths", [(7, 7), (3, 8)])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_autograd_through_the_definition(name, lengths):
    encoding = scale_up(build(name, dims(name=name))).double()
    q, k = (x.requires_grad_() for x in random_qk(encoding.dims, *lengths))
    pos = positions_of(dims(), *lengths)
    logits = encoding.logits(q, k, pos)
    expected = logits_in_loops(encoding.terms(q, k, pos))
    torch.testing.assert_close(logits, expected, atol=1e-12, rtol=1e-12)
    check_gradients(logits, expected, encoding, q=q, k=k)


def test_each_encoding_meets_its_papers_equation_in_loops():
    named = set()
    for file in (Path(__file__).parent / "encodings").glob("test_*.py"):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        tables = {
            target.id: node
            for node in body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for test in body:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
                continue
            names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
            if "check_against_loops" in names:
                # what its parameters are taken from, too
                read = [test, *(tables[name] for name in names & set(tables))]
                named |= {n.value for part in read for n in ast.walk(part) if isinstance(n, ast.Constant)}
    assert not set(NAMES) - named, set(NAMES) - named


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_inert(name, side):
    encoding = scale_up(build(name, dims(name=name)))
    q, k = random_qk(encoding.dims, 7, 7, batch=1, dtype=torch.float32)
    alone = encoding.logits(q, k, positions_of(dims(), 7, 7))
    noise_q, noise_k = random_qk(encoding.dims, 3, 3, batch=1, dtype=torch.float32)
    pads, real = torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 7, dtype=torch.bool)
    order = (lambda pad, x: [pad, x]) if side == "left" else (lambda pad, x: [x, pad])
    padded = encoding.logits(
        torch.cat(order(noise_q, q), 2),
        torch.cat(order(noise_k, k), 2),
        positions_of(dims(), 10, 10, torch.cat(order(pads, real), 1)),
    )
    here = slice(3, 10) if side == "left" else slice(0, 7)
    torch.testing.assert_close(padded[:, :, here, here], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_decoding_step_equals_the_full_pass(name):
    encoding = scale_up(build(name, dims(causal=True, name=name)))
    q, k = random_qk(encoding.dims, 9, 9, dtype=torch.float32)
    full = encoding.logits(q, k, positions_of(dims(), 9, 9))
    for step in range(1, 10):
        row = encoding.logits(q[:, :, step - 1 : step], k[:, :, :step], positions_of(dims(), 1, step))
        torch.testing.assert_close(row[:, :, 0], full[:, :, step - 1, :step], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", [(7, 7), (3, 7)])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in COUNTS_TOKENS])
def test_given_positions_are_those_of_a_sequence_with_these_tokens_at_them(name, lengths):
    """Every second token of a longer sequence, alone: its positions are 0, 2, 4, ..."""
    encoding = scale_up(build(name, dims(name=name))).double()
    tgt_len, src_len = lengths
    q, k = (x.requires_grad_() for x in random_qk(encoding.dims, 2 * tgt_len - 1, 2 * src_len - 1))
    expected = encoding.logits(q, k, positions_of(dims(), 2 * tgt_len - 1, 2 * src_len - 1))[:, :, ::2, ::2]
    ids_BS = 2 * torch.arange(src_len).expand(2, -1)
    pos = positions_of(dims(), *lengths, position_ids=ids_BS)
    found = encoding.logits(q[:, :, ::2], k[:, :, ::2], pos)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    check_gradients(found, expected, encoding, q=q, k=k)
    tokens = torch.full((2, 2 * src_len - 1), 5)
    added = encoding.eval().embed(tokens)
    if added is not None:
        torch.testing.assert_close(encoding.embed(tokens[:, ::2], pos), added[:, ::2][:, -tgt_len:])


@pytest.mark.parametrize("name", NAMES)
def test_order_matters(name):
    """Swapping two tokens changes how the last one sees them, except without positions.
    Logits, not outputs: however far a bias falls, it counts."""
    encoding = scale_up(build(name, dims(name=name)))
    x = torch.randn(1, 3, 6, 8)
    added = encoding.embed(torch.tensor([[0, 5, 6, 7, 8, 9]]))
    swap = [0, 2, 1, 3, 4, 5]

    def logits_of_the_last(x):
        if added is not None:
            x = x + added.view(1, 6, 3, 8).transpose(1, 2)
        return encoding.logits(x, x, positions_of(dims(), 6, 6))[:, :, -1]

    same = torch.allclose(logits_of_the_last(x)[..., swap], logits_of_the_last(x[:, :, swap]), atol=1e-5)
    assert same == (name in ORDERLESS)


@pytest.mark.parametrize("name", NAMES)
def test_resolved_hyperparameters_rebuild_the_same_encoding(name):
    encoding = build(name, dims(name=name))
    text = {key: to_text(value) for key, value in encoding.hparams.items()}
    again = build(name, dims(max_len=99, name=name), **dict(text.items()))
    assert again.signature == encoding.signature


@pytest.mark.parametrize("name", NAMES)
def test_docstring_starts_with_the_equation_names_its_source_and_ends_with_the_cost(name):
    doc = ENCODINGS[name].__doc__
    first = doc.split("\n\n")[0]
    assert "=" in first and "(" in first, first
    assert paragraphs(ENCODINGS[name])["Cost"]
    # siblings of one paper explain what they share once
    explained = doc + "".join(ENCODINGS[sibling].__doc__ for sibling in SIBLINGS if sibling in doc)
    for hparam in hyperparameters(ENCODINGS[name]):
        assert hparam in explained, hparam


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_large_queries_and_keys_in_half_precision_stay_finite(name, dtype):
    encoding = scale_up(build(name, dims(max_len=63, name=name))).to(dtype)
    q, k, v = (30 * (2 * torch.rand(2, 3, 63, 8) - 1).to(dtype).requires_grad_() for _ in range(3))
    q.retain_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        out, _ = select("auto")(encoding.terms(q, k, positions_of(dims(), 63, 63)), v, Mask(), 0.0, False)
    out.float().square().mean().backward()
    assert out.dtype == dtype and out.isfinite().all() and q.grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_autocast_changes_no_terms(name):
    """Neither those of float32 q and k, nor do q and k of half precision, as --amp makes them, meet a wrong type."""
    encoding = scale_up(build(name, dims(name=name)))
    q, k = torch.randn(2, 2, 3, 7, 8)
    pos = positions_of(dims(), 7, 7)
    expected = encoding.terms(q, k, pos)
    with torch.autocast("cpu", torch.bfloat16):
        found = encoding.terms(q, k, pos)
        assert evaluate(encoding.terms(q.bfloat16(), k.bfloat16(), pos)).isfinite().all()
    assert found.tensors().keys() == expected.tensors().keys()
    for key, tensor in expected.tensors().items():
        torch.testing.assert_close(found.tensors()[key], tensor, rtol=0, atol=0)


def test_a_strong_bias_beside_a_mask_stays_finite_in_half_precision():
    encoding = build("t5", dims()).half()
    torch.nn.init.constant_(encoding.stack.b, -60.0)
    q, k, v = (torch.randn(2, 3, 7, 8).half() for _ in range(3))
    mask = Mask(padding_BS=torch.tensor([[False] * 7, [True] * 7]))
    terms = encoding.terms(q, k, positions_of(dims(), 7, 7))
    added = mask.additive(terms, torch.float16) + terms.dense_bias().half()
    assert added.isfinite().all()
    for name, backend in BACKENDS.items():
        if backend().refuses(terms, False) is None:
            assert select(name)(terms, v, mask, 0.0, False)[0].isfinite().all()


@pytest.mark.parametrize("value", ["-1", "0", "0.5", "3", "nan", "inf", "x", "True"])
@pytest.mark.parametrize("name", NAMES)
def test_a_hyperparameter_works_or_is_refused_in_one_line(name, value):
    for hparam in hyperparameters(ENCODINGS[name]):
        q, k = random_qk(dims(), 7, 7, dtype=torch.float32)
        try:
            logits = build(name, dims(name=name), **{hparam: value}).logits(q, k, positions_of(dims(), 7, 7))
        except ValueError as error:
            assert hparam in str(error) and "--" not in str(error), (hparam, error)
            assert "\n" not in str(error)
        else:
            assert logits.isfinite().all(), hparam


@pytest.mark.parametrize("name", ["embed_dim", "num_heads", "max_len", "layer"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_count_from_one(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value}: a number of 1 or more is needed$"):
        Dims(**{"embed_dim": 64, "num_heads": 4, "max_len": 32, name: value})


def test_the_library_names_no_flags_of_fairseq():
    wrong = [
        lambda: select("flash"),
        lambda: parse_hparams("a"),
        lambda: parse_hparams("a=1 a=2"),
        lambda: build("deberta", dims(), share_att_key=True).logits(
            *random_qk(dims(), 5, 5), positions_of(dims(), 5, 5)
        ),
        lambda: build("sinusoidal", Dims(2, 1, 8)),
    ]
    for call in wrong:
        with pytest.raises(ValueError) as error:
            call()
        assert "--" not in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_logits_without_the_input_part_warn_once_and_name_embed(name):
    encoding = build(name, dims(name=name))
    adds = encoding.embed(torch.tensor([[0, 5, 6, 2]])) is not None
    call = (*random_qk(dims(), 4, 4, dtype=torch.float32), positions_of(dims(), 4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoding.logits(*call)  # embed was called: whoever did knows
    encoding = build(name, dims(name=name))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        encoding.logits(*call)
        encoding.logits(*call)
    assert ["encoding.embed(tokens)" in str(w.message) for w in said] == [True] * adds
    assert all(w.filename == __file__ for w in said)


def test_a_class_that_overrides_logits_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match="^Mine overrides logits, .* `terms`, .* Terms.bias .*adding-an-encoding.md$"):

        class Mine(PositionEncoding):
            def logits(self, q_BHTD, k_BHSD, pos):
                return q_BHTD @ k_BHSD.mT


DECLARED = """
from __future__ import annotations
from fairseq_relpos.encodings import PositionEncoding, register

@register("declared")
class Declared(PositionEncoding):
    def __init__(self, dims: Dims, {}):  # as under `if TYPE_CHECKING: from ... import Dims`
        super().__init__(dims)
"""


def test_hyperparameters_have_a_default_and_a_type_also_as_text():
    for wrong in ("slope", "slope: float", "slope=0.5", "slope: float | None = None", "slope: list = ()"):
        with pytest.raises(ValueError, match="hyperparameter slope of Declared: give it a default and one of "):
            exec(DECLARED.format(wrong), {"__name__": "declared"})
    assert "declared" not in ENCODINGS
    try:
        exec(DECLARED.format("slope: float = 0.5"), {"__name__": "declared"})
        assert build("declared", dims(), slope="0.25").hparams == {"slope": 0.25}
    finally:
        ENCODINGS.pop("declared", None)
