"""sequence_encoder_NAME for every position encoding: an encoder that gives one answer for a sequence."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from fairseq.modules import FairseqDropout
from torch import nn

from .. import flags
from ..encodings import ENCODINGS
from ..override import override_self_attention, resolved_hparams, settings_of
from .pooling import POOLING, pool


@register_model("sequence_encoder")
class SequenceEncoder(BaseFairseqModel):
    """Symbols or vectors [B, T(, C)] -> fairseq's Transformer encoder -> the last real output
    vector, the first one, or the mean or the maximum of the real ones -> Linear -> [B, labels].

    No encoding treats the first symbol as [CLS]; the size of the tables is --max-source-positions.
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
        parser.add_argument("--input-dropout", type=float, metavar="P", help="of the embeddings (default: --dropout)")
        parser.add_argument(
            "--embedding-file", metavar="FILE", help="vectors [symbols, E] of numpy.save to begin with; NaN: at random"
        )
        parser.add_argument("--activation-fn", choices=["relu", "gelu"])
        parser.add_argument("--max-source-positions", type=int, metavar="T")
        parser.add_argument("--pooling", choices=POOLING, help="which output vectors the answer is read from")
        flags.add_flags(parser)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "SequenceEncoder":
        flags.need_layers(args, "encoder")
        flags.check_sizes(args.encoder_embed_dim, args.encoder_attention_heads)
        dictionary = task.source_dictionary
        embed_tokens = nn.Embedding(len(dictionary), args.encoder_embed_dim, dictionary.pad())
        nn.init.normal_(embed_tokens.weight, std=args.encoder_embed_dim**-0.5)
        nn.init.zeros_(embed_tokens.weight[dictionary.pad()])
        encoder = TransformerEncoderBase(TransformerConfig.from_namespace(args), dictionary, embed_tokens)
        if args.input_dropout is not None:
            encoder.dropout_module = FairseqDropout(args.input_dropout, module_name="SequenceEncoder")
        if args.embedding_file:
            read_embeddings(args.embedding_file, embed_tokens, dictionary.nspecial, encoder.embed_scale)
            args.embedding_file = None  # the checkpoint has the vectors, and is read without the file
        encoding = override_self_attention(
            encoder,
            args.position_encoding,
            flags.hparams(args.position_hparams),
            causal=False,
            max_len=args.max_source_positions,
            settings=settings_of(args),
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
        """The last real output vector of each sentence, the first one, or the mean or the maximum of the real ones."""
        return pool(self.pooling, out_TBE.transpose(0, 1), lengths_B)

    def max_positions(self) -> int:
        return self.encoder.max_positions()


def read_embeddings(path: str, embed_tokens: nn.Embedding, first: int, scale: float) -> None:
    """Puts the vectors of a file into the rows from ``first`` on. They are the input of the model, which multiplies its
    embeddings by ``scale``. A row that is not finite stays as it is."""
    rows = len(embed_tokens.weight) - first
    try:
        vectors = np.load(Path(path))
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"--embedding-file {path} cannot be read ({error}): give a file of numpy.save") from error
    if vectors.shape != (rows, embed_tokens.embedding_dim):
        raise ValueError(
            f"--embedding-file {path} has the shape {list(vectors.shape)}, but there are {rows} symbols and "
            f"--encoder-embed-dim {embed_tokens.embedding_dim}: make it from the same data, and give its width"
        )
    given = torch.from_numpy(vectors).to(embed_tokens.weight)
    known = given.isfinite().all(1)
    with torch.no_grad():
        embed_tokens.weight[first:][known] = given[known] / scale


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
        args.input_dropout = getattr(args, "input_dropout", None)
        args.embedding_file = getattr(args, "embedding_file", None)
        args.activation_fn = getattr(args, "activation_fn", "relu")
        args.max_source_positions = getattr(args, "max_source_positions", 512)
        args.pooling = getattr(args, "pooling", "last")


for _name in ENCODINGS:
    _register(_name)
