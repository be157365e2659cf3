"""roberta_NAME and roberta_NAME_large for every position encoding."""

from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture, roberta_large_architecture

from .. import flags
from ..encodings import ENCODINGS, parse_hparams
from ..override import override_self_attention, resolved_hparams


@register_model("roberta_relpos")
class RelPosRoberta(RobertaModel):
    """fairseq's RoBERTa with the position encoding that --position-encoding names."""

    @classmethod
    def hub_models(cls):
        return {}

    @staticmethod
    def add_args(parser):
        RobertaModel.add_args(parser)
        flags.add_flags(parser)
        parser.add_argument(
            "--checkpoint-activations",
            action="store_true",
            help="save memory: compute each layer's activations again in backward",
        )

    @classmethod
    def build_model(cls, args, task):
        flags.refuse_unsupported(args)
        # the plugin recomputes layers itself; fairseq's wrapper must stay out
        recompute, args.checkpoint_activations = getattr(args, "checkpoint_activations", False), False
        model = super().build_model(args, task)
        args.checkpoint_activations = recompute
        encoder = model.encoder.sentence_encoder
        encoding = override_self_attention(
            encoder,
            args.position_encoding,
            parse_hparams(args.position_hparams),
            causal=False,
            max_len=encoder.max_source_positions,
            layers=args.position_layers,
            backend=args.attention_backend,
            checkpoint_activations=recompute,
        )
        # saved with the checkpoint: a later --max-positions must not change a table
        args.position_hparams = resolved_hparams(encoding)
        return model


def _register(name):
    @register_model_architecture("roberta_relpos", f"roberta_{name}")
    def base(args):
        flags.set_defaults(args, name)
        base_architecture(args)

    @register_model_architecture("roberta_relpos", f"roberta_{name}_large")
    def large(args):
        flags.set_defaults(args, name)
        roberta_large_architecture(args)


for _name in ENCODINGS:
    _register(_name)
