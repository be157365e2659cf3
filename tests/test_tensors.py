"""Modules while torch traces them, and afterwards."""

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
