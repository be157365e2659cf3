"""lean in slices and fused in tiles: every form of the terms, masks, dropout, and nothing left in memory."""

import pytest
import torch
from compilers import needs_compiler
from test_terms import CASES, B, D, H
from tiled import FUSED, LEAN, check, exact, made, pads, poison, results

from fairseq_relpos.backends import Mask, select
from fairseq_relpos.terms import Terms

BOTH = [LEAN, pytest.param(FUSED, marks=needs_compiler)]
MASKS = {
    "all seen": lambda S: Mask(),
    "causal": lambda S: Mask(causal=True),
    "padding": lambda S: Mask(pads(S)),
    "rows without a key": lambda S: Mask(pads(S).flip(1), causal=True),
    "documents": lambda S: Mask(documents_BS=torch.arange(S).div(9, rounding_mode="floor").expand(B, -1)),
    "window": lambda S: Mask(pads(S), window=9),
    "all within the window are hidden": lambda S: Mask(
        pads(S).flip(1), True, documents_BS=MASKS["documents"](S).documents_BS, window=2
    ),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("case", CASES)
def test_every_form_of_terms_has_the_gradients_of_the_definition(case, mask, way):
    for lengths in way.lengths:
        terms, v, tensors = made(case, *lengths, dtype=way.dtype)
        hidden = MASKS[mask](lengths[1])
        check(results(way(terms, v, hidden), tensors), exact(terms, v, tensors, hidden), way.tolerance)


@pytest.mark.parametrize("cls", [False, True])
@pytest.mark.parametrize("shape", [(1, H), (B, H), (1, 1), (B, 1)])
def test_a_bias_may_be_one_for_all_sentences_or_heads(shape, cls, way):
    length = way.lengths[-1][1]
    terms, v, tensors = made("bias_row reset", length, length, dtype=way.dtype)
    terms.bias = torch.randn(*shape, length, length, dtype=way.dtype, requires_grad=True)
    if cls:
        terms.cls_BS = torch.eye(B, length).bool()
    tensors.append(terms.bias)
    check(results(way(terms, v), tensors), exact(terms, v, tensors), way.tolerance)


@pytest.mark.parametrize("sentences", [1, B * H])
def test_a_callers_own_mask_may_be_learned(sentences, way):
    lengths = way.lengths[0]
    terms, v, tensors = made("A", *lengths, dtype=way.dtype)
    shape = lengths if sentences == 1 else (sentences, *lengths)
    mask = Mask(pads(lengths[1]), extra=torch.randn(shape, dtype=way.dtype, requires_grad=True))
    tensors.append(mask.extra)
    check(results(way(terms, v, mask), tensors), exact(terms, v, tensors, mask), way.tolerance)


@pytest.mark.parametrize("learned", ["q_BHTD", "A", "bias_row", "v"])
def test_a_frozen_input_is_left_alone(learned, way):
    terms, v, _ = made("everything", *way.lengths[0], learned=False, dtype=way.dtype)
    x = v if learned == "v" else getattr(terms, learned)
    x.requires_grad_()
    eager, _ = select("eager")(terms, v, Mask(), 0.0, False)
    check(results(way(terms, v), [x]), results(eager, [x]), way.tolerance)


@pytest.mark.parametrize("dropout_p", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("case", ["content", "bias_row reset", "everything"])
def test_dropout_is_that_of_its_mask(case, dropout_p, way):
    tgt_len, src_len = way.lengths[0]
    terms, v, tensors = made(case, tgt_len, src_len, dtype=way.dtype)
    mask = Mask(pads(src_len))
    torch.manual_seed(5)
    found = results(way(terms, v, mask, dropout_p), tensors)
    torch.manual_seed(5)
    seed = int(torch.randint(2**62, ()))
    keep = 1 - round(dropout_p * 2**16) / 2**16
    kept = way.keep_mask(seed, (B, H, tgt_len, src_len), dropout_p).double() / keep if keep else 0.0
    check(found, exact(terms, v, tensors, mask, kept), way.tolerance)


@pytest.mark.parametrize("way", BOTH)
def test_the_dropout_mask_keeps_what_it_promises(way):
    shape, n = (8, 8, 256, 512), 2**23
    for dropout_p in (0.1, 0.5, 2**-16):
        kept = way.keep_mask(11, shape, dropout_p)
        assert set(kept.unique().tolist()) == {0.0, 1.0}
        dropped = round(dropout_p * 2**16) / 2**16
        assert abs(1 - kept.double().mean().item() - dropped) < 5 * (dropped * (1 - dropped) / n) ** 0.5
    for seed in (0, 12):
        signs = 2 * way.keep_mask(seed, shape, 0.5) - 1
        for dim in range(4):  # no sentence, head, query or key is worse than the others
            others = [d for d in range(4) if d != dim]
            assert signs.mean(others).abs().max() < 5.5 / (n / signs.size(dim)) ** 0.5
        for step in (1, 2, 15, 16, 17, 32, 64):  # neighbours along rows and columns, halves of a word
            for near in (signs[..., step:] * signs[..., :-step], signs[..., step:, :] * signs[..., :-step, :]):
                assert abs(near.mean().item()) < 5 / n**0.5
        for rows in (signs.flatten(0, 1).flatten(1), signs.flatten(0, 2)[:4096], signs.flatten(0, 2).mT[:, :4096]):
            correlation = (rows @ rows.mT / rows.size(1)).fill_diagonal_(0)
            assert correlation.abs().max() < 6.5 / rows.size(1) ** 0.5
    assert not torch.equal(way.keep_mask(1, shape, 0.5), way.keep_mask(2, shape, 0.5))


@pytest.mark.parametrize("way", BOTH)
def test_a_seed_decides_everything_and_each_call_draws_its_own(way):
    terms, v, tensors = made("A + C", dtype=way.dtype)
    runs = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        both = [way(terms, v, dropout_p=0.2) for _ in range(2)]
        runs.append([results(out, tensors) for out in both])
    for x, y in zip(sum(runs[0], []), sum(runs[1], [])):
        assert torch.equal(x, y)
    assert not torch.equal(runs[0][0][0], runs[0][1][0])
    assert not torch.equal(runs[0][0][0], runs[2][0][0])


@pytest.mark.parametrize("case", CASES)
def test_what_an_earlier_call_left_never_shows(case, monkeypatch, way):
    lengths = way.lengths[0]
    mask = Mask(pads(lengths[1]))
    terms, v, tensors = made(case, *lengths, dtype=way.dtype)
    expected = results(way(terms, v, mask), tensors)
    for other in CASES if way.backend == "fused" else ():  # whose threads keep their memory
        missing, v_missing, learned = made(other, *(2 * n for n in lengths), dtype=way.dtype)
        with torch.no_grad():
            for x in learned:
                x.fill_(float("nan"))
        results(way(missing, v_missing), learned)

    poison(monkeypatch)
    assert all(map(torch.equal, results(way(terms, v, mask), tensors), expected))


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("sizes", [(0, 7, 7), (2, 0, 7)])
def test_no_sentences_and_no_queries(sizes, way):
    batch, tgt_len, src_len = sizes
    q, k = torch.randn(batch, H, tgt_len, D), torch.randn(batch, H, src_len, D)
    bias = torch.randn(1, H, tgt_len, src_len, requires_grad=True)
    out = way(Terms(q, k, 0.3, bias=bias), k)
    assert out.shape == (batch, H, tgt_len, D)
    assert not torch.autograd.grad(out.sum(), bias)[0].any()


@pytest.mark.parametrize("way", BOTH)
def test_dropout_that_rounds_to_all_drops_all(way):
    terms, v, _ = made("content")
    assert not way(terms, v, dropout_p=1 - 1e-6).any()
