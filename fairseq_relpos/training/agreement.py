"""All ranks train the same model on the same data with the same code, or none does."""

import argparse
import hashlib
import inspect
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf

from ..shims import replace

#: settings in which the ranks of one run may differ: who they are, and paths of their machines
OF_ONE_RANK = {
    "distributed_rank", "distributed_init_method", "device_id", "local_rank", "nprocs_per_node",
    "distributed_num_procs", "data", "user_dir", "save_dir", "log_file", "tensorboard_logdir",
    "restore_file", "finetune_from_model", "plasma_path", "data_buffer_size", "num_workers",
}  # fmt: skip
SHOWN = 3


def refuse_ranks_that_disagree():
    """fairseq averages the gradients of whatever models the ranks have built.

    Before the first update every rank tells the others its code, settings, dictionaries,
    parameters and data. A difference is an error on all of them that names the rank and what
    differs.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "__init__")
    def compare_settings(stock, self, cfg, task, model, *args, **kwargs):
        refuse_differences(lambda: settings(cfg, task, model))
        return stock(self, cfg, task, model, *args, **kwargs)

    @replace(Trainer, "get_train_iterator")
    def compare_data(stock, self, *args, **kwargs):
        given = inspect.signature(stock).bind(self, *args, **kwargs)
        given.apply_defaults()
        batches = stock(self, *args, **kwargs)
        if given.arguments["load_dataset"]:  # at the start, and for each shard
            refuse_differences(lambda: data(self.task))
        return batches


def refuse_differences(facts_of_this_rank):
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return
    from fairseq.distributed import utils

    mine = {key: str(value) for key, value in facts_of_this_rank().items()}
    everyones = utils.all_gather_list(mine, utils.get_global_group(), max_size=2**20)
    for rank, theirs in enumerate(everyones):
        differing = [
            f"{key} ({_short(theirs.get(key))} against {_short(everyones[0].get(key))})"
            for key in sorted(theirs.keys() | everyones[0].keys())
            if theirs.get(key) != everyones[0].get(key)
        ]
        if differing:
            more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
            raise ValueError(
                f"rank {rank} and rank 0 do not train the same: they differ in "
                f"{', '.join(differing[:SHOWN])}{more}; give every node the same code, command and "
                "data"
            )


def _short(text):
    return "nothing" if text is None else text if len(text) <= 60 else f"{text[:57]}..."


def settings(cfg, task, model) -> dict:
    """What has to be equal before any data are read."""
    import fairseq

    facts = {
        "code of fairseq_relpos": digest_of_package(),
        "fairseq": getattr(fairseq, "__version__", "unknown"),
        "torch": torch.__version__,
        "parameters": digest(*(f"{name} {tuple(p.shape)}" for name, p in model.named_parameters())),
    }
    for side in ("source_dictionary", "target_dictionary"):
        try:
            dictionary = getattr(task, side, None)
        except NotImplementedError:  # a task without one
            continue
        if dictionary is not None:
            facts[side.replace("_", " ")] = f"{len(dictionary)} words {digest(*dictionary.symbols)}"
    facts.update(flat(cfg))
    return facts


def data(task) -> dict:
    """Number and sizes of the sentences of every set that has been read."""
    return {f"{split} data": samples(dataset) for split, dataset in task.datasets.items()}


def samples(dataset) -> str:
    sizes = getattr(dataset, "sizes", None)
    shape = "" if sizes is None else f" of sizes {digest(np.ascontiguousarray(sizes))}"
    return f"{len(dataset)} samples{shape}"


def flat(settings, name="") -> dict:
    """{"--lr": ...} of nested settings, without those of one rank."""
    if isinstance(settings, argparse.Namespace):
        settings = vars(settings)
    elif OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings, enum_to_str=True)
    if not isinstance(settings, dict):
        return {f"--{name.replace('_', '-')}": settings}
    found = {}
    for key, value in settings.items():
        if key not in OF_ONE_RANK:
            found.update(flat(value, str(key)))
    return found


def digest(*parts) -> str:
    total = hashlib.blake2b(digest_size=6)
    for part in parts:
        total.update(part.encode() if isinstance(part, str) else memoryview(part).cast("B"))
        total.update(b"\0")
    return total.hexdigest()


def digest_of_package() -> str:
    package = Path(__file__).parents[1]
    return digest(*(file.read_bytes() for file in sorted(package.rglob("*.py"))))
