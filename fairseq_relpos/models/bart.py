"""bart_NAME and its sizes for every position encoding: BART, an encoder-decoder that denoising pretrains."""

from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.bart import BARTModel
from fairseq.models.transformer.transformer_legacy import base_architecture

from .. import flags
from ..architectures import endings_of
from ..encodings import ENCODINGS
from . import copy_head
from .transformer import EncoderDecoder


@register_model("bart_relpos")
class RelPosBart(EncoderDecoder, BARTModel):
    """fairseq's BART with the position encoding that --position-encoding names."""

    always_learned = True

    def set_beam_size(self, beam: int) -> None:
        """The beams of a sentence share, as in stock BART, the keys of its source. Words that are copied need a source
        for each beam, which then keeps its own keys, too."""
        if not copy_head.copies(self):
            super().set_beam_size(beam)

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        if "encoder.embed_tokens.weight" not in state_dict:
            raise ValueError(
                "the checkpoint is not of this model: it lacks encoder.embed_tokens.weight; give one of bart_NAME, of "
                "transformer_NAME or of fairseq's BART"
            )
        super().upgrade_state_dict_named(state_dict, name)


def _register(name, ending):
    stock = ARCH_CONFIG_REGISTRY[f"bart{ending or '_base'}"]

    @register_model_architecture("bart_relpos", f"bart_{name}{ending}")
    def architecture(args):
        flags.set_defaults(args, name, flags.STACKS)
        stock(args)
        base_architecture(args)  # what fairseq's builder of BART fills in


for _name in ENCODINGS:
    for _ending in endings_of("bart"):
        _register(_name, _ending)
