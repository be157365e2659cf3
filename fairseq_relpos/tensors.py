"""Subclasses of torch's tensors, a cache of constant tables, a context without autocast, and backward passes without a
second derivative."""

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, TypeVar

import torch

Made = TypeVar("Made")


def plain(*tensors: torch.Tensor) -> bool:
    """Whether all are torch's own tensors, whose memory compiled code may read: not those of a subclass, such as the
    tensors without numbers with which torch.export traces a model.

    Examples:
        >>> plain(torch.zeros(2), torch.nn.Parameter(torch.zeros(2)))
        True
    """
    return all(type(x) in (torch.Tensor, torch.nn.Parameter) for x in tensors)


def kept(maxsize: int) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Decorates a function that makes constant tensors: the last ``maxsize`` results are cached. A training can use
    those that were made in inference mode. While torch traces a model, nothing is cached, because its tensors then have
    no numbers.

    Examples:
        >>> @kept(maxsize=8)
        ... def squares(n):
        ...     return torch.arange(n) ** 2
        >>> squares(4) is squares(4)
        True
    """

    def decorate(make):
        @functools.lru_cache(maxsize=maxsize)
        def made(*args: Any) -> Any:
            with torch.inference_mode(False):
                return make(*args)

        @functools.wraps(make)
        def read(*args: Any) -> Any:
            if torch.compiler.is_compiling() or not plain(torch.empty(0)):
                return make(*args)
            return made(*args)

        return read

    return decorate


def outside_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Context in which autocast is off. Where it is off already, nothing is entered: an exported program with a context
    in it cannot be saved."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()


class _Refused(torch.autograd.Function):
    """Passes the first ``count`` tensors on; the others are what these depend on."""

    @staticmethod
    def forward(ctx, count, *tensors):
        return tensors[:count]

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(
            "the gradient of this attention cannot be differentiated again: leave create_graph=True out, or take "
            'backend="eager" and an encoding that learns no table over the offset, such as rope'
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a backward pass that cannot be differentiated. Unlike torch's decorator of this
    name, it also makes
    torch.autograd.grad raise RuntimeError, which would omit the missing part silently."""

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        refuses = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        if refuses:  # activation checkpointing gives saved tensors once
            saved = ctx.saved_tensors
            ctx = SimpleNamespace(**vars(ctx), needs_input_grad=ctx.needs_input_grad, saved_tensors=saved)
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not refuses:
            return found
        sources = [x for x in (*grads, *ctx.saved_tensors) if x is not None and x.requires_grad]
        outputs = found if isinstance(found, tuple) else (found,)
        return _Refused.apply(len(outputs), *outputs, *sources) if sources else found

    return once
