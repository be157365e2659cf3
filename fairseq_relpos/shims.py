"""Putting a function of the plugin in place of one of fairseq's."""

import functools
import inspect
import sys

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


def replace(owner, name):
    """Decorator: puts a function in place of owner.name, once.

    The function gets what was there before as its first argument.
    """

    def install(replacement):
        stock = getattr(owner, name)
        shims = getattr(stock, "_relpos_shims", ())
        key = f"{replacement.__module__}.{replacement.__qualname__}"
        if key in shims:
            return replacement

        @functools.wraps(stock)
        def shimmed(*args, **kwargs):
            return replacement(stock, *args, **kwargs)

        shimmed._relpos_shims = (*shims, key)
        setattr(owner, name, shimmed)
        return replacement

    return install


def replace_main(command):
    """Decorator: puts a function in place of the main of "fairseq_cli.X", for a command that does not
    start through call_main. It looks its main up after the plugin has been imported, in a module
    that may run as __main__."""

    def install(replacement):
        for module in (sys.modules.get(command), sys.modules.get("__main__")):
            if getattr(getattr(module, "__spec__", None), "name", None) == command:
                replace(module, "main")(replacement)
        return replacement

    return install
