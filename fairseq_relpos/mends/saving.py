"""Atomic writes of checkpoints, and checkpoint_previous.pt, the one before the last."""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Callable
from typing import IO, Any

import torch

from .. import atomic_files
from ..ranks import together
from .replace import replace, trainings

logger = logging.getLogger(__name__)

NUMBERED = re.compile(r"checkpoint(\d+|_\d+_\d+)\S*\.pt")
LAST = re.compile(r"checkpoint_last(\S*)\.pt")
#: a temporary name of ``atomic_files.temporary``
UNFINISHED = re.compile(r"checkpoint\S*\.pt(\.whole)?\.part\w+")


def write_checkpoints_whole() -> None:
    """Makes every write of a checkpoint atomic: a file is complete on the disk before it takes its name.

    Stock fairseq copies each checkpoint byte by byte onto checkpoint_last.pt: a run that is killed meanwhile has no
    last checkpoint. On a full disk it tries three times and appends to the file that is there. Here a failed write
    leaves nothing behind. The old checkpoint_last.pt becomes checkpoint_previous.pt, without a second copy, unless a
    numbered checkpoint of the same updates stays anyway.
    """
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    @replace(checkpoint_utils, "torch_persistent_save", "whole-files")
    def save(stock, state, filename, async_write=False):
        if async_write or PathManager.path_requires_pathmanager(filename):
            return stock(state, filename, async_write)
        write(filename, lambda file: torch.save(state, file))

    @replace(PathManager, "copy", "whole-files")
    def copy_whole(stock, source, target, overwrite=False):
        if any(map(PathManager.path_requires_pathmanager, (source, target))):
            return stock(source, target, overwrite)
        copy(source, target)
        return target

    @replace(checkpoint_utils, "verify_checkpoint_directory", "whole-files")
    def remove_leftovers(stock, save_dir):
        stock(save_dir)
        for name in os.listdir(save_dir):
            path = os.path.join(save_dir, name)
            if not UNFINISHED.fullmatch(name):
                continue
            with atomic_files.left_over(path) as ended:
                if ended:  # its process was killed
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(path)
            if not ended and os.path.exists(path):
                logger.warning(
                    f"{path} is being written by another process, or by one of which the file system does "
                    "not know that it has ended: two runs in one --save-dir overwrite each other's checkpoints"
                )


def drop_a_needless_predecessor(
    stock: Callable[..., Any], cfg: Any, trainer: Any, *args: Any, **kwargs: Any
) -> str | None:
    """Saves, then removes checkpoint_previous.pt if it is the same as a numbered checkpoint that stays."""

    def save():
        return stock(cfg, trainer, *args, **kwargs)

    # all ranks of fairseq-train come here; a program's own training loop may call this on one rank
    saved = together(save) if trainings() else save()
    if saved is not None:
        earlier = trainer.relpos.saved_as
        if earlier is not None and os.path.exists(earlier) and earlier != saved:
            with contextlib.suppress(FileNotFoundError):
                os.remove(previous_of(cfg.save_dir, trainer.checkpoint_suffix))
        trainer.relpos.saved_as = saved if NUMBERED.fullmatch(os.path.basename(saved)) else None
    return saved


def previous_of(folder: str, suffix: str = "") -> str:
    return os.path.join(folder, f"checkpoint_previous{suffix}.pt")


def copy(source: str, target: str) -> None:
    with open(source, "rb") as file:
        write(target, lambda copied: shutil.copyfileobj(file, copied, 2**22))


def write(path: str, fill: Callable[[IO[bytes]], Any]) -> None:
    """Writes the file ``path`` by ``fill(file)``, atomically. Raises ValueError, one line, if the disk is full or
    cannot be written to."""
    part = atomic_files.temporary(path)
    try:
        with open(part, "wb") as file:
            atomic_files.own(file)  # until the file has its final name
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            _keep_predecessor(path)
            os.replace(part, path)
        _to_disk(os.path.dirname(path) or ".")
    except BaseException as error:  # also a second Ctrl-C must leave nothing behind
        size = os.path.getsize(part) if os.path.exists(part) else 0
        with contextlib.suppress(OSError):
            os.remove(part)
        if not isinstance(error, Exception):
            raise
        reason = _os_error(error)
        if reason is None and not _from_torchs_writer(error):
            raise
        raise ValueError(_why_not_saved(path, reason, size)) from error


def _keep_predecessor(path):
    last = LAST.fullmatch(os.path.basename(path))
    if not last or not os.path.exists(path):
        return
    link(path, previous_of(os.path.dirname(path), last[1]))


def link(path: str, name: str) -> None:
    """Gives the file a second name by a hard link; a file that has this name already loses it."""
    part = atomic_files.temporary(name)
    try:
        os.link(path, part)
    except OSError:  # a file system without links
        copy(path, name)
    else:
        os.replace(part, name)


def _to_disk(folder):
    with contextlib.suppress(OSError):  # not every file system can flush a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _os_error(error):
    while error is not None:
        if isinstance(error, OSError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _from_torchs_writer(error):
    """Whether torch's writer raised this: it turns an error of the disk into a RuntimeError."""
    return isinstance(error, RuntimeError) and re.search("write|inline_container", str(error))


def _why_not_saved(path, reason, written):
    folder = os.path.dirname(path) or "."
    free = shutil.disk_usage(folder).free if os.path.isdir(folder) else 0
    if reason is None or reason.errno in atomic_files.NO_ROOM:
        why = (
            f"no room ({reason.strerror if reason else 'the write failed'}; {written / 1e6:,.1f} MB were "
            f"written, {free / 1e6:,.1f} MB are free now)"
        )
        remedy = "make room, for example with --keep-interval-updates 1 --no-epoch-checkpoints"
    else:
        why, remedy = reason.strerror or str(reason), "give a --save-dir that can be written"
    return (
        f"{path} cannot be saved: {why}; the checkpoints before it are whole and nothing half-written "
        f"is left; {remedy}, and run the same command again"
    )


INSTALLERS = (write_checkpoints_whole,)
