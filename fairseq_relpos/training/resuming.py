"""A run goes on from its last whole checkpoint, where it stood in the data."""

import logging
import os
import zipfile

import torch

from ..shims import replace
from .saving import copy

logger = logging.getLogger(__name__)


def resume_from_the_last_whole_checkpoint():
    """A checkpoint_last.pt that is cut short or damaged is put aside, with an ERROR in the log,
    and the newest whole checkpoint of the folder takes its place. All versions end in a traceback,
    or, where only weights are damaged, train on with them.
    """
    from fairseq import checkpoint_utils

    @replace(checkpoint_utils, "load_checkpoint")
    def check_last(stock, cfg, trainer, **kwargs):
        if cfg.restore_file == "checkpoint_last.pt":
            several = torch.distributed.is_initialized()
            if not several or torch.distributed.get_rank() == 0:
                put_a_damaged_last_aside(cfg.save_dir, trainer.checkpoint_suffix)
            if several:
                torch.distributed.barrier()
        return stock(cfg, trainer, **kwargs)


def put_a_damaged_last_aside(folder, suffix=""):
    last = os.path.join(folder, f"checkpoint_last{suffix}.pt")
    damage = what_is_damaged(last) if os.path.exists(last) else None
    if damage is None:
        return
    whole = next((path for path in newest_first(folder) if path != last and not what_is_damaged(path)), None)
    if whole is None:
        raise ValueError(
            f"{last} {damage}, and no other checkpoint in {folder} is whole: remove it to train from "
            "scratch, or bring back a copy of it"
        )
    copy(whole, f"{last}.whole")
    os.replace(last, f"{last}.damaged")
    os.replace(f"{last}.whole", last)
    logger.error(
        f"{last} {damage}: RESUMING FROM {os.path.basename(whole)} INSTEAD; the damaged file is now "
        f"{os.path.basename(last)}.damaged"
    )


def newest_first(folder):
    paths = [
        os.path.join(folder, name)
        for name in os.listdir(folder)
        if name.startswith("checkpoint") and name.endswith(".pt")
    ]
    return sorted(paths, key=os.path.getmtime, reverse=True)


def what_is_damaged(path):
    """Words for what is wrong with the bytes of a file that torch.save wrote; None: nothing is.

    The checksums that it holds are compared, which torch does not do when it reads.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(2)
    if start == b"\x80\x02":
        return None  # torch's format before 1.6 has no checksums
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, EOFError, NotImplementedError):
        return f"is cut short or damaged ({size:,} bytes)"
    return None if damaged is None else f"is damaged ({damaged} in it does not fit its checksum)"


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


def refuse_another_order_of_the_data():
    """A checkpoint from the middle of an epoch says how many batches each rank has seen.

    With other batches or another number of ranks that number means another place: all versions
    repeat and leave out sentences without a word, or ask to report a mismatch. An error that says
    what differs.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "save_checkpoint")
    def save_order(stock, self, filename, extra_state):
        return stock(self, filename, {**extra_state, "data_order": data_order(self.cfg)})

    @replace(Trainer, "load_checkpoint")
    def check_order(stock, self, filename, *args, **kwargs):
        extra_state = stock(self, filename, *args, **kwargs)
        starts_anew = self.cfg.checkpoint.reset_dataloader or (
            filename == self.cfg.checkpoint.finetune_from_model
        )
        if extra_state is not None and not starts_anew:
            refuse_another_order(filename, extra_state, data_order(self.cfg))
        return extra_state


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
            f"{'; '.join(differing)}: go on with the same, or add --reset-dataloader, which keeps "
            "weights and optimizer and begins the data anew"
        )
