"""Putting a function of the plugin in place of one of fairseq's."""

import functools
import sys

#: what fairseq-train may run as: python -m, a process that torch has spawned, its own command
_COMMANDS = ("__main__", "__mp_main__", "fairseq_cli.train")


def commands_with(name):
    """The modules that fairseq-train may run as and that have this name."""
    return [sys.modules[module] for module in _COMMANDS if hasattr(sys.modules.get(module), name)]


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
