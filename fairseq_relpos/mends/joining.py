"""Rendezvous with a time limit: ranks, or nodes, find each other, or each says who is missing."""

import contextlib
import datetime
import hashlib
import os
import socket
import threading
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import torch
from torch.distributed import PrefixStore, Store, TCPStore

from .replace import replace

#: the variable for how many seconds a rank, or a node of launch_torchrun.sh, waits for the others; its default
TIMEOUT_VARIABLE, TIMEOUT = "RELPOS_JOIN_TIMEOUT", 300
#: seconds that torch may need beyond its time limit
GRACE = 10


def name_the_ranks_that_do_not_join() -> None:
    """Calls the roll of the ranks before the process group is made, in the store that the group then uses. The error
    says which ranks have not joined, that the port is taken, or that nobody answers at the address."""
    from fairseq.distributed import utils

    @replace(utils, "distributed_init", "join")
    def join(stock, cfg):
        distributed = cfg.distributed_training
        address = store_address(distributed.distributed_init_method)
        if cfg.common.tpu or address is None or torch.distributed.is_initialized():
            return stock(cfg)
        rank, ranks = distributed.distributed_rank, distributed.distributed_world_size
        seconds = join_timeout()
        store = open_store(*address, rank, seconds)
        if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)):
            # after a restart, ranks of another node may notice it only when the process group's own time limit ends
            seconds += torch.distributed.distributed_c10d.default_pg_timeout.total_seconds()
        roll = call_the_roll(store, rank, ranks, seconds)
        store = PrefixStore(roll, store)  # torchrun's store still holds the keys of ranks that it has restarted
        store.set_timeout(torch.distributed.distributed_c10d.default_pg_timeout)
        with _process_group_in(store):
            return stock(cfg)


def join_timeout() -> float:
    """Returns the seconds that a rank waits. Raises ValueError if the variable is no number above 0."""
    given = os.environ.get(TIMEOUT_VARIABLE, TIMEOUT)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0
    if not seconds > 0:
        raise ValueError(f"{TIMEOUT_VARIABLE}={given} is not a number of seconds above 0")
    return seconds


def store_address(init_method: str | None) -> tuple[str, int, bool] | None:
    """Returns (host, port, whether a launcher already serves a store there), or None if it is no address."""
    url = urlsplit(init_method or "")
    if url.scheme == "tcp" and url.port:
        return url.hostname or "", url.port, False
    if url.scheme == "env" and {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), served
    return None


def open_store(host: str, port: int, served: bool, rank: int, seconds: float, who: str = "rank") -> Store:
    """Returns the store of all ranks. Rank 0 serves it unless the launcher does. who: the word for the others in
    errors, "rank" or "node"."""
    is_master = rank == 0 and not served
    left = seconds if is_master else max(seconds - wait_for_an_answer(host, port, seconds, who), 1)
    made: list[Any] = []

    def make():
        try:
            made.append(
                TCPStore(
                    host, port, is_master=is_master, timeout=datetime.timedelta(seconds=left), wait_for_workers=False
                )
            )
        except RuntimeError as error:  # torch's DistNetworkError and DistStoreError are subclasses
            made.append(error)

    # in a thread: torch waits without a time limit for the answer of a server that is no store
    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(left + GRACE)
    if not made:
        raise ValueError(
            f"what answers at {host}:{port} is not {who} 0 but another program: choose another port for all "
            "(--master_port, --distributed-port) or end it"
        )
    (store,) = made
    if isinstance(store, RuntimeError):
        raise ValueError(_why_there_is_no_store(str(store), host, port, seconds, who)) from None
    return PrefixStore("relpos", store)


def wait_for_an_answer(host: str, port: int, seconds: float, who: str) -> float:
    """Waits until a server listens at the address, and returns the seconds that it took. Raises ValueError after
    ``seconds``. torch's own client would print a page of C++ frames for each try."""
    began = time.monotonic()
    while True:
        left = seconds - (time.monotonic() - began)
        try:
            socket.create_connection((host, port), timeout=max(left, 0.1)).close()
            return time.monotonic() - began
        except OSError as error:
            if left <= 0:
                raise ValueError(_no_answer(host, port, seconds, who, error)) from None
        time.sleep(0.2)


def _no_answer(host, port, seconds, who, reason):
    return (
        f"{who} 0 does not answer at {host}:{port} after {seconds:g} s ({reason}): start it, give every "
        f"node the same address and port, open the port; {TIMEOUT_VARIABLE} changes the wait"
    )


def _why_there_is_no_store(message, host, port, seconds, who):
    if "EADDRINUSE" in message or "address already in use" in message.lower():
        return (
            f"port {port} of {socket.gethostname()} is in use, perhaps by an earlier run: choose "
            "another (--distributed-port, torchrun's --master_port) or end what uses it"
        )
    if "listen" in message or "bind" in message:
        return f"{who} 0 cannot serve port {port} of {socket.gethostname()}: {message.splitlines()[0]}"
    return _no_answer(host, port, seconds, who, message.splitlines()[0])


def call_the_roll(store: Store, rank: int, ranks: int, seconds: float, who: str = "rank") -> str:
    """Waits until every rank has joined, and returns a name for this rendezvous. who: as in ``open_store``.

    Raises ValueError after ``seconds``, which names the ranks that are missing.

    Each rank joins under a random id. Rank 0 writes the roll, the list of all ids. Each rank that finds its own id in
    the roll answers. The rendezvous is complete when all have answered. So keys that the ranks of an earlier start
    have left in the store do not count.

    Rank 0 may serve the store. When it gives up, it tells the ranks that have joined and ends after them, because
    torch prints a page of C++ frames when a store vanishes.
    """
    deadline = time.monotonic() + seconds
    me = f"{uuid.uuid4().hex} {socket.gethostname()}"
    others = range(ranks)
    try:
        store.set(f"joined/{rank}", me)
        while True:
            if rank == 0:  # only here: with hundreds of ranks these are many reads
                joined = [_read(store, f"joined/{other}") for other in others]
                if all(joined):
                    store.set("roll", "\n".join(joined))
            roll = (_read(store, "roll") or "").split("\n")
            name = hashlib.sha256("\n".join(roll).encode()).hexdigest()[:16]
            if rank < len(roll) and roll[rank] == me:
                store.set(f"{name}/{rank}", "")
                if store.check([f"{name}/{other}" for other in others]):
                    return name
            given_up = _read(store, f"given up/{me}")
            if given_up or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        store.set(f"gone/{me}", "")
        if given_up:
            raise ValueError(given_up)
        joined = [_read(store, f"joined/{other}") for other in others]
        came = [other for other in others if joined[other] and (not all(joined) or store.check([f"{name}/{other}"]))]
        hosts = sorted({joined[other].split(" ", 1)[1] for other in came})
        missing = [str(other) for other in others if other not in came]
        message = (
            f"after {seconds:g} s {len(missing)} of {ranks} {who}s have not joined: "
            f"{', '.join(missing)} (here: {len(came)} on {', '.join(hosts)}): look at what they "
            f"printed; {TIMEOUT_VARIABLE} changes the wait"
        )
        if rank == 0:
            for other in came:
                store.set(f"given up/{joined[other]}", message)
            wait_for_all(store, [f"gone/{joined[other]}" for other in came])
    except RuntimeError as error:
        raise ValueError(
            f"{who} {rank} lost {who} 0 while the {who}s were joining ({str(error).splitlines()[0]}): "
            f"the last line of {who} 0 says why it ended"
        ) from None
    raise ValueError(message)


#: seconds that the rank that serves the store waits until the others have read it
FAREWELL_SECONDS = 10


def wait_for_all(store: Store, keys: list[str]) -> None:
    """Waits until all keys are in the store, at most ``FAREWELL_SECONDS``."""
    deadline = time.monotonic() + FAREWELL_SECONDS
    while not store.check(keys) and time.monotonic() < deadline:
        time.sleep(0.05)


def _read(store, key):
    return store.get(key).decode() if store.check([key]) else None


@contextlib.contextmanager
def _process_group_in(store):
    """Context in which fairseq's call of init_process_group uses ``store``."""
    stock = torch.distributed.init_process_group

    def init_process_group(backend, init_method, world_size, rank):
        return stock(backend=backend, store=store, world_size=world_size, rank=rank)

    torch.distributed.init_process_group = init_process_group
    try:
        yield
    finally:
        torch.distributed.init_process_group = stock


INSTALLERS = (name_the_ranks_that_do_not_join,)
