"""Attention of public packages for ``fairseq-relpos conform adapters:NAME --encoding ENCODING``, called in this folder.

``t5`` and ``deberta`` need transformers, ``alibi`` x-transformers. Each builds the package's module with the sizes of
the case, and calls it with the case's weights in place of its own, so that gradients reach them.
"""

import torch
from torch.func import functional_call


def projections(case, *names):
    """The three projections, under the package's names; its bias, where it has one, is 0."""
    return {f"{name}.weight": case.inputs[key] for name, key in zip(names, ("W_q", "W_k", "W_v"))}


def identity(case):
    """For an output projection, which the vectors do not have."""
    return torch.eye(case.inputs["x"].size(-1), dtype=torch.float64)


def t5(case):
    """transformers' T5Attention. It does not divide the logits by sqrt(d)."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    x = case.inputs["x"]
    width = x.size(-1) // case.num_heads
    config = T5Config(
        d_model=x.size(-1),
        d_kv=width,
        num_heads=case.num_heads,
        relative_attention_num_buckets=case.hparams["num_buckets"],
        relative_attention_max_distance=case.hparams["max_distance"],
        is_decoder=case.causal,
        attn_implementation="eager",
    )
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double().eval()
    weights = {
        **projections(case, "q", "k", "v"),
        "q.weight": case.inputs["W_q"] / width**0.5,
        "o.weight": identity(case),
        "relative_attention_bias.weight": case.parameters["stack.b"],
    }
    hidden = torch.zeros_like(case.inputs["visible"], dtype=torch.float64)
    mask = hidden.masked_fill(~case.inputs["visible"], torch.finfo(torch.float64).min)[:, None]
    return {"out": functional_call(module, weights, (x,), {"mask": mask})[0]}


def deberta(case):
    """transformers' DebertaV2 attention, without buckets that is DeBERTa's."""
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    config = DebertaV2Config(
        hidden_size=case.inputs["x"].size(-1),
        num_attention_heads=case.num_heads,
        relative_attention=True,
        max_relative_positions=case.hparams["max_distance"],
        pos_att_type=["c2p", "p2c"],
    )
    module = DisentangledSelfAttention(config).double().eval()
    weights = {
        **{name: torch.zeros_like(x) for name, x in module.named_parameters() if name.endswith("bias")},
        **projections(case, "query_proj", "key_proj", "value_proj"),
        "pos_key_proj.weight": case.parameters["w_r.weight"],
        "pos_query_proj.weight": case.parameters["w_t.weight"],
        "pos_query_proj.bias": case.parameters["w_t.bias"],
    }
    given = {"rel_embeddings": case.parameters["stack.a"]}
    visible = case.inputs["visible"][:, None]
    return {"out": functional_call(module, weights, (case.inputs["x"], visible), given)[0]}


def alibi(case):
    """x-transformers' Attention with its AlibiPositionalBias."""
    from x_transformers.x_transformers import AlibiPositionalBias, Attention

    x = case.inputs["x"]
    width = x.size(-1) // case.num_heads
    module = Attention(x.size(-1), dim_head=width, heads=case.num_heads, causal=case.causal).double().eval()
    weights = {**projections(case, "to_q", "to_k", "to_v"), "to_out.weight": identity(case)}
    given = {"mask": ~case.inputs["padding"], "rel_pos": AlibiPositionalBias(heads=case.num_heads)}
    out = functional_call(module, weights, (x,), given)
    return {"out": out[0] if isinstance(out, tuple) else out}
