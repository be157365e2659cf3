"""The settings of models with a position encoding, for transformers."""

import copy
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


@strict
class RelPosConfig(PreTrainedConfig):
    """The settings of all models: transformers' names where its own RoBERTa has the same thing, fairseq's for the rest.

    max_position_embeddings: tokens of the longest input that the tables are made for, special tokens included.
    position_encoding, position_hparams, position_layers, attention_window, attention_backend: as the flags of
    fairseq-train.
    position_signature: what the weights were trained with; the model refuses to be another one. "" accepts any.
    has_cls: whether a text begins with ``<s>``, which some encodings treat apart; None: where attention is not
    causal.

    Examples:
        >>> config = RelPosConfig(position_encoding="shaw", position_hparams="max_distance=8")
        >>> config.position_layers, config.attention_backend
        ('all', 'auto')
    """

    #: whether no token sees a later one
    causal = False

    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    activation_dropout: float | int = 0.0
    max_position_embeddings: int = 512
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = True
    position_encoding: str = "none"
    position_hparams: str = ""
    position_layers: str = "all"
    position_signature: str = ""
    attention_window: str = ""
    attention_backend: str = "auto"
    normalize_before: bool = False
    layernorm_embedding: bool = True
    scale_embedding: bool = False
    has_cls: bool | None = None


@strict
class RelPosRobertaConfig(RelPosConfig):
    """A RoBERTa: the settings of ``RelPosConfig``, and these.

    unpad: layers compute nothing for pads. sparse_prediction: where labels are given, the masked language model
    computes logits for labelled tokens alone, [N, vocab_size], as fairseq does in training. classifier_activation,
    classifier_dropout: of the head for sentences.

    Examples:
        >>> config = RelPosRobertaConfig(position_encoding="t5", hidden_size=256)
        >>> config.max_position_embeddings
        512
    """

    model_type = "relpos_roberta"

    unpad: bool = False
    sparse_prediction: bool = False
    classifier_activation: str = "tanh"
    classifier_dropout: float | int | None = None


@strict
class RelPosDecoderConfig(RelPosConfig):
    """A language model, which predicts the next token: the settings of ``RelPosConfig``, and these.

    bos_token_id: the token that a text begins with, which is ``</s>`` for most of fairseq's language models.
    embedding_size, output_size: dimensions of the embeddings of input and output where they are not hidden_size.
    final_norm: whether a pre-norm model (normalize_before) has a LayerNorm after its last layer.
    memory_size: dimension of the encoder's output that the layers attend to; None: there is no encoder.

    Examples:
        >>> RelPosDecoderConfig(position_encoding="alibi").bos_token_id
        2
    """

    model_type = "relpos_decoder"
    causal = True
    keys_to_ignore_at_inference = ["past_key_values"]

    hidden_act: str = "relu"
    bos_token_id: int | None = 2
    layernorm_embedding: bool = False
    scale_embedding: bool = True
    embedding_size: int | None = None
    output_size: int | None = None
    final_norm: bool = True
    memory_size: int | None = None


@strict
class RelPosTransformerConfig(PreTrainedConfig):
    """An encoder-decoder model, which translates.

    encoder, decoder: the settings of both stacks, each of which has its own encoding; decoder.tie_word_embeddings says
    whether the decoder's input and output have one matrix. tie_word_embeddings: whether the encoder has it, too.
    decoder_start_token_id: the token that a translation begins with, ``</s>`` as in fairseq.

    Examples:
        >>> encoder, decoder = {"position_encoding": "t5"}, {"position_encoding": "alibi"}
        >>> config = RelPosTransformerConfig(encoder=encoder, decoder=decoder)
        >>> config.decoder.position_encoding
        'alibi'
    """

    model_type = "relpos_transformer"
    sub_configs = {"encoder": RelPosRobertaConfig, "decoder": RelPosDecoderConfig}
    keys_to_ignore_at_inference = ["past_key_values"]

    encoder: PreTrainedConfig | dict[str, Any] | None = None
    decoder: PreTrainedConfig | dict[str, Any] | None = None
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        for name, kind in self.sub_configs.items():
            given = getattr(self, name) or {}
            given = kind(**given) if isinstance(given, dict) else given
            if name == "encoder" and given.has_cls is None:  # a source begins with its first word
                given = copy.copy(given)
                given.has_cls = False
            setattr(self, name, given)
        super().__post_init__(**kwargs)
