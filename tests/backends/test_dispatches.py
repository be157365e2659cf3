"""How many kernels one more layer of attention starts on a GPU, forward and backward, counted without one.

Counted are torch's operations that compute or copy something, and Triton's kernels, which are not run here. Stock is
fairseq's own attention. Both have their projections, in bfloat16.
"""

import contextlib
from unittest import mock

import pytest
import torch
from small_models import roberta
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_relpos.backends import triton
from fairseq_relpos.encodings import Dims, build, names_for
from fairseq_relpos.positions import Positions

pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")

#: operations that only describe memory, or reserve it
FREE = set(
    "view _unsafe_view transpose t permute expand slice select unsqueeze as_strided detach alias split unbind unfold "
    "empty empty_like new_empty empty_strided new_empty_strided promote_types lift_fresh _local_scalar_dense".split()
)
#: times stock
BIAS, TABLE = 1.1, 2.0
#: biases for which each layer computes a formula, over the offsets or all pairs, most of these kernels
FORMULAS = {"kerple_log": 1.7, "kerple_power": 2.0, "tisa": 2.2, "dape": 3.8}
#: without positions in the logits: ``auto`` leaves them to torch's own attention
NO_POSITIONS = {"learned", "none", "pope", "rope", "shape", "sinusoidal"}


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.number += function.overloadpacket.__name__ not in FREE
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def kernels_that_are_not_run(count):
    def start(*_):
        count.number += 1

    with (
        mock.patch.object(triton, "why_not_here", lambda device: None),
        mock.patch.object(triton, "why_not_these", lambda terms: None),
        mock.patch.object(triton.Launch, "start", start),
    ):
        yield


def kernels_of_a_layer(arch, **settings):
    """How many more two layers start than one, in the same pass."""
    count = Count()
    with kernels_that_are_not_run(count):
        encoder = roberta(arch, dropout=0.0, attention_dropout=0.0, **settings).encoder.sentence_encoder.bfloat16()
        tokens = torch.full((2, 16), 5)
        x = torch.randn(16, 2, 24, dtype=torch.bfloat16, requires_grad=True)
        totals = []
        for layers in (1, 1, 2):  # the first is slower, once
            encoder.zero_grad()
            x.grad = None
            count.number = 0
            with count:
                encoder.embed_positions(tokens)
                outs = [layer.self_attn(x, x, x, need_weights=False)[0] for layer in list(encoder.layers)[:layers]]
                torch.autograd.backward(outs, [torch.ones_like(x)] * layers)
            totals.append(count.number)
    return totals[2] - totals[1]


@pytest.fixture(scope="module")
def stock():
    return kernels_of_a_layer("roberta")


@pytest.mark.parametrize("name", sorted(set(names_for(causal=False)) - NO_POSITIONS))
def test_a_layer_starts_few_more_kernels_than_one_of_stock(stock, name):
    most = FORMULAS.get(name, BIAS if is_bias(name) else TABLE)
    assert kernels_of_a_layer(f"roberta_{name}", attention_backend="triton") <= most * stock


def is_bias(name):
    dims = Dims(24, 3, 32)
    q = torch.zeros(1, 3, 2, 8)
    return build(name, dims).terms(q, q, Positions.of(2, 2)).is_additive_bias


def test_layers_share_what_is_read_of_a_shared_bias():
    """t5's rows are buckets, t5_nob's are one for each offset."""
    t5, t5_nob = (kernels_of_a_layer(name, attention_backend="triton") for name in ("roberta_t5", "roberta_t5_nob"))
    assert t5 == t5_nob
