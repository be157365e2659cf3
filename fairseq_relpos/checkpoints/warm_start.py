"""Start one position encoding from the weights of another (M4M paper, Sec. 3.2)."""

from argparse import Namespace
from dataclasses import dataclass

import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf

from .. import flags
from ..encodings import StackPart, build_layer_part, parse_hparams
from ..signature import KEY
from .loading import load_checkpoint
from .starting_point import build_roberta, check_paths, save

#: the second before fairseq 0.10
EMBEDDINGS = ("encoder.sentence_encoder.embed_tokens.weight", "decoder.sentence_encoder.embed_tokens.weight")

#: settings that say how large a model is, as fairseq names them
SIZES = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads")

Shapes = dict[str, tuple[int, ...]]


@dataclass
class WarmStart:
    """What ``warm_start`` wrote: shapes by name of the parameters that came from the source,
    of those that are as new, and of what the source has besides."""

    kept: Shapes
    fresh: Shapes
    left_out: Shapes
    #: the complete settings of the new model
    args: Namespace


def warm_start(in_path, out_path, arch, positions=None, seed=1) -> WarmStart:
    """Write a checkpoint of the architecture ``arch`` that starts from the RoBERTa
    checkpoint ``in_path``, of stock fairseq or of this package.

    Every tensor that fits by name and shape is kept, the token embeddings, layers, heads
    and, between encodings that have a table in common, positions. The rest is what a new
    model has under ``seed``. Sizes and the other settings are the source's. A position
    table of another method or of another shape is left out, never converted: learned
    positions, added to the words, say nothing about TUPE's p or the rows of a relative
    table. positions: values by the names that ``position_settings`` lists; what is not given
    is the architecture's default, whatever the source has.

    Training begins anew: no optimizer state, first epoch, no updates.
    Raises ValueError, one line, before anything is written.
    """
    check_paths(in_path, out_path)
    refuse_unknown_arch(arch)
    source = read(in_path)
    weights = source["model"]
    args = settings(source["cfg"].model, arch, positions or {})
    refuse_other_sizes(in_path, args)
    vocabulary_size = next(len(weights[key]) for key in EMBEDDINGS if key in weights)
    model = build_roberta(args, vocabulary_size, seed)
    rename(weights, model)

    own = model.state_dict()
    means_the_same = common_tables(source["cfg"].model, model)
    fitting = {
        key: tensor
        for key, tensor in weights.items()
        if key in own and own[key].shape == tensor.shape and not key.endswith(KEY) and means_the_same(key)
    }
    model.load_state_dict({**own, **fitting})
    save(out_path, source["cfg"], args, model)

    parameters = dict(model.named_parameters())
    return WarmStart(
        kept=shapes({k: p for k, p in parameters.items() if k in fitting}),
        fresh=shapes({k: p for k, p in parameters.items() if k not in fitting}),
        left_out=shapes({k: t for k, t in weights.items() if k not in fitting}),
        args=args,
    )


def common_tables(old, model):
    """Whether a parameter of this name means the same in both. Methods call many things a table:
    one in a layer is common to encodings of which one is the other (m4m and abs_m4m), one of the
    stack to those that take it from one class (learned and bert_r; TUPE's and bert_ad), a bias b to
    those with the same kind of rows (t5 and bert_r)."""
    stack = model.encoder.sentence_encoder
    here = stack.layers[0].self_attn.position_encoding
    for layer in stack.layers:  # a layer that sees no positions says nothing
        if here.name == "none":
            here = layer.self_attn.position_encoding
    name = getattr(old, "position_encoding", None) or "learned"  # stock fairseq's
    with torch.random.fork_rng(devices=[]):
        there = build_layer_part(name, here.dims, **parse_hparams(getattr(old, "position_hparams", None)))
        stacks = [stack.embed_positions, there.make_stack()]
    origins = [{c for c in type(s).__mro__ if issubclass(c, StackPart) and c is not StackPart} for s in stacks]
    rows = [type(getattr(s, "rows", None) or getattr(s, "buckets", None)) for s in stacks]

    def means_the_same(key):
        if ".position_encoding." in key:
            return isinstance(here, type(there)) or isinstance(there, type(here))
        if key.endswith(".embed_positions.b"):
            return rows[0] is rows[1]
        return ".embed_positions." not in key or bool(set.intersection(*origins))

    return means_the_same


def refuse_unknown_arch(arch):
    ours = MODEL_REGISTRY["roberta_relpos"]
    if ARCH_MODEL_REGISTRY.get(arch) is not ours:
        known = sorted(a for a, model in ARCH_MODEL_REGISTRY.items() if model is ours)
        raise ValueError(f"--arch {arch} is none of this package's RoBERTa models: {' '.join(known)}")


def read(path):
    refuse_other_checkpoints(path, load_checkpoint(path))
    # once more, because fairseq brings its older files up to date only while it reads them
    return checkpoint_utils.load_checkpoint_to_cpu(path)


def refuse_other_checkpoints(path, state):
    if "decoder.sentence_encoder.pos.weight" in state["model"]:
        raise ValueError(f"{path} is a checkpoint of the official TUPE code: first use `fairseq-relpos import-tupe`")
    if not any(key in state["model"] for key in EMBEDDINGS):
        raise ValueError(f"{path} is no RoBERTa checkpoint: it has no {EMBEDDINGS[0]}")
    if not (state.get("args") or (state.get("cfg") or {}).get("model")):
        raise ValueError(
            f"{path} has no settings (args or cfg), which say what model its weights are for: "
            "give the checkpoint as fairseq saved it"
        )


def settings(old, arch, positions):
    """The source's settings with another architecture's positions."""
    old = Namespace(**(vars(old) if isinstance(old, Namespace) else OmegaConf.to_container(old)))
    # a file need not hold what its own architecture would fill in
    old_arch = getattr(old, "_name", None) or getattr(old, "arch", None)
    ARCH_CONFIG_REGISTRY.get(old_arch, lambda args: None)(old)
    args = {k: v for k, v in vars(old).items() if k not in position_settings()}
    return Namespace(**{**args, **positions, "arch": arch, "_name": arch})


def position_settings():
    """The names of the settings that belong to an encoding."""
    args = Namespace()
    flags.set_defaults(args, "none")
    return set(vars(args))


def sizes(args):
    return {name: getattr(args, name) for name in SIZES}


def sizes_of(arch):
    return sizes(defaults_of(arch))


def defaults_of(arch):
    args = Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def refuse_other_sizes(path, args):
    """A base architecture takes any size, as it does with fairseq-train's flags; a larger
    one's name promises its own."""
    promised = sizes_of(args.arch)
    if promised not in (sizes(args), sizes_of("roberta")):
        raise ValueError(
            f"{path} has {in_words(sizes(args))}, but {args.arch} is {in_words(promised)}: use "
            f"--arch {args.arch.removesuffix('_large')}, which takes the checkpoint's size"
        )


def in_words(sizes):
    return ", ".join(f"{name} {value}" for name, value in sizes.items())


def rename(weights, model):
    """Bring an older fairseq's names up to date, and give ``model`` the classification heads
    that ``weights`` has."""
    before = getattr(model.args, "load_checkpoint_heads", False)
    model.args.load_checkpoint_heads = True
    model.upgrade_state_dict(weights)
    model.args.load_checkpoint_heads = before


def shapes(tensors) -> Shapes:
    return {key: tuple(tensor.shape) for key, tensor in tensors.items() if not key.endswith(KEY)}
