"""The end of a command: its threads end before Python does."""

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

import torch

from .replace import replace

logger = logging.getLogger(__name__)

#: that a thread gets to finish the batch that it is reading
SECONDS_FOR_A_BATCH = 30
#: that the threads of the process groups get; ranks that have died may never answer them
SECONDS_FOR_GROUPS = 10
#: for the threads of libraries together, most of which only wait
SECONDS_TO_LET_GO = 0.3


def end_threads_before_python_does():
    """Threads are left as Python ends: those that read batches ahead, those of data loaders, and those of gloo's
    process groups.

    Python ends a thread that asks for its lock from then on. Inside torch that is in the middle of
    C++, which answers with "terminate called without an active exception", also in place of exit code 75 after
    a signal. Here they are ended first, in every command, also after an error and after a signal.
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
        # torch imports it at some time; later than here it would keep the group in default arguments
        importlib.import_module("torch.distributed.nn.functional")
        return stock(cfg)


_process = None
#: processes of data loaders; other children of a program are its own
loaders = weakref.WeakSet()
#: whether Python has begun to end
has_begun = False


def end_all_at_exit():
    """In this process, which may be a fork of one that has asked for the same."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        # before multiprocessing's own, which asks loaders by SIGTERM and waits
        multiprocessing.util.Finalize(None, end_all, exitpriority=100)


def end_all():
    global has_begun
    has_begun = True
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler takes killed loaders for an accident
    end_readers()
    for process in list(loaders):
        if process._parent_pid == os.getpid() and process.is_alive():
            process.kill()
    deadline = time.monotonic() + SECONDS_TO_LET_GO
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.current_thread():
            thread.join(max(0, deadline - time.monotonic()))
    end_groups()


def end_readers():
    """fairseq's threads that read batches ahead: each ends after the batch that it is reading."""
    from fairseq.data.iterators import BackgroundConsumer

    readers = [thread for thread in threading.enumerate() if isinstance(thread, BackgroundConsumer)]
    for reader in readers:
        reader._max_len = 0  # it looks at this after each batch
    deadline = time.monotonic() + SECONDS_FOR_A_BATCH
    for reader in readers:
        while reader.is_alive() and time.monotonic() < deadline:
            try:
                reader._queue.get(timeout=0.02)  # it may wait for room in there
            except queue.Empty:
                pass


def end_groups():
    """gloo's threads let go of the tensors of a collective after the rank has gone on from it, and ask for
    Python's lock to do so. The destructor of a group waits for its threads.

    In a thread of its own, because a group may still wait for a rank that has died.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        thread = threading.Thread(target=try_to_destroy_groups, daemon=True)
        thread.start()
        thread.join(SECONDS_FOR_GROUPS)


def try_to_destroy_groups():
    try:
        destroy_groups()
    except Exception as error:  # a rank that has died; what the command has to say it has said
        logger.debug(f"process groups: {error}")


def destroy_groups():
    from fairseq.distributed import utils

    groups = list(torch.distributed.distributed_c10d._world.pg_map)
    # fairseq keeps one in an attribute of a function, an exception keeps those of its frames
    vars(utils.get_global_group).pop("_global_group", None)
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    gc.collect()
    torch.distributed.destroy_process_group()
    # Last of all references: Python's let go of its lock while the threads end, those of
    # DistributedDataParallel do not.
    while groups:
        groups.pop()


INSTALLERS = (end_threads_before_python_does,)
