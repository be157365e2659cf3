"""--copy-from-source: See et al.'s mixture of words of the vocabulary and words of the source."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from loops import scale_up
from small_models import KINDS, dictionary, transformer, translation_batch

from fairseq_relpos.models.copy_head import CopyHead
from fairseq_relpos.models.transformer import RelPosTransformer


def copying(name="t5", **settings):
    model = transformer(f"transformer_{name}", copy_from_source=True, dropout=0.0, **settings)
    scale_up(model.decoder.copy_head)
    return model


def parts(dtype=torch.float64):
    """Logits, attention, a source with words that stand in it more than once and pads, and vectors."""
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    source = torch.tensor([[1, 5, 7, 5, 3, 2], [6, 6, 6, 4, 9, 2]])
    attention = drawn(2, 3, 6).masked_fill(source.eq(1)[:, None], -math.inf).softmax(-1)
    vectors = drawn(2, 6, 4), drawn(2, 3, 4), drawn(2, 3, 4)
    return [2 * drawn(2, 3, 11), attention, source, *vectors]


def head_of(dtype=torch.float64):
    head = CopyHead(4, 4, 4, padding_idx=1).to(dtype)
    scale_up(head)
    return head


def in_loops(head, logits, attention, source, encoded, state, before):
    """The paper's equations, word by word."""
    weight, (bias,) = head.gate.weight[0].tolist(), head.gate.bias.tolist()
    found = torch.zeros_like(logits)
    for b, t in ((b, t) for b in range(len(logits)) for t in range(logits.shape[1])):
        mean = [sum(attention[b, t, i].item() * h[e].item() for i, h in enumerate(encoded[b])) for e in range(4)]
        vectors = [*mean, *state[b, t].tolist(), *before[b, t].tolist()]
        gate = 1 / (1 + math.exp(-bias - sum(w * x for w, x in zip(weight, vectors, strict=True))))
        total = sum(math.exp(z) for z in logits[b, t].tolist())
        for word, z in enumerate(logits[b, t].tolist()):
            copied = sum(attention[b, t, i].item() for i, x in enumerate(source[b].tolist()) if x == word)
            found[b, t, word] = gate * math.exp(z) / total + (1 - gate) * copied
    return found


@torch.no_grad()
def test_probabilities_are_those_of_the_papers_equations_in_loops_and_sum_to_one():
    head = head_of()
    found = head(*parts()).exp()
    torch.testing.assert_close(found, in_loops(head, *parts()), atol=1e-10, rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 3, dtype=torch.float64), atol=1e-10, rtol=0)
    half = head_of(dtype=torch.half)
    for parameter, exact in zip(half.parameters(), head.parameters()):
        parameter.copy_(exact)
    rounded = half(*parts(dtype=torch.half))
    assert rounded.dtype == torch.float32
    single = head_of(dtype=torch.float32), parts(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):  # --amp
        mixed = single[0](*single[1])
    torch.testing.assert_close(mixed.exp().sum(-1), torch.ones(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(rounded.exp().sum(-1), torch.ones(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(rounded.exp().double(), found, atol=0.01, rtol=0)


def test_gradients_are_those_of_the_equation_and_finite_where_one_part_vanishes():
    head, inputs = head_of(), parts()
    places = [0, 1, 3, 4, 5]

    def log_p(*given):
        return head(*given[:2], inputs[2], *given[2:])

    given = [inputs[place].requires_grad_() for place in places]
    # the attention is masked at pads, where a finite difference would put mass
    given[1] = (0.1 + inputs[1].detach()).requires_grad_()
    assert torch.autograd.gradcheck(log_p, given)
    for bias in (-400.0, 400.0):
        for given in (parts(), parts(dtype=torch.float32)):
            head = head_of(dtype=given[0].dtype)
            with torch.no_grad():
                head.gate.bias.fill_(bias)
            given[0][..., 5] = -1e4
            given[0].requires_grad_()
            (-head(*given)).mean().backward()
            assert given[0].grad.isfinite().all() and head.gate.weight.grad.isfinite().all()


@torch.no_grad()
def test_the_model_mixes_with_the_mean_attention_of_its_last_layer():
    model = copying(share_all_embeddings=True).double().eval()
    source, lengths, previous = translation_batch()
    encoded = model.encoder(source, lengths)
    state, extra = model.decoder.extract_features(previous, encoded)
    hidden = encoded["encoder_out"][0].transpose(0, 1)
    expected = model.decoder.copy_head(
        model.decoder.output_layer(state), extra["attn"][0], source, hidden, state, model.decoder.embed_tokens(previous)
    )
    net_output = model(source, lengths, previous)
    assert torch.equal(net_output[0], expected)
    # what criterions and the generator ask for
    found = model.get_normalized_probs(net_output, log_probs=True)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
    assert (found.exp().sum(-1) - 1).abs().max() < 1e-5
    # words of the source are more likely than without the head
    plain = model.decoder.output_layer(state).softmax(-1)
    assert (found.exp().gather(-1, source[:, None, :].expand(-1, 7, -1)).mean() > plain.mean() * 2).item()


@pytest.mark.parametrize("name", KINDS)
def test_a_model_trains_and_resumes_with_it(name):
    batch = translation_batch()

    def steps(model, optimizer, count):
        losses = []
        for _ in range(count):
            optimizer.zero_grad()
            log_p = model.get_normalized_probs(model(*batch), log_probs=True)
            target = batch[2].roll(-1, 1)
            loss, _ = label_smoothed_nll_loss(log_p.flatten(0, 1), target.reshape(-1, 1), 0.1, ignore_index=1)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def begun(seed):
        model = copying(name, seed=seed, share_all_embeddings=True)
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    model, optimizer = begun(1)
    first = steps(model, optimizer, 2)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.decoder.parameters())
    assert model.decoder.copy_head.gate.weight.grad.abs().max() > 0
    other, its_optimizer = begun(2)
    other.load_state_dict(model.state_dict(), strict=True)
    its_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    last = steps(model, optimizer, 2)
    assert steps(other, its_optimizer, 2) == last and last[-1] < first[0]


def test_without_the_flag_the_weights_are_the_same_and_with_it_only_the_head_is_new():
    plain = transformer("transformer_gcdf").state_dict()
    with_head = transformer("transformer_gcdf", copy_from_source=True).state_dict()
    assert set(with_head) - set(plain) == {"decoder.copy_head.gate.weight", "decoder.copy_head.gate.bias"}
    assert not any(with_head[key].any() for key in set(with_head) - set(plain))  # words are copied half of the time
    assert all(torch.equal(value, with_head[key]) for key, value in plain.items())
    with pytest.raises(ValueError, match="the model copies words .* it does not: leave --copy-from-source out"):
        transformer("transformer_gcdf", copy_from_source=True).load_state_dict(plain)
    with pytest.raises(ValueError, match="it copies words .* the model does not: add --copy-from-source"):
        transformer("transformer_gcdf").load_state_dict(with_head)
    deeper = transformer("transformer_gcdf", encoder_layers=3, decoder_layers=3).state_dict()
    with pytest.raises(ValueError, match="it does not: leave --copy-from-source out"):
        transformer("transformer_gcdf", copy_from_source=True).load_state_dict(deeper)
    wider = transformer("transformer_gcdf", copy_from_source=True, decoder_embed_dim=48, decoder_output_dim=48)
    with pytest.raises(ValueError, match=r"\[.*\] in it and \[.*\] here"):
        transformer("transformer_gcdf", copy_from_source=True).load_state_dict(wider.state_dict())


def test_two_dictionaries_are_refused_in_one_line():
    model = copying()
    task = SimpleNamespace(source_dictionary=dictionary(), target_dictionary=dictionary(39))
    with pytest.raises(ValueError, match="^--copy-from-source: a word needs the same number .* --joined-dictionary"):
        RelPosTransformer.build_model(model.args, task)
