"""Steps that take turns, so that what slows a machine down slows all of them down; their seconds and ratios."""

import random
import statistics
import sys
import time
from pathlib import Path

import torch
from allocators import SETTINGS, begin, in_words, started
from memory import peak_memory
from tqdm import tqdm


def in_turns(steps, rounds, seconds_of, desc=None):
    """{name: its seconds in each round}. In a round every step has its turn, so that what slows the
    machine down slows them all down, in another order each time; one round before these warms up."""
    seconds = {name: [] for name in steps}
    orders = random.Random(1)
    for number in tqdm(range(rounds + 1), desc=desc, unit="round"):
        for name in shuffled(steps, orders):
            elapsed = seconds_of(steps[name])
            if number:
                seconds[name].append(elapsed)
    return seconds


class Processes:
    """A process for each allocator, in which steps take their turns; and one that counts memory. glibc reads its
    settings when a process starts, so a new program is started for each, whatever the environment says of them."""

    def __init__(self, allocators):
        for name in allocators:
            print(f"allocator {name}: {in_words(SETTINGS[name]) or 'as glibc is'}")
        self.pools = {name: started(name) for name in allocators}
        self.counting = started("counted")
        try:
            for name, pool in self.pools.items():
                pool.submit(begin, name).result()
        except OSError as error:
            self.__exit__()
            sys.exit(f"{Path(sys.argv[0]).name}: error: {error}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pool in (*self.pools.values(), self.counting):
            pool.shutdown(cancel_futures=True)

    def in_turns(self, make_steps, args, rounds, desc=None):
        """{allocator: {name: its seconds in each round}}. make_steps(*args) returns {name: step}, and is called in each
        process; a step returns its seconds. In a round every process has its turn, and in it every step: what slows the
        machine down slows them all down. The order is another one in each round. One round before these warms up."""
        names = {name: pool.submit(prepare, make_steps, args).result() for name, pool in self.pools.items()}
        seconds = {name: {key: [] for key in keys} for name, keys in names.items()}
        orders = random.Random(1)
        for number in tqdm(range(rounds + 1), desc=desc, unit="round"):
            for name in shuffled(self.pools, orders):
                order = shuffled(names[name], orders)
                for key, elapsed in zip(order, self.pools[name].submit(one_round, order).result()):
                    if number:
                        seconds[name][key].append(elapsed)
        for pool in self.pools.values():
            pool.submit(forget).result()
        return seconds

    def memory(self, make_steps, args):
        """{name: the bytes that a step needs at most beyond what was there before}, its outputs included. The process
        returns what it frees to the system, so memory of earlier steps does not hide any."""
        self.counting.submit(torch.set_num_threads, 1).result()  # OpenMP's threads do not survive the fork of a step
        self.counting.submit(prepare, make_steps, args).result()
        found = self.counting.submit(peaks).result()
        self.counting.submit(forget).result()
        return found


#: the steps of this process
steps = {}


def prepare(make_steps, args):
    steps.update(make_steps(*args))
    return list(steps)


def one_round(order):
    return [steps[name]() for name in order]


def peaks():
    return {name: peak_memory(step) for name, step in steps.items()}


def forget():
    steps.clear()


def shuffled(names, orders):
    return orders.sample(list(names), len(names))


class LargeProduct:
    """A step that is one large matrix product: its speed is the most that this machine reaches."""

    #: rows and columns
    SIZE = 2048

    def __init__(self, clock, threads):
        self.a, self.b = torch.randn(2, self.SIZE, self.SIZE)
        self.clock, self.threads = clock, threads

    @classmethod
    def flops(cls):
        return 2 * cls.SIZE**3

    def __call__(self):
        torch.set_num_threads(self.threads)
        start = self.clock()
        self.a @ self.b
        return self.clock() - start


def clock_of(threads):
    """CPU time with one thread, so that a busy machine counts for less."""
    return time.process_time if threads == 1 else time.perf_counter


def queued_seconds(step, times, device):
    """The seconds of so many steps that follow one another, the device's where it is a GPU: it need not wait for the
    host, nor the host for it."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(times):
            step()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def compared(mine, theirs):
    """The entries of a row about the ratio of two steps, whose seconds of each round these are."""
    ratios = [x / y for x, y in zip(mine, theirs)]
    quartiles = statistics.quantiles(ratios, n=4)[::2] if len(ratios) > 1 else []
    return {"ratio": statistics.median(ratios), "quartiles": quartiles}


def median_ratio(mine, theirs):
    return statistics.median(x / y for x, y in zip(mine, theirs))
