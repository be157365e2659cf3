"""A fairseq checkpoint from which a training starts: weights and settings, no optimizer state."""

import argparse
import copy
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, build_model
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf

from ..atomic_files import whole_file


def check_paths(source: str | Path, target: str | Path) -> None:
    """Raises ValueError, one line, if IN cannot be read or OUT cannot be written, before any work is done."""
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


def need_settings(path: str | Path, state: dict[str, Any]) -> None:
    """Raises ValueError, one line, for a checkpoint that does not say what model its weights are for."""
    if not (state.get("args") or (state.get("cfg") or {}).get("model")):
        raise ValueError(
            f"{path} has no settings (args or cfg), which say what model its weights are for: "
            "give the checkpoint as fairseq saved it"
        )


def complete_settings(model: Any) -> argparse.Namespace:
    """Returns a copy of the settings of a model in a checkpoint. Its architecture fills in missing ones."""
    given: Any = vars(model) if isinstance(model, argparse.Namespace) else OmegaConf.to_container(model, resolve=True)
    args = argparse.Namespace(**copy.deepcopy(given))
    args.arch = getattr(args, "_name", None) or getattr(args, "arch", None)
    ARCH_CONFIG_REGISTRY.get(args.arch, lambda args: None)(args)
    return args


def build_roberta(args: argparse.Namespace, vocabulary_size: int, seed: int) -> Any:
    """Builds the model that ``args.arch`` names, initialised as ``fairseq-train --seed`` does it. Every default is
    filled into ``args``."""
    task = MaskedLMTask(MaskedLMConfig(), nameless_words(vocabulary_size - 1))  # adds <mask>
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        return build_model(args, task)


def build_with_decoder(args: argparse.Namespace, source_words: int, target_words: int, seed: int) -> Any:
    """Builds the model that ``args.arch`` names, for vocabularies of these sizes; a language model has the target's.
    Every setting must be in ``args``. seed: as in ``build_roberta``."""
    task = SimpleNamespace(
        source_dictionary=nameless_words(source_words), target_dictionary=nameless_words(target_words)
    )
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def upgrade_names(weights: dict[str, torch.Tensor], model: Any) -> None:
    """Gives ``weights`` the names that this fairseq has for them, and ``model`` the classification heads in them."""
    args = model.args
    model.args = argparse.Namespace(**{**vars(args), "load_checkpoint_heads": True})
    model.upgrade_state_dict(weights)
    model.args = args


def nameless_words(count: int) -> Dictionary:
    """Returns a dictionary of this size, for a model whose words do not matter."""
    dictionary = Dictionary()
    while len(dictionary) < count:
        dictionary.add_symbol(f"word{len(dictionary)}")
    return dictionary


def save(
    path: str | Path, cfg: Any, args: argparse.Namespace, model: Any, task_state: dict[str, Any] | None = None
) -> None:
    """Writes a checkpoint of fairseq 0.12 with these weights, for a training that has not begun. cfg: settings of the
    whole run, of which ``args`` replaces the model's. The write is atomic; it raises OSError, one line."""
    settings: Any = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    state = {
        "args": None,
        "cfg": {**settings, "model": args},
        "model": model.state_dict(),
        "criterion": None,
        "optimizer_history": [
            # without all four keys fairseq treats the file as one of 2017
            {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
        ],
        "task_state": task_state or {},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    with whole_file(path) as part, open(part, "wb") as file:  # into an open file, so that an error of the disk is seen
        torch.save(state, file)


def same_dictionaries(checkpoint: str | Path, cfg: Any, data: str | Path, remedy: str) -> None:
    """Raises ValueError if the data of the training are still there and ``data`` has another dictionary: each id would
    mean another word."""
    task = (cfg or {}).get("task") or {}
    trained_on = str((task.get("data") if hasattr(task, "get") else getattr(task, "data", None)) or "")
    trained_on = trained_on.split(os.pathsep)[0]
    for ours in sorted(Path(data).glob("dict*.txt")) if trained_on else ():
        theirs = Path(trained_on, ours.name)
        if theirs.is_file() and theirs.read_bytes() != ours.read_bytes():
            raise ValueError(f"{checkpoint} was trained with the dictionary {theirs}, {data} has another one: {remedy}")
