"""Errors of the first batch: a model, criterion and task that do not fit together."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def explained(trainer: Any) -> Iterator[None]:
    """Context that raises a ValueError if the criterion calls the model with arguments that it does not take, or the
    task is denoising and the model has no decoder. No crash.pt is left of a model that has made no update."""
    if hasattr(trainer.cfg.task, "poisson_lambda") and not hasattr(trainer.get_model(), "decoder"):
        # an encoder ignores the tokens for the decoder, and would train on something else
        arch = trainer.cfg.model._name
        raise ValueError(f"--task denoising needs a decoder, which --arch {arch} lacks: give bart_NAME")
    crash = os.path.join(trainer.cfg.checkpoint.save_dir, "crash.pt")
    was_there = os.path.exists(crash)
    try:
        yield
    except (TypeError, ValueError) as error:
        if trainer.get_num_updates() or isinstance(error.__cause__, FloatingPointError):
            raise
        if not was_there and trainer.is_data_parallel_master:
            with contextlib.suppress(OSError):
                os.remove(crash)
        if isinstance(error, TypeError) and "forward()" in str(error):
            raise ValueError(does_not_fit(trainer.cfg, error)) from error
        raise


def does_not_fit(cfg: Any, error: Exception) -> str:
    names = [f"--{part} {getattr(getattr(cfg, part, None), '_name', '?')}" for part in ("criterion", "task")]
    return f"{' and '.join(names)} do not go with --arch {getattr(cfg.model, '_name', '?')}: {error}"
