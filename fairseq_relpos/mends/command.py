"""The start of a fairseq command, with the mends in the order in which they act.

A command first parses its arguments (``parse_and_check``; fairseq-preprocess parses by itself). Then fairseq-train,
-validate, -eval-lm and -interactive start through call_main (``check_and_call``); fairseq-generate and
fairseq-preprocess call their own main function.
"""

import argparse
import contextlib
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..checkpoints import loading
from . import catalogue, launching, messages, precision, stack, stopping, switches
from .catalogue import on
from .replace import replace, replace_main
from .wrong_input import arguments, ignored, overrides, text

logger = logging.getLogger(__name__)

#: the mends in ``check_and_call``
CALL_MAIN = ("switches", "one-line-errors", "texts", "signals", "half-precision-on-cpus", "launcher")
#: the mends in ``parse_and_check``
PARSE = (
    "switches",
    "one-line-errors",
    "checked-checkpoints",
    "bf16-without-tpu",
    "nearest-names",
    "not-alone",
    "ignored-flags",
    "overrides",
)


def _in_one_line():
    return messages.errors_in_one_line() if on("one-line-errors") else contextlib.nullcontext()


def parse_and_check(
    stock: Callable[..., Any],
    parser: argparse.ArgumentParser,
    input_args: Sequence[str] | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Replaces options.parse_args_and_arch: parses the arguments, then checks the settings."""
    with _in_one_line():
        input_args = _without_trust_flag(input_args)
        if on("nearest-names"):
            parsed = arguments.parse(stock, parser, input_args, *args, **kwargs)
        else:
            parsed = stock(parser, input_args, *args, **kwargs)
        settings = parsed[0] if isinstance(parsed, tuple) else parsed
        given = sys.argv if input_args is None else input_args
        if on("switches"):
            switches.refuse_a_late_flag(settings)
        if on("bf16-without-tpu"):
            stack.bf16_without_tpu(settings, given)
        if on("not-alone"):
            launching.refuse_another_number_of_ranks(settings, given)
        if on("ignored-flags"):
            ignored.check(vars(settings))
        if on("overrides"):
            overrides.read(vars(settings))
        return parsed


def _without_trust_flag(input_args):
    if input_args is not None:
        return loading.take_trust_flag(input_args)
    sys.argv[1:] = loading.take_trust_flag(sys.argv[1:])
    return None


def check_and_call(stock: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
    """Replaces distributed.utils.call_main: checks the settings, joins the launcher's ranks, runs the command."""
    with _in_one_line():
        if on("switches"):
            _say_which_mends_are_on(main)
        if on("texts"):
            _check_the_input_of_interactive(main)
        if on("half-precision-on-cpus"):
            precision.keep_gradients_apart(cfg)
        if on("signals"):
            stopping.stay_stopped()
        if on("launcher"):
            launching.take_our_rank(cfg, main)
        with stopping.signals_given_back() if on("signals") else contextlib.nullcontext():
            return stock(cfg, main, **kwargs)


def _say_which_mends_are_on(main):
    if launching.command_of(main) == "train.py":
        logger.info(catalogue.in_words())


def _check_the_input_of_interactive(main):
    command = sys.modules[inspect.unwrap(main).__module__]  # the module may run as __main__
    if hasattr(command, "buffered_read"):
        replace(command, "buffered_read", "texts")(messages.refuse_text_that_is_not_utf8)


def generate(stock: Callable[..., Any], args: Any, *more: Any, **kwargs: Any) -> Any:
    """Replaces the main function of fairseq-generate."""
    with _in_one_line():
        if on("launcher"):
            launching.warn_of_a_part(getattr(args, "distributed_training", args))
        return stock(args, *more, **kwargs)


def preprocess(stock: Callable[..., Any], args: argparse.Namespace) -> Any:
    """Replaces the main function of fairseq-preprocess."""
    with _in_one_line():
        return text.checked(stock, args) if on("texts") else stock(args)


def install() -> None:
    from fairseq import options
    from fairseq.distributed import utils

    replace(options, "parse_args_and_arch", *PARSE)(parse_and_check)
    replace(utils, "call_main", *CALL_MAIN)(check_and_call)
    replace_main("fairseq_cli.generate", "one-line-errors", "launcher")(generate)
    replace_main("fairseq_cli.preprocess", "one-line-errors", "texts")(preprocess)


INSTALLERS = (install,)
