"""--model-overrides and --optimizer-overrides that override nothing."""

import argparse
import ast
import difflib

from omegaconf import DictConfig, OmegaConf

from ..shims import replace

EXAMPLE = {"model_overrides": "{'max_target_positions': 4000}", "optimizer_overrides": "{'lr': 0.001}"}


def refuse_overrides_without_effect():
    """--model-overrides is a dict of settings that the checkpoint has, each with a value of its kind.

    All versions leave out a name that the checkpoint does not know, without a word, so that a misspelt one
    evaluates the model as it was; --optimizer-overrides the same. fairseq-validate and fairseq-eval-lm run the text as Python.
    """
    from fairseq import checkpoint_utils, options
    from fairseq.optim import FairseqOptimizer

    asked = {}

    @replace(options, "parse_args_and_arch")
    def read(stock, parser, *args, **kwargs):
        parsed = stock(parser, *args, **kwargs)
        settings = vars(parsed[0] if isinstance(parsed, tuple) else parsed)
        given = {name: as_dict(name, settings[name]) for name in EXAMPLE if settings.get(name) is not None}
        asked.clear()
        asked.update(given.get("model_overrides", {}))
        return parsed

    @replace(checkpoint_utils, "overwrite_args_by_name")
    def check(stock, cfg, overrides):
        check_overrides(asked, cfg)
        return stock(cfg, overrides)

    @replace(FairseqOptimizer, "load_state_dict")
    def check_optimizer(stock, self, state_dict, optimizer_overrides=None):
        known = self.param_groups[0]
        unknown = [name for name in optimizer_overrides or () if name not in known]
        if unknown:
            names = ", ".join(name for name in known if name != "params")
            raise ValueError(f"--optimizer-overrides: the optimizer has no setting {unknown[0]!r}; it has {names}")
        return stock(self, state_dict, optimizer_overrides)


def as_dict(name, text):
    """The value of a flag; a ValueError, one line, if it is no dict."""
    try:
        value = ast.literal_eval(text)
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass  # what it is instead is all the same
    raise ValueError(f"--{name.replace('_', '-')} {text!r} is no dict of names and values, such as \"{EXAMPLE[name]}\"")


def check_overrides(overrides, settings):
    """Raises ValueError, one line, for a name that the settings of a checkpoint do not have, and that is no
    flag of its model, and for a value of another kind."""
    known = dict(_settings(settings))
    for name, value in overrides.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            nearest = f"; the nearest: {', '.join(near)}" if near else ""
            raise ValueError(f"--model-overrides: the checkpoint has no setting {name!r}{nearest}")
        before = known[name]
        kinds = (int, float) if isinstance(before, float) else type(before)
        if before is not None and value is not None and not isinstance(value, kinds):
            raise ValueError(f"--model-overrides: {name} is {before!r} in the checkpoint: {value!r} is of another kind")


def _settings(settings):
    """(name, value) at any depth, as fairseq looks for the names, and (name, None) of the model's other
    flags, which a checkpoint of before them has not got."""
    for name in settings:
        value = settings[name] if not OmegaConf.is_missing(settings, name) else None
        if isinstance(value, DictConfig):
            yield name, None
            yield from _settings(value)
        elif isinstance(value, argparse.Namespace):
            yield from dict.fromkeys(_flags(value)).items()
            yield from vars(value).items()
        else:
            yield name, value


def _flags(model_settings):
    from fairseq.models import ARCH_MODEL_REGISTRY

    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    model = ARCH_MODEL_REGISTRY.get(getattr(model_settings, "arch", None))
    if model is not None:
        model.add_args(parser)
    return [action.dest for action in parser._actions]
