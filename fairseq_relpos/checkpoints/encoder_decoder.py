"""Start an encoder-decoder model, bart_NAME or transformer_NAME, from the weights of another."""

import shlex
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf

from .. import flags
from .loading import load_checkpoint, refuse_nonfinite, upgraded
from .starting_point import build_with_decoder, check_paths, need_settings, save, upgrade_names
from .warm_start import WarmStart, defaults_of, flag, keep_what_fits, settings, shapes, tables_in_common

#: settings that say how large a model is, as fairseq names them
SIZES = tuple(
    f"{stack}_{name}" for stack in flags.STACKS for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
)
#: switches of the model, which a flag can set but not unset
SWITCHES = (
    *("encoder_normalize_before", "decoder_normalize_before", "layernorm_embedding", "no_scale_embedding"),
    *("share_all_embeddings", "share_decoder_input_output_embed", "copy_from_source"),
)
LEARNED = ("encoder_learned_pos", "decoder_learned_pos")
LENGTHS = ("max_source_positions", "max_target_positions")

#: tasks that add <mask> to the words of dict.txt
WITH_MASK = ("denoising", "multilingual_denoising")
WORDS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def is_encoder_decoder(arch: str) -> bool:
    return ARCH_MODEL_REGISTRY.get(arch) in (MODEL_REGISTRY["bart_relpos"], MODEL_REGISTRY["transformer_relpos"])


def start_encoder_decoder(
    in_path: str | Path,
    out_path: str | Path,
    arch: str,
    positions: dict[str, Any] | None = None,
    seed: int = 1,
    keep_mask: bool = False,
) -> WarmStart:
    """Writes a checkpoint of the architecture ``arch`` that starts from ``in_path``, a BART or a transformer of stock
    fairseq or of this package. Each stack keeps the weights that ``warm_start.warm_start`` would keep.

    A denoising task has added <mask> to the words. A transformer_NAME, which is for other tasks, is made without it;
    keep_mask: with it, for data whose dict.txt has <mask>.
    Raises ValueError, one line, before anything is written.
    """
    check_paths(in_path, out_path)
    state = load_checkpoint(in_path)
    refuse_other_checkpoints(in_path, state)
    refuse_nonfinite(in_path, state["model"])
    source = upgraded(state)
    weights, old = source["model"], source["cfg"].model
    args = settings_of(old, arch, positions or {})
    refuse_what_the_architecture_is_not(in_path, args)

    removed = {}
    task = OmegaConf.select(source["cfg"], "task._name") or getattr(old, "task", None)
    has_mask_to_lose = task in WITH_MASK and not arch.startswith("bart_")
    if keep_mask and not has_mask_to_lose:
        raise ValueError(
            f"--keep-mask changes nothing for --arch {arch} from {in_path}: it is for a transformer_NAME that "
            "starts from a model of a denoising task; leave it out"
        )
    if has_mask_to_lose and not keep_mask:
        removed = without_mask(weights)
    source_words, target_words = (len(weights[key]) for key in WORDS)
    model = build_with_decoder(args, source_words, target_words, seed)
    upgrade_names(weights, model)
    done = keep_what_fits(model, args, weights, tables_of_stacks(old, model), {})
    done.left_out |= shapes(removed)
    save(out_path, source["cfg"], args, model)
    return done


def refuse_other_checkpoints(path: str | Path, state: dict[str, Any]) -> None:
    missing = next((key for key in WORDS if key not in state["model"]), None)
    if missing:
        raise ValueError(f"{path} is no checkpoint of an encoder with a decoder: it has no {missing}")
    need_settings(path, state)


def settings_of(old: Any, arch: str, positions: dict[str, Any]) -> Namespace:
    """The settings of the source, with the positions of another architecture."""
    args = settings(old, arch, positions)
    for name in ("position_stacks", *LEARNED):
        if name not in positions and hasattr(args, name):
            delattr(args, name)
    ARCH_CONFIG_REGISTRY[arch](args)
    args.share_decoder_input_output_embed |= args.share_all_embeddings  # which fairseq's builder sees to
    for stack, name in zip(flags.STACKS, LEARNED):
        if stack not in args.position_stacks and encoding_of(old, stack)[0] == "learned":
            setattr(args, name, True)  # stock fairseq's stack stays as it is
    return args


def refuse_what_the_architecture_is_not(path: str | Path, args: Namespace) -> None:
    """Raises ValueError, one line, if the flags of the new architecture cannot say what the source is. Its shortest
    name takes any size; one such as _large promises its own."""
    usual = defaults_of(args.arch)
    family = args.arch.split("_")[0]
    shortest = f"{family}_{usual.position_encoding}"
    differ = [name for name in SIZES if getattr(args, name) != getattr(usual, name)]
    if differ and args.arch != shortest:
        theirs, ours = getattr(args, differ[0]), getattr(usual, differ[0])
        raise ValueError(
            f"{path} has {differ[0]} {theirs}, but {args.arch} has {ours}: use --arch {shortest}, which takes the "
            "checkpoint's size"
        )
    for name in SWITCHES:
        if getattr(usual, name, False) and not getattr(args, name):
            raise ValueError(
                f"{path} was trained without {name}, which {args.arch} always has: use --arch "
                f"transformer_{usual.position_encoding}"
            )


def without_mask(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Takes the last row, that of <mask>, from the matrices of the words; returns what it has taken."""
    keys = [key for key in (*WORDS, "decoder.output_projection.weight") if key in weights]
    removed = {f"{key} <mask>": weights[key][-1:] for key in keys}
    weights.update({key: weights[key][:-1] for key in keys})
    return removed


def tables_of_stacks(old: Any, model: Any) -> Callable[[str], bool]:
    """Returns a function that says whether a parameter of this name means the same in both models."""
    of_stack = {name: tables_of_stack(old, name, getattr(model, name)) for name in flags.STACKS}

    def means_the_same(key):
        stack = key.split(".")[0]
        return stack not in of_stack or of_stack[stack](key)

    return means_the_same


def tables_of_stack(old: Any, name: str, stack: Any) -> Callable[[str], bool]:
    encoding, hparams = encoding_of(old, name)
    if hasattr(stack.layers[0].self_attn, "position_encoding"):
        return tables_in_common(encoding, hparams, stack)
    # stock fairseq's, which may have a table of learned positions
    return lambda key: ".embed_positions." not in key or encoding == "learned"


def encoding_of(old: Any, stack: str) -> tuple[str, dict[str, Any]]:
    """The position encoding of a stack of the source, and its hyperparameters."""
    text = getattr(old, "position_encoding", None) or ""
    chosen = flags.chosen_stacks(old.position_stacks) if text else ()
    if stack in chosen:
        return flags.encodings_of(text, chosen)[stack], flags.hparams_of(old.position_hparams, chosen)[stack]
    if getattr(old, "no_token_positional_embeddings", False):
        return "none", {}
    return "learned" if getattr(old, f"{stack}_learned_pos", False) else "sinusoidal", {}


def train_flags(path: str | Path, args: Namespace, given: dict[str, Any]) -> list[str]:
    """The flags of fairseq-train that continue from the new checkpoint. given: those of the positions."""
    usual = defaults_of(args.arch)
    names = [name for name in (*SIZES, "activation_fn") if getattr(args, name) != getattr(usual, name)]
    switches = [
        name for name in (*SWITCHES, *LEARNED) if getattr(args, name, False) and not getattr(usual, name, False)
    ]
    values = {name: getattr(args, name) for name in (*names, *LENGTHS)}
    values |= {name: f'"{value}"' for name, value in given.items()}
    values["finetune_from_model"] = shlex.quote(str(path))
    return [
        f"--arch {args.arch}",
        *(f"--{name.replace('_', '-')}" for name in switches),
        *(flag(name, value) for name, value in values.items()),
    ]
