"""Half precision (--fp16, --amp): gradients, loss scale, and training on CPUs."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch

from ..backends.processor import has_bf16_units
from ..once import log_once
from .replace import replace, tasks_with

logger = logging.getLogger(__name__)


def keep_gradients_apart(cfg: Any) -> None:
    """Turns on --fp16-no-flatten-grads for --fp16 on a CPU: fairseq puts a flat gradient on the GPU."""
    common = cfg.common
    on_cpu = common.cpu or not torch.cuda.is_available()
    if on_cpu and common.fp16 and not common.memory_efficient_fp16:
        if not common.fp16_no_flatten_grads:
            logger.info("--fp16-no-flatten-grads is on: flat gradients need a GPU")
        common.fp16_no_flatten_grads = True


@contextlib.contextmanager
def overflow_on_a_cpu(trainer: Any) -> Iterator[None]:
    """After an overflow fairseq creates a zero on the GPU, also where there is none. The batch is left out."""
    try:
        yield
    except (AssertionError, RuntimeError) as error:
        if trainer.cuda or not isinstance(error.__context__, OverflowError):
            raise
        trainer.zero_grad()


def autocast_on_cpus() -> None:
    """Runs a training step under torch's autocast to bfloat16 for --amp on a CPU that has units for it: stock computes
    in float32, and so does a CPU without them, on which bfloat16 is slower."""
    from fairseq.optim import AMPOptimizer

    def autocast(stock, self, sample, model, criterion, optimizer, *args, **kwargs):
        on_cpu = next(model.parameters()).device.type == "cpu"
        enabled = on_cpu and isinstance(optimizer, AMPOptimizer)
        if enabled and not has_bf16_units():
            log_once(logger, "--amp computes in float32: this processor has no units for bfloat16", logging.WARNING)
            enabled = False
        with torch.autocast("cpu", torch.bfloat16) if enabled else contextlib.nullcontext():
            return stock(self, sample, model, criterion, optimizer, *args, **kwargs)

    for task in tasks_with("train_step"):
        replace(task, "train_step", "half-precision-on-cpus")(autocast)


def unscale_gradients_once() -> None:
    """Steps with the optimizer whose gradients were unscaled, so that the gradient scaler unscales them once. Stock
    fairseq unscales through one optimizer when it clips and steps with its wrapper, which unscales again."""
    from fairseq.optim.amp_optimizer import AMPOptimizer

    @replace(AMPOptimizer, "__init__", "unscale-once")
    def scale_window(stock, self, cfg, *args, **kwargs):
        stock(self, cfg, *args, **kwargs)
        if getattr(cfg.common, "amp_scale_window", None) is not None:
            self.scaler.set_growth_interval(cfg.common.amp_scale_window)

    @replace(AMPOptimizer, "step", "unscale-once")
    def step_with_the_optimizer_that_was_unscaled(stock, self):
        self.scaler.step(self.optimizer)
        self.scaler.update()


INSTALLERS = (autocast_on_cpus, unscale_gradients_once)
