"""Putting a function of the plugin in place of one of fairseq's."""

import functools


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
