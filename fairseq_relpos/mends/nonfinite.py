"""NaN diagnosis: one line says where the first NaN or infinity came from."""

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

import torch

from ..diverged import Diverged
from .replace import put, replace

SHOWN = 8
AGAIN = "nothing non-finite on this rank when run again"
#: overflows in a row with the loss scale at --threshold-loss-scale, after which it has collapsed
AT_THRESHOLD = 20


class FirstNonFinite:
    """Replaces fairseq's NanDetector, the context in which fairseq runs a bad batch again.

    It uses forward hooks alone: stock's backward hooks fail on modules that return something else than tensors.
    ``first`` names the first module whose output was not finite, or else the first parameter whose gradient is not.
    ``is_located``: it was a module.
    """

    first, is_located = AGAIN, False

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def __enter__(self):
        FirstNonFinite.first, FirstNonFinite.is_located = AGAIN, False
        self.hooks = [
            module.register_forward_hook(lambda module, given, output, name=name: self.look(name, output))
            for name, module in self.model.named_modules()
            if name
        ]

    def look(self, name: str, output: Any) -> None:
        if self.first is AGAIN and not _is_finite(output):
            FirstNonFinite.first, FirstNonFinite.is_located = f"the output of {name}", True

    def __exit__(self, *exception):
        for hook in self.hooks:
            hook.remove()
        for name, p in self.model.named_parameters():
            if self.first is AGAIN and not _is_finite(p.grad):
                FirstNonFinite.first = f"the gradient of {name}"


def _is_finite(output):
    if torch.is_tensor(output):
        return not output.is_floating_point() or bool(output.isfinite().all())
    if isinstance(output, dict):
        output = output.values()
    elif not isinstance(output, (list, tuple)):
        return True
    return all(map(_is_finite, output))


def has_no_scaler(trainer: Any) -> bool:
    """Whether nothing looks for NaN gradients: under --amp on a CPU torch's gradient scaler is off."""
    return trainer.cfg.common.amp and not trainer.optimizer.scaler.is_enabled()


def clip_or_stop(trainer: Any, clip_norm: float) -> torch.Tensor:
    norm = trainer.optimizer.fp32_optimizer.clip_grad_norm(clip_norm)
    if not torch.isfinite(norm).all():
        raise FloatingPointError("gradients are Nan/Inf")
    return norm


@contextlib.contextmanager
def explained(trainer: Any, samples: list[Any]) -> Iterator[None]:
    """Ends a run whose gradients are not finite, or whose loss scale has collapsed, with Diverged. Its line names the
    update, the rank, the sentences and the module. Finite gradients that differ between ranks are a ValueError."""
    try:
        yield
    except FloatingPointError as error:
        norms = {float(norm): rank for rank, norm in re.findall(r"rank +(\d+) = (\S+)", str(error))}
        if norms and all(map(math.isfinite, norms)):
            low, high = min(norms), max(norms)
            raise ValueError(
                f"{_place_of(trainer)}: gradients differ between ranks, with norms from {low:.8f} (rank {norms[low]}) "
                f"to {high:.8f} (rank {norms[high]}); state in crash.pt. Try --ddp-backend legacy_ddp, or the same GPUs"
            ) from error
        raise Diverged(_in_one_line(trainer, samples, error), FirstNonFinite.is_located) from error


def name_the_first_non_finite_module() -> None:
    from fairseq import trainer
    from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler

    put(trainer, "NanDetector", FirstNonFinite, "nonfinite")

    @replace(DynamicLossScaler, "check_overflow", "nonfinite")
    def end_at_the_threshold(stock, self, grad_norm):
        try:
            stock(self, grad_norm)
        except OverflowError:
            at_threshold = self.threshold is not None and self.loss_scale <= self.threshold
            self._relpos_in_a_row = getattr(self, "_relpos_in_a_row", 0) + 1 if at_threshold else 0
            if self._relpos_in_a_row > AT_THRESHOLD:
                raise FloatingPointError(f"the loss scale stays at --threshold-loss-scale {self.threshold:g}") from None
            raise
        self._relpos_in_a_row = 0


def _place_of(trainer):
    return f"update {trainer.get_num_updates() + 1}, rank {trainer.data_parallel_rank}"


def _in_one_line(trainer, samples, error):
    collapsed = "loss scale" in str(error)
    what = "the loss scale has collapsed" if collapsed else str(error).split("\n")[0].rstrip(".")
    where = "another rank's line says where"
    if FirstNonFinite.first is not AGAIN or trainer.data_parallel_world_size == 1:
        ids = [int(number) for sample in samples if sample for number in sample.get("id", ())]
        where = ", ".join(map(str, ids[:SHOWN])) + (", ..." if ids[SHOWN:] else "")
        where = f"sentences {where or 'unknown'} of the training data"
    return (
        f"{_place_of(trainer)}: {what}; first: {FirstNonFinite.first}; {where}; state in crash.pt. Try a "
        "smaller --lr, a longer --warmup-updates, --clip-norm 1, or --bf16 or float32 instead of --fp16"
    )


INSTALLERS = (name_the_first_non_finite_module,)
