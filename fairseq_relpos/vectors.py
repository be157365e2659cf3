"""Test vectors: numbers for each encoding, with which another implementation can be compared.

A set has one .npz for each encoding. It holds up to three calls of self-attention, "full", "causal" and "padded", with
inputs, parameters, results and gradients in float64. ``VERSION`` changes whenever a number does.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .atomic_files import whole_folder
from .backends import Mask, select
from .encodings import ENCODINGS, Dims, PositionEncoding, build, find, to_text
from .positions import Positions

VERSION = 1

BATCH, LENGTH, WIDTH, HEADS, MAX_LEN, LAYER = 2, 10, 8, 2, 12, 2
PAD, TOKEN = 1, 5
SHAPES = ("full", "causal", "padded")
#: settings that make small tables which these lengths reach the ends of
HPARAMS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("t5", "bert_r", "tupe_r", "tupe_r_tie_cls"), {"num_buckets": 8, "max_distance": 8}),
    **dict.fromkeys("shaw m1 m2 m3 m4 m4_reset m4m abs_m4m t5_nob at5_nob".split(), {"max_distance": 4}),
    "lfhc": {"max_distance": 3},
    "deberta": {"max_distance": 6},
    "cope": {"npos_max": 4},
    "fire": {"threshold": 5.0},
}
#: array -> its shape, and what it is
ARRAYS = {
    "x": ("[B, T, E]", "input of the layer, from which queries, keys and values are projected"),
    "W_q, W_k, W_v": ("[E, E]", "projections: q = x W_q^T, split into heads; no biases"),
    "q, k, v": ("[B, H, T, D]", "the projected queries, keys and values, not scaled"),
    "padding": ("[B, T]", "true at pads"),
    "visible": ("[B, T, T]", "true where the query (first T) may see the key; a pad sees nothing and is not seen"),
    "parameters/NAME": ("as PyTorch saves them", "parameters of the encoding"),
    "logits": ("[B, H, T, T]", "scaled logits before softmax, 0 where not visible"),
    "out": ("[B, T, E]", "softmax(logits) v, heads joined, before any output projection; 0 at pads"),
    "added": ("[B, T, E]", "the encoding's summand of the token embeddings, where it has one; x does not depend on it"),
    "grad_out, grad_added": ("[B, T, E]", "the loss is the sum of grad_out * out + grad_added * added"),
    "gradients/NAME": ("as NAME", "gradient of the loss with respect to x, W_q, W_k, W_v, parameters/NAME"),
}
LEAVES = ("x", "W_q", "W_k", "W_v")
RESULTS = ("logits", "out", "added")
#: how much of the largest number of an array, and of 1, an implementation may be off, if it rounds to float32 somewhere
TOLERANCE = 1e-5


@dataclass
class Case:
    """One call of self-attention, as ``conform`` gives it to a callable.

    inputs: x, W_q, W_k, W_v, q, k, v, padding and visible of ``ARRAYS``; parameters: those of the encoding by name.
    These are float64 tensors, of which gradients are taken; padding and visible are booleans. hparams: the
    hyperparameters of the encoding. max_len: the longest sequence in tokens, for which tables of absolute positions are
    made. layer: the number of the layer, from 1.
    """

    encoding: str
    hparams: dict[str, Any]
    shape: str
    causal: bool
    inputs: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]
    num_heads: int = HEADS
    max_len: int = MAX_LEN
    layer: int = LAYER


def ours(case: Case) -> dict[str, torch.Tensor]:
    """The results of this package, with which a callable is compared."""
    encoding = encoding_of(case.encoding, case.causal)
    # for good, unlike torch.func.functional_call: backward computes parts of some encodings again
    for name, x in case.parameters.items():
        owner, _, key = name.rpartition(".")
        module = encoding.get_submodule(owner)
        del module._parameters[key]
        setattr(module, key, x)
    q, k, v = (case.inputs[name] for name in "qkv")
    padding = case.inputs["padding"]
    pos = Positions.of(LENGTH, LENGTH, padding, x=case.inputs["x"])
    added = encoding.embed(torch.where(padding, PAD, TOKEN), pos)
    logits = encoding.logits(q, k, pos)
    out, _ = select("eager")(encoding.terms(q, k, pos), v, Mask(padding, case.causal), 0.0, False)
    results = {"logits": logits, "out": out.transpose(1, 2).flatten(2)}
    return results if added is None else {**results, "added": added}


def encoding_of(name: str, causal: bool) -> PositionEncoding:
    dims = Dims(WIDTH, HEADS, MAX_LEN, causal, LAYER, PAD)
    return build(name, dims, **HPARAMS.get(name, {})).double().eval()


def cases(name: str) -> list[Case]:
    """The calls of this encoding: without "full" if it serves causal stacks alone. ValueError for an unknown name."""
    causal_only = find(name).causal_only is not None
    return [
        case_of(name, shape, causal_only or shape == "causal")
        for shape in SHAPES
        if not (causal_only and shape == "full")
    ]


def case_of(name: str, shape: str, causal: bool) -> Case:
    encoding = encoding_of(name, causal)
    # numpy promises that the numbers of RandomState never change
    numbers = np.random.RandomState(zlib.crc32(f"{name} {shape}".encode()))

    def drawn(*size: int, std: float = 1.0) -> torch.Tensor:
        return torch.from_numpy(std * numbers.standard_normal(size))

    inputs = {"x": drawn(BATCH, LENGTH, WIDTH), **{leaf: drawn(WIDTH, WIDTH, std=0.4) for leaf in LEAVES[1:]}}
    padding = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    if shape == "padded":
        padding[0, :3] = padding[1, -2:] = True
    visible = ~padding[:, :, None] & ~padding[:, None, :]
    if causal:
        visible &= torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    inputs.update(padding=padding, visible=visible)
    parameters = {}
    for key, parameter in encoding.named_parameters():
        x = drawn(*parameter.shape, std=0.5)
        parameters[key] = x.abs() if x.dim() == 1 else x  # rates and gains may be dead below 0
    return Case(name, encoding.hparams, shape, causal, inputs, parameters)


def evaluated(case: Case, function: Callable[[Case], Any]) -> dict[str, np.ndarray]:
    """The results of the callable, and the gradients of the loss by way of them, by the names of ``ARRAYS``. ValueError
    if it returns anything else than a dict of logits, out and added in their shapes."""
    leaves = {name: case.inputs[name].clone().requires_grad_() for name in LEAVES}
    parameters = {name: x.clone().requires_grad_() for name, x in case.parameters.items()}
    heads = {name[-1]: (leaves["x"] @ leaves[name].mT).unflatten(2, (HEADS, -1)).transpose(1, 2) for name in LEAVES[1:]}
    given = Case(**{**vars(case), "inputs": {**case.inputs, **leaves, **heads}, "parameters": parameters})
    results = checked(case, function(given))
    real = ~case.inputs["padding"][:, :, None]
    shown = {"logits": case.inputs["visible"][:, None], "out": real, "added": real}
    results = {name: torch.where(shown[name], x, 0.0) for name, x in results.items()}
    found = {**heads, **results}
    loss = [(upstream(case, name) * results[name]).sum() for name in ("out", "added") if name in results]
    wanted = {**leaves, **{f"parameters/{name}": x for name, x in parameters.items()}}
    if loss and any(part.requires_grad for part in loss):
        gradients = torch.autograd.grad(torch.stack(loss).sum(), list(wanted.values()), allow_unused=True)
        for (name, x), gradient in zip(wanted.items(), gradients):
            found[f"gradients/{name}"] = torch.zeros_like(x) if gradient is None else gradient
    return {name: x.detach().numpy() for name, x in found.items()}


def upstream(case: Case, name: str) -> torch.Tensor:
    """The gradient of the loss with respect to this result, 0 at pads."""
    numbers = np.random.RandomState(zlib.crc32(f"{case.encoding} {case.shape} grad_{name}".encode()))
    drawn = torch.from_numpy(numbers.standard_normal((BATCH, LENGTH, WIDTH)))
    return drawn * ~case.inputs["padding"][:, :, None]


def checked(case: Case, results: Any) -> dict[str, torch.Tensor]:
    shapes = {"logits": (BATCH, HEADS, LENGTH, LENGTH), **dict.fromkeys(RESULTS[1:], (BATCH, LENGTH, WIDTH))}
    if not isinstance(results, dict) or not results or set(results) - set(shapes):
        keys = ", ".join(map(str, results)) if isinstance(results, dict) else None
        got = type(results).__name__ if keys is None else f"the keys {keys or 'none'}"
        raise ValueError(f"it returned {got}: a dict with logits, out or added is needed")
    for name, x in results.items():
        size = tuple(getattr(x, "shape", ()))
        if size != shapes[name]:
            raise ValueError(f"its {name} has the shape {size} in the case {case.shape}, not {shapes[name]}")
    return {name: torch.as_tensor(x).double() for name, x in results.items()}


def vectors_of(name: str) -> dict[str, np.ndarray]:
    """All arrays of an encoding, SHAPE/NAME -> array."""
    found: dict[str, np.ndarray] = {}
    for case in cases(name):
        arrays = {
            **{key: x.numpy() for key, x in case.inputs.items()},
            **{f"parameters/{key}": x.numpy() for key, x in case.parameters.items()},
            **evaluated(case, ours),
        }
        for result in ("out", "added"):
            if result in arrays:
                arrays[f"grad_{result}"] = upstream(case, result).numpy()
        found.update({f"{case.shape}/{key}": x for key, x in arrays.items()})
    return found


def write(folder: str | Path) -> int:
    """Writes the set into a new folder, and returns its size in bytes. ValueError if the folder exists."""
    folder = Path(folder)
    if folder.exists():
        raise ValueError(f"{folder} is there already: give a new name")
    if not folder.absolute().parent.is_dir():
        raise ValueError(f"{folder.absolute().parent} is no folder: the set is written into a new folder in it")
    with whole_folder(folder.absolute()) as part:
        for name in sorted(ENCODINGS):
            np.savez_compressed(part / f"{name}.npz", **vectors_of(name))  # type: ignore[arg-type]
        (part / "vectors.json").write_text(json.dumps(description(), indent=1) + "\n", encoding="utf-8")
    return sum(path.stat().st_size for path in folder.iterdir())


def description() -> dict[str, Any]:
    """The JSON file of a set: what each array is, and the settings of each encoding."""
    sizes = {"B": BATCH, "T": LENGTH, "E": WIDTH, "H": HEADS, "D": WIDTH // HEADS}
    return {
        "version": VERSION,
        "sizes": {**sizes, "longest sequence": MAX_LEN, "layer, from 1": LAYER},
        "names": "SHAPE/ARRAY in ENCODING.npz, float64; position of the key minus that of the query is j - i",
        "arrays": {name: {"shape": shape, "meaning": meaning} for name, (shape, meaning) in ARRAYS.items()},
        "encodings": {name: described(name) for name in sorted(ENCODINGS)},
    }


def described(name: str) -> dict[str, Any]:
    found = cases(name)
    settings = {key: to_text(value) for key, value in found[0].hparams.items()}
    return {"hyperparameters": settings, "shapes": {case.shape: {"causal": case.causal} for case in found}}


@dataclass
class Difference:
    """How far an array of a callable is from ours: the largest difference, and the largest allowed one."""

    shape: str
    array: str
    worst: float
    allowed: float

    @property
    def conforms(self) -> bool:
        return self.worst <= self.allowed  # NaN does not


def compare(name: str, function: Callable[[Case], Any]) -> list[Difference]:
    """Runs the callable on each case of the encoding. ValueError as in ``evaluated``."""
    return [difference for case in cases(name) for difference in differences(case, function)]


def differences(case: Case, function: Callable[[Case], Any]) -> list[Difference]:
    expected, found = evaluated(case, ours), evaluated(case, function)
    return [
        Difference(
            case.shape,
            array,
            float(np.abs(found[array] - wanted).max()),
            TOLERANCE * max(1.0, float(np.abs(wanted).max())),
        )
        for array, wanted in expected.items()
        if array in found and array not in ("q", "k", "v")
    ]
