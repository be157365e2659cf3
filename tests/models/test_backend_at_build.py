"""A backend that cannot serve an encoding refuses it when the model is built, before any data is read."""

import pytest
import torch
from small_models import roberta, sentences, transformer, translation_batch

from fairseq_relpos.attention import RelPosMultiheadAttention
from fairseq_relpos.backends import BACKENDS, names, select, triton
from fairseq_relpos.encodings import ENCODINGS, names_for


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(triton, "triton_version", lambda: triton.OLDEST)


def error_of(call, *arguments, **settings):
    try:
        call(*arguments, **settings)
    except ValueError as error:
        return str(error)


def in_a_pass(model, backend, *batch):
    """The error of a model that was built with another backend, as building with this one says it."""
    for module in model.modules():
        if isinstance(module, RelPosMultiheadAttention):
            module.backend = select(backend)
    error = error_of(model, *batch)
    return error and f"--attention-backend: {error}"


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_a_backend_is_refused_at_build_exactly_where_a_pass_would_be(name):
    for backend in names() if name in names_for(causal=False) else ():
        at_build = error_of(roberta, f"roberta_{name}", attention_backend=backend)
        assert at_build == in_a_pass(roberta(f"roberta_{name}"), backend, sentences()), backend
        assert at_build is None or at_build.startswith(f"--attention-backend: attention backend {backend}: "), at_build
    for backend in BACKENDS:
        at_build = error_of(transformer, f"transformer_{name}", attention_backend=backend)
        assert at_build == in_a_pass(transformer(f"transformer_{name}"), backend, *translation_batch()), backend


def test_what_only_some_layers_have_is_refused_too():
    line = error_of(roberta, "roberta_m4", attention_backend="sdpa", position_layers="3")
    assert line == (
        "--attention-backend: attention backend sdpa: positions depend on the content, "
        "which scaled_dot_product_attention "
        "cannot add; use auto or eager or lean or fused"
    )
    encoder_only = {"position_stacks": "encoder", "attention_backend": "sdpa"}
    assert error_of(transformer, "transformer_m4", **encoder_only) == line
    mixed = {"position_encoding": "encoder=t5,decoder=m4", "attention_backend": "sdpa"}
    assert error_of(transformer, "transformer_t5", **mixed) == line


def test_with_the_interpreter_triton_refuses_what_its_kernels_cannot_compute(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert error_of(roberta, "roberta_t5", attention_backend="triton") is None
    wide = {"encoder_embed_dim": 258, "encoder_attention_heads": 2, "attention_backend": "triton"}
    assert "queries of 129 entries, its kernels take 128" in error_of(roberta, "roberta_t5", **wide)


def test_a_gpu_is_where_the_model_will_run_unless_cpu_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    old = error_of(roberta, "roberta_t5", attention_backend="triton")
    assert "this GPU has 7.0; use auto or eager" in old
    assert "need a CUDA device" in error_of(roberta, "roberta_t5", attention_backend="triton", cpu=True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    roberta("roberta_t5", attention_backend="triton")


@pytest.mark.parametrize("name", ["shape", "fire", "m4m"])
def test_the_trial_moves_no_random_number_and_leaves_no_pass_behind(name):
    def build(backend):
        model = roberta(f"roberta_{name}", seed=3, attention_backend=backend)
        return model, torch.rand(4)

    (one, after_one), (other, after_other) = build("auto"), build("eager")
    assert torch.equal(after_one, after_other)
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
    assert one.encoder.sentence_encoder.embed_positions.current_pass.positions is None
