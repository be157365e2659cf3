"""A run goes on from its last whole checkpoint, where it stood in the data."""

import contextlib
import logging
import os
import socket
import time

import torch

from ..checkpoints.checksums import what_is_damaged
from ..checkpoints.loading import load_checkpoint
from . import saving
from .agreement import gather, samples, several_ranks, together
from .replace import commands_with, replace

logger = logging.getLogger(__name__)


def file_of(cfg, trainer):
    """The checkpoint that a training goes on from, if it is there."""
    if cfg.restore_file != "checkpoint_last.pt":
        return cfg.restore_file
    return os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")


def prepare(path, cfg, trainer):
    """A checkpoint_last.pt that is cut short or damaged is put aside, with an ERROR in the log,
    and the whole checkpoint of the folder with the most updates takes its place; also where a kill
    has left a numbered checkpoint and no last one. Then all ranks wait until they see the file.
    """
    if cfg.restore_file == "checkpoint_last.pt":
        is_expected = not trainer.cfg.checkpoint.no_last_checkpoints
        is_first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        together(lambda: put_a_damaged_last_aside(path, is_expected) if is_first else None)
    if several_ranks() and not trainer.checkpoint_suffix:
        wait_until_all_ranks_see(path)


def end_if_there_is_nothing_to_do(trainer):
    """fairseq looks at --max-update after an update only."""
    limit, done = trainer.cfg.optimization.max_update, trainer.get_num_updates()
    if 0 < limit <= done:
        logger.info(f"--max-update {limit:,}: the checkpoint has {done:,} updates, so none is left to do")
        trainer.cfg.optimization.max_epoch = -1


#: seconds after which a file of one node is seen by all, on file systems that nodes share
SECONDS_TO_BE_SEEN = 30


def wait_until_all_ranks_see(path):
    """Raises ValueError, one line, if a rank does not see the file, or another, that rank 0 sees:
    fairseq asks on every rank for itself, and one that sees none waits for the others in vain."""

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


def put_a_damaged_last_aside(last, is_expected=True):
    """last: the path of checkpoint_last.pt. is_expected: one that is missing is as bad as a damaged
    one where there are numbered ones."""
    folder = os.path.dirname(last)
    others = [path for path in checkpoints_in(folder) if path != last]
    if os.path.exists(last):
        damage = what_is_damaged(last)
    else:
        numbered = any(saving.NUMBERED.fullmatch(os.path.basename(path)) for path in others)
        damage = "is missing" if is_expected and numbered else None
    if damage is None:
        return
    whole = max((path for path in others if not what_is_damaged(path)), key=updates_of, default=None)
    if whole is None:
        raise ValueError(
            f"{last} {damage}, and no other checkpoint in {folder} is whole: remove it to train from "
            "scratch, or bring back a copy of it"
        )
    aside = ""
    saving.copy(whole, f"{last}.whole")
    if os.path.exists(last):
        saving.link(last, f"{last}.damaged")
        aside = f"; the damaged file is now {os.path.basename(last)}.damaged"
    os.replace(f"{last}.whole", last)  # the one step in which the folder changes for a next start
    logger.error(f"{last} {damage}: RESUMING FROM {os.path.basename(whole)} INSTEAD{aside}")


def checkpoints_in(folder):
    if not os.path.isdir(folder):
        return []
    names = sorted(os.listdir(folder))
    return [os.path.join(folder, name) for name in names if name.startswith("checkpoint") and name.endswith(".pt")]


def updates_of(path):
    """How many updates a checkpoint has behind it; its date may be that of a copy."""
    return load_checkpoint(path)["optimizer_history"][-1]["num_updates"]


#: optimizers that read each other's state
ADAMS = {"FairseqAdam", "TorchAdamW"}


#: names of the optimizers of the trainings that load a checkpoint now
_expected = []


@contextlib.contextmanager
def expecting_an_adam(optimizer_settings):
    from fairseq.optim import OPTIMIZER_REGISTRY

    optimizer = OPTIMIZER_REGISTRY.get(getattr(optimizer_settings, "_name", None))
    _expected.append(getattr(optimizer, "__name__", None))
    try:
        yield
    finally:
        _expected.pop()


def rename_the_adam(state):
    """fairseq refuses the state of an optimizer with another name; torch_adamw's and adam's are
    one. (Under --fp16 and --bf16 the name is that of fairseq's wrapper anyway.)"""
    history = state["optimizer_history"][-1] if _expected else {}
    if _expected and {_expected[-1], history["optimizer_name"]} <= ADAMS:
        history["optimizer_name"] = _expected[-1]


#: settings of Adam that are no state
OF_THE_COMMAND = ("betas", "eps", "weight_decay")


def load_and_keep_the_given(stock, optimizer, state_dict, optimizer_overrides):
    """The command's weight decay, betas and epsilon win, as they do for everything else."""
    given = [{key: group[key] for key in OF_THE_COMMAND if key in group} for group in optimizer.param_groups]
    stock(optimizer, state_dict, optimizer_overrides)
    for group, wanted in zip(optimizer.param_groups, given):
        for key, value in optimizer.optimizer.defaults.items():
            group.setdefault(key, value)  # apex's Adam has settings that torch's state lacks
        for key, value in wanted.items():
            if key in (optimizer_overrides or {}) or _equal(group.get(key), value):
                continue
            logger.info(f"going on with {key} {value}, not with the checkpoint's {group.get(key)}")
            group[key] = value


def _equal(one, other):
    both = [list(x) if isinstance(x, (list, tuple)) else x for x in (one, other)]
    return both[0] == both[1]


def keep_the_full_weights_of_half_precision():
    """Beside the rounded weights the optimizer's state has the float32 weights that updates are added to:
    each resume would round them, to 8 bits under bf16."""
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
        saved = torch.cat([weight.reshape(-1) for weight in saved])  # flat or one by one, in one order
        if saved.numel() != sum(weight.numel() for weight in mine):
            logger.warning("the float32 weights in the checkpoint do not fit the model: rounded ones are used")
            return
        for weight, values in zip(mine, saved.split([weight.numel() for weight in mine])):
            weight.data.copy_(values.view_as(weight))


FULL_WEIGHTS = "relpos_full_weights"


def full_weights(optimizer):
    weights = optimizer.fp32_params
    return list(weights.values()) if isinstance(weights, dict) else list(weights)


#: by which fp16's loss scale moves; its settings are the command's
COUNTS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
SCALER = "relpos_loss_scaler"


def go_on_with_the_loss_scaler():
    """How long the loss scale has held decides at which updates it moves, and so which batches are left out."""
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


def patience():
    for command in commands_with("should_stop_early"):
        found = vars(command.should_stop_early)
        if set(OF_PATIENCE) <= set(found):
            return {"patience": {name: found[name] for name in OF_PATIENCE}}
    return {}


def go_on_with_patience(extra_state):
    before = extra_state.get("patience", {})
    for command in commands_with("should_stop_early"):
        vars(command.should_stop_early).update({name: before[name] for name in OF_PATIENCE if name in before})


#: in the order of the data: the shard that is being read
TRAINING_DATA = "training data"


def training_data(trainer):
    split = trainer.cfg.dataset.train_subset
    dataset = trainer.task.datasets.get(split)
    if dataset is None:
        return None
    # some datasets draw other samples in each epoch
    epoch = getattr(trainer.relpos.place, "epoch", None)
    known = trainer.relpos.training_data
    if known[0] is not dataset or known[1] != epoch:  # a digest of millions of sizes takes a second
        known = trainer.relpos.training_data = (dataset, epoch, samples(dataset))
    return known[2]


def data_order(cfg):
    """What decides which sentences the n-th batch of a rank holds."""
    found = {"number of ranks": cfg.distributed_training.distributed_world_size}
    settings = (
        (cfg.dataset, ("max_tokens", "batch_size", "required_batch_size_multiple")),
        (cfg.task, ("tokens_per_sample", "sample_break_mode")),
        (cfg.common, ("seed",)),
    )
    for group, names in settings:
        for name in names:
            value = getattr(group, name, None)
            found[f"--{name.replace('_', '-')}"] = None if value is None else str(value)
    return found


def refuse_another_order(path, extra_state, wanted):
    """A checkpoint from the middle of an epoch says how many batches each rank has seen. With other batches or
    another number of ranks that number means another place: a ValueError. wanted: what is compared; the
    checkpoint may have more, or, an older one, less."""
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
            f"{'; '.join(differing)}: go on with the same, or add --reset-dataloader, for one "
            "start alone: it keeps weights and optimizer and begins with the first epoch of the data"
        )


INSTALLERS = (keep_the_full_weights_of_half_precision, go_on_with_the_loss_scaler)
