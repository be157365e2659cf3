"""--copy-from-source: the decoder may copy words of the source."""

import argparse
from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import nn

FLAG = "--copy-from-source"


class CopyHead(nn.Module):
    """The probability that w is the next word is a mixture of a word of the vocabulary and a word of the source
    (pointer-generator, See et al. 2017, equations 8 and 9)::

        P(w) = g P_vocab(w) + (1 - g) sum_{i: x_i = w} a_i
        g    = sigmoid(w_h . h* + w_s . s + w_y . y + b),    h* = sum_i a_i h_i

    x_i is word i of the source, </s> included, h_i the encoder's output there, and a_i the attention of the decoder's
    last layer to it, the mean over the heads. s is the decoder's output and y the embedding of the word before. Source
    and target have one dictionary. A word that it lacks is <unk> on both sides, and a copy of it is <unk>; pieces of
    words (SentencePiece, BPE) leave only characters that no training text has. CopyNet (Gu et al. 2016) is the
    relative with one softmax over both parts and scores of its own for the source.

    The result is log P. A softmax of log P is P, so fairseq's criterions, with label smoothing or without, and its
    generator use it as they use logits.

    At the start g = 1/2 and no random number is drawn: all other weights are those of the model without this head.
    """

    def __init__(self, encoder_dim: int, state_dim: int, input_dim: int, padding_idx: int) -> None:
        super().__init__()
        self.padding_idx = padding_idx
        with torch.random.fork_rng(devices=[]):
            self.gate = nn.Linear(encoder_dim + state_dim + input_dim, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(
        self,
        logits_BTV: torch.Tensor,
        attention_BTS: torch.Tensor,
        source_BS: torch.Tensor,
        encoded_BSE: torch.Tensor,
        state_BTE: torch.Tensor,
        input_BTE: torch.Tensor,
    ) -> torch.Tensor:
        """Returns log P [B, T, V], in float32 at least."""
        dtype = torch.promote_types(logits_BTV.dtype, torch.float32)
        attention_BTS = attention_BTS.to(dtype)
        attention_BTS = attention_BTS / attention_BTS.sum(-1, keepdim=True)  # in half precision it is not quite 1
        context_BTE = attention_BTS.to(encoded_BSE) @ encoded_BSE
        gate_BT1 = self.gate(torch.cat([context_BTE, state_BTE, input_BTE], -1)).to(dtype)
        log_p_BTV = logits_BTV.log_softmax(-1, dtype=dtype) + nn.functional.logsigmoid(gate_BT1)

        same_BSS, first_BS = self.occurrences(source_BS)
        with torch.autocast(attention_BTS.device.type, enabled=False):  # which would round the sums
            copied_BTS = torch.sigmoid(-gate_BT1) * (attention_BTS @ same_BSS.to(dtype))
        log_copied_BTS = copied_BTS.clamp(min=torch.finfo(dtype).tiny).log()
        source_BTS = source_BS[:, None].expand_as(attention_BTS)
        at_source_BTS = log_p_BTV.gather(-1, source_BTS)
        # log(e^p + c) = p + log(1 + e^(log c - p)), where a word stands in the source for the first time
        change_BTS = log_copied_BTS - at_source_BTS
        change_BTS = torch.logaddexp(change_BTS, torch.zeros_like(change_BTS)) * first_BS[:, None]
        return log_p_BTV.scatter_add(-1, source_BTS, change_BTS)

    def occurrences(self, source_BS: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns whether two places have the same word, and whether it is there for the first time and no pad."""
        same_BSS = source_BS[:, :, None] == source_BS[:, None]
        return same_BSS, ~same_BSS.tril(-1).any(-1) & source_BS.ne(self.padding_idx)


class _KeepsSource(TransformerEncoderBase):
    """The encoder's output has the words of the source, which are reordered with it in a beam search."""

    def forward(self, src_tokens, *args, **kwargs):
        return {**super().forward(src_tokens, *args, **kwargs), "src_tokens": [src_tokens]}


class _Copies(TransformerDecoderBase):
    def forward(self, prev_output_tokens, encoder_out=None, incremental_state=None, features_only=False, **kwargs):
        state_BTE, extra = super().forward(prev_output_tokens, encoder_out, incremental_state, True, **kwargs)
        if features_only:
            return state_BTE, extra
        before_BT = prev_output_tokens if incremental_state is None else prev_output_tokens[:, -1:]
        log_p_BTV = self.copy_head(
            self.output_layer(state_BTE),
            extra["attn"][0],
            encoder_out["src_tokens"][0],
            encoder_out["encoder_out"][0].transpose(0, 1),
            state_BTE,
            self.embed_tokens(before_BT),
        )
        return log_p_BTV, extra


def copy_from_source(model: Any) -> None:
    """Gives a built encoder-decoder model of fairseq a ``CopyHead``, in place."""
    encoder, decoder = model.encoder, model.decoder
    decoder.copy_head = CopyHead(
        encoder.embed_tokens.embedding_dim,
        decoder.output_embed_dim,
        decoder.embed_tokens.embedding_dim,
        encoder.padding_idx,
    )
    encoder.__class__, decoder.__class__ = _KeepsSource, _Copies


def copies(model: Any) -> bool:
    return isinstance(model.decoder, _Copies)


def refuse_what_cannot_copy(args: argparse.Namespace, task: Any) -> None:
    """Raises ValueError, one line, for a model or data with which words cannot be copied."""
    if task.source_dictionary != task.target_dictionary:
        raise ValueError(
            f"{FLAG}: a word needs the same number in source and target, and these data have two dictionaries; "
            "prepare them with fairseq-preprocess --joined-dictionary, or leave the flag out"
        )
    for name, why in {
        "adaptive_softmax_cutoff": "computes no probability for every word",
        "decoder_layerdrop": "may drop the last layer, whose attention says what is copied",
        "no_cross_attention": "leaves no attention to the source",
    }.items():
        if getattr(args, name, None):
            raise ValueError(f"{FLAG}: --{name.replace('_', '-')} {why}; leave one of the two out")
