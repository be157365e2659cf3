"""Putting a function of the plugin in place of one of fairseq's, in the name of a mend that is on."""

import functools
import inspect
import sys

from .catalogue import on

#: (owner, attribute) -> names of the mends for which it is replaced; owner: "fairseq.trainer.Trainer"
REPLACED = {}

#: what fairseq-train may run as: python -m, a process that torch has spawned, its own command
_COMMANDS = ("__main__", "__mp_main__", "fairseq_cli.train")


class Globals:
    """What the functions of a module see, as attributes. In a process that torch has spawned the
    module's own attributes are a copy."""

    def __init__(self, function):
        vars(self)["names"] = inspect.unwrap(function).__globals__

    def __getattr__(self, name):
        try:
            return self.names[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.names[name] = value


def commands_with(name):
    """The Globals of what fairseq-train may run as, where they have this function."""
    modules = [sys.modules[module] for module in _COMMANDS if hasattr(sys.modules.get(module), name)]
    return [Globals(getattr(module, name)) for module in modules]


def replace(owner, name, *mends):
    """Decorator: puts a function in place of owner.name, once, if one of these mends is on.

    The function gets what was there before as its first argument.
    """

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


def put(owner, name, value, mend):
    """Sets owner.name, if the mend is on."""
    if note(owner, name, [mend]):
        setattr(owner, name, value)


def note(owner, name, mends):
    """Those of the mends that are on; REPLACED gets them."""
    chosen = [mend for mend in mends if on(mend)]
    if chosen:
        known = REPLACED.setdefault((_name_of(owner), name), [])
        known += [mend for mend in chosen if mend not in known]
    return chosen


def _name_of(owner):
    if isinstance(owner, Globals):
        return owner.names["__name__"]
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__


def replace_main(command, *mends):
    """Decorator: puts a function in place of the main of "fairseq_cli.X", for a command that does not
    start through call_main. It looks its main up after the plugin has been imported, in a module
    that may run as __main__."""

    def install(replacement):
        for module in (sys.modules.get(command), sys.modules.get("__main__")):
            if getattr(getattr(module, "__spec__", None), "name", None) == command:
                replace(module, "main", *mends)(replacement)
        return replacement

    return install
