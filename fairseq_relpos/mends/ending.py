"""The end of a process: its threads end before Python shuts down."""

import gc
import importlib
import logging
import multiprocessing.util
import os
import queue
import signal
import sys
import threading
import time
import weakref
from typing import Any

import torch

from .replace import replace

logger = logging.getLogger(__name__)

#: time for a thread to finish the batch that it is reading
SECONDS_FOR_A_BATCH = 30
#: time for the threads of the process groups; a rank that has died may never answer them
SECONDS_FOR_GROUPS = 10
#: time for all threads of libraries together, most of which only wait
SECONDS_TO_LET_GO = 0.3


def end_threads_before_python_does() -> None:
    """Ends all threads before Python shuts down, in every command, also after an error and after a signal.

    These are the threads that read batches ahead, those of data loaders, and those of gloo's process groups. While
    Python shuts down it ends every thread that asks for the interpreter lock. If that happens inside torch's C++, the
    process ends with "terminate called without an active exception", even in place of exit code 75 after a signal.
    """
    from fairseq.data.iterators import BufferedIterator
    from fairseq.distributed import utils
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    @replace(BufferedIterator, "_create_consumer", "end-threads")
    def reader(stock, self):
        end_all_at_exit()
        return stock(self)

    @replace(_MultiProcessingDataLoaderIter, "__init__", "end-threads")
    def workers(stock, self, *args, **kwargs):
        stock(self, *args, **kwargs)
        loaders.update(self._workers)

    @replace(utils, "distributed_init", "end-threads")
    def groups(stock, cfg):
        end_all_at_exit()
        # torch imports this module at some time; after the group exists, default arguments would keep the group alive
        importlib.import_module("torch.distributed.nn.functional")
        return stock(cfg)


_process: int | None = None
#: the processes of data loaders; a program's other child processes are not touched
loaders: weakref.WeakSet[Any] = weakref.WeakSet()
#: whether the process has begun to end
has_begun = False


def end_all_at_exit() -> None:
    """Registers ``end_all`` for the end of this process, once. A forked process registers its own."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        # the priority puts it before multiprocessing's own, which sends SIGTERM to loaders and waits
        multiprocessing.util.Finalize(None, end_all, exitpriority=100)


def end_all() -> None:
    """Ends the threads and data loaders of this process."""
    global has_begun
    has_begun = True
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would report killed loaders as an error
    end_readers(readers())
    for process in list(loaders):
        if process._parent_pid == os.getpid() and process.is_alive():
            process.kill()
    deadline = time.monotonic() + SECONDS_TO_LET_GO
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.current_thread():
            thread.join(max(0, deadline - time.monotonic()))
    end_groups()


def readers() -> list[Any]:
    """Returns fairseq's threads that read batches ahead."""
    from fairseq.data.iterators import BackgroundConsumer

    return [thread for thread in threading.enumerate() if isinstance(thread, BackgroundConsumer)]


def end_readers(readers: list[Any]) -> None:
    """Ends these threads, each after the batch that it is reading."""
    for reader in readers:
        reader._max_len = 0  # the thread compares this after each batch
    deadline = time.monotonic() + SECONDS_FOR_A_BATCH
    for reader in readers:
        while reader.is_alive() and time.monotonic() < deadline:
            try:
                reader._queue.get(timeout=0.02)  # the thread may be waiting for room in its queue
            except queue.Empty:
                pass


def end_groups() -> None:
    """Destroys the process groups, which waits for gloo's threads.

    These threads release the tensors of a collective after the rank has gone on, and need the interpreter lock for
    it. The work is done in a thread of its own, because a group may still wait for a rank that has died.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        thread = threading.Thread(target=try_to_destroy_groups, daemon=True)
        thread.start()
        thread.join(SECONDS_FOR_GROUPS)


def try_to_destroy_groups() -> None:
    try:
        destroy_groups()
    except Exception as error:  # another rank has died; the command has already reported its own error
        logger.debug(f"process groups: {error}")


def destroy_groups() -> None:
    from fairseq.distributed import utils

    groups = list(torch.distributed.distributed_c10d._world.pg_map)
    # references: fairseq keeps a group in an attribute of a function, and an exception keeps those of its frames
    vars(utils.get_global_group).pop("_global_group", None)
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    gc.collect()
    torch.distributed.destroy_process_group()
    # These references must be the last ones: Python's destructor releases the interpreter lock while the threads
    # end, that of DistributedDataParallel does not.
    while groups:
        groups.pop()


INSTALLERS = (end_threads_before_python_does,)
