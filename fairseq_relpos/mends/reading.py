"""Checkpoints are read without running what is in them, and a bad file is named in one line."""

import contextlib
import contextvars
import os

import torch

from ..checkpoints import checksums, loading
from .replace import replace

#: the checkpoint that this thread is reading
_reading = contextvars.ContextVar("reading", default=None)


def checked_checkpoints():
    """fairseq-fixed and 0.12.2 leave weights_only to torch; git main switches it off. Here it is on under
    all of them, with the classes that checkpoints.loading allows."""
    from fairseq import checkpoint_utils

    @replace(torch, "load", "checked-checkpoints")
    def load(stock, *args, **kwargs):
        path = _reading.get()
        if path is None or loading.trusted():
            return stock(*args, **kwargs)
        state = stock(*args, **{**kwargs, "weights_only": True})
        loading.refuse_code_in_settings(path, state)  # before fairseq does anything with them
        return state

    @replace(checkpoint_utils, "load_ema_from_checkpoint", "checked-checkpoints")
    def read_ema(stock, fpath):
        return read(stock, fpath)


def read(stock, path, *args, **kwargs):
    """What ``stock`` reads from a file whose contents are looked at first, its checksums afterwards."""
    loading.refuse_packed(path)
    try:
        with _reading_of(path):
            state = stock(path, *args, **kwargs)
    except Exception:
        loading.load_checkpoint(path)  # says what is wrong, if it is the file
        raise
    if os.path.isfile(path):  # fairseq reads from elsewhere, too
        checksums.refuse_damage(path)
    return state


@contextlib.contextmanager
def _reading_of(path):
    before = _reading.set(str(path))
    try:
        yield
    finally:
        _reading.reset(before)


INSTALLERS = (checked_checkpoints,)
