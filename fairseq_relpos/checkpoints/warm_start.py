"""Start one position encoding from the weights of another (M4M paper, Sec. 3.2)."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY

from .. import flags
from ..encodings import ENCODINGS, StackPart, build_layer_part, parse_hparams
from ..encodings.tables import DistanceBias
from ..signature import KEY, canonical, to_text
from .adopting import not_given
from .discriminator import GENERATOR, PREFIX, has_discriminator, need_width, refuse_electra, renamed_as_part
from .extending import extended_tables
from .loading import load_checkpoint, refuse_nonfinite, upgraded
from .starting_point import build_roberta, check_paths, complete_settings, need_settings, save, upgrade_names

#: names of the token embeddings, with "decoder" in fairseq before 0.10
EMBEDDINGS = tuple(
    f"{part}{stack}.sentence_encoder.embed_tokens.weight" for part in ("", PREFIX) for stack in ("encoder", "decoder")
)

#: settings that say how large a model is, as fairseq names them
SIZES = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads")

Shapes = dict[str, tuple[int, ...]]


@dataclass
class WarmStart:
    """The result of ``warm_start``: shapes by the name of the parameter."""

    #: copied from the source
    kept: Shapes
    #: newly initialised
    fresh: Shapes
    #: those of the source that the new model does not use
    left_out: Shapes
    #: position tables of the source with more rows
    extended: Shapes
    #: the complete settings of the new model
    args: Namespace
    #: position settings that differ from those of the source where both have the same encoding: NAME=OLD -> NEW
    changed: list[str] = field(default_factory=list)


def warm_start(
    in_path: str | Path,
    out_path: str | Path,
    arch: str,
    positions: dict[str, Any] | None = None,
    seed: int = 1,
    max_positions: int | None = None,
    way: str = "copy",
    generator: str | Path | None = None,
) -> WarmStart:
    """Writes a checkpoint of the architecture ``arch``, a RoBERTa, that starts from the RoBERTa checkpoint ``in_path``.

    The source may be one of stock fairseq or of this package. Every tensor that fits by name and shape is kept: token
    embeddings, layers, heads and, between encodings that have a table in common, positions. The rest is initialised
    with ``seed``. Sizes and the other settings are those of the source. A position table of another method or shape
    is left out, never converted: learned positions, added to the words, say nothing about TUPE's p or the rows of a
    relative table. positions: values by the names that ``position_settings`` lists; a value that is not given is that
    of the source if it has the same encoding, else the architecture's default. With another value, such as a new
    max_distance, what fits by shape is kept, and ``changed`` names the value.

    max_positions: the number of positions of the new model, for longer inputs. Then a table of absolute positions
    that both have is extended in this ``way`` (``extending.extend``).

    An electra_NAME starts from an ELECTRA, or from a RoBERTa as its discriminator. generator: a RoBERTa checkpoint of
    the generator's width, from which that part starts instead.

    The training starts from the beginning: no optimizer state, first epoch, no updates.
    Raises ValueError, one line, before anything is written.
    """
    check_paths(in_path, out_path)
    refuse_unknown_arch(arch)
    is_electra = ARCH_MODEL_REGISTRY[arch] is MODEL_REGISTRY["electra_relpos"]
    source = read(in_path, or_electra=is_electra)
    weights = source["model"]
    if is_electra and not has_discriminator(weights):
        weights = renamed_as_part(PREFIX, weights)
    old = source["cfg"].model
    args = settings(old, arch, with_those_of_the_source(old, arch, positions or {}))
    args.max_positions = max_positions or args.max_positions
    refuse_other_sizes(in_path, args)
    vocabulary_size = next(len(weights[key]) for key in EMBEDDINGS if key in weights)
    model = build_roberta(args, vocabulary_size, seed)
    roberta = getattr(model, "discriminator", model)
    of_source = of_generator = common_tables(old, roberta)
    if generator is not None:
        narrow = read(generator)
        need_width(generator, narrow, model.generator, vocabulary_size)
        weights = {key: tensor for key, tensor in weights.items() if not key.startswith(GENERATOR)}
        weights |= renamed_as_part(GENERATOR, narrow["model"])
        of_generator = common_tables(narrow["cfg"].model, roberta)
    upgrade_names(weights, model)

    def means_the_same(key):
        return of_generator(key) if key.startswith(GENERATOR) else of_source(key)

    shared = {key: tensor for key, tensor in weights.items() if means_the_same(key)}
    extended = {} if max_positions is None else extended_tables(shared, model, way, in_path)
    done = keep_what_fits(model, args, weights, means_the_same, extended)
    save(out_path, source["cfg"], args, model)
    return done


def keep_what_fits(
    model: Any,
    args: Namespace,
    weights: Mapping[str, torch.Tensor],
    means_the_same: Callable[[str], bool],
    extended: Mapping[str, torch.Tensor],
) -> WarmStart:
    """Loads those of the weights that fit the model by name, shape and meaning. extended: those of ``weights`` that
    have a new length."""
    own = model.state_dict()
    fitting = {
        key: tensor
        for key, tensor in weights.items()
        if key in own and own[key].shape == tensor.shape and not key.endswith(KEY) and means_the_same(key)
    }
    used = {**fitting, **extended}
    model.load_state_dict({**own, **used})
    parameters = dict(model.named_parameters())
    return WarmStart(
        kept=shapes({k: p for k, p in parameters.items() if k in fitting}),
        fresh=shapes({k: p for k, p in parameters.items() if k not in used}),
        left_out=shapes({k: t for k, t in weights.items() if k not in used}),
        extended=shapes(extended),
        args=args,
        changed=changed_settings(weights, model),
    )


def changed_settings(weights: Mapping[str, torch.Tensor], model: Any) -> list[str]:
    """Returns NAME=OLD -> NEW for each position setting that differs between stacks with the same encoding."""
    found = []
    for name, part in model.named_modules():
        key = f"{name}.{KEY}"
        if hasattr(part, "signature") and key in weights:
            texts = canonical(to_text(weights[key]), part.layer_count), part.signature
            before, after = (dict(field.split(":", 1) for field in text.split("|")) for text in texts)
            if before["pe"] == after["pe"]:
                usual = ENCODINGS[after["pe"]].added_later  # which the signature leaves out
                for setting in {**before, **after}:
                    old, new = (str(x.get(setting, usual.get(setting, "none"))) for x in (before, after))
                    found += [f"{setting}={old} -> {new}"] if old != new else []
    return list(dict.fromkeys(found))


def with_those_of_the_source(old: Any, arch: str, given: dict[str, Any]) -> dict[str, Any]:
    """The position settings of the new model: those of the source if it has the same encoding, unless they are
    given."""
    encoding = given.get("position_encoding") or defaults_of(arch).position_encoding
    if (getattr(old, "position_encoding", None) or "learned") != encoding:
        return given
    own = given.get("position_hparams") or ""
    kept = not_given(getattr(old, "position_hparams", None) or "", own)
    if "position_layers" in given:  # a layer that has a setting of its own may have no positions now
        kept = " ".join(setting for setting in kept.split() if "." not in setting.partition("=")[0])
    layers = {"position_layers": getattr(old, "position_layers", None) or "all", "attention_window": flags.window(old)}
    return {**layers, **given, "position_hparams": f"{kept} {own}".strip()}


def common_tables(old: Any, model: Any) -> Callable[[str], bool]:
    """Returns a function that says whether a parameter of this name means the same in both models."""
    name = getattr(old, "position_encoding", None) or "learned"  # stock fairseq's
    hparams = parse_hparams(getattr(old, "position_hparams", None) or "")
    return tables_in_common(name, hparams, model.encoder.sentence_encoder)


def tables_in_common(name: str, hparams: dict[str, Any], stack: Any) -> Callable[[str], bool]:
    """Returns a function that says whether a parameter of this name means the same in a stack that has the encoding
    ``name`` as in ``stack``.

    Two encodings share a table in a layer if one is a subclass of the other (m4m and abs_m4m), a bias b if the
    encoding, or its rows and its factor, are the same (t5 and bert_r), and another table of the stack if both inherit
    it from one class (learned and bert_r; TUPE's and bert_ad) and position 0 has the same row.
    """
    here = stack.layers[0].self_attn.position_encoding
    for layer in stack.layers:  # the first layer that has an encoding
        if here.name == "none":
            here = layer.self_attn.position_encoding
    with torch.random.fork_rng(devices=[]):
        of_all = {key: value for key, value in hparams.items() if "." not in key}  # others change no stack part
        there = build_layer_part(name, here.dims, **of_all)
        of_there = there.make_stack()
    of_here = here.stack if here.per_layer else stack.embed_positions
    same_rows, same_class = rows_of(of_here) == rows_of(of_there), type(here) is type(there)
    common = bases(of_here) & bases(of_there)
    same_start = getattr(of_here, "extra", 0) == getattr(of_there, "extra", 0)

    def means_the_same(key):
        if not is_of_positions(key):
            return True
        if ".position_encoding." in key and ".position_encoding.stack." not in key:
            return isinstance(here, type(there)) or isinstance(there, type(here))
        if key.endswith(".b"):
            return same_class or same_rows
        return bool(common) and (same_start or not key.endswith(".p"))

    return means_the_same


def is_of_positions(key: str) -> bool:
    return ".embed_positions." in key or ".position_encoding." in key


def rows_of(part: StackPart) -> tuple[Any, Any]:
    """The meaning of the rows of a bias b, and the factor it is multiplied by."""
    return getattr(part, "rows", None) or getattr(part, "buckets", None), getattr(part, "bias_scale", 1.0)


def bases(part: StackPart) -> set[type]:
    """The classes from which a stack part has its tables."""
    without_tables = (StackPart, DistanceBias)
    return {kind for kind in type(part).__mro__ if issubclass(kind, StackPart) and kind not in without_tables}


def refuse_unknown_arch(arch: str) -> None:
    ours = [MODEL_REGISTRY[name] for name in ("roberta_relpos", "electra_relpos")]
    if ARCH_MODEL_REGISTRY.get(arch) not in ours:
        raise ValueError(
            f"--arch {arch}: give roberta_NAME, electra_NAME, bart_NAME or transformer_NAME with a NAME of "
            "`fairseq-relpos list`; there is no warm start of other models"
        )


def read(path: str | Path, or_electra: bool = False) -> dict[str, Any]:
    """Reads the checkpoint of a RoBERTa; or_electra: or of an ELECTRA."""
    state = load_checkpoint(path)
    if not or_electra:
        refuse_electra(path, state["model"])
    refuse_other_checkpoints(path, state)
    refuse_nonfinite(path, state["model"])
    return upgraded(state)


def refuse_other_checkpoints(path: str | Path, state: dict[str, Any]) -> None:
    if "decoder.sentence_encoder.pos.weight" in state["model"]:
        raise ValueError(f"{path} is a checkpoint of the official TUPE code: first use `fairseq-relpos import-tupe`")
    if all(f"{stack}.embed_tokens.weight" in state["model"] for stack in flags.STACKS):
        raise ValueError(
            f"{path} is no RoBERTa checkpoint: it has an encoder and a decoder, as a BART or a transformer; "
            "docs/denoising.md says what can start from it"
        )
    if not any(key in state["model"] for key in EMBEDDINGS):
        raise ValueError(f"{path} is no RoBERTa checkpoint: it has no {EMBEDDINGS[0]}")
    need_settings(path, state)


def settings(old: Any, arch: str, positions: dict[str, Any]) -> Namespace:
    """Returns the settings of the source, with the positions of another architecture."""
    args = {k: v for k, v in vars(complete_settings(old)).items() if k not in position_settings()}
    # the file that the source was started from has nothing to say here
    return Namespace(**{**args, **positions, "arch": arch, "_name": arch, "position_hparams_adopted": True})


def position_settings() -> set[str]:
    """Returns the names of the settings that belong to an encoding."""
    args = Namespace()
    flags.set_defaults(args, "none")
    return set(vars(args))


def defaults_of(arch: str) -> Namespace:
    args = Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def refuse_other_sizes(path: str | Path, args: Namespace) -> None:
    """Raises ValueError, one line, if the source does not have the size in the name of the architecture. A base
    architecture takes any size, as it does with fairseq-train's flags; one such as _large promises its own."""
    promised, found = sizes(defaults_of(args.arch)), sizes(args)
    if promised not in (found, sizes(defaults_of("roberta"))):
        raise ValueError(
            f"{path} has {found}, but {args.arch} is {promised}: use "
            f"--arch {args.arch.removesuffix('_large').removesuffix('_small')}, which takes the checkpoint's size"
        )


def sizes(args: Namespace) -> str:
    return ", ".join(f"{name} {getattr(args, name)}" for name in SIZES)


def shapes(tensors: Mapping[str, torch.Tensor]) -> Shapes:
    return {key: tuple(tensor.shape) for key, tensor in tensors.items() if not key.endswith(KEY)}


def model_flags(settings: Namespace) -> Iterator[str]:
    """Yields the flags of fairseq-train that build a model of these settings, but for its positions."""
    yield f"--arch {settings.arch}"
    usual = defaults_of(settings.arch)
    for name in (*SIZES, "generator_size", "activation_fn", "pooler_activation_fn"):
        value = getattr(settings, name, None)
        if value != getattr(usual, name, value):
            yield flag(name, value)
    for name in ("encoder_normalize_before", "untie_weights_roberta"):
        if getattr(settings, name):
            yield f"--{name.replace('_', '-')}"
    if getattr(settings, "layer_norm_eps", None) is not None:
        yield flag("layer_norm_eps", settings.layer_norm_eps)
    if not getattr(settings, "layernorm_embedding", True):
        yield "--no-layernorm-embedding"
    if not getattr(settings, "no_scale_embedding", True):
        yield "--scale-embedding"


def flag(name: str, value: Any) -> str:
    return f"--{name.replace('_', '-')} {value}"
