"""The names of weights and settings in fairseq and in transformers."""

#: fairseq's encoder of a RoBERTa
STACK = "encoder.sentence_encoder."

#: parts of a layer of transformers' BERT, RoBERTa and DeBERTa -> fairseq's
LAYER = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}

#: fairseq's activations by transformers' names; of several, the first one is written
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_accurate": "gelu_new",
    "gelu_fast": "gelu_new",
    "linear": "linear",
    "relu": "relu",
    "relu_squared": "relu2",
    "tanh": "tanh",
}
FAIRSEQ_ACTIVATIONS = {theirs: ours for ours, theirs in reversed(ACTIVATIONS.items())}
FAIRSEQ_ACTIVATIONS["gelu_pytorch_tanh"] = FAIRSEQ_ACTIVATIONS["gelu_new"]  # the same function
