"""sequence_encoder_NAME for every position encoding: an encoder that gives one answer for a sequence."""

import argparse
from typing import Any

import torch
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from torch import nn

from .. import flags, register
from ..encodings import ENCODINGS
from ..override import override_self_attention, resolved_hparams

POOLING = ("last", "mean")


@register_model("sequence_encoder")
class SequenceEncoder(BaseFairseqModel):
    """Symbols or vectors [B, T(, C)] -> fairseq's Transformer encoder -> the last real output
    vector, or the mean of the real ones -> Linear -> [B, labels].

    A sequence has no [CLS]; the size of the tables is --max-source-positions.
    """

    #: a sequence ends with its last symbol, not with </s>
    reads_end = False

    def __init__(self, args, encoder, channels, num_labels):
        super().__init__()
        self.encoder = encoder
        self.pooling = args.pooling
        self.project_values = nn.Linear(channels, args.encoder_embed_dim) if channels else None
        self.project_out = nn.Linear(args.encoder_embed_dim, num_labels)

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--encoder-layers", type=int, metavar="N")
        parser.add_argument("--encoder-embed-dim", type=int, metavar="E")
        parser.add_argument("--encoder-ffn-embed-dim", type=int, metavar="N")
        parser.add_argument("--encoder-attention-heads", type=int, metavar="H")
        parser.add_argument("--encoder-normalize-before", action="store_true", help="pre-norm")
        parser.add_argument("--dropout", type=float, metavar="P")
        parser.add_argument("--attention-dropout", type=float, metavar="P")
        parser.add_argument("--activation-fn", choices=["relu", "gelu"])
        parser.add_argument("--max-source-positions", type=int, metavar="T")
        parser.add_argument("--pooling", choices=POOLING, help="which output vectors the answer is read from")
        flags.add_flags(parser)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "SequenceEncoder":
        register()
        flags.need_layers(args, "encoder")
        flags.check_sizes(args.encoder_embed_dim, args.encoder_attention_heads)
        dictionary = task.source_dictionary
        embed_tokens = nn.Embedding(len(dictionary), args.encoder_embed_dim, dictionary.pad())
        nn.init.normal_(embed_tokens.weight, std=args.encoder_embed_dim**-0.5)
        nn.init.zeros_(embed_tokens.weight[dictionary.pad()])
        encoder = TransformerEncoderBase(TransformerConfig.from_namespace(args), dictionary, embed_tokens)
        encoding = override_self_attention(
            encoder,
            args.position_encoding,
            flags.hparams(args.position_hparams),
            causal=False,
            max_len=args.max_source_positions,
            layers=args.position_layers,
            backend=args.attention_backend,
            torch_compile=getattr(args, "torch_compile", False),
            unpad=getattr(args, "unpad", False),
            device=flags.device_of(args),
            has_cls=False,
            length_flag="--max-source-positions",
        )
        args.position_hparams = resolved_hparams(encoding)
        if task.channels:
            embed_tokens.requires_grad_(False)  # vectors take its place
        return cls(args, encoder, task.channels, task.num_labels)

    def forward(
        self, src_tokens: torch.Tensor, src_lengths: torch.Tensor, values: torch.Tensor | None = None
    ) -> torch.Tensor:
        embedded = None if values is None else self.project_values(values) / self.encoder.embed_scale
        out = self.encoder(src_tokens, src_lengths, token_embeddings=embedded)
        return self.project_out(self.pool(out["encoder_out"][0], src_lengths))

    def pool(self, out_TBE: torch.Tensor, lengths_B: torch.Tensor) -> torch.Tensor:
        """The last real output vector of each sentence, or the mean of the real ones."""
        if self.pooling == "last":
            return out_TBE[lengths_B - 1, torch.arange(len(lengths_B), device=out_TBE.device)]
        real_TB = torch.arange(len(out_TBE), device=out_TBE.device)[:, None] < lengths_B
        return (out_TBE * real_TB[..., None]).sum(0) / lengths_B[:, None]

    def max_positions(self) -> int:
        return self.encoder.max_positions()


def _register(name):
    @register_model_architecture("sequence_encoder", f"sequence_encoder_{name}")
    def base(args):
        """The sizes of AT5's artificial tasks (Wu et al. 2021)."""
        flags.set_defaults(args, name)
        args.encoder_layers = getattr(args, "encoder_layers", 1)
        args.encoder_embed_dim = getattr(args, "encoder_embed_dim", 256)
        args.encoder_ffn_embed_dim = getattr(args, "encoder_ffn_embed_dim", 512)
        args.encoder_attention_heads = getattr(args, "encoder_attention_heads", 8)
        args.encoder_normalize_before = getattr(args, "encoder_normalize_before", False)
        args.dropout = getattr(args, "dropout", 0.0)
        args.attention_dropout = getattr(args, "attention_dropout", 0.0)
        args.activation_fn = getattr(args, "activation_fn", "relu")
        args.max_source_positions = getattr(args, "max_source_positions", 512)
        args.pooling = getattr(args, "pooling", "last")


for _name in ENCODINGS:
    _register(_name)
