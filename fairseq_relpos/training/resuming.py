"""A run goes on from its last whole checkpoint, where it stood in the data."""

import logging
import os
import socket
import time

import torch

from ..checkpoints.checksums import what_is_damaged
from ..checkpoints.loading import load_checkpoint
from ..shims import commands_with, replace
from . import saving
from .agreement import gather, samples, several_ranks, together

logger = logging.getLogger(__name__)


def resume_from_the_last_whole_checkpoint():
    """A checkpoint_last.pt that is cut short or damaged is put aside, with an ERROR in the log,
    and the whole checkpoint of the folder with the most updates takes its place; also where a kill
    has left a numbered checkpoint and no last one. All versions end in a traceback, or, where only
    weights are damaged, train on with them. Where some ranks do not see the file, they hang.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    @replace(checkpoint_utils, "load_checkpoint")
    def check_last(stock, cfg, trainer, **kwargs):
        if not isinstance(trainer, Trainer):
            return stock(cfg, trainer, **kwargs)  # a program's own, of which no more is known than stock asks
        path = cfg.restore_file
        if path == "checkpoint_last.pt":
            path = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
            is_expected = not trainer.cfg.checkpoint.no_last_checkpoints
            if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
                together(lambda: put_a_damaged_last_aside(path, is_expected))
            else:
                together(lambda: None)
        if several_ranks() and not trainer.checkpoint_suffix:
            wait_until_all_ranks_see(path)
        extra_state, epoch_itr = stock(cfg, trainer, **kwargs)
        # a model that is fine-tuned has no updates behind it
        if extra_state is not None and trainer.get_num_updates() and not cfg.reset_dataloader:
            refuse_another_order(path, extra_state, {TRAINING_DATA: training_data(trainer)})
        end_if_there_is_nothing_to_do(trainer)
        return extra_state, epoch_itr


def end_if_there_is_nothing_to_do(trainer):
    """All versions look at --max-update after an update: a finished run would make one more."""
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


def read_a_checkpoint_together():
    """Rank 0 reads the checkpoint and hands it to the others. All versions: where it cannot, the
    others wait for it. Here all of them end.
    """
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils
    from fairseq.trainer import Trainer

    due = []  # whether this rank has yet to hear, or to say, how the reading went

    @replace(Trainer, "load_checkpoint")
    def expect(stock, self, *args, **kwargs):
        due[:] = [True]
        try:
            found = stock(self, *args, **kwargs)
            if due:  # no file of this rank's, where each has one of its own
                together(lambda: None)
            return found
        finally:
            due.clear()

    @replace(checkpoint_utils, "load_checkpoint_to_cpu")
    def read(stock, *args, **kwargs):
        if not due:
            return stock(*args, **kwargs)
        due.clear()
        return together(lambda: stock(*args, **kwargs))

    @replace(utils, "broadcast_object")
    def receive(stock, *args, **kwargs):
        if due:
            due.clear()
            together(lambda: None)
        return stock(*args, **kwargs)


#: optimizers that read each other's state
ADAMS = {"FairseqAdam", "TorchAdamW"}


def go_on_with_the_other_adam():
    """fairseq refuses the state of an optimizer with another name; torch_adamw's and adam's are
    one. (Under --fp16 and --bf16 the name is that of fairseq's wrapper anyway.)
    """
    from fairseq import checkpoint_utils
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.trainer import Trainer

    expected = []

    @replace(Trainer, "load_checkpoint")
    def expect(stock, self, *args, **kwargs):
        optimizer = OPTIMIZER_REGISTRY.get(getattr(self.cfg.optimizer, "_name", None))
        expected.append(getattr(optimizer, "__name__", None))
        try:
            return stock(self, *args, **kwargs)
        finally:
            expected.pop()

    @replace(checkpoint_utils, "load_checkpoint_to_cpu")
    def rename(stock, *args, **kwargs):
        state = stock(*args, **kwargs)
        history = state["optimizer_history"][-1]
        if expected and {expected[-1], history["optimizer_name"]} <= ADAMS:
            history["optimizer_name"] = expected[-1]
        return state


#: settings of Adam that are no state
OF_THE_COMMAND = ("betas", "eps", "weight_decay")


def go_on_with_the_settings_that_are_given():
    """All versions go on with the weight decay, betas and epsilon of the checkpoint, whatever the
    command says and the log shows. Here the command wins, as it does for everything else.
    """
    from fairseq.optim import FairseqOptimizer

    @replace(FairseqOptimizer, "load_state_dict")
    def keep_given(stock, self, state_dict, optimizer_overrides=None):
        given = [{key: group[key] for key in OF_THE_COMMAND if key in group} for group in self.param_groups]
        stock(self, state_dict, optimizer_overrides)
        for group, wanted in zip(self.param_groups, given):
            for key, value in self.optimizer.defaults.items():
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
    """--fp16 and --bf16: all versions save the rounded weights alone, so that each resume rounds the
    float32 weights that the updates are added to, to 8 bits under bf16. Here they are saved with
    the optimizer's state, 4 bytes for each parameter.
    """
    from fairseq.optim.fp16_optimizer import FP16Optimizer

    @replace(FP16Optimizer, "state_dict")
    def save(stock, self):
        return {**stock(self), FULL_WEIGHTS: [weight.detach() for weight in full_weights(self)]}

    @replace(FP16Optimizer, "load_state_dict")
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
    """--fp16: all versions save the loss scale alone, not how long it has held, so that a run that
    goes on scales at other updates, and leaves out other batches, than one that was not stopped.
    --amp: they save nothing of it.
    """
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
        replace(kind, "state_dict")(save_counts)
        replace(kind, "load_state_dict")(load_counts)

    @replace(AMPOptimizer, "state_dict")
    def save_scaler(stock, self):
        return {**stock(self), SCALER: self.scaler.state_dict()}

    @replace(AMPOptimizer, "load_state_dict")
    def load_scaler(stock, self, state_dict, optimizer_overrides=None):
        stock(self, state_dict, optimizer_overrides)
        saved = state_dict.get(SCALER)
        if saved and self.scaler.is_enabled():
            window = self.scaler.get_growth_interval()
            self.scaler.load_state_dict(saved)
            self.scaler.set_growth_interval(window)


def keep_patience():
    """--patience: all versions forget at each start the best validation so far, and since when none
    has been better, so that a run that is stopped often never ends early.
    """
    from fairseq.trainer import Trainer

    names = ("best", "num_runs")  # of the function itself

    @replace(Trainer, "save_checkpoint")
    def save_patience(stock, self, filename, extra_state):
        for command in commands_with("should_stop_early"):
            found = vars(command.should_stop_early)
            if set(names) <= set(found):
                extra_state = {**extra_state, "patience": {name: found[name] for name in names}}
        return stock(self, filename, extra_state)

    @replace(Trainer, "load_checkpoint")
    def load_patience(stock, self, filename, *args, **kwargs):
        extra_state = stock(self, filename, *args, **kwargs)
        kept = self.cfg.checkpoint
        if extra_state is not None and not kept.reset_meters and filename != kept.finetune_from_model:
            for command in commands_with("should_stop_early"):
                before = extra_state.get("patience", {})
                vars(command.should_stop_early).update({name: before[name] for name in names if name in before})
        return extra_state


def refuse_another_order_of_the_data():
    """A checkpoint from the middle of an epoch says how many batches each rank has seen.

    With other batches or another number of ranks that number means another place: all versions
    repeat and leave out sentences without a word, or ask to report a mismatch. An error that says
    what differs.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "save_checkpoint")
    def save_order(stock, self, filename, extra_state):
        order = {**data_order(self.cfg), TRAINING_DATA: training_data(self)}
        return stock(self, filename, {**extra_state, "data_order": order})

    @replace(Trainer, "load_checkpoint")
    def check_order(stock, self, filename, *args, **kwargs):
        extra_state = stock(self, filename, *args, **kwargs)
        kept = self.cfg.checkpoint
        if extra_state is not None and not kept.reset_dataloader and filename != kept.finetune_from_model:
            refuse_another_order(filename, extra_state, data_order(self.cfg))
        return extra_state


TRAINING_DATA = "training data"


def training_data(trainer):
    """Of the shard that is being read."""
    split = trainer.cfg.dataset.train_subset
    dataset = trainer.task.datasets.get(split)
    if dataset is None:
        return None
    # some datasets draw other samples in each epoch
    epoch = getattr(getattr(trainer, "_relpos_epoch_itr", None), "epoch", None)
    known = getattr(trainer, "_relpos_training_data", (None, None, None))
    if known[0] is not dataset or known[1] != epoch:  # a digest of millions of sizes takes a second
        known = trainer._relpos_training_data = (dataset, epoch, samples(dataset))
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
    """wanted: what is compared; the checkpoint may have more, or, an older one, less."""
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
