"""Variants of the Transformer, each with the sizes of stock fairseq, for every position encoding:

- transformer_align_NAME, which also learns to align words (Garg et al. 2019);
- nonautoregressive_transformer_NAME, cmlm_transformer_NAME and levenshtein_transformer_NAME, whose decoders see the
  whole target at once, so that an encoding in them is that of an encoder.
"""

import argparse
from typing import Any

from fairseq.models import register_model
from fairseq.models.nat import CMLMNATransformerModel, LevenshteinTransformerModel, NATransformerModel
from fairseq.models.transformer_align import TransformerAlignModel

from .. import flags
from ..encodings import check_serves
from .transformer import EncoderDecoder, register_sizes


def refuse_layerdrop(args: argparse.Namespace, why: str) -> None:
    if getattr(args, "decoder_layerdrop", 0):
        raise ValueError(f"--decoder-layerdrop {args.decoder_layerdrop} {why}: leave it out")


@register_model("transformer_align_relpos")
class RelPosAlign(EncoderDecoder, TransformerAlignModel):
    """fairseq's transformer_align with the position encoding that --position-encoding names."""

    may_copy = False

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> Any:
        refuse_layerdrop(args, "may drop the layer whose attention is the alignment")
        names = flags.encodings_of(args.position_encoding, flags.chosen_stacks(args.position_stacks))
        if getattr(args, "full_context_alignment", False) and "decoder" in names:
            with flags.prefix_errors("--full-context-alignment shows a decoder the words to come"):
                check_serves(names["decoder"], causal=False)
        model = super().build_model(args, task)
        model.__class__ = cls  # fairseq's builder names its own class
        return model


class NonAutoregressive(EncoderDecoder):
    stacks = {"encoder": False, "decoder": False}  # neither is causal
    may_copy = False


@register_model("nonautoregressive_transformer_relpos")
class RelPosNonAutoregressive(NonAutoregressive, NATransformerModel):
    """fairseq's nonautoregressive_transformer with the position encoding that --position-encoding names."""


@register_model("cmlm_transformer_relpos")
class RelPosCMLM(NonAutoregressive, CMLMNATransformerModel):
    """fairseq's cmlm_transformer (mask-predict) with the position encoding that --position-encoding names."""


@register_model("levenshtein_transformer_relpos")
class RelPosLevenshtein(NonAutoregressive, LevenshteinTransformerModel):
    """fairseq's levenshtein_transformer with the position encoding that --position-encoding names."""

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> Any:
        refuse_layerdrop(args, "leaves fairseq's levenshtein_transformer without any layer in the decoder")
        return super().build_model(args, task)


register_sizes("transformer_align", named_otherwise={"_wmt_en_de_big": "transformer_wmt_en_de_big_align"})
for _family in ("nonautoregressive_transformer", "cmlm_transformer", "levenshtein_transformer"):
    register_sizes(_family)
