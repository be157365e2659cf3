"""RoBERTa with any position encoding, as models of transformers.

They compute fairseq's RoBERTa to the last bit: the encoder is ``nn.RelPosEncoder``, whose attention is that of
the fairseq models. The names of the weights are fairseq's with other prefixes.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from ..encodings import PositionEncoding, StackPart, build_layer_part, parse_hparams
from ..nn import RelPosEncoder
from ..signature import canonical
from .configuration import RelPosConfig, RelPosRobertaConfig


class RelPosPreTrainedModel(PreTrainedModel):
    config: RelPosConfig
    supports_gradient_checkpointing = True
    _no_split_modules = ["RelPosEncoderLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialises a module as transformers does; an encoding begins with its own weights."""
        if isinstance(module, PositionEncoding):
            fresh: nn.Module = build_layer_part(module.name, module.dims, **module.hparams)
        elif isinstance(module, StackPart):
            fresh = encoder_of(self.config).embed_positions
        else:
            super()._init_weights(module)
            return
        begins = {**dict(fresh.named_parameters()), **dict(fresh.named_buffers())}
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if name in begins:
                initialization.copy_(tensor, begins[name])

    def padding_of(
        self, x_BTE: Tensor, input_ids: Tensor | None, attention_mask: Tensor | None, seen: int = 0
    ) -> Tensor | None:
        """True at the pads among the new tokens; None where there are none. seen: the tokens of earlier steps, which
        attention_mask has, too."""
        batch, length, _ = x_BTE.shape
        if attention_mask is not None:
            if attention_mask.shape != (batch, seen + length):
                raise ValueError(
                    f"attention_mask of shape {tuple(attention_mask.shape)}: {(batch, seen + length)} is needed"
                )
            padding_BS = attention_mask == 0
            if attention_mask.is_floating_point() and not (padding_BS | (attention_mask == 1))[:, seen:].all():
                raise ValueError("attention_mask has numbers beside 0 and 1: give 1 at tokens, 0 at pads")
        elif input_ids is not None:
            pad: Any = self.config.pad_token_id
            padding_BS = input_ids.eq(pad)
        else:
            return None
        if not bool(padding_BS.any()):
            if torch.jit.is_tracing():
                raise ValueError(
                    "torch.jit.trace would keep for all inputs that this example has no pads: give one that has some, "
                    "or use torch.compile"
                )
            return None
        padding_BT = padding_BS[:, -length:]
        return padding_BT if bool(padding_BT.any()) else None


def refuse_unknown(arguments: dict[str, Any]) -> None:
    """Raises TypeError for arguments that a model does not have: what it left out would be wrong in silence. None and
    False ask for nothing."""
    unknown = [name for name, value in arguments.items() if value is not None and value is not False]
    if unknown:
        raise TypeError(f"this model has no {', '.join(unknown)}: leave out what it lacks")


def encoder_of(config: RelPosConfig) -> RelPosEncoder:
    """The stack of layers with these settings. Raises ValueError if its encoding is not the one of the weights."""
    encoder = RelPosEncoder(
        config.hidden_size,
        config.num_attention_heads,
        config.num_hidden_layers,
        config.position_encoding,
        config.max_position_embeddings,
        causal=config.causal,
        dropout=config.hidden_dropout_prob,
        ffn_dim=config.intermediate_size,
        hparams=parse_hparams(config.position_hparams),
        position_layers=config.position_layers,
        window=config.attention_window,
        attention_dropout=config.attention_probs_dropout_prob,
        activation_dropout=config.activation_dropout,
        activation=ACT2FN[config.hidden_act],
        norm_first=config.normalize_before,
        layernorm_embedding=config.layernorm_embedding,
        layer_norm_eps=config.layer_norm_eps,
        has_cls=config.has_cls,
        backend=config.attention_backend,
        unpad=getattr(config, "unpad", False),
        memory_dim=getattr(config, "memory_size", None),
    )
    signature = encoder.embed_positions.signature
    if canonical(config.position_signature, config.num_hidden_layers) not in ("", signature):
        raise ValueError(
            f"the weights were trained with [{config.position_signature}], but position_encoding, position_hparams, "
            f"position_layers and attention_window make [{signature}]: restore the config.json that was exported with "
            "them"
        )
    return encoder


class RelPosRobertaPreTrainedModel(RelPosPreTrainedModel):
    config_class = RelPosRobertaConfig
    config: RelPosRobertaConfig
    base_model_prefix = "roberta"


class RelPosRobertaModel(RelPosRobertaPreTrainedModel):
    """The encoder with its token embeddings. There is no pooler.

    Examples:
        >>> config = RelPosRobertaConfig(hidden_size=24, position_encoding="tupe_r")
        >>> model = RelPosRobertaModel(config)
        >>> model(torch.tensor([[0, 5, 6, 2]])).last_hidden_state.shape
        torch.Size([1, 4, 24])
    """

    def __init__(self, config: RelPosRobertaConfig, add_pooling_layer: bool = False):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.embed_scale = math.sqrt(config.hidden_size) if config.scale_embedding else 1.0
        self.encoder = encoder_of(config)
        #: transformers switches it on and off
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        document_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **more: Any,
    ) -> BaseModelOutput:
        """attention_mask [B, T]: 1 at tokens, 0 at pads; by default what is no pad in input_ids. position_ids and
        document_ids [B, T]: the positions from 0, and the number of each token's document; see ``Positions``.
        token_type_ids are accepted where they are 0: there is only one kind."""
        refuse_unknown(more)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give input_ids or inputs_embeds, one of the two")
        if token_type_ids is not None and bool(token_type_ids.any()):
            raise ValueError("token_type_ids other than 0: this model has no token types, so leave them out")
        x_BTE = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        want_weights = self.config.output_attentions if output_attentions is None else output_attentions
        want_hidden = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        self.encoder.checkpoint_activations = self.gradient_checkpointing
        states: Any = self.encoder.states(
            self.embed_scale * x_BTE,
            self.padding_of(x_BTE, input_ids, attention_mask),
            need_weights=bool(want_weights),
            position_ids=position_ids,
            document_ids=document_ids,
        )
        return BaseModelOutput(
            last_hidden_state=states.output,
            hidden_states=tuple(states.hidden) if want_hidden else None,
            attentions=tuple(states.weights) if want_weights else None,
        )


class LanguageModelHead(nn.Module):
    """fairseq's head of the masked language model."""

    def __init__(self, config: RelPosRobertaConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer_norm(self.activation(self.dense(x)))
        return F.linear(x, self.decoder.weight) + self.decoder.bias  # two steps, as in fairseq: the same bits


class SentenceHead(nn.Module):
    """fairseq's head for the class of a text, from its first token."""

    def __init__(self, config: RelPosRobertaConfig):
        super().__init__()
        self.dropout = nn.Dropout(head_dropout(config))
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.classifier_activation]
        self.out_proj = nn.Linear(config.hidden_size, int(config.num_labels or 2))

    def forward(self, features_BTE: Tensor) -> Tensor:
        x = self.activation(self.dense(self.dropout(features_BTE[:, 0])))
        return self.out_proj(self.dropout(x))


def head_dropout(config: RelPosRobertaConfig) -> float:
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


class WithEncoder(RelPosRobertaPreTrainedModel):
    """A head on the encoder."""

    def __init__(self, config: RelPosRobertaConfig):
        super().__init__(config)
        self.roberta = RelPosRobertaModel(config)
        self.add_head(config)
        self.post_init()

    def add_head(self, config: RelPosRobertaConfig) -> None:
        raise NotImplementedError

    def encode(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        document_ids: Tensor | None,
        more: dict[str, Any],
    ) -> Any:
        """The encoder's output. Each forward names the ids, because the Trainer passes named arguments alone."""
        ids = {"position_ids": position_ids, "document_ids": document_ids}
        return self.roberta(input_ids, attention_mask, return_dict=True, **ids, **more)


class RelPosRobertaForMaskedLM(WithEncoder):
    """The masked language model: the encoder with fairseq's head.

    Examples:
        >>> config = RelPosRobertaConfig(hidden_size=24, position_encoding="tupe_r")
        >>> RelPosRobertaForMaskedLM(config)(torch.tensor([[0, 5, 6, 2]])).logits.shape
        torch.Size([1, 4, 50265])
    """

    _tied_weights_keys = {"lm_head.decoder.weight": "roberta.embed_tokens.weight"}

    def add_head(self, config: RelPosRobertaConfig) -> None:
        self.lm_head = LanguageModelHead(config)

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.lm_head.decoder = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """labels [B, T]: the tokens to predict; -100 where there is none. num_items_in_batch: so many of them in all
        parts of the batch; the loss is a part of their mean. The Trainer gives it."""
        out = self.encode(input_ids, attention_mask, position_ids, document_ids, kwargs)
        states, loss = out.last_hidden_state, None
        if labels is not None and self.config.sparse_prediction:
            states, labels = states[labels != -100], labels[labels != -100]
        logits = self.lm_head(states)
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, num_items_in_batch=num_items_in_batch
            )
        return MaskedLMOutput(loss, logits, out.hidden_states, out.attentions)


class RelPosRobertaForSequenceClassification(WithEncoder):
    """Classes of texts, or numbers (``problem_type="regression"``), from fairseq's head on the first token.

    Examples:
        >>> config = RelPosRobertaConfig(hidden_size=24, position_encoding="t5", num_labels=3)
        >>> model = RelPosRobertaForSequenceClassification(config)
        >>> model(torch.tensor([[0, 5, 6, 2]]), labels=torch.tensor([2])).logits.shape
        torch.Size([1, 3])
    """

    #: tells the Trainer that the loss is a mean, which it divides where gradients are accumulated
    accepts_loss_kwargs = False

    def add_head(self, config: RelPosRobertaConfig) -> None:
        self.classifier = SentenceHead(config)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """labels [B]: classes, or numbers where config.problem_type is "regression"."""
        out = self.encode(input_ids, attention_mask, position_ids, document_ids, kwargs)
        logits = self.classifier(out.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss, logits, out.hidden_states, out.attentions)


class RelPosRobertaForTokenClassification(WithEncoder):
    """A class for each token.

    Examples:
        >>> config = RelPosRobertaConfig(hidden_size=24, position_encoding="t5", num_labels=3)
        >>> model = RelPosRobertaForTokenClassification(config)
        >>> model(torch.tensor([[0, 5, 6, 2]])).logits.shape
        torch.Size([1, 4, 3])
    """

    def add_head(self, config: RelPosRobertaConfig) -> None:
        self.dropout = nn.Dropout(head_dropout(config))
        self.classifier = nn.Linear(config.hidden_size, int(config.num_labels or 2))

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """labels [B, T]: the class of each token; -100 where there is none. num_items_in_batch: as in
        ``RelPosRobertaForMaskedLM``."""
        out = self.encode(input_ids, attention_mask, position_ids, document_ids, kwargs)
        logits = self.classifier(self.dropout(out.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
        return TokenClassifierOutput(loss, logits, out.hidden_states, out.attentions)


class RelPosRobertaForQuestionAnswering(WithEncoder):
    """The first and the last token of an answer in the text.

    Examples:
        >>> config = RelPosRobertaConfig(hidden_size=24, position_encoding="tupe_r")
        >>> model = RelPosRobertaForQuestionAnswering(config)
        >>> model(torch.tensor([[0, 5, 6, 2]])).start_logits.shape
        torch.Size([1, 4])
    """

    accepts_loss_kwargs = False  # as above

    def add_head(self, config: RelPosRobertaConfig) -> None:
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """start_positions, end_positions [B]: the first and the last token of the answer."""
        out = self.encode(input_ids, attention_mask, position_ids, document_ids, kwargs)
        start_BT, end_BT = (logits.contiguous() for logits in self.qa_outputs(out.last_hidden_state).unbind(-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start_BT, end_BT, start_positions, end_positions)
        return QuestionAnsweringModelOutput(loss, start_BT, end_BT, out.hidden_states, out.attentions)
