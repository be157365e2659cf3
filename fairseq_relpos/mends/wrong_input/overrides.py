"""Checks of --model-overrides and --optimizer-overrides: each name must override something."""

import argparse
import ast
import difflib
import enum
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from ..replace import replace

logger = logging.getLogger(__name__)

EXAMPLE = {"model_overrides": "{'max_target_positions': 4000}", "optimizer_overrides": "{'lr': 0.001}"}


#: the overrides of the command that this process runs
_command: "Command | None" = None


def read(settings: Mapping[str, Any]) -> None:
    """Reads the overrides of a command. They are checked when its checkpoints are loaded (``Command.check``)."""
    global _command
    given = {name: as_dict(name, settings[name]) for name in EXAMPLE if settings.get(name) is not None}
    _command = Command(given.get("model_overrides", {}), settings)


def check_what_is_overridden() -> None:
    """Checks --model-overrides against each checkpoint that the command loads."""
    from fairseq import checkpoint_utils

    @replace(checkpoint_utils, "overwrite_args_by_name", "overrides")
    def check(stock, cfg, overrides):
        (_command or Command({}, {})).check(cfg)
        return stock(cfg, overrides)


def check_optimizer(optimizer: Any, overrides: dict[str, Any] | None) -> None:
    """Raises ValueError, one line, if --optimizer-overrides names a setting that the optimizer lacks."""
    known = optimizer.param_groups[0]
    unknown = [name for name in overrides or () if name not in known]
    if unknown:
        names = ", ".join(name for name in known if name != "params")
        raise ValueError(f"--optimizer-overrides: the optimizer has no setting {unknown[0]!r}; it has {names}")


def as_dict(name: str, text: str) -> dict[str, Any]:
    """Returns the dict in a flag's text. Raises ValueError, one line, if it is none."""
    try:
        value = ast.literal_eval(text)
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass  # the error below is the same for everything that is no dict
    raise ValueError(f'--{name.replace("_", "-")} {text!r} is no dict of names and values, such as "{EXAMPLE[name]}"')


class Command:
    """The overrides of a command, and the checkpoints that it loads one after the other."""

    def __init__(self, overrides: dict[str, Any], settings: Mapping[str, Any]) -> None:
        self.overrides = overrides
        self.settings = settings
        #: {name: message} of the names that no checkpoint so far has; None before the first
        self.unknown: dict[str, str] | None = None
        #: how many checkpoints the command has yet to load
        self.left = _checkpoints(settings)

    def check(self, cfg: Any) -> None:
        """Raises ValueError, one line, for a value of another kind than the checkpoint's. With the last checkpoint it
        also raises for a name that none of them has. In doubt it warns."""
        unknown = check_overrides(self.overrides, cfg, self.settings)
        self.unknown = unknown if self.unknown is None else {k: v for k, v in self.unknown.items() if k in unknown}
        self.left -= 1
        for message in self.unknown.values():
            if self.left <= 0:
                raise ValueError(message)
            logger.warning(f"{message}; another checkpoint may have it")


def _checkpoints(settings):
    """Returns how many checkpoints a command with these settings loads."""
    from fairseq import utils

    path = settings.get("path")
    several = len(utils.split_paths(path)) * (settings.get("checkpoint_shard_count") or 1) if path else 1
    return several + bool(settings.get("lm_path"))


def check_overrides(overrides: dict[str, Any], settings: Any, of_the_command: Mapping[str, Any]) -> dict[str, str]:
    """Returns {name: message} of the names that a checkpoint with these settings cannot use. Raises ValueError, one
    line, for a value of another kind. Warns if it is not certain that a name has an effect."""
    known = {**_of_the_choices(overrides), **dict(_settings(settings))}
    unknown = {}
    for name, value in overrides.items():
        if name in known:
            _check_kind(name, known[name], value)
        elif name not in of_the_command:
            near = difflib.get_close_matches(name, known, 3)
            nearest = f"; the nearest: {', '.join(near)}" if near else ""
            message = f"--model-overrides: the checkpoint has no setting {name!r}{nearest}"
            if _may_be_read(name, near, settings, of_the_command.get("user_dir")):
                logger.warning(f"{message}; it has an effect only if the code of the model reads it")
            else:
                unknown[name] = message
    return unknown


def _may_be_read(name, near, settings, user_dir):
    """Whether a model may read a setting that its checkpoint lacks and that is none of its flags."""
    model = settings.get("model")
    if not _is_ours(model):
        return True
    if not isinstance(model, argparse.Namespace):
        return False  # fairseq sets only the names that are there
    is_of_a_user = user_dir and os.path.basename(os.path.abspath(user_dir)) not in OURS
    return bool(is_of_a_user and not near) or _is_in_the_code(name)


def _is_ours(model_settings):
    """Whether the model is fairseq's or this package's, whose settings are known. None: there is no model."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

    if model_settings is None:
        return True
    name = getattr(model_settings, "arch", None) or getattr(model_settings, "_name", None)
    model = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    return model is not None and model.__module__.split(".")[0] in OURS


OURS = ("fairseq", "fairseq_relpos")


def _is_in_the_code(name):
    """Whether a loaded module of fairseq or of this package has the name, as in getattr(args, name, False)."""
    word = re.compile(rf"""(["']){re.escape(name)}\1|\b(args|cfg)\.{re.escape(name)}\b""")
    files = {
        module.__file__
        for key, module in list(sys.modules.items())
        if key.split(".")[0] in OURS and (getattr(module, "__file__", None) or "").endswith(".py")
    }
    for file in files:
        with open(file, encoding="utf-8") as code:
            if word.search(code.read()):
                return True
    return False


def _check_kind(name, before, value):
    """Raises ValueError if the value is of another kind than the checkpoint's; it warns where text is expected.

    A number may stand for a bool, and a tuple for a list. A setting that fairseq reads from text may be given as a
    number or a list.
    """
    kind, other = _kind(before), _kind(value)
    if None in (before, value) or kind is other:
        return
    message = f"--model-overrides: {name} is {before!r} in the checkpoint: {value!r} is of another kind"
    if kind is str and other in (float, list):
        logger.warning(message)
    else:
        raise ValueError(message)


def _kind(value):
    for kinds, kind in (((bool, int, float), float), ((list, tuple, ListConfig), list), ((str, enum.Enum), str)):
        if isinstance(value, kinds):
            return kind
    return type(value)


def _of_the_choices(overrides):
    """Returns {name: None} of the settings that belong to a part that the overrides choose, such as a bpe."""
    from fairseq.registry import REGISTRIES

    names = {}
    for kind, registry in REGISTRIES.items():
        choice = overrides.get(kind)
        if not isinstance(choice, str) or choice not in registry["registry"]:
            continue
        names.update(dict.fromkeys(_flags(registry["registry"][choice])))
        names.update(dict.fromkeys(getattr(registry["dataclass_registry"].get(choice), "__dataclass_fields__", ())))
    return names


def _settings(settings):
    """Yields (name, value) of the settings at any depth, as fairseq looks for names. It also yields (name, None) of the
    model's other flags, which an older checkpoint may lack."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    for name in settings:
        value = settings[name] if not OmegaConf.is_missing(settings, name) else None
        if isinstance(value, DictConfig):
            yield name, None
            yield from _settings(value)
        elif isinstance(value, argparse.Namespace):
            yield from dict.fromkeys(_flags(ARCH_MODEL_REGISTRY.get(getattr(value, "arch", None)))).items()
            yield from vars(value).items()
        else:
            yield name, value


def _flags(part):
    """The names that a class adds to the command line."""
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    if hasattr(part, "add_args"):
        part.add_args(parser)
    return [action.dest for action in parser._actions]


INSTALLERS = (check_what_is_overridden,)
