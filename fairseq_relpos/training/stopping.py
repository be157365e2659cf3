"""SIGTERM, and the signal that Slurm sends before it takes the nodes away: save, then end."""

import contextlib
import logging
import os
import signal
import threading

import torch

from ..shims import replace

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
#: sysexits' "temporary failure": the same command goes on where this one stopped
EXIT_CODE = 75


class Request:
    """Whether this process has been asked to end."""

    signal = None

    def listen(self):
        if threading.current_thread() is not threading.main_thread():
            return  # Python programs that train in a thread keep their own signals
        self.process = os.getpid()
        for number in SIGNALS:
            signal.signal(number, self.note)

    def note(self, number, frame):
        if os.getpid() != self.process:  # a data loader's process inherits the handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.signal = number


REQUEST = Request()


def save_and_end_on_a_signal():
    """All versions die on the spot and lose what they trained since the last checkpoint.

    Here every rank finishes its update, or its batch of a validation; all of them learn in a tiny
    all-reduce that one was asked to end; checkpoint_last.pt is saved as between two updates; and
    every rank ends with exit code 75.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "__init__")
    def listen(stock, self, *args, **kwargs):
        stock(self, *args, **kwargs)
        REQUEST.listen()

    @replace(Trainer, "get_train_iterator")
    def remember_the_place_in_the_data(stock, self, *args, **kwargs):
        self._relpos_epoch_itr = stock(self, *args, **kwargs)
        return self._relpos_epoch_itr

    def end_after(stock, self, *args, **kwargs):
        # a step that runs out of memory calls itself, on its own rank only
        outermost = not getattr(self, "_relpos_in_a_step", False)
        self._relpos_in_a_step = True
        try:
            result = stock(self, *args, **kwargs)
        finally:
            self._relpos_in_a_step = not outermost
        if outermost:
            save_and_end_if_asked(self)
        return result

    replace(Trainer, "train_step")(end_after)
    replace(Trainer, "valid_step")(end_after)


def save_and_end_if_asked(trainer):
    received = _asked_on_any_rank(trainer)
    if not received:
        return
    from fairseq import checkpoint_utils

    name = signal.Signals(received).name
    checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, trainer._relpos_epoch_itr, None)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.barrier()  # a rank that ends earlier would have the saving one killed
    updates = trainer.get_num_updates()
    kept = trainer.cfg.checkpoint
    saved = "NOTHING IS SAVED (--no-save or --no-last-checkpoints)"
    if not (kept.no_save or kept.no_last_checkpoints):
        saved = "checkpoint_last.pt is saved and the same command goes on from it"
        tell_the_launcher(f"rank {os.environ.get('RANK', 0)}: {name} after {updates:,} updates")
    logger.warning(f"{name} after {updates:,} updates: {saved}; exit code {EXIT_CODE}")
    raise SystemExit(EXIT_CODE)


def tell_the_launcher(line):
    """All is saved: scripts/launch_* know by it that the ranks ended as they were asked to, whatever
    exit code reaches them."""
    file = os.environ.get("RELPOS_STOPPED_FILE")
    if file:
        with contextlib.suppress(OSError), open(file, "a", encoding="utf-8") as stopped:
            stopped.write(f"{line}\n")


def _asked_on_any_rank(trainer) -> int:
    asked = int(REQUEST.signal or 0)
    if trainer.data_parallel_world_size == 1:
        return asked
    from fairseq.distributed import utils

    asked = torch.tensor(asked, device=trainer.device)
    utils.all_reduce(asked, group=trainer.data_parallel_process_group, op="max")
    return int(asked.item())
