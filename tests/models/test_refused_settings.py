"""Settings that a model cannot have, or that would have no effect, are one line when it is built."""

import pytest
from small_models import model_of

LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
KEEP = {"encoder_layers_to_keep": "1", "decoder_layers_to_keep": "1"}
REFUSED = {
    "roberta_t5": [
        ({"position_encoding": "tupe"}, "unknown position encoding 'tupe'; known: "),
        ({"position_encoding": "cope"}, "^--position-encoding cope: cope serves causal stacks alone"),
        ({"position_hparams": "num_buckets=8 num_buckets=4"}, "given twice"),
        ({"position_hparams": "buckets=8"}, "--position-hparams: t5 has no buckets; it accepts num_buckets=32"),
        ({"position_hparams": "x"}, "--position-hparams: hyperparameter 'x' is not of the form name=value"),
        ({"position_hparams": "layer.2.num_buckets=8"}, "num_buckets of t5 cannot differ from layer to layer"),
        ({"position_hparams": "layer.2.per_layer=True"}, "per_layer of t5 cannot differ"),
        ({"encoder_attention_heads": 0}, "--encoder-embed-dim, --encoder-attention-heads: num_heads=0: "),
        ({"position_layers": "0"}, "--position-layers '0' names no layer of 1 to 3"),
        ({"attention_backend": "flash"}, "'flash' is not known; choose from auto eager lean fused sdpa"),
        ({"ddp_backend": "fully_sharded"}, "fully_sharded"),
        ({"export": True}, "TorchScript and ONNX"),
    ],
    "roberta_cope": [({}, "^--arch roberta_cope: cope serves .* --arch transformer_cope, whose decoder has it")],
    "transformer_cope": [
        ({"position_stacks": "encoder,decoder"}, "^--position-stacks encoder,decoder, --arch transformer_cope: cope")
    ],
    "roberta_tupe_r": [
        ({"position_hparams": "2.max_distance=9 2.num_buckets=4"}, "max_distance.* of tupe_r cannot differ")
    ],
    "roberta_rope": [
        ({"position_hparams": "layer.4.base=5"}, r"--position-hparams: layer\.4\.base=5: .* 1 to 3"),
        ({"position_hparams": "every.4.base=5"}, r"every\.4\.base=5"),
        ({"position_hparams": "layer.2.bass=5"}, "layer 2: rope has no bass; it accepts base"),
        ({"position_hparams": "layer.2.base=x"}, "layer 2: base=x"),
        ({"position_hparams": "layer.2.base=0"}, "layer 2: rope: base=0"),
        ({**KEEP, "position_hparams": "layer.2.base=5"}, "^--encoder-layers-to-keep .* --position-hparams of single"),
        ({"position_hparams": "2.base=5", "position_layers": "1"}, r"2\.base=5: .* no positions"),
        ({"attention_window": "0"}, "--attention-window 0: .* 1 or more"),
        ({"attention_window": "-3"}, "--attention-window -3"),
        ({"attention_window": "3 4=none"}, "--attention-window '4' .* 1 to 3"),
        ({"attention_window": "encoder=3"}, "--attention-window 'encoder'"),
    ],
    "electra_t5": [
        ({"generator_size": "1/2"}, "--generator-size 1/2: the generator's share of .* 3 attention heads must .*: N/3"),
        ({"generator_size": ""}, "--generator-size is empty: "),
        ({"generator_size": "4/3"}, "--generator-size 4/3: "),
        ({"generator_size": "half"}, "--generator-size half: "),
        ({"generator_size": "1/0"}, "--generator-size 1/0: "),
        ({"untie_weights_roberta": True}, "--untie-weights-roberta: "),
        ({"encoder_attention_heads": 5}, "--encoder-embed-dim, --encoder-attention-heads"),
        ({"ddp_backend": "fully_sharded"}, "--ddp-backend pytorch_ddp"),
    ],
    "transformer_t5": [
        ({"position_encoding": "encoder=t6"}, "unknown position encoding 't6'"),
        ({"position_encoding": "encoder=cope"}, "^--position-encoding encoder=cope: cope serves"),
        ({"position_encoding": "encodr=t5"}, "'encodr' is no stack of this model: encoder or decoder"),
        ({"position_encoding": "encoder=t5,encoder=t5"}, "neither NAME nor encoder=NAME"),
        ({"position_encoding": "encoder=t5,"}, "neither NAME nor encoder=NAME"),
        ({"position_hparams": "enc.num_buckets=8"}, "'enc' is no stack of this model"),
        ({"position_hparams": "encoder.bucket=8"}, "t5 has no bucket; it accepts"),
        ({"position_hparams": "encoder.num_buckets=8", "position_stacks": "decoder"}, "the encoder is not among"),
        ({"position_encoding": "decoder=alibi", "position_stacks": "encoder"}, "the decoder is not among .* encoder"),
        ({"position_stacks": "encoders"}, "--position-stacks 'encoders' is not encoder,decoder"),
        ({"position_layers": "3"}, "--position-layers '3' names no layer of 1 to 2"),
        ({"encoder_learned_pos": True}, "--encoder-learned-pos and the position encoding t5"),
        ({"no_token_positional_embeddings": True}, "leave the flag out"),
        ({"cross_self_attention": True}, "--cross-self-attention mixes"),
        ({"decoder_xformers_att_config": "{}"}, "--decoder-xformers-att-config replaces"),
        ({"export": True}, "--export is for TorchScript"),
        ({"ddp_backend": "fully_sharded"}, "--ddp-backend fully_sharded"),
        ({"base_layers": 1}, "--base-layers adds layers"),
        ({"model_parallel_size": 2}, "--model-parallel-size 2 is for"),
        ({"pipeline_model_parallel": True}, "--pipeline-model-parallel is for"),
        ({"encoder_attention_heads": 5}, "cannot be divided into 5"),
        ({"copy_from_source": True, "adaptive_softmax_cutoff": "10,20"}, "^--copy-from-source: --adaptive-softmax-cut"),
        ({"copy_from_source": True, "decoder_layerdrop": 0.1}, "^--copy-from-source: --decoder-layerdrop may drop"),
        ({"copy_from_source": True, "no_cross_attention": True}, "^--copy-from-source: --no-cross-attention leaves"),
    ],
    "transformer_align_t5": [({"decoder_layerdrop": 0.1}, "--decoder-layerdrop 0.1 may drop the layer")],
    "transformer_lm_t5": [
        ({"decoder_learned_pos": True}, "--decoder-learned-pos and the position encoding t5"),
        ({"no_token_positional_embeddings": True}, "--no-token-positional-embeddings"),
        ({"decoder_attention_heads": 5}, "--decoder-embed-dim, --decoder-attention-heads"),
        ({"unpad": True}, "--unpad is for the layers of an encoder"),
        ({"decoder_layers": 0}, "--decoder-layers 0"),
        ({"memory_length": 8, "decoder_layerdrop": 0.1}, "--decoder-layerdrop 0.1"),
        ({"same_length": True}, "--same-length says how much"),
    ],
    "transformer_lfhc": [(KEEP, "^--encoder-layers-to-keep gives .* the position encoding lfhc depends on these")],
    "transformer_lm_alibi": [
        ({**KEEP, "position_layers": "first"}, "^--decoder-layers-to-keep gives .* --position-layers depends"),
        ({**KEEP, "attention_window": "2 layer.2=none"}, "^--decoder-layers-to-keep .* --attention-window of single"),
    ],
    "transformer_lm_learned": [({"memory_length": 8}, "learned adds positions to the input")],
    "transformer_lm_tupe_r": [
        (
            {"memory_length": 8, "tokens_per_sample": 16, "max_target_positions": 20},
            "--memory-length 8 and --tokens-per-sample 16: tupe_r has 20 absolute positions",
        ),
        (
            {"memory_length": 8, "eval_memory_length": 40, "tokens_per_sample": 16, "max_target_positions": 32},
            "--eval-memory-length 40 and --tokens-per-sample 16: tupe_r has 32",
        ),
    ],
    "cmlm_transformer_cope": [({}, "--arch cmlm_transformer_cope: cope serves causal stacks alone")],
    "levenshtein_transformer_t5": [
        ({"no_share_discriminator": True}, "--no-share-discriminator adds"),
        ({"no_share_maskpredictor": True}, "--no-share-maskpredictor adds"),
        ({"decoder_layerdrop": 0.1}, "--decoder-layerdrop 0.1 leaves .* without any layer"),
    ],
    "nonautoregressive_transformer_t5": [(LEARNED, "--encoder-learned-pos and the position encoding t5")],
    "transformer_align_fox": [({"full_context_alignment": True}, "--full-context-alignment")],
    "s2t_transformer_t5_s": [({"encoder_attention_heads": 5}, "cannot be divided into 5")],
}


@pytest.mark.parametrize("arch, settings, what", [(arch, *case) for arch, cases in REFUSED.items() for case in cases])
def test_settings_that_cannot_be_are_one_line(arch, settings, what):
    with pytest.raises(ValueError, match=what) as error:
        model_of(arch, **settings)
    assert "\n" not in str(error.value)
