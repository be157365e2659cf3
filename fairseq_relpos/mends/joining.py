"""Several ranks, or nodes, find each other, or each says within bounded time who is missing."""

import contextlib
import datetime
import hashlib
import os
import socket
import threading
import time
import uuid
from urllib.parse import urlsplit

import torch
from torch.distributed import PrefixStore, TCPStore

from .replace import replace

#: how many seconds a rank, or a node of launch_torchrun.sh, waits for the others
TIMEOUT_VARIABLE, TIMEOUT = "RELPOS_JOIN_TIMEOUT", 300
#: seconds that torch may take longer to notice
GRACE = 10


def name_the_ranks_that_do_not_join():
    """A roll is called first, in the store that the process group then uses: it says who has not come, that
    the port is taken, or that nobody answers at the address."""
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
            # ranks of another node may notice only after the process group's own wait
            seconds += torch.distributed.distributed_c10d.default_pg_timeout.total_seconds()
        roll = call_the_roll(store, rank, ranks, seconds)
        store = PrefixStore(roll, store)  # torchrun's store outlives the ranks that it starts again
        store.set_timeout(torch.distributed.distributed_c10d.default_pg_timeout)
        with _process_group_in(store):
            return stock(cfg)


def join_timeout() -> float:
    given = os.environ.get(TIMEOUT_VARIABLE, TIMEOUT)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0
    if not seconds > 0:
        raise ValueError(f"{TIMEOUT_VARIABLE}={given} is not a number of seconds above 0")
    return seconds


def store_address(init_method):
    """(host, port, whether a launcher already serves a store there); None for what is no address."""
    url = urlsplit(init_method or "")
    if url.scheme == "tcp" and url.port:
        return url.hostname, url.port, False
    if url.scheme == "env" and {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), served
    return None


def open_store(host, port, served, rank, seconds, who="rank"):
    """The store of all ranks, which the first of them serves unless the launcher does. who: what
    the others are, "rank" or "node", for the errors."""
    is_master = rank == 0 and not served
    left = seconds if is_master else max(seconds - wait_for_an_answer(host, port, seconds, who), 1)
    made = []

    def make():
        try:
            made.append(
                TCPStore(
                    host, port, is_master=is_master, timeout=datetime.timedelta(seconds=left), wait_for_workers=False
                )
            )
        except RuntimeError as error:  # torch's DistNetworkError and DistStoreError are some
            made.append(error)

    # torch waits for ever for the answer of a server that is no store
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


def wait_for_an_answer(host, port, seconds, who):
    """The seconds that it took until somebody listened at the address. Raises ValueError after ``seconds``.

    torch's own client prints a page of C++ frames for each of its tries."""
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


def call_the_roll(store, rank, ranks, seconds, who="rank"):
    """Returns a name of this meeting when every rank has come; an error names those that have not
    after ``seconds``. who: as in ``open_store``.

    A rank joins under a number of its own. The first writes the roll, the numbers of all; each that
    finds its own in it answers; and it holds once all have answered. So ranks that were started
    again do not take for present what earlier ones have left in the store.

    The first, which may serve the store, tells those that have come when it gives up, and ends after
    them: of a store that vanishes torch prints a page of C++ frames.
    """
    deadline = time.monotonic() + seconds
    me = f"{uuid.uuid4().hex} {socket.gethostname()}"
    others = range(ranks)
    try:
        store.set(f"joined/{rank}", me)
        while True:
            if rank == 0:  # alone: with hundreds of ranks these are many questions
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
        error = (
            f"after {seconds:g} s {len(missing)} of {ranks} {who}s have not joined: "
            f"{', '.join(missing)} (here: {len(came)} on {', '.join(hosts)}): look at what they "
            f"printed; {TIMEOUT_VARIABLE} changes the wait"
        )
        if rank == 0:
            for other in came:
                store.set(f"given up/{joined[other]}", error)
            wait_for_all(store, [f"gone/{joined[other]}" for other in came])
    except RuntimeError as error:
        raise ValueError(
            f"{who} {rank} lost {who} 0 while the {who}s were joining ({str(error).splitlines()[0]}): "
            f"the last line of {who} 0 says why it ended"
        ) from None
    raise ValueError(error)


#: seconds that the server of a store waits for the others to have read it
FAREWELL_SECONDS = 10


def wait_for_all(store, keys):
    """Until all of them are in the store, or ``FAREWELL_SECONDS``."""
    deadline = time.monotonic() + FAREWELL_SECONDS
    while not store.check(keys) and time.monotonic() < deadline:
        time.sleep(0.05)


def _read(store, key):
    return store.get(key).decode() if store.check([key]) else None


@contextlib.contextmanager
def _process_group_in(store):
    """fairseq's call of init_process_group makes the group in ``store``, on the given ranks."""
    torchs = torch.distributed.init_process_group

    def init_process_group(backend, init_method, world_size, rank):
        return torchs(backend=backend, store=store, world_size=world_size, rank=rank)

    torch.distributed.init_process_group = init_process_group
    try:
        yield
    finally:
        torch.distributed.init_process_group = torchs


INSTALLERS = (name_the_ranks_that_do_not_join,)
