"""Finding, reading and saving the checkpoints of a run, with the mends in the order in which they act.

A start of fairseq-train calls ``load_checkpoint``, which finds the file; the Trainer reads it by
``load_checkpoint_to_cpu`` and gives the optimizer its state by ``load_optimizer``. ``save_checkpoint`` runs after each
epoch and each --save-interval-updates.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from ..ranks import together
from . import agreement, averages, reading, resuming, saving, stopping
from .catalogue import on
from .replace import replace
from .trainer import MendedTrainer
from .wrong_input import arguments, overrides


def load_checkpoint(stock: Callable[..., Any], cfg: Any, trainer: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Replaces checkpoint_utils.load_checkpoint: finds the checkpoint that a training resumes from, and loads it."""
    is_fairseqs = isinstance(trainer, MendedTrainer)  # a program's own trainer may have only what stock asks for
    if on("restarts") and is_fairseqs:
        together(lambda: resuming.refuse_to_begin_again(cfg, trainer))
    path = resuming.file_of(cfg, trainer)
    if on("last-whole-checkpoint") and is_fairseqs:
        resuming.prepare(path, cfg, trainer)
    if on("starting-file"):
        together(lambda: arguments.check_starting_files(cfg, trainer.checkpoint_suffix or ""))
    with resuming.naming_fewer_batches(path) if on("order-of-data") else contextlib.nullcontext():
        extra_state, epoch_itr = stock(cfg, trainer, **kwargs)
    if not is_fairseqs:
        return extra_state, epoch_itr
    # get_num_updates() is 0 where a model is fine-tuned: nothing is resumed
    if on("order-of-data") and extra_state is not None and trainer.get_num_updates() and not cfg.reset_dataloader:
        wanted = {resuming.TRAINING_DATA: resuming.training_data(trainer)}
        resuming.refuse_another_order(path, extra_state, wanted)
    if on("no-more-updates"):
        resuming.end_if_there_is_nothing_to_do(trainer)
    if on("signals"):
        stopping.validate_first(cfg, trainer, extra_state)
    return extra_state, epoch_itr


def load_checkpoint_to_cpu(stock: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Replaces checkpoint_utils.load_checkpoint_to_cpu: reads one file."""

    def read():
        if on("checked-checkpoints"):
            state = reading.read(stock, path, *args, **kwargs)
        else:
            state = stock(path, *args, **kwargs)
        if on("other-adam"):
            resuming.rename_the_adam(state)
        averages.begin(state)
        return state

    return agreement.in_turn(read) if on("read-together") else read()


def save_checkpoint(stock: Callable[..., Any], cfg: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces checkpoint_utils.save_checkpoint: saves under every name that is due now (last, best, numbered)."""
    if not isinstance(trainer, MendedTrainer):
        return stock(cfg, trainer, *args, **kwargs)
    trainer.relpos.saved_after = trainer.get_num_updates()
    if on("whole-files"):
        return saving.drop_a_needless_predecessor(stock, cfg, trainer, *args, **kwargs)
    return stock(cfg, trainer, *args, **kwargs)


def load_optimizer(
    stock: Callable[..., Any], self: Any, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None
) -> Any:
    """Replaces FairseqOptimizer.load_state_dict: loads the optimizer's state and keeps the command's settings."""
    if on("overrides"):
        overrides.check_optimizer(self, optimizer_overrides)
    if on("given-adam-settings"):
        return resuming.load_and_keep_the_given(stock, self, state_dict, optimizer_overrides)
    return stock(self, state_dict, optimizer_overrides)


def install() -> None:
    from fairseq import checkpoint_utils
    from fairseq.optim import FairseqOptimizer

    finding = ("restarts", "last-whole-checkpoint", "starting-file", "order-of-data", "no-more-updates", "signals")
    replace(checkpoint_utils, "load_checkpoint", *finding)(load_checkpoint)
    reads = ("checked-checkpoints", "other-adam", "averaged-versions", "read-together")
    replace(checkpoint_utils, "load_checkpoint_to_cpu", *reads)(load_checkpoint_to_cpu)
    replace(checkpoint_utils, "save_checkpoint", "whole-files", "signals")(save_checkpoint)
    replace(FairseqOptimizer, "load_state_dict", "overrides", "given-adam-settings")(load_optimizer)


INSTALLERS = (install,)
