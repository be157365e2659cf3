"""How softmax(logits) V is computed. A backend knows Terms, never an encoding's name."""

import logging

import torch

from .base import Backend, Mask
from .eager import Eager
from .lean import Lean
from .sdpa import SDPA
from .triton import Triton

logger = logging.getLogger(__name__)

BACKENDS = {backend.name: backend for backend in (Eager, Lean, SDPA, Triton)}


class Strict(Backend):
    """A backend asked for by name: it serves every call or says why it cannot."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.name = backend.name
        self.prepare_bias = backend.prepare_bias

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        # weights are only ever asked for to be looked at: the reference computes them
        reason = self.backend.refuses(terms, need_weights=False)
        if reason is not None:
            able = [n for n, b in BACKENDS.items() if b().refuses(terms, False) is None]
            raise ValueError(
                f"--attention-backend {self.name}: {reason}; use {' or '.join(['auto', *able])}"
            )
        backend = Eager() if need_weights else self.backend
        return backend(terms, v_BHSD, mask, dropout_p, need_weights)


class Auto(Backend):
    """Picks per call, and logs each kind of choice once.

    On a CPU a mask that needs a gradient sends SDPA to its slow form, 1.2 times eager;
    everywhere else SDPA is at least as fast (benchmarks/).
    """

    name = "auto"

    def __init__(self):
        self.logged = set()

    def __call__(self, terms, v_BHSD, mask, dropout_p, need_weights):
        backend, why = self.choose(terms, need_weights)
        if (backend.name, why) not in self.logged:
            self.logged.add((backend.name, why))
            logger.info("attention backend: %s (%s)", backend.name, why)
        return backend(terms, v_BHSD, mask, dropout_p, need_weights)

    def choose(self, terms, need_weights):
        reason = SDPA().refuses(terms, need_weights)
        if reason is not None:
            return Eager(), reason
        learned = any(
            x is not None and x.requires_grad
            for x in (terms.bias, terms.bias_row, terms.reset)
        )
        if learned and torch.is_grad_enabled() and terms.q_BHTD.device.type == "cpu":
            return Eager(), "a learned bias in training on a CPU"
        return SDPA(), "positions are a bias or none"


def select(name: str) -> Backend:
    """The backend of that name, or one that picks by itself (auto)."""
    if name == "auto":
        return Auto()
    if name not in BACKENDS:
        raise ValueError(
            f"--attention-backend {name!r} is not known; choose from {' '.join(names())}"
        )
    return Strict(BACKENDS[name]())


def names():
    return ["auto", *BACKENDS]


__all__ = ["BACKENDS", "Backend", "Mask", "names", "select"]
