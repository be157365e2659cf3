"""Shaw and LFHC against their equations in loops, and the public codes' numbers."""

import math

import pytest
import torch
from loops import CAUSAL, DIMS, LENGTHS, check_against_loops, check_gradients, clip, random_qk, scale_up

from fairseq_relpos.backends import BACKENDS, Mask, select
from fairseq_relpos.backends.base import NO_VALUES
from fairseq_relpos.backends.triton import why_not_these
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.nn import Cache, RelPosSelfAttention
from fairseq_relpos.positions import Positions


def row_of_head(table, row, head, head_dim, shared):
    return table[row] if shared else table[row, head * head_dim : (head + 1) * head_dim]


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("hparams", [{}, {"max_distance": 2}, {"heads": "each"}, {"scale_factor": 2}])
def test_shaw_adds_a_vector_to_the_key(hparams, lengths, dims):
    encoding = build("shaw", dims, **hparams)
    k, d = hparams.get("max_distance", 8), dims.head_dim
    s = 1 / math.sqrt(hparams.get("scale_factor", 1) * d)

    def oracle(q_i, k_j, head, i, j, sentence):
        a = row_of_head(encoding.table, clip(j - i, k) + k, head, d, "heads" not in hparams)
        return s * (q_i @ (k_j + a))

    check_against_loops(encoding, oracle, *lengths)


@pytest.mark.parametrize("layer", [1, 2, 5])
@pytest.mark.parametrize("rounding", ["away", "floor"])
@pytest.mark.parametrize("heads", ["each", "shared"])
def test_lfhc_is_coarser_in_higher_layers(layer, rounding, heads):
    dims = Dims(embed_dim=8, num_heads=2, max_len=9, layer=layer)
    encoding = build("lfhc", dims, max_distance=2, rounding=rounding, heads=heads)

    def oracle(q_i, k_j, head, i, j, sentence):
        x = i - j
        if rounding == "floor":
            coarse = math.floor(x / layer)
        else:
            coarse = int(math.copysign(math.ceil(abs(x) / layer), x))
        a = row_of_head(encoding.table, clip(coarse, 2) + 2, head, 4, heads == "shared")
        return q_i @ (k_j + a) / 2

    check_against_loops(encoding, oracle, 9, 9)


def outputs_in_loops(encoding, q, k, v, mask, ids_BS):
    """Shaw et al. 2018, Eq. 3: o_i = sum_j w_ij (v_j + a^V_r)."""
    (batch, heads, tgt_len, d), src_len = q.shape, k.size(2)
    reach, shared = (len(encoding.table) - 1) // 2, encoding.tables == 1
    out = []
    for b in range(batch):
        for h in range(heads):
            for t in range(tgt_len):
                i = src_len - tgt_len + t
                rows = [clip(int(ids_BS[b, j] - ids_BS[b, i]), reach) + reach for j in range(src_len)]
                a, a_V = (
                    [row_of_head(table, row, h, d, shared) for row in rows]
                    for table in (encoding.table, encoding.value_table)
                )
                e = torch.stack([q[b, h, t] @ (k[b, h, j] + a[j]) / math.sqrt(d) for j in range(src_len)])
                hidden = mask.padding_BS[b] | (mask.causal & (torch.arange(src_len) > i))
                w = e.masked_fill(hidden, -math.inf).softmax(0)
                out.append(sum(w[j] * (v[b, h, j] + a_V[j]) for j in range(src_len)))
    return torch.stack(out).view(batch, heads, tgt_len, d)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("hparams", [{}, {"max_distance": 2}, {"max_distance": 2, "heads": "each"}])
@pytest.mark.parametrize("given", [False, True])
def test_shaw_adds_a_vector_to_the_value(given, hparams, lengths, causal):
    encoding = scale_up(build("shaw", DIMS, values=True, **hparams)).double()
    q, k = (x.requires_grad_() for x in random_qk(DIMS, *lengths))
    v = torch.randn_like(k).requires_grad_()
    padding_BS = torch.zeros(2, lengths[1], dtype=torch.bool)
    padding_BS[1, -1] = lengths[1] > 1
    ids_BS = (1 + given) * torch.arange(lengths[1]).expand(2, -1)
    pos = Positions.of(*lengths, padding_BS, position_ids=ids_BS if given else None)
    mask = Mask(padding_BS, causal)
    found, _ = select("auto")(encoding.terms(q, k, pos), v, mask, 0.0, False)
    expected = outputs_in_loops(encoding, q, k, v, mask, ids_BS.masked_fill(padding_BS, 0) if given else ids_BS)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    check_gradients(found, expected, encoding, q=q, k=k, v=v)


def test_values_are_added_by_eager_alone_and_others_refuse_by_name():
    encoding = build("shaw", DIMS, values=True)
    q, k = random_qk(DIMS, 70, 70, dtype=torch.float32)
    terms = encoding.terms(q, k, Positions.of(70, 70))
    for name in set(BACKENDS) - {"eager"}:
        with pytest.raises(ValueError, match=f"^attention backend {name}: .*; use auto or eager$"):
            select(name)(terms, k, Mask(), 0.0, False)
        assert name == "triton" or BACKENDS[name]().refuses(terms, False) == NO_VALUES
    assert why_not_these(terms) == NO_VALUES
    found = [select(name)(terms, k, Mask(), 0.0, False)[0] for name in ("auto", "eager")]
    assert torch.equal(*found)


def test_values_while_decoding_with_a_reordered_beam():
    attention = RelPosSelfAttention(24, 3, "shaw", 20, causal=True, hparams={"values": True, "max_distance": 4})
    scale_up(attention.position_encoding)
    x = torch.randn(2, 9, 24)
    full = attention(x.flip(0))[0]
    cache, steps = Cache(), []
    for step in range(9):
        if step == 5:  # the beam is reordered: the sentences change places
            cache.reorder(torch.tensor([1, 0]))
            x = x.flip(0)
        steps.append(attention(x[:, step : step + 1], cache=cache)[0])
    torch.testing.assert_close(torch.cat(steps[5:], 1), full[:, 5:], atol=1e-5, rtol=0)


def test_checkpoints_from_before_values_keep_their_signature():
    assert "values" not in build("shaw", DIMS).signature
    assert "values:True" in build("shaw", DIMS, values=True).signature
