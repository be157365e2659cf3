"""One function over many tasks on several processes."""

import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from .problem import Problem

#: tasks that wait for each worker: few, because a task holds its text
WAITING = 2
SECONDS = 0.5


def results(function, tasks, workers):
    """function(task) of every task, in the order in which they come."""
    if workers == 1:
        yield from map(function, tasks)
        return
    pool = ProcessPoolExecutor(workers, get_context("fork"), end_with, (os.getpid(),))
    try:
        waiting = set()
        for task in tasks:
            if len(waiting) >= WAITING * workers:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
            waiting.add(pool.submit(function, task))
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except BrokenProcessPool:
        raise Problem(
            "a worker was killed, perhaps for want of memory: run again with fewer --workers; what is done is kept"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def end_with(parent):
    """A worker whose parent has been killed would wait for tasks for ever."""

    def watch():
        while os.getppid() == parent:
            time.sleep(SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
