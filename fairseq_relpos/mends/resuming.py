"""Resuming a run: from its last whole checkpoint, at the same place in the data, with the same state."""

import contextlib
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from ..checkpoints.checksums import what_is_damaged
from ..checkpoints.loading import load_checkpoint
from ..ranks import gather, is_first_rank, several_ranks, together
from . import saving
from .agreement import samples
from .replace import commands_with, replace

logger = logging.getLogger(__name__)


def file_of(cfg: Any, trainer: Any) -> str:
    """Returns the path of the checkpoint that a training resumes from, if the file exists."""
    if cfg.restore_file != "checkpoint_last.pt":
        return cfg.restore_file
    return os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")


#: flags that choose what a training starts from, and what it does not take from there
STARTS = ("restore_file", "reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader")


def refuse_to_begin_again(cfg: Any, trainer: Any) -> None:
    """Raises ValueError, one line, where torchrun or Slurm has restarted a command with --restore-file or
    --reset-optimizer, and a start with the same flags has saved checkpoint_last.pt: stock would begin again and
    overwrite what was trained. Logs a warning at the first start, if it may be restarted."""
    given = other_start(cfg)
    if not {"restore_file", "reset_optimizer"} & set(given):
        return
    again = f"with {as_flags(given)} a restart by torchrun or Slurm would begin again"
    remedy = (
        "Restarts resume where --finetune-from-model (weights alone) or --continue-once (the whole state) names the "
        "file to start from"
    )
    if not any(int(os.environ.get(f"{launcher}_RESTART_COUNT") or 0) for launcher in ("TORCHELASTIC", "SLURM")):
        if is_first_rank() and ("SLURM_JOB_ID" in os.environ or int(os.environ.get("TORCHELASTIC_MAX_RESTARTS") or 0)):
            logger.warning(f"{again}, and is refused. {remedy}")
        return
    last = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    if not os.path.isfile(last):
        return
    whole = last if not what_is_damaged(last) else last_whole_of(cfg.save_dir)
    saved = (load_checkpoint(whole).get("cfg") or {}).get("checkpoint") or {} if whole else {}
    if saved and all(saved.get(name) == getattr(cfg, name) for name in STARTS):
        raise ValueError(f"{again} and overwrite {last}: start without these flags to resume. {remedy}")


def other_start(cfg: Any) -> list[str]:
    """Returns those of ``STARTS`` by which the command begins otherwise than with all of checkpoint_last.pt."""
    from fairseq.dataclass.configs import CheckpointConfig

    defaults = {name: getattr(CheckpointConfig(), name) for name in STARTS}
    if os.path.realpath(cfg.restore_file) == os.path.realpath(os.path.join(cfg.save_dir, defaults["restore_file"])):
        defaults["restore_file"] = cfg.restore_file
    return [name for name, value in defaults.items() if getattr(cfg, name, value) != value]


def as_flags(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def prepare(path: str, cfg: Any, trainer: Any) -> None:
    """Makes sure that checkpoint_last.pt is whole, and that all ranks see it.

    A file that is cut short or damaged is put aside, with an ERROR in the log. The whole checkpoint of the folder
    with the most updates takes its place; also if a killed run has left a numbered checkpoint and no last one.
    """
    if cfg.restore_file == "checkpoint_last.pt":
        kept = trainer.cfg.checkpoint
        is_expected = not kept.no_last_checkpoints
        starts = {name: getattr(kept, name, None) for name in ("continue_once", "finetune_from_model")}
        together(lambda: put_a_damaged_last_aside(path, is_expected, starts) if is_first_rank() else None)
    if several_ranks() and not trainer.checkpoint_suffix:
        wait_until_all_ranks_see(path)


def end_if_there_is_nothing_to_do(trainer: Any) -> None:
    """Ends a finished run before it makes another update: stock compares --max-update only after an update."""
    limit, done = trainer.cfg.optimization.max_update, trainer.get_num_updates()
    if 0 < limit <= done:
        logger.info(f"--max-update {limit:,}: the checkpoint has {done:,} updates, so none is left to do")
        trainer.cfg.optimization.max_epoch = -1


#: seconds in which a shared file system shows a file of one node to all nodes
SECONDS_TO_BE_SEEN = 30


def wait_until_all_ranks_see(path: str) -> None:
    """Raises ValueError, one line, if a rank does not see the same file as rank 0. Each rank of fairseq looks for the
    file by itself. A rank that sees none would wait for the others forever."""

    def size():
        return os.path.getsize(path) if os.path.isfile(path) else None

    for _ in range(SECONDS_TO_BE_SEEN):
        everyones = gather((socket.gethostname(), together(size)))
        others = [rank for rank, (_, seen) in enumerate(everyones) if seen != everyones[0][1]]
        if not others:
            return
        time.sleep(1)

    def words(rank):
        host, seen = everyones[rank]
        return f"rank {rank} on {host} sees {'none' if seen is None else f'one of {seen:,} bytes'}"

    raise ValueError(
        f"the ranks do not see the same {path}: {words(0)}, {words(others[0])}; give every node a "
        "--save-dir (--restore-file) on a file system that all of them share"
    )


#: names under which a run saves whole states, besides checkpoint_last.pt
OF_FAIRSEQ = re.compile(rf"{saving.NUMBERED.pattern}|checkpoint(_best|_previous|\.best_)\S*\.pt")


def put_a_damaged_last_aside(
    last: str, is_expected: bool = True, starts: Mapping[str, str | None] = MappingProxyType({})
) -> None:
    """Replaces a damaged checkpoint_last.pt (path: last) by the whole checkpoint with the most updates. is_expected:
    whether a missing one counts as damaged, if there are numbered checkpoints. starts: flags that name another file to
    start from, and their values."""
    folder = os.path.dirname(last)
    if os.path.exists(last):
        damage = what_is_damaged(last)
    else:
        numbered = any(saving.NUMBERED.fullmatch(os.path.basename(path)) for path in checkpoints_in(folder))
        damage = "is missing" if is_expected and numbered else None
    if damage is None:
        return
    whole = last_whole_of(folder)
    if whole is None:
        raise ValueError(
            f"{last} {damage}, and no other checkpoint in {folder} is whole: remove it to train from "
            "scratch, or bring back a copy of it"
        )
    if not os.path.exists(last):
        refuse_another_start(last, whole, starts)
    aside = ""
    saving.copy(whole, f"{last}.whole")
    if os.path.exists(last):
        saving.link(last, f"{last}.damaged")
        aside = f"; the damaged file is now {os.path.basename(last)}.damaged"
    os.replace(f"{last}.whole", last)  # the atomic step: before it, the next start finds the same state again
    logger.error(f"{last} {damage}: RESUMING FROM {os.path.basename(whole)} INSTEAD{aside}")


def last_whole_of(folder: str) -> str | None:
    """Returns the whole checkpoint with the most updates; not averages of several, which have the updates of one."""
    saved = (path for path in checkpoints_in(folder) if OF_FAIRSEQ.fullmatch(os.path.basename(path)))
    return max((path for path in saved if not what_is_damaged(path)), key=updates_of, default=None)


def refuse_another_start(last: str, whole: str, starts: Mapping[str, str | None]) -> None:
    """Raises ValueError, one line, if the command names a file to start from that the run of ``whole`` did not."""
    given = {name: path for name, path in starts.items() if path is not None}
    saved = (load_checkpoint(whole).get("cfg") or {}).get("checkpoint") or {} if given else {}
    for name, path in given.items():
        if saved.get(name) != path:
            raise ValueError(
                f"{last} is missing, and {os.path.basename(whole)} beside it is from a run without --"
                f"{name.replace('_', '-')} {path}: copy it to {os.path.basename(last)} to resume that run, or give "
                f"another --save-dir to start from {path}"
            )


def checkpoints_in(folder: str) -> list[str]:
    """Returns the sorted paths of the checkpoints in a folder."""
    if not os.path.isdir(folder):
        return []
    names = sorted(os.listdir(folder))
    return [os.path.join(folder, name) for name in names if name.startswith("checkpoint") and name.endswith(".pt")]


def updates_of(path: str) -> int:
    """Returns the number of updates of a checkpoint. (The date of the file may be that of a copy.)"""
    return load_checkpoint(path)["optimizer_history"][-1]["num_updates"]


#: optimizers that read each other's state
ADAMS = {"FairseqAdam", "TorchAdamW"}


#: the optimizer of the training that loads a checkpoint now, the innermost last
_expected: list[str | None] = []


@contextlib.contextmanager
def expecting_an_adam(optimizer_settings: Any) -> Iterator[None]:
    """Context in which ``rename_the_adam`` knows the optimizer of the command."""
    from fairseq.optim import OPTIMIZER_REGISTRY

    optimizer = OPTIMIZER_REGISTRY.get(getattr(optimizer_settings, "_name", None))
    _expected.append(getattr(optimizer, "__name__", None))
    try:
        yield
    finally:
        _expected.pop()


def rename_the_adam(state: dict[str, Any]) -> None:
    """Writes the command's optimizer into a checkpoint of the other Adam.

    fairseq refuses the state of an optimizer with another name, but torch_adamw and adam have the same state. (Under
    --fp16 and --bf16 the name is that of fairseq's wrapper anyway.)
    """
    history = state["optimizer_history"][-1] if _expected else {}
    if _expected and {_expected[-1], history["optimizer_name"]} <= ADAMS:
        history["optimizer_name"] = _expected[-1]


#: settings of Adam that belong to the command, not to the optimizer's state
OF_THE_COMMAND = ("betas", "eps", "weight_decay")


def load_and_keep_the_given(
    stock: Callable[..., Any], optimizer: Any, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None
) -> None:
    """Loads the optimizer's state, and keeps the weight decay, betas and epsilon of the command."""
    given = [{key: group[key] for key in OF_THE_COMMAND if key in group} for group in optimizer.param_groups]
    stock(optimizer, state_dict, optimizer_overrides)
    for group, wanted in zip(optimizer.param_groups, given):
        for key, value in optimizer.optimizer.defaults.items():
            group.setdefault(key, value)  # apex's Adam has settings that the state of torch's Adam lacks
        for key, value in wanted.items():
            if key in (optimizer_overrides or {}) or _equal(group.get(key), value):
                continue
            logger.info(f"{key} is {value}, not the checkpoint's {group.get(key)}")
            group[key] = value


def _equal(one, other):
    both = [list(x) if isinstance(x, (list, tuple)) else x for x in (one, other)]
    return both[0] == both[1]


def load_the_optimizer_of_amp() -> None:
    """Loads the state of --amp's optimizer with that optimizer's own method. Stock's wrapper gives it to torch's."""
    from fairseq.optim import AMPOptimizer

    @replace(AMPOptimizer, "load_state_dict", "overrides", "given-adam-settings")
    def load(stock, self, state_dict, optimizer_overrides=None):
        self.fp32_optimizer.load_state_dict(state_dict, optimizer_overrides)


def keep_the_full_weights_of_half_precision() -> None:
    """Saves the float32 weights of --fp16 and --bf16 in the optimizer's state, and loads them again.

    Updates are added to these master weights. Stock saves only the half-precision weights, so each resume rounds
    them, to 8 bits under bf16.
    """
    from fairseq.optim.fp16_optimizer import FP16Optimizer

    @replace(FP16Optimizer, "state_dict", "full-weights")
    def save(stock, self):
        return {**stock(self), FULL_WEIGHTS: [weight.detach() for weight in full_weights(self)]}

    @replace(FP16Optimizer, "load_state_dict", "full-weights")
    def load(stock, self, state_dict, optimizer_overrides=None):
        stock(self, state_dict, optimizer_overrides)
        saved, mine = state_dict.get(FULL_WEIGHTS), full_weights(self)
        if saved is None:
            return
        saved = torch.cat([weight.reshape(-1) for weight in saved])  # flat or one by one, the order is the same
        if saved.numel() != sum(weight.numel() for weight in mine):
            logger.warning("the float32 weights in the checkpoint do not fit the model: rounded ones are used")
            return
        pairs = list(zip(mine, saved.split([weight.numel() for weight in mine])))
        # the weights that are there are the rounded ones of the checkpoint's model: under bf16 by up to 2**-8
        rounded = ((values, weight.detach().reshape(-1).to(values)) for weight, values in pairs)
        if not all(torch.allclose(*pair, rtol=2**-7, atol=2**-24) for pair in rounded):
            logger.warning(
                "the float32 weights in the checkpoint are not those of its model, which was changed: they are left out"
            )
            return
        for weight, values in pairs:
            weight.data.copy_(values.view_as(weight))


FULL_WEIGHTS = "relpos_full_weights"


def full_weights(optimizer: Any) -> list[torch.Tensor]:
    weights = optimizer.fp32_params
    return list(weights.values()) if isinstance(weights, dict) else list(weights)


#: the counters that decide when fp16's loss scale changes; its settings are those of the command
COUNTS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
SCALER = "relpos_loss_scaler"


def keep_the_loss_scaler() -> None:
    """Saves and loads the state of the gradient scaler. How long the loss scale has held decides when it grows, and so
    which batches overflow and are left out."""
    from fairseq.optim import AMPOptimizer
    from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer

    def save_counts(stock, self):
        found = stock(self)
        if self.scaler is not None:
            found[SCALER] = {name: getattr(self.scaler, name) for name in COUNTS}
        return found

    def load_counts(stock, self, state_dict, optimizer_overrides=None):
        stock(self, state_dict, optimizer_overrides)
        if self.scaler is not None:
            kept = state_dict.get(SCALER, {})
            vars(self.scaler).update({name: kept[name] for name in COUNTS if name in kept})

    for kind in (FP16Optimizer, MemoryEfficientFP16Optimizer):
        replace(kind, "state_dict", "loss-scaler")(save_counts)
        replace(kind, "load_state_dict", "loss-scaler")(load_counts)

    @replace(AMPOptimizer, "state_dict", "loss-scaler")
    def save_scaler(stock, self):
        return {**stock(self), SCALER: self.scaler.state_dict()}

    @replace(AMPOptimizer, "load_state_dict", "loss-scaler")
    def load_scaler(stock, self, state_dict, optimizer_overrides=None):
        stock(self, state_dict, optimizer_overrides)
        saved = state_dict.get(SCALER)
        if saved and self.scaler.is_enabled():
            window = self.scaler.get_growth_interval()
            self.scaler.load_state_dict(saved)
            self.scaler.set_growth_interval(window)


#: attributes of fairseq-train's should_stop_early: the best validation so far, and since when none has been better
OF_PATIENCE = ("best", "num_runs")


def patience() -> dict[str, Any]:
    """Returns the state of --patience, for a checkpoint."""
    for command in commands_with("should_stop_early"):
        found = vars(command.should_stop_early)
        if set(OF_PATIENCE) <= set(found):
            return {"patience": {name: found[name] for name in OF_PATIENCE}}
    return {}


def restore_patience(extra_state: dict[str, Any]) -> None:
    """Restores the state of --patience from a checkpoint."""
    before = extra_state.get("patience", {})
    for command in commands_with("should_stop_early"):
        vars(command.should_stop_early).update({name: before[name] for name in OF_PATIENCE if name in before})


#: counters of --lr-scheduler reduce_lr_on_plateau that decide when the rate falls
OF_A_PLATEAU = ("num_bad_epochs", "cooldown_counter")


def keep_the_counters_of_a_plateau() -> None:
    """Saves and loads since when no validation has been better: stock's state has only the best one."""
    from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

    @replace(ReduceLROnPlateauLRSchedule, "state_dict", "patience")
    def save(stock, self):
        return {**stock(self), **{name: getattr(self.lr_scheduler, name) for name in OF_A_PLATEAU}}

    @replace(ReduceLROnPlateauLRSchedule, "load_state_dict", "patience")
    def load(stock, self, state_dict):
        stock(self, state_dict)
        vars(self.lr_scheduler).update({name: state_dict[name] for name in OF_A_PLATEAU if name in state_dict})


def end_the_epoch_of_a_plateau(trainer: Any, extra_state: dict[str, Any]) -> None:
    """Tells reduce_lr_on_plateau the loss of the epoch that a checkpoint was saved after: fairseq does so only when it
    has saved it."""
    from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

    place, loss = extra_state["train_iterator"], extra_state.get("val_loss")
    if isinstance(trainer.lr_scheduler, ReduceLROnPlateauLRSchedule) and loss is not None:
        if place.get("iterations_in_epoch") == 0:
            trainer.lr_step(place["epoch"] - 1, loss)


#: the key in ``data_order`` for the shard of the data that is being read
TRAINING_DATA = "training data"


def training_data(trainer: Any) -> str | None:
    """Describes the training data of this epoch: number of samples and a digest of their sizes."""
    split = trainer.cfg.dataset.train_subset
    dataset = trainer.task.datasets.get(split)
    if dataset is None:
        return None
    # some datasets draw other samples in each epoch
    epoch = getattr(trainer.relpos.place, "epoch", None)
    known = trainer.relpos.training_data
    if known[0] is not dataset or known[1] != epoch:  # cached: a digest of millions of sizes takes a second
        known = trainer.relpos.training_data = (dataset, epoch, samples(dataset))
    return known[2]


def data_order(cfg: Any) -> dict[str, Any]:
    """Returns the settings that decide which sentences the n-th batch of a rank holds."""
    found = {"number of ranks": cfg.distributed_training.distributed_world_size}
    of_task = ["tokens_per_sample", "sample_break_mode"]
    if hasattr(cfg.task, "memory_length"):  # lm_streams; the settings of older tasks are all arguments of the command
        of_task += ["update_freq"]
    settings = (
        (cfg.dataset, ("max_tokens", "batch_size", "required_batch_size_multiple")),
        (cfg.task, of_task),
        (cfg.common, ("seed",)),
    )
    for group, names in settings:
        for name in names:
            value = getattr(group, name, None)
            found[f"--{name.replace('_', '-')}"] = None if value is None else str(value)
    return found


#: what to do where a resume in the middle of an epoch would get other batches
REMEDY = (
    "give the same to resume, or add --reset-dataloader, for one start alone: it keeps weights and optimizer and "
    "begins with the first epoch of the data"
)


def refuse_another_order(path: str, extra_state: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raises ValueError, one line, if a resume in the middle of an epoch would repeat or leave out sentences.

    The checkpoint says how many batches each rank has seen. With other batches or another number of ranks that
    number means another place in the data. wanted: what is compared; a checkpoint may have more, an older one less.
    """
    found = extra_state.get("data_order")
    batches = (extra_state.get("train_iterator") or {}).get("iterations_in_epoch", 0)
    if found is None or batches == 0:
        return
    differing = [
        f"{name} {found.get(name)}, now {value}"
        for name, value in wanted.items()
        if name in found and found[name] != value
    ]
    if differing:
        raise ValueError(
            f"{path} is from the middle of an epoch, after {batches:,} batches a rank made with "
            f"{'; '.join(differing)}: {REMEDY}"
        )


@contextlib.contextmanager
def naming_fewer_batches(path: str) -> Iterator[None]:
    """Raises ValueError, one line, where fairseq finds that an epoch now has fewer batches than the run has seen of it;
    no other check has been reached by then."""
    try:
        yield
    except RuntimeError as error:
        if "dataloader mismatch" not in str(error):
            raise
        raise ValueError(
            f"{path} is from the middle of an epoch, after more batches a rank than the training data make now: "
            f"{REMEDY}"
        ) from None


def log_another_memory(extra_state: dict[str, Any], cfg: Any) -> None:
    """Logs that a run of --task lm_streams resumes with another --memory-length, which changes what the model sees."""
    found, value = extra_state.get("memory_length"), getattr(cfg.task, "memory_length", None)
    if "memory_length" in extra_state and (found or 0) != (value or 0):
        logger.warning(f"resuming with --memory-length {value or 0}, the checkpoint was trained with {found or 0}")


INSTALLERS = (
    load_the_optimizer_of_amp,
    keep_the_full_weights_of_half_precision,
    keep_the_loss_scaler,
    keep_the_counters_of_a_plateau,
)
