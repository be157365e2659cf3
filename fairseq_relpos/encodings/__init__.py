"""The position encodings. Importing this package fills ENCODINGS.

Examples:
    >>> sorted(ENCODINGS)[:3]
    ['abs_m4m', 'alibi', 'at5']
"""

import importlib
import pkgutil

from .base import (
    ENCODINGS,
    Dims,
    PositionEncoding,
    StackPart,
    build,
    build_layer_part,
    check_serves,
    find,
    names_for,
    register,
)
from .hparams import accepted_values, hyperparameters, parse_hparams, to_text
from .stack import build_stack

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "ENCODINGS",
    "Dims",
    "PositionEncoding",
    "StackPart",
    "accepted_values",
    "build",
    "build_layer_part",
    "build_stack",
    "check_serves",
    "find",
    "hyperparameters",
    "names_for",
    "parse_hparams",
    "register",
    "to_text",
]
