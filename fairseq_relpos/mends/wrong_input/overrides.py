"""Checks of --model-overrides and --optimizer-overrides: each name must override something."""

import argparse
import ast
import difflib
import logging
import os
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..replace import replace

logger = logging.getLogger(__name__)

EXAMPLE = {"model_overrides": "{'max_target_positions': 4000}", "optimizer_overrides": "{'lr': 0.001}"}

#: the settings of the command that this process runs, and its --model-overrides
_command: Mapping[str, Any] = {}
_overrides: dict[str, Any] = {}


def read(settings: Mapping[str, Any]) -> None:
    """Reads the overrides of a command. Their names are checked when its checkpoints are loaded."""
    global _command, _overrides
    given = {name: as_dict(name, settings[name]) for name in EXAMPLE if settings.get(name) is not None}
    _command, _overrides = settings, given.get("model_overrides", {})


def as_dict(name: str, text: str) -> dict[str, Any]:
    """Returns the dict in a flag's text, without running it. Raises ValueError, one line, if it is none."""
    try:
        value = ast.literal_eval(text)
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass  # the error below is the same for everything that is no dict
    raise ValueError(f'--{name.replace("_", "-")} {text!r} is no dict of names and values, such as "{EXAMPLE[name]}"')


def check_what_is_overridden() -> None:
    """Checks --model-overrides against each checkpoint that the command loads."""
    from fairseq import checkpoint_utils

    @replace(checkpoint_utils, "overwrite_args_by_name", "overrides")
    def check(stock, cfg, overrides):
        check_names(_overrides, cfg, _command)
        return stock(cfg, overrides)


def check_names(overrides: Mapping[str, Any], settings: Any, command: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, for a name that the checkpoint's settings lack and that looks like one of theirs.
    Warns of any other name that they lack: the code of the model, or another checkpoint of the command, may know it."""
    known = set(_names(settings))
    is_only_one = not command.get("lm_path") and os.pathsep not in (command.get("path") or "")
    for name in overrides:
        if name in known or name in command:
            continue
        message = f"--model-overrides: the checkpoint has no setting {name!r}"
        near = difflib.get_close_matches(name, known, 3, cutoff=0.8)
        if near and is_only_one:
            raise ValueError(f"{message}; the nearest: {', '.join(near)}")
        logger.warning(f"{message}; it has an effect only if the code of the model reads it")


def _names(settings):
    """Yields the names of the settings at any depth, and of the model's other flags, which an older checkpoint may
    lack."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    for name in settings:
        yield name
        value = None if OmegaConf.is_missing(settings, name) else settings[name]
        if isinstance(value, DictConfig):
            yield from _names(value)
        elif isinstance(value, argparse.Namespace):
            yield from vars(value)
            parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
            model = ARCH_MODEL_REGISTRY.get(getattr(value, "arch", None))
            if hasattr(model, "add_args"):
                model.add_args(parser)
            yield from (action.dest for action in parser._actions)


def check_optimizer(optimizer: Any, overrides: dict[str, Any] | None) -> None:
    """Raises ValueError, one line, if --optimizer-overrides names a setting that the optimizer lacks."""
    known = optimizer.param_groups[0]
    unknown = [name for name in overrides or () if name not in known]
    if unknown:
        names = ", ".join(name for name in known if name != "params")
        raise ValueError(f"--optimizer-overrides: the optimizer has no setting {unknown[0]!r}; it has {names}")


INSTALLERS = (check_what_is_overridden,)
