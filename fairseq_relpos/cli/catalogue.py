"""``fairseq-relpos list``. It reads the docstrings from the source, because to import the classes is to import torch,
which takes seconds."""

import argparse
import ast
from pathlib import Path

from .docstrings import equation_in

ENCODINGS = Path(__file__).resolve().parents[1] / "encodings"


def run(args: argparse.Namespace) -> None:
    found = docstrings(ENCODINGS)
    width = max(map(len, found))
    for name in sorted(found):
        print(f"{name:{width}}  {equation_in(found[name])}")


def docstrings(folder: Path) -> dict[str, str]:
    """Returns the docstring of each class that has the decorator ``@register(NAME, ...)``, by that name."""
    found = {}
    for file in folder.glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            match node:
                case ast.ClassDef(decorator_list=[ast.Call(ast.Name("register"), [ast.Constant(str(name)), *_])]):
                    found[name] = ast.get_docstring(node) or ""
    return found
