"""A fairseq checkpoint from which a training starts: weights and settings, no optimizer state."""

import os

import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf

from ..atomic_files import whole_file


def check_paths(source, target):
    """Find what is wrong with IN and OUT before any work is done."""
    if not os.path.exists(source):
        raise ValueError(f"{source} does not exist: give the checkpoint file to read")
    if os.path.isdir(source):
        raise ValueError(f"{source} is a folder: give the checkpoint file in it, a .pt file")
    folder = os.path.dirname(target) or "."
    if not os.path.isdir(folder):
        raise ValueError(f"{target} cannot be written, there is no folder {folder}: make it first")
    if os.path.isdir(target):
        raise ValueError(f"{target} is a folder: give the name of the file to write, a .pt file")
    if os.path.exists(target) and os.path.samefile(source, target):
        raise ValueError(f"{target} is the checkpoint to read, which is kept: give OUT another name")


def build_roberta(args, vocabulary_size, seed):
    """The model that ``args.arch`` names, initialised as ``fairseq-train --seed`` does.
    ``args`` gets every default filled in."""
    task = MaskedLMTask(MaskedLMConfig(), nameless_words(vocabulary_size - 1))  # adds <mask>
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_model(args, task)


def nameless_words(count) -> Dictionary:
    """A dictionary of this size, for a model whose words do not matter."""
    dictionary = Dictionary()
    while len(dictionary) < count:
        dictionary.add_symbol(f"word{len(dictionary)}")
    return dictionary


def save(path, cfg, args, model):
    """Write what fairseq 0.12 loads, as the weights of a training that has not begun.

    cfg: settings of the whole run, of which ``args`` replaces the model's. Raises OSError,
    one line; nothing half-written stays behind.
    """
    settings = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    state = {
        "args": None,
        "cfg": {**settings, "model": args},
        "model": model.state_dict(),
        "criterion": None,
        "optimizer_history": [
            # all four, or fairseq takes the file for one of 2017
            {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
        ],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    with whole_file(path) as part, open(part, "wb") as file:  # an open file: what the disk says is known
        torch.save(state, file)
