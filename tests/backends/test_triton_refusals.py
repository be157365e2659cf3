"""The fused kernels refuse what they cannot compute, in one line that says why and which backend can."""

import pytest
import pythons
import torch

from fairseq_relpos.backends import Mask, select, triton
from fairseq_relpos.positions import Positions
from fairseq_relpos.rows import Clipped
from fairseq_relpos.terms import Bias, Terms

ROWS = Clipped(3)


def make(width=4, dtype=torch.float32, queries=5, **positions):
    q, k, v = (torch.randn(1, 2, length, width, dtype=dtype) for length in (queries, 5, 5))
    return Terms(q, k, 0.5, rows=ROWS, **positions), v


@pytest.fixture
def interpreter(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton, "triton_version", lambda: triton.OLDEST)


@pytest.mark.parametrize(
    "call, reason",
    [
        ({"dtype": torch.float64}, "float64"),
        ({"dtype": torch.bfloat16}, "cannot multiply bfloat16"),
        ({"width": 129}, "129 entries, its kernels take 128"),
        ({"gate": torch.randn(1, ROWS.count, 4), "reset": torch.randn(2, 2)}, "a gate on q.k and a reset"),
        ({"queries": 6, "reset": torch.randn(2, 2)}, "more queries than keys"),
    ],
)
def test_terms_it_cannot_compute(call, reason, interpreter):
    terms, v = make(**call)
    with pytest.raises(ValueError, match=f"triton: .*{reason}.*; use auto or .*eager") as error:
        select("triton")(terms, v, Mask(), 0.0, False)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "device, capability, version, reason",
    [
        ("cpu", None, triton.OLDEST, "a CUDA device (or TRITON_INTERPRET=1"),
        ("cuda", (7, 0), triton.OLDEST, "8.0 or more, this GPU has 7.0"),
        ("cuda", (8, 0), triton.OLDEST, None),
        ("mps", None, triton.OLDEST, "not on mps"),
        ("cpu", None, None, "Triton is not installed"),
        ("cpu", None, (3, 1), "its kernels need Triton 3.3 or newer, this is 3.1"),
    ],
)
def test_machines_on_which_it_does_not_run(device, capability, version, reason, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(triton, "triton_version", lambda: version)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    terms, _ = make()
    found = triton.Triton().refuses(terms, False, torch.device(device))
    assert found is None if reason is None else reason in found


def test_the_version_is_read_without_an_import(monkeypatch):
    def version(name):
        if name != "pytorch-triton":
            raise triton.PackageNotFoundError
        return "3.10.0+git0"

    monkeypatch.setattr(triton, "version", version)
    assert triton.triton_version.__wrapped__() == (3, 10)


def test_weights_are_never_made_and_asked_for_by_name_are_eagers(interpreter):
    terms, v = make()
    assert "no attention weights" in triton.Triton().refuses(terms, True)
    out, weights = select("triton")(terms, v, Mask(), 0.0, need_weights=True)
    torch.testing.assert_close(weights @ v, out)


def test_what_layers_share_is_added_up_once_a_pass():
    row, pairs, reset = torch.randn(2, ROWS.count), torch.randn(1, 2, 9, 9), torch.randn(2, 2)
    prepare, pos = select("triton").prepare_bias, Positions.of(9, 9)
    for bias in (Bias(ROWS, row, pairs), Bias(ROWS, row, reset=reset), Bias(ROWS, row, pairs, reset)):
        found = prepare(bias, pos)
        assert found.bias_row is None is found.reset
        torch.testing.assert_close(found.bias, bias.dense(9, 9).bias)
    alone = prepare(Bias(ROWS, row), pos)
    assert alone.bias is None and alone.bias_row.shape == (2, 17)  # one value an offset


def test_the_package_does_not_import_triton():
    pythons.output("-c", "import sys, fairseq_relpos.backends; sys.exit('triton' in sys.modules)")
