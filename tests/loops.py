"""The oracle's machinery: a paper's scalar equation, called for each i and j in plain loops."""

import torch

from fairseq_relpos.positions import Positions

LENGTHS = [(1, 1), (7, 7), (3, 8)]


def random_qk(dims, tgt_len, src_len, batch=2, dtype=torch.float64):
    q = torch.randn(batch, dims.num_heads, tgt_len, dims.head_dim, dtype=dtype)
    k = torch.randn(batch, dims.num_heads, src_len, dims.head_dim, dtype=dtype)
    return q, k


def scale_up(module, std=0.5):
    """Give every parameter a size at which a mistake is visible. One-dimensional ones
    become positive: a rate or a gain may be dead on the other side of zero."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, std)
            if parameter.dim() == 1:
                parameter.abs_()
    return module


@torch.no_grad()
def check_against_loops(encoding, oracle, tgt_len, src_len, padding_BS=None, atol=1e-10):
    """oracle(q_i, k_j, head, i, j, sentence) -> e_ij, with i and j token positions. Pads and
    the future of a causal stack are hidden by masks, and not compared."""
    encoding = scale_up(encoding.double())
    q, k = random_qk(encoding.dims, tgt_len, src_len)
    pos = Positions.of(tgt_len, src_len, padding_BS)
    logits = encoding.logits(q, k, pos)
    compared = 0
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for t in range(tgt_len):
                for s in range(src_len):
                    i, j = src_len - tgt_len + t, s
                    if encoding.dims.causal and j > i:
                        continue
                    if padding_BS is not None:
                        if padding_BS[b, i] or padding_BS[b, j]:
                            continue
                        i, j = (int((~padding_BS[b, :x]).sum()) for x in (i, j))
                    expected = oracle(q[b, h, t], k[b, h, s], h, i, j, b)
                    difference = abs(float(logits[b, h, t, s]) - float(expected))
                    assert difference <= atol, (b, h, i, j, difference)
                    compared += 1
    assert compared
