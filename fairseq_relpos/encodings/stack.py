"""One encoding in several layers: its stack part, and a layer part for each."""

from typing import Any

import torch

from ..layer_numbers import parse_layers
from .base import Dims, PositionEncoding, StackPart, build_layer_part
from .hparams import to_text


def build_stack(
    name: str, dims: Dims, hparams: dict[str, Any], count: int, chosen: list[int]
) -> tuple[PositionEncoding, StackPart, list[PositionEncoding]]:
    """The encoding with its resolved hyperparameters, its stack part, and ``count`` layer parts.

    hparams: as in ``build``; layer.3.NAME, layer.1-5.NAME and every.3.NAME are those of some layers alone, which win
    over NAME. chosen: the numbers of the layers that see positions; the others see content only. ValueError for a
    hyperparameter of some layers that belongs to what all layers share.

    Examples:
        >>> dims = Dims(64, 4, max_len=128)
        >>> _, stack_part, parts = build_stack("rope", dims, {"layer.2.base": 50}, count=3, chosen=[1, 2])
        >>> [(part.name, part.hparams.get("base")) for part in parts]
        [('rope', 10000.0), ('rope', 50.0), ('none', None)]
    """
    common, own = of_layers(hparams, count, chosen)
    encoding = build_layer_part(name, dims, **common)
    stack_part = build_layer_part("none", dims).make_stack() if encoding.per_layer else encoding.make_stack()
    refuse_what_layers_share(encoding, common, own)
    parts = []
    for number in range(1, count + 1):
        here = Dims(**{**vars(dims), "layer": number})
        parts.append(_layer_part(name, here, {**common, **own.get(number, {})}, number in chosen))
    encoding.layer_hparams = _differences(encoding, own, parts)
    return encoding, stack_part, parts


def of_layers(
    hparams: dict[str, Any], count: int, chosen: list[int]
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """The hyperparameters of all layers, and those that some layers have by themselves, number -> name -> value. The
    later of two that name the same layer wins."""
    common: dict[str, Any] = {}
    own: dict[int, dict[str, Any]] = {}
    for key, value in hparams.items():
        pattern, dot, name = key.rpartition(".")
        if not dot:
            common[key] = value
            continue
        named = parse_layers(pattern.removeprefix("layer."), count, f"{key}={to_text(value)}:")
        if not set(named) & set(chosen):
            raise ValueError(f"{key}={to_text(value)}: these layers have no positions; leave it out")
        for number in named:
            own.setdefault(number, {})[name] = value
    return common, own


def _layer_part(name, dims, hparams, is_chosen):
    if not is_chosen:
        return build_layer_part("none", dims)
    try:
        part = build_layer_part(name, dims, **hparams)
    except ValueError as error:
        raise ValueError(f"layer {dims.layer}: {error}") from None
    if part.per_layer:
        part.stack = part.make_stack()
    return part


def refuse_what_layers_share(
    encoding: PositionEncoding, common: dict[str, Any], own: dict[int, dict[str, Any]]
) -> None:
    """Raises ValueError where a layer's own hyperparameter would change the stack part, which is one for all layers."""
    each = [{name: value} for settings in own.values() for name, value in settings.items()]
    for settings in (*each, *own.values()):
        try:
            other = build_layer_part(encoding.name, encoding.dims, **{**common, **settings})
        except ValueError:
            continue  # one may need another; else the layer says what is wrong
        if other.per_layer != encoding.per_layer or not encoding.per_layer and _shared(other) != _shared(encoding):
            raise ValueError(
                f"{', '.join(settings)} of {encoding.name} cannot differ from layer to layer, because it belongs to "
                "what all layers share: give it for all layers"
            )


def _shared(encoding):
    """The weights of the stack part from one seed, and its settings: they tell it from other stack parts."""
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):  # on a meta device they would have no numbers
        torch.manual_seed(0)
        stack_part = encoding.make_stack()
    usual = vars(StackPart(encoding.dims))
    settings = [
        {key: value for key, value in vars(module).items() if key not in usual} for module in stack_part.modules()
    ]
    weights = {name: tensor.tolist() for name, tensor in stack_part.state_dict().items()}
    return type(stack_part), settings, weights


def _differences(encoding, own, parts):
    """The resolved hyperparameters of single layers that differ from those of all, as ``build_stack`` takes them."""
    found: dict[tuple[str, str], list[int]] = {}
    for number in sorted(own):
        part = parts[number - 1]
        for name, value in part.hparams.items():
            if part.name == encoding.name and value != encoding.hparams[name]:
                found.setdefault((name, to_text(value)), []).append(number)
    return {f"layer.{','.join(map(str, numbers))}.{name}": value for (name, value), numbers in found.items()}
