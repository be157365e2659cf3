"""Before torchrun: is node 0's port free on node 0, and does node 0 answer on the others?

    python scripts/launch_check.py ADDRESS PORT NODE_RANK SECONDS
"""

import socket
import sys
import time


def main(address, port, node_rank, seconds):
    if node_rank == 0:
        return refuse_taken_port(port)
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return None
        except OSError as error:
            if time.monotonic() > deadline:
                return (
                    f"node 0 does not answer at {address}:{port} after {seconds:g} s ({error}): start "
                    "it, compare --master_addr and --master_port of all nodes, open the port"
                )
        time.sleep(1)


def refuse_taken_port(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return (
                f"port {port} of this machine cannot be used ({error.strerror}): choose another for "
                "all nodes, --master_port, or end what uses it"
            )


if __name__ == "__main__":
    address, port, node_rank, seconds = sys.argv[1:]
    problem = main(address, int(port), int(node_rank), float(seconds))
    if problem:
        sys.exit(f"launch_torchrun: error: {problem}")
