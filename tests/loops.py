"""The oracle's machinery: a paper's scalar equation, called for each i and j in plain loops,
and autograd through it."""

from pathlib import Path

import numpy as np
import torch

from fairseq_relpos.encodings import Dims, names_for
from fairseq_relpos.positions import Positions

LENGTHS = [(1, 1), (7, 7), (3, 8)]
DIMS = Dims(embed_dim=8, num_heads=2, max_len=9)
CAUSAL = Dims(embed_dim=8, num_heads=2, max_len=9, causal=True)
LEFT_PADDING = torch.tensor([[False] * 7, [True] * 3 + [False] * 4])
#: all lengths, and pads to the left
CASES = [*((lengths, None) for lengths in LENGTHS), ((7, 7), LEFT_PADDING)]
FIXTURES = Path(__file__).parent / "fixtures/golden"


def dims_for(name, embed_dim, num_heads, max_len, causal=False):
    """The dimensions of a bidirectional stack, unless the encoding serves causal ones alone."""
    return Dims(embed_dim, num_heads, max_len, causal=causal or name not in names_for(causal=False))


def positions_of(dims, tgt_len, src_len, padding_BS=None, **given):
    """Positions with an input x of the layer, for encodings that read it: a token has the same x whatever
    pads stand beside it and however far a generation has come."""
    x_NE = torch.randn(1024, dims.embed_dim, generator=torch.Generator().manual_seed(0))
    real_BS = torch.ones(1, src_len, dtype=torch.bool) if padding_BS is None else ~padding_BS.cpu()
    x_BSE = x_NE[(real_BS.cumsum(1) - 1).clamp(min=0)]
    x_BSE = x_BSE if padding_BS is None else x_BSE.to(padding_BS.device)
    return Positions.of(tgt_len, src_len, padding_BS, x=x_BSE, **given)


def golden(file, case):
    """name -> what public code has computed, or was given, in one case."""
    with np.load(FIXTURES / file) as arrays:
        found = {key.partition("/")[2]: torch.from_numpy(arrays[key]) for key in arrays if key.startswith(f"{case}/")}
    assert found, case
    return found


def clip(x, k):
    return max(-k, min(k, x))


def inputs(batch=2, length=9):
    """24 features."""
    return torch.randn(batch, length, 24, dtype=torch.float64)


def pads(batch=2, length=9, left=False, count=3):
    """The last sentence has pads, at its end or at its beginning."""
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[-1, slice(0, count) if left else slice(length - count, length)] = True
    return mask


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


def scale_up_positions(stack, std=0.5):
    """Those of a built stack and of its layers. A stack that the encoding does not serve is stock fairseq's."""
    scale_up(stack.embed_positions, std)
    for number in range(len(stack.layers)):  # where layers may be dropped, one that is iterated over drops some
        scale_up(getattr(stack.layers[number].self_attn, "position_encoding", torch.nn.Module()), std)
    return stack


def check_against_loops(encoding, oracle, tgt_len, src_len, padding_BS=None, atol=1e-10, whole=False, x_BSE=None):
    """Logits, and gradients of q, k, the layer's input x if it is given, and every parameter, are
    those of the oracle.

    oracle(q_i, k_j, head, i, j, sentence) -> e_ij, a torch scalar through which autograd goes,
    with i and j token positions. whole=True, for logits that depend on more than one pair:
    oracle(q, k, head, i, j, sentence), all real tokens of that sentence and head in rows, so that
    q[i] and k[j] are the pair's; whole="heads", for logits that mix the heads: those of all heads, q[:, i].
    Pads and the future of a causal stack are hidden by masks, and not compared.
    """
    encoding = scale_up(encoding.double())
    q, k = (x.requires_grad_() for x in random_qk(encoding.dims, tgt_len, src_len))
    inputs = {"q": q, "k": k} | ({} if x_BSE is None else {"x": x_BSE.requires_grad_()})
    pos = Positions.of(tgt_len, src_len, padding_BS, x=x_BSE)
    logits = encoding.logits(q, k, pos)
    real_BS = torch.ones(q.size(0), src_len, dtype=torch.bool) if padding_BS is None else ~padding_BS
    # what came before the first query is not known: whoever reads it sees it
    q_of_keys = torch.cat([q.new_full((*q.shape[:2], src_len - tgt_len, q.size(3)), float("nan")), q], 2)
    found, expected = [], []
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            rows = (q_of_keys[b], k[b]) if whole == "heads" else (q_of_keys[b, h], k[b, h])
            rows = [x[..., real_BS[b], :] for x in rows]
            for t in range(tgt_len):
                for s in range(src_len):
                    slot = src_len - tgt_len + t
                    if encoding.dims.causal and s > slot or not (real_BS[b, slot] and real_BS[b, s]):
                        continue
                    i, j = (int(real_BS[b, :x].sum()) for x in (slot, s))
                    pair = rows if whole else (rows[0][i], rows[1][j])
                    found.append(logits[b, h, t, s])
                    expected.append(oracle(*pair, h, i, j, b))
                    difference = abs(float(found[-1].detach()) - float(expected[-1].detach()))
                    assert difference <= atol, (b, h, i, j, difference)
    check_gradients(torch.stack(found), torch.stack(expected), encoding, **inputs)


def check_gradients(found, expected, module, atol=1e-9, **inputs):
    """The same gradients of the inputs and of every parameter, by way of either result."""
    wanted = {**inputs, **dict(module.named_parameters())}
    weights = torch.randn_like(expected)
    gradients = [
        torch.autograd.grad((weights * result).sum(), list(wanted.values()), allow_unused=True)
        for result in (found, expected)
    ]
    for name, *pair in zip(wanted, *gradients):
        # either may know that a parameter has no part in it
        mine, oracles = (torch.zeros(()) if x is None else x for x in pair)
        difference = (mine - oracles).abs().max()
        assert difference <= atol * max(1, oracles.abs().max()), (name, difference)


def logits_in_loops(t):
    """The definition of the normal form (terms.py), one scalar at a time."""
    batch, heads, tgt_len, _ = t.q_BHTD.shape
    src_len = t.k_BHSD.size(2)
    out = []
    for b in range(batch):
        for h in range(heads):
            for row in range(tgt_len):
                for j in range(src_len):
                    i = src_len - tgt_len + row
                    q, k = t.q_BHTD[b, h, row], t.k_BHSD[b, h, j]

                    def pick(table, rows, h=h, i=i, j=j):
                        return table[h % table.size(0), int(rows(torch.tensor(j - i)))]

                    content = t.scale * (q @ k)
                    gated = q if t.gate is None else q * pick(t.gate, t.rows)
                    e = gated @ k
                    if t.gain is not None:
                        e = e * pick(t.gain, t.rows)
                    for vector, table, rows in ((q, t.A, t.rows), (k, t.C, t.C_rows or t.rows)):
                        if table is not None:
                            dot = vector @ pick(table, rows)
                            e = e * dot if t.product else e + dot
                    e = t.scale * e
                    if t.bias_row is not None:
                        e = e + pick(t.bias_row, t.rows)
                    if t.bias is not None:
                        e = e + t.bias[b % t.bias.size(0), h, row, j]
                    if t.reset is not None:
                        if i == 0:
                            e = content + t.reset[0, h]
                        elif j == 0:
                            e = content + t.reset[1, h]
                    out.append(e)
    return torch.stack(out).view(batch, heads, tgt_len, src_len)
