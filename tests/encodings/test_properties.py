"""Claims of the papers about their encodings."""

import math

import pytest
import torch
from loops import random_qk, scale_up

from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.encodings.transformer_xl import gaussian_cdf_of_distance, sinusoids_of_distance
from fairseq_relpos.positions import Positions

REACH = 512


def distance(prior):
    """phi(x, y) = |R_x - R_y| for 0 <= x, y <= REACH   (LFHC/GCDF paper, Eq. 10)."""
    rows = prior[: REACH + 1].flip(0)  # rows count i - j downwards from REACH
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def attenuates(phi, offset):
    """Property 1: phi(i + k, i) falls with i   (Eq. 11)."""
    along = phi.diagonal(offset)
    return bool((along[:-1] > along[1:]).all())


def grows_ever_more_slowly(phi, start):
    """Property 2: phi(i, j) rises with j, and ever less   (Eq. 12-13)."""
    steps = phi[start, start:].diff()
    return bool((steps > 0).all() and (steps[:-1] > steps[1:]).all())


@pytest.mark.parametrize("dim", [256, 512])
def test_gcdf_has_properties_1_and_2(dim):
    phi = distance(gaussian_cdf_of_distance(REACH, dim))
    assert all(attenuates(phi, offset) for offset in (1, 2, 7, 64, 300))
    assert all(grows_ever_more_slowly(phi, start) for start in (0, 1, 10, 100, 400))


def test_pads_may_be_bytes():
    padding = torch.tensor([[True, True, False, False], [False] * 4])
    pads, in_bytes = (Positions.of(4, 4, padding_BS=x) for x in (padding, padding.byte()))
    assert torch.equal(in_bytes.key_BS(), pads.key_BS()) and torch.equal(in_bytes.cls_BS(), pads.cls_BS())
    assert torch.equal(in_bytes.real_lengths_B(), pads.real_lengths_B())


@pytest.mark.parametrize("dim", [256, 512])
def test_sinusoids_have_neither(dim):
    phi = distance(sinusoids_of_distance(REACH, dim))
    assert not any(attenuates(phi, offset) for offset in (1, 2, 7, 64, 300))
    assert not any(grows_ever_more_slowly(phi, start) for start in (0, 1, 10, 100, 400))


def test_any_toeplitz_bias_factorises_as_tupes_proposition_1_says():
    """B = G D G*, G (n, 2n) Vandermonde with G_jk = exp(i pi (j + 1) k / n) / 2n."""
    n = 17
    encoding = scale_up(build("t5_nob", Dims(8, 2, n)).double())
    with torch.no_grad():
        bias = encoding.stack.evaluate(Positions.of(n, n)).dense(n, n).bias[0]
    j, k = torch.arange(n).double(), torch.arange(2 * n).double()
    G = torch.exp(1j * math.pi * (j[:, None] + 1) * k / n) / (2 * n)
    for B in bias:
        # one period of the circulant that B is a corner of; b_n is free
        period = torch.cat([B[:, 0], torch.zeros(1), B[0, 1:].flip(0)])
        D = 2 * n * torch.fft.fft(period.to(torch.complex128))
        torch.testing.assert_close((G * D) @ G.conj().T, B.to(torch.complex128), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", ["t5", "at5", "t5_nob", "at5_nob"])
def test_a_scalar_bias_is_a_prior_over_positions(name):
    """AT5's theorem: the attention weights are the posterior of the prior softmax(b) and the
    likelihood exp(s q.k)."""
    dims = Dims(8, 2, 9)
    encoding = scale_up(build(name, dims).double())
    q, k = random_qk(dims, 7, 7)
    pos = Positions.of(7, 7)
    posterior = encoding.logits(q, k, pos).softmax(-1)
    prior = encoding.stack.evaluate(pos).dense(7, 7).bias.softmax(-1)
    likelihood = (q @ k.mT / 2).exp()
    torch.testing.assert_close(posterior, prior * likelihood / (prior * likelihood).sum(-1, keepdim=True))


def test_t5s_buckets_are_exact_near_and_logarithmic_far():
    """AT5 Figure 3: each near distance has a bucket, the last bucket begins at max_distance."""
    rows = build("t5", Dims(8, 2, 9), num_buckets=32, max_distance=128).rows
    buckets = rows(-torch.arange(0, 300))
    assert buckets[:8].tolist() == list(range(8))
    widths = torch.bincount(buckets)[8:15]
    assert (widths.diff() >= 0).all() and buckets[128:].eq(15).all() and buckets[90] < 15
