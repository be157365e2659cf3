"""Modules while torch traces them, and afterwards."""

import io

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_relpos.nn import RelPosEncoder, RelPosSelfAttention

# of no other test, so that no table is known before
SIZES = {"embed_dim": 44, "num_heads": 11, "max_len": 90}
KEPT = {
    "alibi": {},
    "rope": {"base": 77.0},
    "sandwich": {"width": 22},
    "sinusoidal": {},
    "t5": {"num_buckets": 14, "max_distance": 33},
    "transformer_xl": {},
}


@pytest.mark.parametrize("name", KEPT)
def test_an_export_leaves_no_tables_without_numbers_behind(name):
    module, x = RelPosEncoder(num_layers=1, encoding=name, hparams=KEPT[name], **SIZES).eval(), torch.randn(2, 9, 44)
    with torch.no_grad():
        exported = torch.export.export(module, (x,), strict=False).module()
        found = module(x)
    assert type(found) is torch.Tensor
    torch.testing.assert_close(found, exported(x))


@pytest.mark.parametrize("name", ["cope", "m3", "none", "rope", "shaw", "tupe_r"])
def test_an_exported_program_can_be_saved(name):
    module = RelPosEncoder(num_layers=2, encoding=name, causal=name == "cope", **SIZES).eval()
    x, file = torch.randn(2, 9, 44), io.BytesIO()
    with torch.no_grad():
        torch.export.save(torch.export.export(module, (torch.randn(2, 9, 44),), strict=False), file)
        torch.testing.assert_close(torch.export.load(io.BytesIO(file.getvalue())).module()(x), module(x))


@pytest.mark.parametrize("name", ["alibi", "t5", "shaw"])
def test_an_export_holds_no_compiled_code(name):
    module, x = RelPosSelfAttention(encoding=name, **SIZES).eval(), torch.randn(2, 70, 44)
    with torch.no_grad():
        exported = torch.export.export(module, (x,), strict=False).module()
        torch.testing.assert_close(exported(x)[0], module(x)[0])


@pytest.mark.parametrize("name", ["t5", "m3"])
def test_tensors_without_memory_are_not_given_to_compiled_code(name):
    with FakeTensorMode():
        module = RelPosSelfAttention(encoding=name, **SIZES)
        x = torch.randn(2, 70, 44, requires_grad=True)
        module(x)[0].sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize(
    "name, backend", [("shaw", "eager"), ("m3", "eager"), ("t5", "eager"), ("tupe_r", "eager"), ("rope", "lean")]
)
def test_second_derivatives_are_refused_where_they_would_lack_a_part(name, backend):
    module = RelPosEncoder(8, 2, 1, name, dropout=0.0, backend=backend).double().eval()
    inputs = [torch.randn(1, 3, 8, dtype=torch.float64, requires_grad=True), *module.parameters()]
    found = torch.autograd.grad(module(inputs[0]).sin().sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated again: leave create_graph=True out"):
        torch.autograd.grad(sum(x.square().sum() for x in found), inputs)


@pytest.mark.parametrize("name, backend", [("shaw", "eager"), ("rope", "lean")])
def test_first_derivatives_with_create_graph_are_those_without_where_layers_compute_again(name, backend):
    stack = RelPosEncoder(8, 2, 1, name, dropout=0.0, attention_dropout=0.0, backend=backend).train()
    x = torch.randn(1, 3, 8, requires_grad=True)
    (wanted,) = torch.autograd.grad(stack(x).sin().sum(), x)
    stack.checkpoint_activations = True
    (found,) = torch.autograd.grad(stack(x).sin().sum(), x, create_graph=True)
    torch.testing.assert_close(found, wanted)
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(found.square().sum(), x)


def test_eager_has_second_derivatives_where_no_table_over_the_offset_is_learned():
    module = RelPosSelfAttention(8, 2, "rope", backend="eager").double()
    x = torch.randn(1, 3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: module(x)[0], x)
