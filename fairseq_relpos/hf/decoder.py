"""Language models with any causal position encoding, as models of transformers.

Their logits are fairseq's to the last bit. ``generate`` finds the tokens of fairseq's search where both searches follow
the same rules; docs/huggingface.md says where they do not.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, LogitsProcessorList
from transformers.generation.logits_process import ForcedEOSTokenLogitsProcessor
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions, CausalLMOutputWithCrossAttentions
from transformers.utils.generic import can_return_tuple

from ..nn import Cache
from .configuration import RelPosDecoderConfig
from .modeling import RelPosPreTrainedModel, encoder_of, refuse_unknown


class GenerationCache(Cache):
    """``nn.Cache`` with the methods that ``generate`` calls. It holds an encoding's own memory
    beside keys and values, and reorders both, so none of transformers' own caches can take its place.

    Examples:
        >>> config = RelPosDecoderConfig(hidden_size=24, position_encoding="alibi")
        >>> out = RelPosDecoderModel(config)(torch.tensor([[2, 5, 6]]), use_cache=True)
        >>> out.past_key_values.get_seq_length()
        3
    """

    is_compileable = False
    is_croppable = False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of tokens that it has seen."""
        return next((part["length"] for part in self._parts.values() if "length" in part), 0)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.reorder(beam_idx)


class ForcedEnd(ForcedEOSTokenLogitsProcessor):
    """A text that reaches the greatest length ends with </s>, whose probability counts as in fairseq."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[-1] != self.max_length - 1:
            return scores
        ended = torch.full_like(scores, -math.inf)
        ended[:, self.eos_token_id] = scores[:, self.eos_token_id]
        return ended


class RelPosDecoderPreTrainedModel(RelPosPreTrainedModel):
    config_class = RelPosDecoderConfig
    config: RelPosDecoderConfig
    base_model_prefix = "decoder"


class RelPosDecoderModel(RelPosDecoderPreTrainedModel):
    """The stack of layers with its token embeddings.

    Examples:
        >>> config = RelPosDecoderConfig(hidden_size=24, position_encoding="alibi")
        >>> RelPosDecoderModel(config)(torch.tensor([[2, 5, 6]])).last_hidden_state.shape
        torch.Size([1, 3, 24])
    """

    def __init__(self, config: RelPosDecoderConfig):
        super().__init__(config)
        width = config.hidden_size
        size_in, size_out = config.embedding_size or width, config.output_size or width
        self.embed_tokens = nn.Embedding(config.vocab_size, size_in, config.pad_token_id)
        self.embed_scale = math.sqrt(width) if config.scale_embedding else 1.0
        self.project_in_dim = nn.Linear(size_in, width, bias=False) if size_in != width else None
        self.stack = encoder_of(config)
        if not config.final_norm:
            self.stack.layer_norm = None
        self.project_out_dim = nn.Linear(width, size_out, bias=False) if size_out != width else None
        #: transformers switches it on and off
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: GenerationCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        document_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        **more: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """use_cache: the result has past_key_values for the next step, as ``generate`` asks for; by default it has not.
        attention_mask [B, S]: 1 at tokens, 0 at pads, for the tokens in past_key_values as well; by default what
        is no pad in input_ids. Pads may stand on either side; positions count the tokens. document_ids [B, T]: the
        number of each token's document. position_ids [B, T] as in ``Positions``, where they are given by name.
        encoder_hidden_states [B, S, E], encoder_attention_mask [B, S]: an encoder's output, to which a decoder of an
        encoder-decoder model attends, and 0 at its pads."""
        position_ids = more.pop("position_ids", None)  # ``generate`` would make them if they were named above
        refuse_unknown(more)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give input_ids or inputs_embeds, one of the two")
        x_BTE = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        cache = past_key_values
        if cache is not None and not isinstance(cache, GenerationCache):
            raise ValueError(
                f"past_key_values of type {type(cache).__name__}: an encoding keeps more than keys and values, so give "
                "a fairseq_relpos.hf.GenerationCache, or leave it out"
            )
        if cache is None and use_cache:
            cache = GenerationCache()
        want_weights = self.config.output_attentions if output_attentions is None else output_attentions
        want_hidden = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        seen = 0 if cache is None else cache.get_seq_length()
        padding_BT = self.padding_of(x_BTE, input_ids, attention_mask, seen)
        x_BTE = self.embed_scale * x_BTE
        if self.project_in_dim is not None:
            x_BTE = self.project_in_dim(x_BTE)
        self.stack.checkpoint_activations = self.gradient_checkpointing
        states: Any = self.stack.states(
            x_BTE,
            padding_BT,
            need_weights=bool(want_weights),
            cache=cache,
            position_ids=position_ids,
            document_ids=document_ids,
            memory=encoder_hidden_states,
            memory_key_padding_mask=None if encoder_attention_mask is None else encoder_attention_mask == 0,
        )
        output = states.output if self.project_out_dim is None else self.project_out_dim(states.output)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=output,
            past_key_values=cache,  # type: ignore[arg-type]  # transformers names its own class
            hidden_states=tuple(states.hidden) if want_hidden else None,
            attentions=tuple(states.weights) if want_weights else None,
            cross_attentions=tuple(states.memory_weights) if want_weights and self.config.memory_size else None,
        )


class Generating:
    """Stands before ``GenerationMixin``: ``generate`` with its own cache, and fairseq's end of the longest text."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """The first step makes its own cache."""
        return False

    def _prepare_generated_length(self, *args: Any, **kwargs: Any) -> Any:
        """``max_new_tokens`` of a call replaces the max_length of generation_config.json without a warning."""
        config, default = kwargs["generation_config"], self.generation_config  # type: ignore[attr-defined]
        if config.max_new_tokens is not None and config.max_length == default.max_length:
            config.max_length = None
        return super()._prepare_generated_length(*args, **kwargs)  # type: ignore[misc]

    def _get_logits_processor(self, *args: Any, **kwargs: Any) -> LogitsProcessorList:
        processors = super()._get_logits_processor(*args, **kwargs)  # type: ignore[misc]
        for number, processor in enumerate(processors):
            if type(processor) is ForcedEOSTokenLogitsProcessor:
                processors[number] = ForcedEnd(processor.max_length, processor.eos_token_id)
        return processors


class RelPosDecoderForCausalLM(RelPosDecoderPreTrainedModel, Generating, GenerationMixin):
    """A language model, with ``generate``.

    Examples:
        >>> config = RelPosDecoderConfig(hidden_size=24, position_encoding="alibi")
        >>> model = RelPosDecoderForCausalLM(config).eval()
        >>> model.generate(torch.tensor([[2, 5, 6]]), min_length=7, max_length=7).shape
        torch.Size([1, 7])
    """

    _tied_weights_keys = {"lm_head.weight": "decoder.embed_tokens.weight"}

    def __init__(self, config: RelPosDecoderConfig):
        super().__init__(config)
        self.decoder = RelPosDecoderModel(config)
        self.lm_head = nn.Linear(config.output_size or config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: GenerationCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        document_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithCrossAttentions:
        """labels [B, T]: the tokens of the text, which are shifted here, as transformers has it; -100 where there is
        none. num_items_in_batch: as in ``RelPosRobertaForMaskedLM``. The other arguments are those of
        ``RelPosDecoderModel``."""
        out = self.decoder(
            input_ids,
            attention_mask,
            past_key_values,
            inputs_embeds,
            use_cache,
            return_dict=True,
            document_ids=document_ids,
            **kwargs,
        )
        logits, loss = self.lm_head(out.last_hidden_state), None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, num_items_in_batch=num_items_in_batch
            )
        more = out.hidden_states, out.attentions, out.cross_attentions
        return CausalLMOutputWithCrossAttentions(loss, logits, out.past_key_values, *more)
