"""``fairseq-relpos conform MODULE:FUNCTION --encoding NAME``: another implementation against the test vectors."""

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from .. import vectors
from ..encodings import to_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "function",
        metavar="MODULE:FUNCTION",
        help="it takes a fairseq_relpos.vectors.Case, and returns a dict with logits, out or added (docs/vectors.md)",
    )
    parser.add_argument("--encoding", required=True, metavar="NAME", help="the encoding that it computes")


def run(args: argparse.Namespace) -> int:
    (first, *_) = vectors.cases(args.encoding)
    found = vectors.compare(args.encoding, function_of(args.function))
    settings = " ".join(f"{name}={to_text(value)}" for name, value in first.hparams.items())
    print(f"{args.encoding} {settings}".rstrip() + f", test vectors of version {vectors.VERSION}")
    width = max(len(x.array) for x in found)
    for x in found:
        verdict = "" if x.conforms else f"   more than {x.allowed:.1e}"
        print(f"{x.shape:6}  {x.array:{width}}  {x.worst:.1e}{verdict}")
    conforms = all(x.conforms for x in found)
    print(f"{args.function} conforms" if conforms else f"{args.function} does not conform")
    return 0 if conforms else 1


def function_of(name: str) -> Callable[[vectors.Case], Any]:
    """The callable MODULE:FUNCTION, with the working folder on the path. ValueError if there is none, or if it does not
    take one argument."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute) or module_name.startswith("."):
        raise ValueError(f"{name} is not of the form MODULE:FUNCTION, such as adapters:t5")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise ValueError(f"no module {module_name} here or among the installed ones") from None
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ValueError(f"{module_name} has no {attribute} that can be called")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ValueError(f"{name} does not take one argument, a Case: {error}") from None
    return function
