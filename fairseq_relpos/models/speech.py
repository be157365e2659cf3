"""s2t_transformer_NAME and its sizes for every position encoding: speech to text."""

import argparse
import math
from typing import Any

import torch
from fairseq.checkpoint_utils import load_pretrained_component_from_model
from fairseq.models import register_model
from fairseq.models.speech_to_text.s2t_transformer import S2TTransformerEncoder, S2TTransformerModel
from torch import nn

from ..checkpoints.fitting import what_does_not_fit
from .transformer import EncoderDecoder, register_sizes


class SpeechEncoder(S2TTransformerEncoder):
    """fairseq's encoder of speech, with the attributes of its encoder of text."""

    def __init__(self, args):
        super().__init__(args)
        self.max_source_positions = args.max_source_positions

    @property
    def layers(self) -> nn.ModuleList:
        return self.transformer_layers


@register_model("s2t_transformer_relpos")
class RelPosSpeech(EncoderDecoder, S2TTransformerModel):
    """fairseq's s2t_transformer with the position encoding that --position-encoding names.

    Positions in the encoder count the vectors that come out of the convolutions, one for four frames.
    """

    may_copy = False

    @classmethod
    def build_encoder(cls, args: argparse.Namespace) -> SpeechEncoder:
        return SpeechEncoder(args)

    @staticmethod
    def longest_input(stack: Any) -> int:
        if not isinstance(stack, SpeechEncoder):
            return stack.max_positions()
        halvings = sum(isinstance(module, (nn.Conv1d, nn.Conv2d)) for module in stack.subsample.modules())
        return math.ceil(stack.max_source_positions / 2**halvings)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> Any:
        model = super().build_model(args, task)
        model.encoder.embed_positions.register_forward_hook(as_tensor)
        if getattr(args, "load_pretrained_encoder_from", None):
            # only now does the encoder have the weights of its positions
            try:
                load_pretrained_component_from_model(model.encoder, args.load_pretrained_encoder_from)
            except RuntimeError as error:
                raise ValueError(
                    f"--load-pretrained-encoder-from {args.load_pretrained_encoder_from}: "
                    + what_does_not_fit(str(error), model.encoder)
                ) from None
            args.load_pretrained_encoder_from = None  # the checkpoint has the weights, and is read without the file
        return model


def as_tensor(positions: Any, inputs: Any, added: Any) -> torch.Tensor:
    """Forward hook: fairseq's encoder of speech adds a tensor in any case. inputs: (True at pads [B, T],)"""
    return added if isinstance(added, torch.Tensor) else inputs[0].new_zeros(1, 1)


register_sizes("s2t_transformer")
