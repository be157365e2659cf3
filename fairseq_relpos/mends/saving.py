"""Checkpoints that are written whole, the one before the last among them."""

import contextlib
import logging
import os
import re
import shutil

import torch

from .. import atomic_files
from .agreement import together
from .replace import commands_with, replace

logger = logging.getLogger(__name__)

NUMBERED = re.compile(r"checkpoint(\d+|_\d+_\d+)\S*\.pt")
LAST = re.compile(r"checkpoint_last(\S*)\.pt")
#: ``atomic_files.temporary``; .tmp: of version 0.1
UNFINISHED = re.compile(r"checkpoint\S*\.pt(\.whole)?\.(part\w+|tmp)")


def write_checkpoints_whole():
    """fairseq copies each checkpoint byte by byte onto checkpoint_last.pt: who is killed there has no last one. On
    a full disk it tries three times to append it to what is there already.

    Here every file, copies too, is complete on the disk before it takes its name; what cannot be
    written leaves nothing behind; and what was checkpoint_last.pt becomes checkpoint_previous.pt,
    without a second copy, unless a numbered checkpoint of the same updates stays anyway.
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
            if atomic_files.is_left_over(path):  # by a process that was killed
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
            elif os.path.exists(path):
                logger.warning(
                    f"{path} is being written by another process, or by one of which the file system does "
                    "not know that it has ended: two runs in one --save-dir overwrite each other's checkpoints"
                )


#: the numbered checkpoint that was saved last
_earlier = []


def drop_a_needless_predecessor(stock, cfg, trainer, *args, **kwargs):
    """Saves; where the numbered checkpoint of the save before stays anyway, its other name goes."""

    def save():
        return stock(cfg, trainer, *args, **kwargs)

    # all ranks of fairseq-train come here; a loop of somebody's own may send one
    saved = together(save) if commands_with("validate_and_save") else save()
    if saved is not None:
        if _earlier and os.path.exists(_earlier[0]) and _earlier[0] != saved:
            with contextlib.suppress(FileNotFoundError):
                os.remove(previous_of(cfg.save_dir, trainer.checkpoint_suffix))
        _earlier[:] = [saved] if NUMBERED.fullmatch(os.path.basename(saved)) else []
    return saved


def previous_of(folder, suffix=""):
    return os.path.join(folder, f"checkpoint_previous{suffix}.pt")


def copy(source, target):
    with open(source, "rb") as file:
        write(target, lambda copied: shutil.copyfileobj(file, copied, 2**22))


def write(path, fill):
    """The file ``path`` as ``fill(file)`` writes it, all of it or nothing.

    Raises ValueError, one line, where the disk is full or cannot be written to.
    """
    part = atomic_files.temporary(path)
    try:
        with open(part, "wb") as file:
            atomic_files.own(file)  # until it has its name
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            _keep_predecessor(path)
            os.replace(part, path)
        _to_disk(os.path.dirname(path) or ".")
    except BaseException as error:  # a second Ctrl-C, too, leaves nothing behind
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


def link(path, name):
    """The same file under another name too, which it takes from what has it."""
    part = atomic_files.temporary(name)
    try:
        os.link(path, part)
    except OSError:  # a file system without links
        copy(path, name)
    else:
        os.replace(part, name)


def _to_disk(folder):
    with contextlib.suppress(OSError):  # not every file system can
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
    """torch's own writer turns what the disk says into a RuntimeError."""
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
