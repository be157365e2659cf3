"""Every public function of the package says what it takes and what it gives; scripts/lint.sh has mypy check it."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "fairseq_relpos"


def public_functions(tree, inside=""):
    """(name, function) of functions and methods whose names begin with no underscore, but for those in functions."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield f"{inside}{node.name}", node


def lacking(function, is_method):
    """The names of the arguments without a type, and "return"."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    decorators = {decorator.id for decorator in function.decorator_list if isinstance(decorator, ast.Name)}
    if is_method and "staticmethod" not in decorators:
        arguments = arguments[1:]
    without = [argument.arg for argument in arguments if argument.annotation is None]
    return without + ([] if function.returns is not None else ["return"])


def test_public_functions_are_annotated():
    found = {
        (str(file.relative_to(PACKAGE)), name): lacking(function, "." in name)
        for file in PACKAGE.rglob("*.py")
        for name, function in public_functions(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert {where: words for where, words in found.items() if words} == {}
