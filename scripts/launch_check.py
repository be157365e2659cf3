"""Before torchrun: every node is there, and node 0's port is free. torchrun itself waits for nodes
without a word and then says how many, not which, are missing.

    python scripts/launch_check.py ADDRESS PORT NODE_RANK NODES
"""

import contextlib
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fairseq_relpos.mends.joining import FAREWELL_SECONDS, call_the_roll, join_timeout, open_store, wait_for_all  # noqa: E402


def main(address, port, node_rank, nodes):
    """Raises ValueError, one line, after RELPOS_JOIN_TIMEOUT seconds at the latest."""
    seconds = join_timeout()
    if node_rank == 0:
        refuse_taken_port(port)
    store = open_store(address, port, False, node_rank, seconds, who="node")
    call_the_roll(store, node_rank, nodes, seconds, who="node")
    say_goodbye(store, node_rank, nodes)


def refuse_taken_port(port):
    """torch shares a port with a server on another address of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ValueError(
                f"port {port} of this machine cannot be used ({error.strerror}): choose another for "
                "all nodes, --master_port, or end what uses it"
            ) from None


def say_goodbye(store, node_rank, nodes):
    """Node 0 serves the store until the others have read it: torchrun needs the port next. The others wait until that
    store has ended, or their torchrun would join it and not torchrun's own."""
    if node_rank == 0:
        wait_for_all(store, [f"left/{other}" for other in range(1, nodes)])
        return
    left = [f"left/{node_rank}"]
    store.set(*left, "")
    deadline = time.monotonic() + FAREWELL_SECONDS
    with contextlib.suppress(RuntimeError):  # the connection is lost
        while store.check(left) and time.monotonic() < deadline:
            time.sleep(0.02)


if __name__ == "__main__":
    address, *numbers = sys.argv[1:]
    try:
        main(address, *map(int, numbers))
    except ValueError as problem:
        sys.exit(f"launch_torchrun: error: {problem}")
