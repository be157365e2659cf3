"""fairseq's Trainer, with the mends in the order in which they act.

``MendedTrainer`` is a mixin: ``mended(Trainer)`` derives from both, so that its methods run first and call stock's by
``super()``. ``install`` makes every new Trainer such an object.
"""

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import torch

from ..ranks import together
from . import agreement, averages, batches, launching, nonfinite, position_log, precision, resuming, stopping, switches
from .catalogue import on
from .replace import note


@dataclass
class Progress:
    """The state of one training run that the mends share."""

    #: the iterator over the training data: it says how far the run has read them
    place: Any = None
    #: the number of the signal that has asked some rank to end, agreed by all ranks after the last update; 0: none
    asked: int = 0
    #: the validation that may run now, {"epoch", "end_of_epoch", "updates"}
    validating: dict | None = None
    #: a validation that a signal has put off, in the same form
    validation_due: dict | None = None
    #: number of updates at the last save_checkpoint
    saved_after: int | None = None
    #: whether a validation step runs: fairseq's calls itself once more when it runs out of memory
    in_valid_step: bool = False
    #: whether the log has named a head that attends to [CLS] alone
    lost_head_named: bool = False
    #: the numbered checkpoint that the last save made, if it made one
    saved_as: str | None = None
    #: (dataset, epoch, digest of its sizes)
    training_data: tuple = (None, None, None)


#: the base class of the mixin for a type checker, which then accepts what fairseq's Trainer has
_Trainer: Any = object


class MendedTrainer(_Trainer):
    """Mixin in front of fairseq's Trainer among the bases of ``mended(cls)``."""

    relpos: Progress

    def __init__(self, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        if on("not-alone"):
            launching.refuse_to_train_alone(cfg)
        if on("switches"):
            agreement.refuse_differences(switches.active)
        if on("agreement"):
            agreement.compare_settings(cfg, task, model)
        super().__init__(cfg, task, model, *args, **kwargs)
        batches.made_for.evaluation = False
        if on("signals"):
            stopping.listen()

    def get_train_iterator(
        self, epoch: int, combine: bool = True, load_dataset: bool = True, *args: Any, **kwargs: Any
    ) -> Any:
        batches.seeds_of_epochs.ahead = epoch - 1 if self.cfg.dataset.update_ordered_indices_seed else 0

        def make():
            return super(MendedTrainer, self).get_train_iterator(epoch, combine, load_dataset, *args, **kwargs)

        place = together(make) if on("agreement") else make()
        if load_dataset and on("agreement"):  # that is at the start, and for each shard of the data
            agreement.refuse_differences(lambda: agreement.data(self.task))
        if on("new-masks"):
            batches.new_loaders_for_each_epoch(place)
        self.relpos.place = place
        return place

    def get_valid_iterator(self, *args: Any, **kwargs: Any) -> Any:
        if on("position-log"):
            position_log.warn_of_lost_heads(self)
        begin_validation = getattr(self.get_criterion(), "begin_validation", None)
        if begin_validation is not None:
            begin_validation()
        with batches.evaluation():
            return super().get_valid_iterator(*args, **kwargs)

    def train_step(self, samples: list[Any], *args: Any, **kwargs: Any) -> Any:
        if on("every-batch-counts"):
            samples = batches.without_fillers(self, samples)
        result = None
        with self._whole_update(samples), _if_on("nonfinite", nonfinite.explained, self, samples):
            with _if_on("half-precision-on-cpus", precision.overflow_on_a_cpu, self):
                result = super().train_step(samples, *args, **kwargs)
        if result is not None and on("position-log"):
            position_log.log_update(self)
        return result

    def _whole_update(self, samples):
        """Context in which the criterion knows all batches of an update, on all ranks, before it sees the first one."""
        from fairseq.distributed import utils

        def add_ranks(counts):
            counts = counts.to(self.device)
            if self.data_parallel_world_size > 1:
                utils.all_reduce(counts, group=self.data_parallel_process_group)
            return counts

        whole_update = getattr(self.get_criterion(), "whole_update", None)
        return contextlib.nullcontext() if whole_update is None else whole_update(samples, add_ranks)

    def valid_step(self, *args: Any, **kwargs: Any) -> Any:
        step = functools.partial(super().valid_step, *args, **kwargs)
        return stopping.valid_step(self, step) if on("signals") else step()

    def clip_grad_norm(self, clip_norm: float) -> torch.Tensor:
        if on("nonfinite") and nonfinite.has_no_scaler(self):
            return nonfinite.clip_or_stop(self, clip_norm)
        return super().clip_grad_norm(clip_norm)

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> Any:
        kept: dict[str, Any] = {}
        if on("signals") and self.relpos.validation_due:
            kept["validation_due"] = self.relpos.validation_due
        if on("patience"):
            kept |= resuming.patience()
        if on("order-of-data"):
            kept["data_order"] = {**resuming.data_order(self.cfg), resuming.TRAINING_DATA: resuming.training_data(self)}
            if hasattr(self.cfg.task, "memory_length"):
                kept["memory_length"] = self.cfg.task.memory_length
        if on("switches"):
            kept |= switches.record()
        if hasattr(self.task, "data_facts"):  # a resume reads no state of the task
            kept["data_facts"] = self.task.data_facts()
        return super().save_checkpoint(filename, {**extra_state, **kept})

    def load_checkpoint(self, filename: str, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        with _if_on("read-together", agreement.one_reads_for_all):
            with _if_on("other-adam", resuming.expecting_an_adam, self.cfg.optimizer):
                with _if_on("averaged-versions", averages.wanted, self.cfg.ema.store_ema):
                    extra_state = super().load_checkpoint(filename, *args, **kwargs)
        kept = self.cfg.checkpoint
        if extra_state is None or filename == kept.finetune_from_model:
            return extra_state
        if hasattr(self.task, "data_facts") and not kept.reset_optimizer:
            remedy = "give the data of this run to resume it, or --finetune-from-model and another --save-dir"
            self.task.refuse_other_data(extra_state.get("data_facts"), filename, remedy)
        if on("switches") and not kept.reset_optimizer:
            switches.compare(filename, extra_state, getattr(self.cfg.task, "_name", None))
        if on("order-of-data") and not kept.reset_dataloader:
            resuming.refuse_another_order(filename, extra_state, resuming.data_order(self.cfg))
        if on("order-of-data"):
            resuming.log_another_memory(extra_state, self.cfg)
        if on("patience") and not kept.reset_optimizer:
            if not kept.reset_meters:
                resuming.restore_patience(extra_state)
            if not kept.reset_lr_scheduler:
                resuming.end_the_epoch_of_a_plateau(self, extra_state)
        return extra_state


def _if_on(name, context, *args):
    return context(*args) if on(name) else contextlib.nullcontext()


@functools.cache
def mended(cls: type) -> type:
    """Returns a subclass of this class of trainers with the mends in front."""
    from fairseq.trainer import Trainer

    if issubclass(cls, MendedTrainer):
        return cls
    # a subclass comes first, for its constructor may take other arguments
    return type(cls.__name__, (MendedTrainer, cls) if cls is Trainer else (cls, mended(Trainer)), {})


#: the mends in MendedTrainer
ACT = (
    "switches",
    "new-masks",
    "every-batch-counts",
    "same-batches",
    "averaged-versions",
    "half-precision-on-cpus",
    "patience",
    "nonfinite",
    "agreement",
    "read-together",
    "order-of-data",
    "other-adam",
    "signals",
    "position-log",
    "not-alone",
    "lost-samples",
)


def install() -> None:
    """Makes every Trainer that is created from now on a ``mended`` one."""
    from fairseq.trainer import Trainer

    def new(cls, *args, **kwargs):
        trainer = object.__new__(mended(cls))
        trainer.relpos = Progress()
        return trainer

    if note(Trainer, "__new__", ACT):
        Trainer.__new__ = new


INSTALLERS = (install,)
