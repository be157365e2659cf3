"""Replaces functions of fairseq by those of the plugin, if the mend that they belong to is on."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from .catalogue import on

#: (owner, attribute) -> names of the mends that replace it; the owner is a name such as "fairseq.trainer.Trainer"
REPLACED: dict[tuple[str, str], list[str]] = {}

#: names of the module that fairseq-train may run as: with python -m, in a process that torch spawned, as a command
_COMMANDS = ("__main__", "__mp_main__", "fairseq_cli.train")


class Globals:
    """The global names that a module's function sees, as attributes. In a process that torch has spawned, the
    attributes of the module itself are a copy that the function never reads."""

    def __init__(self, function: Callable[..., Any]) -> None:
        vars(self)["names"] = inspect.unwrap(function).__globals__

    def __getattr__(self, name):
        try:
            return self.names[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.names[name] = value


def commands_with(name: str) -> list[Globals]:
    """Returns the Globals of each module that fairseq-train may run as and that has this function. A program of your
    own may have a module of that name, from ``from fairseq_cli import validate``."""
    found = [getattr(sys.modules.get(module), name, None) for module in _COMMANDS]
    return [Globals(function) for function in found if inspect.isfunction(function)]


def trainings() -> list[Globals]:
    """Returns the Globals of fairseq-train. A program of your own may have functions of these names, but not both with
    fairseq's arguments."""
    arguments = {
        "validate_and_save": ["cfg", "trainer", "task", "epoch_itr", "valid_subsets", "end_of_epoch"],
        "validate": ["cfg", "trainer", "task", "epoch_itr", "subsets"],
    }
    return [
        command
        for command in commands_with("validate_and_save")
        if all(
            inspect.isfunction(function := getattr(command, name, None))
            and list(inspect.signature(function).parameters) == names
            for name, names in arguments.items()
        )
    ]


def tasks_with(method: str) -> list[type]:
    """Returns fairseq's class of tasks, and those of its tasks that have such a method of their own."""
    from fairseq.tasks import TASK_REGISTRY, FairseqTask

    return [FairseqTask, *(task for task in dict.fromkeys(TASK_REGISTRY.values()) if method in vars(task))]


def replace(owner: Any, name: str, *mends: str) -> Callable[[Any], Any]:
    """Decorator: replaces owner.name by the function, once, if one of these mends is on. The function gets the replaced
    one as its first argument."""

    def install(replacement):
        stock = getattr(owner, name)
        key = f"{replacement.__module__}.{replacement.__qualname__}"
        if key in getattr(stock, "_relpos_mends", ()) or not note(owner, name, mends):
            return replacement

        @functools.wraps(stock)
        def mended(*args, **kwargs):
            return replacement(stock, *args, **kwargs)

        mended._relpos_mends = (*getattr(stock, "_relpos_mends", ()), key)
        setattr(owner, name, mended)
        return replacement

    return install


def put(owner: Any, name: str, value: Any, mend: str) -> None:
    """Sets owner.name, if the mend is on."""
    if note(owner, name, [mend]):
        setattr(owner, name, value)


def note(owner: Any, name: str, mends: Iterable[str]) -> list[str]:
    """Returns those of the mends that are on, and writes them into REPLACED."""
    chosen = [mend for mend in mends if on(mend)]
    if chosen:
        known = REPLACED.setdefault((_name_of(owner), name), [])
        known += [mend for mend in chosen if mend not in known]
    return chosen


def _name_of(owner):
    if isinstance(owner, Globals):
        return owner.names["__name__"]
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__


def replace_main(command: str, *mends: str) -> Callable[[Any], Any]:
    """Decorator: replaces the main function of "fairseq_cli.X", for a command that does not start through call_main.
    Such a command looks up its main function after the plugin has been imported. Its module may run as __main__."""

    def install(replacement):
        for module in (sys.modules.get(command), sys.modules.get("__main__")):
            if getattr(getattr(module, "__spec__", None), "name", None) == command:
                replace(module, "main", *mends)(replacement)
        return replacement

    return install
