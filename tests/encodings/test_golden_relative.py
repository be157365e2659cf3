"""Attention weights of the authors' and the standard public code, reproduced.

The fixture holds each code's inputs, weights and attention weights for one layer.
"""

import pytest
import torch
from loops import golden

from fairseq_relpos.backends import Mask, select
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions
from fairseq_relpos.rows import ByLayer, QueryMinusKey

TOLERANCE = 1e-5


def case(name):
    return golden("relative.npz", name)


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def weights(encoding, q, k, padding=None, causal=False):
    tgt_len, src_len = q.size(2), k.size(2)
    with torch.no_grad():
        logits = encoding.logits(q, k, Positions.of(tgt_len, src_len))
    if padding is not None:
        logits = logits.masked_fill(padding[:, None, None].bool(), -1e30)
    if causal:
        future = torch.ones(tgt_len, src_len).triu(src_len - tgt_len + 1).bool()
        logits = logits.masked_fill(future, -1e30)
    return logits.softmax(-1)


def fill(parameter, value):
    with torch.no_grad():
        parameter.copy_(value)


@pytest.mark.parametrize(
    "name, source",
    [("shaw", "relative_key_bert"), ("m4", "relative_key_query_bert"), ("m4", "relative_key_query_roberta")],
)
def test_hugging_faces_relative_keys(name, source):
    g = case(source)
    heads = g["probs"].size(1)
    q = split(g["x"] @ g["wq"].T + g["bq"], heads)
    k = split(g["x"] @ g["wk"].T + g["bk"], heads)
    encoding = build(name, Dims(g["x"].size(-1), heads, (len(g["table"]) + 1) // 2))
    fill(encoding.table, g["table"].flip(0))  # their rows count i - j
    found = weights(encoding, q, k, g["padding"])
    torch.testing.assert_close(found, g["probs"], atol=TOLERANCE, rtol=0)


def test_tensor2tensors_shaw():
    g = case("shaw_t2t")
    heads, d = g["q"].size(1), g["q"].size(-1)
    encoding = build("shaw", Dims(heads * d, heads, 64), max_distance=len(g["table"]) // 2, values=True)
    fill(encoding.table, g["table"])
    fill(encoding.value_table, g["values"])
    terms = encoding.terms(g["q"], g["k"], Positions.of(9, 9))
    out, found = select("auto")(terms, g["v"], Mask(g["padding"].bool()), 0.0, True)
    torch.testing.assert_close(found, g["probs"], atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(out, g["out"], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("memory", ["nomem", "mem"])
def test_the_authors_transformer_xl(memory):
    g = case(f"transformer_xl_{memory}")
    heads, width, queries = g["u"].size(0), g["x"].size(-1), int(g["queries"])
    x = g["x"].transpose(0, 1)
    wq, wk, _ = g["qkv"].chunk(3)
    q, k = split(x[:, -queries:] @ wq.T, heads), split(x @ wk.T, heads)
    encoding = build("transformer_xl", Dims(width, heads, 64, causal=True))
    # their R counts i - j = klen-1 .. 0; ours goes on to the right
    torch.testing.assert_close(encoding.prior(len(g["r"]) - 1)[: len(g["r"])].float(), g["r"], atol=1e-5, rtol=0)
    fill(encoding.w.weight, g["wr"])
    fill(encoding.stack.u, g["u"])
    fill(encoding.stack.v, g["v"])
    found = weights(encoding, q, k, causal=True)
    torch.testing.assert_close(found, g["probs"].permute(2, 3, 0, 1), atol=TOLERANCE, rtol=0)


def test_xlnets_bidirectional_attention():
    g = case("xlnet_bi")
    width, heads, d = g["wq"].shape
    x = g["x"].transpose(0, 1)
    q, k = (torch.einsum("bte,ehd->bhtd", x, w) for w in (g["wq"], g["wk"]))
    encoding = build("transformer_xl", Dims(width, heads, 64), untie=True)
    torch.testing.assert_close(encoding.prior(7).float(), g["r"][1:], atol=1e-5, rtol=0)
    fill(encoding.w.weight, g["wr"].reshape(width, heads * d).T)
    fill(encoding.u, g["u"])
    fill(encoding.v, g["v"])
    found = weights(encoding, q, k, g["padding"])
    torch.testing.assert_close(found, g["probs"], atol=TOLERANCE, rtol=0)


DEBERTA = {
    "c2p_p2c_clip": {"max_distance": 5},
    "c2p_only": {"max_distance": 11, "att": "c2p"},
    "p2c_only": {"max_distance": 11, "att": "p2c"},
    "c2p_p2c_share_buckets": {"max_distance": 16, "buckets": 6, "share_att_key": True},
}


def real_rows(found, expected, mask):
    """Their softmax leaves the rows of padded queries zero."""
    real = mask.bool()[:, None, :, None]
    torch.testing.assert_close(found * real, expected * real, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("variant", DEBERTA)
def test_deberta_v2(variant):
    g = case(f"deberta_{variant}")
    heads, width = 3, g["x"].size(-1)
    encoding = build("deberta", Dims(width, heads, 64), **DEBERTA[variant])
    fill(encoding.stack.a, g["rel_embeddings"])
    q_proj, k_proj = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
    for linear, name in ((q_proj, "query"), (k_proj, "key")):
        fill(linear.weight, g[f"w_{name}_proj_weight"])
        fill(linear.bias, g[f"w_{name}_proj_bias"])
    encoding.use_content_projections(q_proj, k_proj)
    if "w_pos_key_proj_weight" in g:
        fill(encoding.w_r.weight, g["w_pos_key_proj_weight"])
    if "w_pos_query_proj_weight" in g:
        fill(encoding.w_t.weight, g["w_pos_query_proj_weight"])
        fill(encoding.w_t.bias, g["w_pos_query_proj_bias"])
    with torch.no_grad():
        q, k = split(q_proj(g["x"]), heads), split(k_proj(g["x"]), heads)
    real_rows(weights(encoding, q, k, g["mask"] == 0), g["probs"], g["mask"])


def test_deberta_v1():
    g = case("deberta_v1_c2p_p2c")
    heads, width = 3, g["x"].size(-1)
    # packed head by head: q, k, v of a head side by side
    packed = (g["x"] @ g["w_in_proj_weight"].T).unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, _ = packed.chunk(3, -1)
    q = q + g["w_q_bias"].view(heads, 1, -1)
    encoding = build("deberta", Dims(width, heads, 64), max_distance=8)
    fill(encoding.stack.a, g["rel_embeddings"])
    fill(encoding.w_r.weight, g["w_pos_proj_weight"])
    fill(encoding.w_t.weight, g["w_pos_q_proj_weight"])
    fill(encoding.w_t.bias, g["w_pos_q_proj_bias"])
    real_rows(weights(encoding, q, k, g["mask"] == 0), g["probs"], g["mask"])


def rpebert(name):
    """The first layer's queries and keys of the LFHC/GCDF author's model."""
    g = case(f"rpebert_{name}")
    x = g["emb"][g["ids"].long()] + g["seg"][0]
    x = torch.nn.functional.layer_norm(x, x.shape[-1:], g["lnw"], g["lnb"], 1e-12)
    q = split(x @ g["query_net_weight"].T + g["query_net_bias"], 3)
    k = split(x @ g["key_net_weight"].T + g["key_net_bias"], 3)
    return g, q, k, Dims(x.size(-1), 3, 16)


@pytest.mark.parametrize("name", ["t5", "shaw", "lfhc", "xl", "gcdf"])
def test_the_lfhc_authors_code(name):
    g, q, k, dims = rpebert(name)
    if name == "t5":
        # their rows count i - j, here and in shaw
        encoding = build("t5_nob", dims)
        fill(encoding.stack.b, g["rel_pos_encoding_rel_pos_bias"].flip(0))
    elif name == "shaw":
        encoding = build("shaw", dims, max_distance=2, heads="each")
        fill(encoding.table, g["rel_pos_encoding_embedding_matrix_weight"].flip(0))
    elif name == "lfhc":
        encoding = build("lfhc", dims, max_distance=2)
        fill(encoding.table, g["rel_pos_encoding_embedding_matrix_weight"])
    else:
        encoding = build(
            {"xl": "transformer_xl", "gcdf": "gcdf"}[name], dims, **({"untie": True} if name == "xl" else {})
        )
        w = g["rel_pos_encoding_r_net_weight"].clone()
        # they read R at j - i: sines and cumulative distributions change their sign (the
        # constant drops out of the softmax), cosines do not
        if name == "xl":
            w[:, : w.size(1) // 2] *= -1
        else:
            w *= -1
        fill(encoding.w.weight, w)
        fill(encoding.u, g["r_w_bias"])
        fill(encoding.v, g["r_r_bias"])
    padding = g["mask"] == 0
    found = weights(encoding, q, k, padding)
    real = ~padding[:, None, :, None]
    torch.testing.assert_close(found * real, g["probs"] * real, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("rounding, suffix", [("away", ""), ("floor", "_floor")])
def test_lfhcs_rows_by_layer(layer, rounding, suffix):
    expected = case("rpebert_lfhc")[f"index{layer}{suffix}"]
    offsets = Positions.of(*expected.shape).offset_TS()
    assert torch.equal(ByLayer(2, layer, rounding)(offsets), expected.long())


def test_debertas_log_buckets():
    relative = case("deberta_c2p_p2c_share_buckets")["relative_pos"]
    offsets = Positions.of(*relative.shape).offset_TS()
    assert torch.equal(QueryMinusKey(16, 6)(offsets), (relative.long().clamp(-6, 5) + 6))
