"""Safe reading of checkpoints and of archives with them: no code in the file runs, and an error names a bad file in one
line."""

import contextlib
import contextvars
import os
from collections.abc import Callable
from typing import Any

import torch

from ..checkpoints import archives, checksums, loading
from .replace import replace

#: the checkpoint that this thread is reading
_reading: contextvars.ContextVar[str | None] = contextvars.ContextVar("reading", default=None)


def checked_checkpoints() -> None:
    """Reads every checkpoint with torch's weights_only on, plus the classes that checkpoints.loading allows. Stock
    fairseq-fixed and 0.12.2 leave weights_only to torch's default; git main switches it off."""
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


def read(stock: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Reads a file by ``stock``: its contents are checked before, its checksums afterwards."""
    loading.refuse_packed(path)
    try:
        with _reading_of(path):
            state = stock(path, *args, **kwargs)
    except Exception:
        loading.load_checkpoint(path)  # raises an error that says what is wrong, if the file is bad
        raise
    if os.path.isfile(path):  # fairseq can also read from remote storage
        checksums.refuse_damage(path)
    return state


@contextlib.contextmanager
def _reading_of(path):
    before = _reading.set(str(path))
    try:
        yield
    finally:
        _reading.reset(before)


def safe_archives() -> None:
    """Unpacks the archive that ``from_pretrained`` is given into a folder of its own, and nothing outside it."""
    from fairseq import file_utils

    @replace(file_utils, "load_archive_file", "safe-archives")
    def load(stock, archive_file):
        place = str(archive_file)
        return archives.unpacked(place) if archives.is_archive(place) else stock(archive_file)


INSTALLERS = (checked_checkpoints, safe_archives)
