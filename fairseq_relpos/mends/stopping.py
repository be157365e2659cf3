"""Signals (SIGTERM, Ctrl-C, SIGHUP of a terminal that is closed, and SIGUSR1, which Slurm sends before a job's time is
up): save, then end."""

import contextlib
import inspect
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
import torch.utils.data

from . import ending, resuming
from .catalogue import on
from .replace import replace, trainings

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
#: "temporary failure" in sysexits.h: the same command resumes the run
EXIT_CODE = 75
#: a Ctrl-C within these seconds after the first does not count: torchrun repeats the first at once
SECONDS_BETWEEN_CTRL_C = 2
#: the line that the launcher gets at each start: lines before it belong to an earlier start
BEGUN = "begun"
#: the end of the line that the launcher gets when a signal has stopped and saved the training
SAVED = " updates"


class Request:
    """The signal handler: it notes that this process has been asked to end."""

    #: the signal that has asked
    signal: int | None = None
    #: when the first Ctrl-C came
    time: float | None = None
    #: the process whose handlers are set; None while none is
    process: int | None = None
    #: the handlers that the signals had before
    handlers: dict[int, Any] = {}
    #: whether the training has ended, by an error or a signal
    is_over = False

    def listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python programs that train in a thread keep their own signals
        self.signal, self.time, self.is_over = None, None, False
        if self.process != os.getpid():
            self.process = os.getpid()
            # a command that a shell runs in the background ignores Ctrl-C, and keeps ignoring it
            free = (signal.SIG_DFL, signal.default_int_handler, self.note, None)
            heeded = [number for number in SIGNALS if signal.getsignal(number) in free]
            self.handlers = {number: signal.signal(number, self.note) for number in heeded}
            for number in SIGNALS:
                if number not in heeded and signal.getsignal(number) != signal.SIG_IGN:
                    logger.warning(f"{signal.Signals(number).name} remains with the handler that the program has set")
        if on("end-threads"):
            ending.end_all_at_exit()
        tell_the_launcher(BEGUN)

    def stop_listening(self) -> None:
        """Restores the handlers from before, for a Python program that continues after its training."""
        if self.process == os.getpid() and threading.current_thread() is threading.main_thread():
            for number, handler in self.handlers.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            self.process = None

    def note(self, number: int, frame: Any) -> None:
        if os.getpid() != self.process:
            if number != signal.SIGUSR1:  # a process that was forked inherits the handler
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        if self.is_over and not ending.has_begun:  # the program has gone on after its training
            self.stop_listening()
            os.kill(os.getpid(), number)
            return
        self.signal = number
        if number == signal.SIGINT:
            now = time.monotonic()
            if self.time is None:
                self.time = now
                with contextlib.suppress(OSError):  # in `| tee log` the same Ctrl-C has ended tee
                    os.write(2, CTRL_C)  # the signal may have interrupted a logger in the middle of a line
            elif now - self.time > SECONDS_BETWEEN_CTRL_C:
                raise KeyboardInterrupt


CTRL_C = (
    b"\nCtrl-C: this update (or this batch of a validation) is finished and saved first; "
    b"press it again to end at once, which loses what was trained since the last checkpoint\n"
)


REQUEST = Request()


@contextlib.contextmanager
def signals_given_back() -> Iterator[None]:
    """Context that restores the signal handlers when fairseq-train's main function has returned."""
    try:
        yield
    except BaseException:
        REQUEST.is_over = True  # the handlers stay: a signal that comes twice must not change the exit code
        raise
    REQUEST.stop_listening()


def listen() -> None:
    """Sets the signal handlers when a training begins.

    After a signal each rank finishes its update, or its batch of a validation. All ranks learn by a small all-reduce
    that one of them was asked to end. They save what fairseq saves after that update, at least checkpoint_last.pt,
    and end with exit code 75. A validation that was due, or was broken off, runs first when the run is resumed. A
    second Ctrl-C ends at once.
    """
    commands = trainings()
    if commands:  # a program's own training loop would never look at REQUEST
        REQUEST.listen()
    for command in commands:
        replace(command, "validate_and_save", "signals")(end_after_an_update)
        replace(command, "validate", "signals")(leave_for_the_next_start)


def keep_loaders_alive() -> None:
    """Makes data loaders ignore the signals while their rank listens."""

    @replace(torch.utils.data.DataLoader, "__init__", "signals")
    def loader(stock, self, *args, **kwargs):
        given = inspect.signature(stock).bind(self, *args, **kwargs)
        if REQUEST.process is not None and given.arguments.get("worker_init_fn") is None:
            given.arguments["worker_init_fn"] = leave_signals_to_the_rank
        stock(*given.args, **given.kwargs)


def leave_signals_to_the_rank(worker: int) -> None:
    """Makes a data loader's process ignore the signals.

    torchrun, Slurm and Ctrl-C signal data loaders as well, which would die while their rank still waits for batches.
    They end with their rank, by ``ending`` or torch's own watchdog.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def valid_step(trainer: Any, step: Callable[[], Any]) -> Any:
    """Runs one step of a validation, then ends the run if some rank was asked to end."""
    progress = trainer.relpos
    if progress.in_valid_step:  # the second try after out of memory, on this rank alone: no all-reduce
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


def end_after_an_update(
    stock: Callable[..., Any],
    cfg: Any,
    trainer: Any,
    task: Any,
    epoch_itr: Any,
    valid_subsets: list[str],
    end_of_epoch: bool,
) -> Any:
    """Replaces fairseq-train's validate_and_save, which runs after every update."""
    progress = trainer.relpos
    progress.validating = {"epoch": epoch_itr.epoch, "end_of_epoch": end_of_epoch, "updates": trainer.get_num_updates()}
    asked = progress.asked = _asked_on_any_rank(trainer)
    result = stock(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    if asked:
        save_and_end(trainer, asked)
    return result


def leave_for_the_next_start(stock: Callable[..., Any], cfg: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces fairseq-train's validate: after a signal it puts the validation off to the next start."""
    if not hasattr(trainer, "relpos") or not trainer.relpos.asked:  # a program may have a trainer of its own
        return stock(cfg, trainer, *args, **kwargs)
    trainer.relpos.validation_due = trainer.relpos.validating
    return [None]


def validate_first(cfg: Any, trainer: Any, extra_state: dict[str, Any] | None) -> None:
    """Runs the validation that a signal has put off, when the run is resumed."""
    extra_state = extra_state or {}
    due = extra_state.get("validation_due")
    if due and due["updates"] == trainer.get_num_updates() and not cfg.reset_dataloader:
        make_the_validation_that_was_due(trainer, extra_state)


def make_the_validation_that_was_due(trainer: Any, extra_state: dict[str, Any]) -> None:
    """Runs the validation and saves what fairseq saves after it, under the file names that were due then."""
    from fairseq import checkpoint_utils

    due, cfg = extra_state["validation_due"], trainer.cfg
    commands = trainings()
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


def stay_stopped() -> None:
    """Ends a rank that torchrun has started again because a signal had stopped and saved the training."""
    file = os.environ.get("RELPOS_STOPPED_FILE")
    if file and os.path.isfile(file) and int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0):
        with open(file, encoding="utf-8") as stopped:
            lines = stopped.read().splitlines()
        if lines and lines[-1].endswith(SAVED):
            raise SystemExit(EXIT_CODE)


def save_and_end(trainer: Any, received: int) -> NoReturn:
    """Saves a checkpoint, unless this update has one, and ends with exit code 75."""
    from fairseq import checkpoint_utils

    name = signal.Signals(received).name
    updates = trainer.get_num_updates()
    if trainer.relpos.saved_after != updates:
        checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, trainer.relpos.place, None)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.barrier()  # if another rank ended first, the launcher would kill the one that saves
    kept = trainer.cfg.checkpoint
    saved = "NOTHING IS SAVED (--no-save or --no-last-checkpoints)"
    if not (kept.no_save or kept.no_last_checkpoints):
        flags = resuming.as_flags(resuming.other_start(kept))
        saved = f"checkpoint_last.pt is saved; the same command{flags and f', without {flags},'} resumes from it"
        tell_the_launcher(f"rank {os.environ.get('RANK', 0)}: {name} after {updates:,}{SAVED}")
    logger.warning(f"{name} after {updates:,} updates: {saved}; exit code {EXIT_CODE}")
    raise SystemExit(EXIT_CODE)


def tell_the_launcher(line: str) -> None:
    """Adds a line to the file of scripts/launch_*. Its last line says that all is saved: so the scripts know that the
    ranks ended as they were asked to, whatever exit code reaches them."""
    file = os.environ.get("RELPOS_STOPPED_FILE")
    if file:
        with contextlib.suppress(OSError):  # on the other nodes of a Slurm job there is no such file
            handle = os.open(file, os.O_WRONLY | os.O_APPEND)
            os.write(handle, f"{line}\n".encode())
            os.close(handle)


def _asked_on_any_rank(trainer) -> int:
    asked = int(REQUEST.signal or 0)
    if trainer.data_parallel_world_size == 1:
        return asked
    from fairseq.distributed import utils

    highest = torch.tensor(asked, device=trainer.device)
    utils.all_reduce(highest, group=trainer.data_parallel_process_group, op="max")
    return int(highest.item())


INSTALLERS = (keep_loaders_alive,)
