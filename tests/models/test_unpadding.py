"""--unpad: the same model on real tokens, without the work for pads."""

import pytest
import torch
from small_models import NO_DROPOUT, roberta, sentences, transformer, translation_batch

from fairseq_relpos.encodings import names_for
from fairseq_relpos.layers import torch_compile
from fairseq_relpos.layers.unpad import RealTokens

PAD = 1


def trained(model, *batch, layers_out=False):
    """The outputs at real tokens, the gradients, and how many tokens each feed-forward had."""
    seen = []
    stack = model.encoder.sentence_encoder if hasattr(model.encoder, "sentence_encoder") else model.encoder
    for layer in stack.layers:
        layer.fc1.register_forward_hook(lambda module, inputs, out: seen.append(inputs[0][..., 0].numel()))
    out, extra = model.train()(*batch, **({"return_all_hiddens": True} if layers_out else {}))
    real = batch[-1].ne(PAD)
    outs = [out, *(x.transpose(0, 1) for x in extra["inner_states"])] if layers_out else [out]
    outs = [out[real] for out in outs]
    sum(out.float().square().mean() for out in outs).backward()
    return outs, {key: p.grad for key, p in model.named_parameters() if p.grad is not None}, seen


def assert_same(make, *batch, layers_out=False, **settings):
    *expected, every = trained(make(**NO_DROPOUT), *batch, layers_out=layers_out)
    *unpadded, seen = trained(make(**NO_DROPOUT, unpad=True, **settings), *batch, layers_out=layers_out)
    torch.testing.assert_close(unpadded, expected, atol=1e-5, rtol=1e-4)
    source = batch[0]
    assert set(every) == {source.numel()} and set(seen) == {int(source.ne(PAD).sum())}


def masked_lm(name):
    return lambda **settings: roberta(f"roberta_{name}", **settings)


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("name", names_for(causal=False))
def test_every_encoding(name, padding):
    assert_same(masked_lm(name), sentences(padding=padding))


@pytest.mark.parametrize("backend", ["eager", "lean"])
def test_with_every_backend(backend):
    assert_same(masked_lm("m4"), sentences(), attention_backend=backend)


def test_the_states_of_every_layer():
    assert_same(masked_lm("t5"), sentences(), layers_out=True)


def test_with_recomputed_layers():
    model = roberta("roberta_tupe_r", **NO_DROPOUT, unpad=True, checkpoint_activations=True)
    outs, gradients, seen = trained(model, sentences())
    assert set(seen) == {int(sentences().ne(PAD).sum())}
    expected = trained(roberta("roberta_tupe_r", **NO_DROPOUT), sentences())
    torch.testing.assert_close((outs, gradients), expected[:2], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_a_compiled_layer(monkeypatch):
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **kwargs: compile(f, backend="aot_eager", **kwargs))
    torch._dynamo.reset()
    torch_compile._compiled.cache_clear()
    packed, pack = [], RealTokens.pack
    monkeypatch.setattr(RealTokens, "pack", lambda *args: packed.append(args) or pack(*args))
    outs, gradients, _ = trained(roberta("roberta_t5", **NO_DROPOUT, unpad=True, torch_compile=True), sentences())
    assert packed
    torch_compile._compiled.cache_clear()
    expected = trained(roberta("roberta_t5", **NO_DROPOUT), sentences())
    torch.testing.assert_close((outs, gradients), expected[:2], atol=1e-5, rtol=1e-4)


def test_the_encoder_of_a_translation_model():
    """Padded to the left; its decoder stays as it is."""
    assert_same(lambda **settings: transformer("transformer_shaw", **settings), *translation_batch())


def test_without_pads_nothing_changes():
    tokens = torch.full((2, 6), 7)
    plain, unpadded = (roberta("roberta_t5", unpad=unpad).eval() for unpad in (False, True))
    assert torch.equal(plain(tokens)[0], unpadded(tokens)[0])


def test_an_error_leaves_the_layer_usable():
    model = roberta("roberta_t5", unpad=True).eval()
    expected = model(sentences())[0]
    layer = model.encoder.sentence_encoder.layers[0]
    handle = layer.fc1.register_forward_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model(sentences())
    handle.remove()
    assert layer.self_attn.current_pass.real_tokens is None
    assert torch.equal(model(sentences())[0], expected)
