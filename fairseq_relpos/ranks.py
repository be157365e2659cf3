"""Messages between the ranks of a training."""

import socket
from collections.abc import Callable
from typing import Any

import torch


def several_ranks() -> bool:
    return torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1


def is_first_rank() -> bool:
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def gather(mine: Any) -> list[Any]:
    """Returns what each rank has given (an all-gather of objects)."""
    everyones: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everyones, mine)
    return everyones


def together(step: Callable[[], Any]) -> Any:
    """Runs ``step()`` on every rank and returns this rank's result; if it fails on one rank, it fails on all.

    Otherwise the other ranks would wait for that one in their next collective, with NCCL for minutes. They end with
    a ValueError, one line, that names it.
    """
    if not several_ranks():
        return step()
    failed: Exception | None = None
    result = None
    try:
        result = step()
    except Exception as error:
        failed = error
    for rank, message in enumerate(gather(None if failed is None else in_one_line(failed))):
        if failed is not None:
            raise failed
        if message is not None:
            raise ValueError(f"rank {rank} on {message}")
    return result


def in_one_line(error: Exception) -> str:
    kind = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
    return f"{socket.gethostname()}: {kind}{str(error).strip().partition(chr(10))[0]}"


def from_the_first(step: Callable[[], Any]) -> Any:
    """Runs ``step()`` on rank 0 alone and returns its result on every rank; if it fails there, it fails on all."""
    if not several_ranks():
        return step()
    result = together(step if is_first_rank() else lambda: None)
    return gather(result)[0]
