"""The model in a checkpoint as fairseq evaluates it, and what fairseq's search finds with it: for every export."""

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from .. import flags
from ..checkpoints.encoder_decoder import encoding_of
from ..checkpoints.loading import load_checkpoint, refuse_nonfinite
from ..checkpoints.starting_point import build_with_decoder, nameless_words, same_dictionaries

PAD, END = 1, 2
#: those of quantisation: a layer more, and weights that are rounded in evaluation, too
QUANTISED = ("quant_noise_pq", "quant_noise_scalar")
#: settings of fairseq's decoder that no other program has a counterpart of
OF_LANGUAGE_MODELS = (
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "character_embeddings",
    "base_layers",
    *QUANTISED,
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
)
#: the same of an encoder-decoder model
OF_TRANSLATORS = (
    *OF_LANGUAGE_MODELS,
    "merge_src_tgt_embed",
    "no_cross_attention",
    "cross_self_attention",
    "copy_from_source",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
)


def arch_of(state: dict[str, Any]) -> str:
    """The name of the architecture in a checkpoint of any age, "" where it says none."""
    settings = state.get("args") or (state.get("cfg") or {}).get("model") or {}
    settings = vars(settings) if isinstance(settings, argparse.Namespace) else settings
    return str(settings.get("arch") or settings.get("_name") or "")


def check_new_folder(folder: Path, name: str = "DIR") -> None:
    """Raises ValueError, one line, if the folder cannot be made. name: what the user gave it by."""
    if folder.exists():
        raise ValueError(f"{folder} is there already: give {name} a new name")
    if not folder.parent.is_dir():
        raise ValueError(f"{folder} cannot be written, there is no folder {folder.parent}: make it first")


def read(checkpoint: Path, folder: Path, data: str | Path | None) -> dict[str, Any]:
    """The checkpoint that is to be exported. Raises ValueError, one line, for one that is damaged, has numbers that are
    not finite, or was trained with another dictionary than that of ``data``, and where ``folder`` cannot be made."""
    if not checkpoint.is_file():
        raise ValueError(f"{checkpoint} is no file: give a checkpoint, a .pt file")
    check_new_folder(folder)
    state = load_checkpoint(checkpoint)
    refuse_nonfinite(checkpoint, state["model"])
    if data is not None:
        same_dictionaries(checkpoint, state.get("cfg"), data, "give the folder of the data that it was trained with")
    return state


def refuse_without_counterpart(
    args: argparse.Namespace, path: Path, names: Collection[str], activations: Collection[str], where: str
) -> None:
    """Raises ValueError, one line, for a setting in ``names`` that is in use, or another activation. where: what has no
    counterpart of them."""
    for setting in names:
        if getattr(args, setting, None):
            raise ValueError(
                f"{path} was trained with --{setting.replace('_', '-')} {getattr(args, setting)}, which has no "
                f"counterpart in {where}: only models without it can be exported"
            )
    activation = getattr(args, "activation_fn", None)
    if activation and activation not in activations:
        raise ValueError(f"{path}: --activation-fn {activation} has no counterpart in {where}")


def built_language_model(args: argparse.Namespace, weights: dict[str, torch.Tensor]) -> Any:
    """The language model with these settings, in evaluation. A stock transformer_lm becomes one with the encoding that
    it has: learned, sinusoidal, or none."""
    if not hasattr(args, "position_encoding"):
        args.position_encoding, _ = encoding_of(args, "decoder")
        args.no_token_positional_embeddings = False
    args.arch = args._name = f"transformer_lm_{args.position_encoding}"
    # they change how a training runs, not the model
    args.checkpoint_activations = args.offload_activations = args.torch_compile = False
    ARCH_CONFIG_REGISTRY[args.arch](args)
    words = len(weights["decoder.embed_tokens.weight"])
    model = build_with_decoder(args, words, words, seed=1)
    model.upgrade_state_dict(weights)
    weights.pop("decoder.embed_positions._float_tensor", None)  # fairseq's sinusoids say with it where they are
    model.load_state_dict(weights)
    return model.eval()


def built_translator(args: argparse.Namespace, weights: dict[str, torch.Tensor]) -> Any:
    """The encoder-decoder model with these settings, in evaluation."""
    # they change how a training runs, not the model
    args.checkpoint_activations = args.offload_activations = args.torch_compile = args.unpad = False
    # the files of their pretrained embeddings may be gone
    args.encoder_embed_path = args.decoder_embed_path = None
    source_words, target_words = (len(weights[f"{stack}.embed_tokens.weight"]) for stack in flags.STACKS)
    model = build_with_decoder(args, source_words, target_words, seed=1)
    model.load_state_dict(weights)
    return model.eval()


def fairseq_texts(model: Any, start: int, beam: int, max_len: int, **settings: Any) -> list[list[int]]:
    """Returns the best text of fairseq's search, without its first token."""
    source = {"src_tokens": torch.zeros(1, 0, dtype=torch.long)}
    return searched(model, source, beam, max_len, {"bos_token": start}, **settings)


def searched(
    model: Any,
    source: dict[str, torch.Tensor],
    beam: int,
    max_len: int,
    how: dict[str, Any] | None = None,
    **settings: Any,
) -> list[list[int]]:
    """Returns the best text of fairseq's search for each source, its net_input. how: arguments of ``generate``;
    settings: of ``SequenceGenerator``."""
    words = nameless_words(len(model.decoder.embed_tokens.weight))
    longest = model.max_decoder_positions()
    generator = SequenceGenerator([model], words, beam_size=beam, max_len_b=max_len, max_len=longest, **settings)
    found = generator.generate([model], {"net_input": source}, **(how or {}))
    return [texts[0]["tokens"].tolist() for texts in found]


def translated_by_fairseq(
    model: Any, source_BS: torch.Tensor, beam: int, max_len: int, **settings: Any
) -> list[list[int]]:
    """Returns the best text of fairseq's search for each source, without its first token."""
    source = {"src_tokens": source_BS, "src_lengths": source_BS.ne(PAD).sum(1)}
    return searched(model, source, beam, max_len, **settings)
