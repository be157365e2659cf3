"""Encoder-decoder models with any position encoding, as models of transformers: the encoder of the RoBERTas and the
decoder of the language models, whose layers attend to its output.

Their logits are fairseq's to the last bit, and ``generate`` translates as fairseq's search does.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from .configuration import RelPosTransformerConfig
from .decoder import Generating, GenerationCache, RelPosDecoderForCausalLM
from .modeling import RelPosPreTrainedModel, RelPosRobertaModel, refuse_unknown


class RelPosTransformerForConditionalGeneration(RelPosPreTrainedModel, Generating, GenerationMixin):
    """An encoder-decoder model, which translates, with ``generate``.

    Examples:
        >>> stack = dict(hidden_size=24, vocab_size=40, position_encoding="t5")
        >>> config = RelPosTransformerConfig(encoder=stack, decoder=stack)
        >>> model = RelPosTransformerForConditionalGeneration(config)
        >>> model(torch.tensor([[5, 6, 2]]), labels=torch.tensor([[7, 8, 2]])).loss > 0
        tensor(True)
    """

    config_class = RelPosTransformerConfig
    config: RelPosTransformerConfig  # type: ignore[assignment]  # of two stacks
    base_model_prefix = ""
    main_input_name = "input_ids"
    _tied_weights_keys = {"encoder.embed_tokens.weight": "decoder.decoder.embed_tokens.weight"}

    def __init__(self, config: RelPosTransformerConfig):
        super().__init__(config)
        source: Any = config.encoder
        target: Any = config.decoder
        target.memory_size = source.hidden_size
        self.encoder = RelPosRobertaModel(source)
        self.decoder = RelPosDecoderForCausalLM(target)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: Any) -> None:
        self.encoder.set_input_embeddings(value)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> Any:
        """Resizes both stacks, with the arguments of transformers. Raises ValueError if each has its own vocabulary."""
        parts = self.encoder, self.decoder
        sizes = [part.get_input_embeddings().num_embeddings for part in parts]
        if new_num_tokens is not None and sizes[0] != sizes[1]:
            raise ValueError(
                f"source and target have vocabularies of their own, of {sizes[0]} and {sizes[1]} words: call "
                "resize_token_embeddings of model.encoder and of model.decoder"
            )
        for part in parts:
            part.resize_token_embeddings(new_num_tokens, *args, **kwargs)
        self.tie_weights()
        return self.get_input_embeddings()

    def get_output_embeddings(self) -> nn.Module:
        return self.decoder.get_output_embeddings()

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.decoder.set_output_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: GenerationCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **unknown: Any,
    ) -> Seq2SeqLMOutput:
        """attention_mask [B, S]: 1 at tokens of the source, 0 at pads; by default what is no pad in input_ids, and
        where these are left out, too, all are tokens. Pads may stand on either side. decoder_input_ids [B, T]: the
        translation so far, ``</s>`` first; by default the labels, moved. labels [B, T]: the translation with ``</s>``
        at its end; -100 where there is none. num_items_in_batch: as in ``RelPosRobertaForMaskedLM``. The other
        arguments are those of ``RelPosRobertaModel`` and ``RelPosDecoderModel``."""
        refuse_unknown(unknown)
        wanted = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        if attention_mask is None and input_ids is not None:
            attention_mask = self.tokens_of(input_ids)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds=inputs_embeds, return_dict=True, **wanted
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        out = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            past_key_values,
            decoder_inputs_embeds,
            use_cache=use_cache,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            return_dict=True,
            **wanted,
        )
        loss = None
        if labels is not None:
            items: Any = num_items_in_batch
            loss = fixed_cross_entropy(out.logits.flatten(0, 1).float(), labels.flatten(), items)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=out.logits,
            past_key_values=out.past_key_values,
            decoder_hidden_states=out.hidden_states,
            decoder_attentions=out.attentions,
            cross_attentions=out.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )

    def tokens_of(self, input_ids: Tensor) -> Tensor:
        """1 at the tokens, 0 at the pads."""
        pad: Any = self.config.pad_token_id
        return input_ids.ne(pad).long()

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The decoder's input: the first token, and the labels but for the last one; for transformers' collators."""
        start: Any = self.config.decoder_start_token_id
        pad: Any = self.config.pad_token_id
        return F.pad(labels[:, :-1], (1, 0), value=start).masked_fill(F.pad(labels[:, :-1], (1, 0)) == -100, pad)

    def _prepare_text_encoder_decoder_kwargs_for_generation(
        self, inputs_tensor: Tensor, model_kwargs: dict[str, Any], model_input_name: str | None, generation_config: Any
    ) -> dict[str, Any]:
        """Does what transformers does, and adds the mask of the pads if none is given: the decoder needs it, too."""
        if model_kwargs.get("attention_mask") is None and model_input_name == "input_ids":
            model_kwargs["attention_mask"] = self.tokens_of(inputs_tensor)
        return super()._prepare_text_encoder_decoder_kwargs_for_generation(  # type: ignore[misc]
            inputs_tensor, model_kwargs, model_input_name, generation_config
        )
