"""SIGTERM, Ctrl-C, and the signal that Slurm sends before it takes the nodes away: save, then end."""

import contextlib
import inspect
import logging
import os
import signal
import threading
import time
from types import SimpleNamespace

import torch
import torch.utils.data

from . import ending
from .catalogue import on
from .replace import commands_with, replace

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
#: sysexits' "temporary failure": the same command goes on where this one stopped
EXIT_CODE = 75
#: after which a second Ctrl-C is a person's; torchrun repeats the first at once
SECONDS_BETWEEN_CTRL_C = 2
#: what the launcher is told at each start: what was said before it belongs to an earlier one
BEGUN = "begun"


class Request:
    """Whether this process has been asked to end."""

    signal = None
    #: of the first Ctrl-C
    time = None
    #: that listens; None while none does
    process = None
    #: what the signals did before
    handlers = {}
    #: the training has ended, by an error or a signal
    is_over = False

    def listen(self):
        if threading.current_thread() is not threading.main_thread():
            return  # Python programs that train in a thread keep their own signals
        self.signal, self.time, self.is_over = None, None, False
        if self.process != os.getpid():
            self.process = os.getpid()
            # what was started in the background of a shell ignores Ctrl-C, and goes on doing so
            heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self.handlers = {number: signal.signal(number, self.note) for number in heeded}
        if on("end-threads"):
            ending.end_all_at_exit()
        tell_the_launcher(BEGUN)

    def stop_listening(self):
        """A Python program goes on after its training, and its signals are its own again."""
        if self.process == os.getpid() and threading.current_thread() is threading.main_thread():
            for number, handler in self.handlers.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            self.process = None

    def note(self, number, frame):
        if os.getpid() != self.process:
            if number != signal.SIGUSR1:  # a process that was forked inherits the handler
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        if self.is_over and not ending.has_begun:  # a program that has gone on after it
            self.stop_listening()
            os.kill(os.getpid(), number)
            return
        self.signal = number
        if number == signal.SIGINT:
            now = time.monotonic()
            if self.time is None:
                self.time = now
                with contextlib.suppress(OSError):  # `| tee log` ends by the same Ctrl-C
                    os.write(2, CTRL_C)  # a logger might be in the midst of a line
            elif now - self.time > SECONDS_BETWEEN_CTRL_C:
                raise KeyboardInterrupt


CTRL_C = (
    b"\nCtrl-C: this update (or this batch of a validation) is finished and saved first; "
    b"press it again to end at once, which loses what was trained since the last checkpoint\n"
)


REQUEST = Request()


@contextlib.contextmanager
def signals_given_back():
    """After fairseq-train's main has returned, the signals are the program's own again."""
    try:
        yield
    except BaseException:
        REQUEST.is_over = True  # not at once: a signal that comes twice must not change the exit code
        raise
    REQUEST.stop_listening()


def listen():
    """A training begins: every rank finishes its update, or its batch of a validation; all of them learn in a
    tiny all-reduce that one was asked to end; what fairseq saves after that update is saved, checkpoint_last.pt
    at least; and every rank ends with exit code 75. A validation that was due then, or is broken
    off, is made first when the run goes on. A second Ctrl-C ends at once.
    """
    commands = commands_with("validate_and_save")
    if commands:  # a loop of somebody's own would never look at what was asked
        REQUEST.listen()
    for command in commands:
        replace(command, "validate_and_save", "signals")(end_after_an_update)
        replace(command, "validate", "signals")(leave_for_the_next_start)


def keep_loaders_alive():
    @replace(torch.utils.data.DataLoader, "__init__", "signals")
    def loader(stock, self, *args, **kwargs):
        given = inspect.signature(stock).bind(self, *args, **kwargs)
        if REQUEST.process is not None and given.arguments.get("worker_init_fn") is None:
            given.arguments["worker_init_fn"] = leave_signals_to_the_rank
        stock(*given.args, **given.kwargs)


def leave_signals_to_the_rank(worker):
    """torchrun and Slurm send theirs to data loaders as well, which would die while their rank
    still waits for batches; Ctrl-C reaches them, too. They end when it does: ``ending``, and torch's own
    watch."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def valid_step(trainer, step):
    """One step of a validation, which ends there if some rank was asked to end."""
    progress = trainer.relpos
    if progress.in_valid_step:  # out of memory, on this rank only
        return step()
    progress.in_valid_step = True
    try:
        result = step()
    finally:
        progress.in_valid_step = False
    asked = _asked_on_any_rank(trainer)
    if asked:
        progress.validation_due = progress.validating
        save_and_end(trainer, asked)
    return result


def end_after_an_update(stock, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    """In place of fairseq-train's validate_and_save, which it calls after every update."""
    progress = trainer.relpos
    progress.validating = {"epoch": epoch_itr.epoch, "end_of_epoch": end_of_epoch, "updates": trainer.get_num_updates()}
    asked = progress.asked = _asked_on_any_rank(trainer)
    result = stock(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    if asked:
        save_and_end(trainer, asked)
    return result


def leave_for_the_next_start(stock, cfg, trainer, *args, **kwargs):
    """In place of fairseq-train's validate."""
    if not trainer.relpos.asked:
        return stock(cfg, trainer, *args, **kwargs)
    trainer.relpos.validation_due = trainer.relpos.validating
    return [None]


def validate_first(cfg, trainer, extra_state):
    """A run goes on: the validation that a signal put off is made."""
    due = (extra_state or {}).get("validation_due")
    if due and due["updates"] == trainer.get_num_updates() and not cfg.reset_dataloader:
        make_the_validation_that_was_due(trainer, extra_state)


def make_the_validation_that_was_due(trainer, extra_state):
    """And what fairseq saves by it, under the names of that time."""
    from fairseq import checkpoint_utils

    due, cfg = extra_state["validation_due"], trainer.cfg
    commands = commands_with("validate_and_save")
    if cfg.dataset.disable_validation or not commands:
        return
    logger.info(f"the validation after {trainer.get_num_updates():,} updates, which a signal kept from being made")
    epoch_itr = trainer.relpos.place
    place = trainer.relpos.place = SimpleNamespace(
        epoch=due["epoch"], end_of_epoch=lambda: due["end_of_epoch"], state_dict=lambda: extra_state["train_iterator"]
    )
    trainer.relpos.validating = due
    losses = commands[0].validate(cfg, trainer, trainer.task, place, cfg.dataset.valid_subset.split(","))
    early = commands[0].should_stop_early(cfg, losses[0])
    checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, place, losses[0])
    if due["end_of_epoch"]:
        trainer.lr_step(due["epoch"], losses[0])
    trainer.relpos.place = epoch_itr
    if early:
        cfg.optimization.max_epoch = -1


def save_and_end(trainer, received):
    from fairseq import checkpoint_utils

    name = signal.Signals(received).name
    updates = trainer.get_num_updates()
    if trainer.relpos.saved_after != updates:
        checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, trainer.relpos.place, None)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.barrier()  # a rank that ends earlier would have the saving one killed
    kept = trainer.cfg.checkpoint
    saved = "NOTHING IS SAVED (--no-save or --no-last-checkpoints)"
    if not (kept.no_save or kept.no_last_checkpoints):
        saved = "checkpoint_last.pt is saved and the same command goes on from it"
        tell_the_launcher(f"rank {os.environ.get('RANK', 0)}: {name} after {updates:,} updates")
    logger.warning(f"{name} after {updates:,} updates: {saved}; exit code {EXIT_CODE}")
    raise SystemExit(EXIT_CODE)


def tell_the_launcher(line):
    """Its last line says that all is saved: scripts/launch_* know by it that the ranks ended as they
    were asked to, whatever exit code reaches them."""
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


INSTALLERS = (keep_loaders_alive,)
