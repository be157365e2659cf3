"""--torch-compile: the same model, with what is around attention compiled in training."""

import pytest
import torch
from small_models import NO_DROPOUT, language_model, roberta, sentences, transformer, translation_batch

from fairseq_relpos.layers import torch_compile
from fairseq_relpos.segments import Place

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_compiler(monkeypatch):
    """Nothing that another test has compiled."""
    torch._dynamo.reset()
    torch_compile._compiled.cache_clear()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield
    torch_compile._compiled.cache_clear()


@pytest.fixture
def traced(monkeypatch):
    """Graphs are traced and run uncompiled: the same graphs in a fiftieth of the time."""
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **kwargs: compile(f, backend="eager", **kwargs))


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def masked_lm(name, **settings):
    model = roberta(f"roberta_{name}", **NO_DROPOUT, **settings)
    return model, [(sentences(),), (sentences(batch=2, length=9),), (sentences(batch=1, length=14),)]


def translation(name, **settings):
    model = transformer(f"transformer_{name}", **NO_DROPOUT, **settings)
    source, lengths, previous = translation_batch()
    return model, [(source, lengths, previous), (source[:2, 3:], lengths[:2], previous[:2, :5])]


def segments(name, **settings):
    """Segments of one text for a language model with a memory; the last one is shorter."""
    model = language_model(f"transformer_lm_{name}", **NO_DROPOUT, memory_length=8, **settings)
    tokens = sentences(batch=2, length=17)[:, :14]
    return model, [(part, Place(0, step, (step > 0,) * 2)) for step, part in enumerate(tokens.split(6, 1))]


def trained(model, batches):
    """Outputs, and the gradients of all batches together."""
    outputs = [model.train()(*batch)[0] for batch in batches]
    sum(out.float().square().mean() for out in outputs).backward()
    return outputs, {key: p.grad for key, p in model.named_parameters() if p.grad is not None}


def assert_same(make, name, **settings):
    expected, compiled = trained(*make(name)), trained(*make(name, torch_compile=True, **settings))
    assert graphs() > 0
    torch.testing.assert_close(compiled, expected, atol=1e-5, rtol=1e-4)


def test_a_compiled_model_is_the_same_model():
    assert_same(masked_lm, "tupe_r")


@pytest.mark.parametrize(
    "make, name, backend",
    [
        (masked_lm, "learned", "sdpa"),
        (masked_lm, "m4", "lean"),
        (masked_lm, "lfhc", "eager"),
        (translation, "tupe_r", "auto"),
        (segments, "transformer_xl", "auto"),
    ],
)
def test_with_every_backend(make, name, backend, traced):
    assert_same(make, name, attention_backend=backend)


def test_with_recomputed_layers(traced):
    assert_same(masked_lm, "t5", checkpoint_activations=True)


@pytest.mark.parametrize("make", [masked_lm, translation])
def test_layers_share_what_is_compiled(make, traced):
    counts = []
    for layers in (3, 6):
        torch._dynamo.utils.counters.clear()
        torch._dynamo.reset()
        trained(*make("lfhc", torch_compile=True, encoder_layers=layers, decoder_layers=layers))
        counts.append(graphs())
    assert counts[0] == counts[1] > 0


def test_every_form_of_a_batch_is_compiled(traced):
    """Encoder and decoder, with pads and without, one sentence and several: nothing runs as it is
    once torch has compiled eight forms, which ``own_compiler`` makes an error."""
    model = transformer("transformer_t5", **NO_DROPOUT, torch_compile=True).train()
    source, _, previous = translation_batch()
    for rows in (slice(0, 3), slice(0, 2), slice(0, 1), slice(1, 3), slice(2, 3)):
        for begin in (0, 4):
            for length in (7, 5):
                batch = source[rows, begin:], previous[rows, :length]
                model(batch[0], batch[0].ne(1).sum(1), batch[1])[0].sum().backward()


@pytest.mark.parametrize("make", [masked_lm, translation])
def test_evaluation_is_not_compiled(make):
    (plain, batches), (model, _) = make("t5"), make("t5", torch_compile=True)
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        assert torch.equal(model.eval()(*batches[0])[0], plain.eval()(*batches[0])[0])
    assert graphs() == 0


def test_without_a_compiler_one_line_says_so():
    model, batches = masked_lm("t5", torch_compile=True)
    broken = {"cpp.cxx": (None, "/no/compiler"), "force_disable_caches": True}
    with torch._inductor.config.patch(broken), pytest.raises(RuntimeError) as error:
        trained(model, batches)
    assert str(error.value).startswith("--torch-compile: torch cannot compile on this machine (")
    assert "/no/compiler" in str(error.value) and "\n" not in str(error.value)
