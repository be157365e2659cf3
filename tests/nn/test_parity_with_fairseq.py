"""The modules for plain PyTorch compute what the same encoding computes inside a fairseq model."""

import pytest
import torch
from loops import scale_up_positions
from small_models import SIZES, decoder, roberta, sentences, stack_of

from fairseq_relpos.encodings import ENCODINGS, names_for
from fairseq_relpos.nn import RelPosEncoder, RelPosSelfAttention

PAD = 1
WIDTH, HEADS, LAYERS = SIZES["encoder_embed_dim"], SIZES["encoder_attention_heads"], SIZES["encoder_layers"]


def weights_of(stack, encoder):
    """The state dict of fairseq's stack, without its tokens, loaded into ``encoder``: every key has its place."""
    alien = ("embed_tokens.", "output_projection.", "version")
    encoder.load_state_dict({k: v for k, v in stack.state_dict().items() if not k.startswith(alien)}, strict=True)
    return encoder.train(stack.training)


def same_as_roberta(name, model, **settings):
    encoder = RelPosEncoder(
        *(WIDTH, HEADS, LAYERS, name, SIZES["max_positions"]),
        ffn_dim=SIZES["encoder_ffn_embed_dim"],
        layernorm_embedding=True,
        **settings,
    )
    return weights_of(stack_of(model), encoder)


def gradients(module, loss):
    named = {k: p for k, p in module.named_parameters() if not k.startswith(("embed_tokens.", "output_projection."))}
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()), allow_unused=True)))


def assert_same_gradients(found, wanted):
    assert found.keys() == wanted.keys()
    for key, grad in found.items():
        assert grad is wanted[key] is None or torch.equal(grad, wanted[key]), key


def test_projections_start_as_large_as_fairseqs():
    from fairseq.modules import MultiheadAttention

    ours, theirs = RelPosSelfAttention(192, 3, "none"), MultiheadAttention(192, 3, self_attention=True)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        mine, stock = (getattr(module, name).weight for module in (ours, theirs))
        assert mine.std().item() == pytest.approx(stock.std().item(), rel=0.03), name
        assert mine.abs().max().item() == pytest.approx(stock.abs().max().item(), rel=0.01), name
        assert not getattr(ours, name).bias.any()


@pytest.mark.parametrize("name", names_for(causal=False))
@pytest.mark.parametrize("padding", ["right", "left"])
def test_an_encoder_is_roberta_to_the_last_bit_with_dropout_and_gradients(name, padding):
    model = roberta(f"roberta_{name}", dropout=0.1, attention_dropout=0.1, activation_dropout=0.1)
    stack = stack_of(model)
    scale_up_positions(stack)
    encoder = same_as_roberta(name, model, activation_dropout=0.1)
    tokens = sentences(length=17, padding=padding)
    words = stack.embed_tokens(tokens)
    for training in (False, True):
        model.train(training), encoder.train(training)
        torch.manual_seed(1)
        wanted = stack(tokens)["encoder_out"][0].transpose(0, 1)
        torch.manual_seed(1)
        found = encoder(words, tokens.eq(PAD))
        assert torch.equal(found, wanted)
    weights = torch.randn_like(found) * tokens.ne(PAD)[..., None]
    assert_same_gradients(gradients(encoder, (weights * found).sum()), gradients(stack, (weights * wanted).sum()))


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_a_causal_encoder_is_fairseqs_decoder_to_the_last_bit(name):
    stack = decoder(name)
    encoder = weights_of(stack, RelPosEncoder(WIDTH, HEADS, 2, name, 32, causal=True, ffn_dim=48, activation="relu"))
    tokens = sentences(length=13)
    real = tokens.ne(PAD)
    wanted, _ = stack.extract_features(tokens, None)
    found = encoder(stack.embed_tokens(tokens), ~real)
    assert torch.equal(found[real], wanted[real])
    weights = torch.randn_like(found)[real]
    assert_same_gradients(
        gradients(encoder, (weights * found[real]).sum()), gradients(stack, (weights * wanted[real]).sum())
    )
