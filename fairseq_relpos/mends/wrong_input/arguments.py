"""Checks of flags that are unknown, missing, or have an impossible value."""

import argparse
import difflib
import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..replace import replace


def parse(stock: Callable[..., Any], parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
    """Parses the arguments. An error says in one line what the parser refuses, with the nearest names."""
    vars(parser)["error"] = functools.partial(refuse, parser)
    try:
        return stock(parser, *args, **kwargs)
    except RuntimeError as error:
        if error.args:
            raise
        raise ValueError(
            "no --arch is given: name the model to train, roberta_NAME or transformer_NAME with a NAME of "
            "`fairseq-relpos list`, or an architecture of fairseq"
        ) from None
    except KeyError as error:
        if error.args != (None,):
            raise
        raise ValueError("no --task is given: name that of the training, for example --task masked_lm") from None


def name_the_nearest_for_preprocess() -> None:
    """Gives fairseq-preprocess, which has its own call of the parser, the same errors."""
    from fairseq import options

    @replace(options, "add_preprocess_args", "nearest-names")
    def parse_for_preprocess(stock, parser):
        vars(parser)["error"] = functools.partial(_end, parser)
        return stock(parser)


def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    raise ValueError(in_words(parser, message))


def _end(parser, message):
    raise SystemExit(f"fairseq_relpos: error: {in_words(parser, message)}")


def in_words(parser: argparse.ArgumentParser, message: str) -> str:
    """Rewrites argparse's message, with the nearest names instead of all."""
    choice = re.match(r"argument (\S+): invalid choice: (.*?) \(choose from ", message)
    if choice:
        flag = choice[1].split("/")[0]
        value = choice[2].strip("'\"")
        action = parser._option_string_actions.get(flag)
        if action is None:
            return message  # the argument has no flag
        return f"{flag} {value} is not known: {nearest(value, [str(name) for name in action.choices or ()])}"
    if message.startswith("unrecognized arguments: "):
        return unrecognized(parser, message.removeprefix("unrecognized arguments: "))
    return message


def unrecognized(parser: argparse.ArgumentParser, given: str) -> str:
    """Returns the message for arguments that the parser does not know."""
    flag = next((word.split("=")[0] for word in given.split() if word.startswith("-")), None)
    if flag is None:
        return f"{given} is the value of no flag: put quotation marks around a value with spaces"
    near = difflib.get_close_matches(flag, parser._option_string_actions, 3)
    message = f"no flag {flag} (in: {given}): " + (f"the nearest: {', '.join(near)}" if near else "none is like it")
    if "--arch" in parser._option_string_actions:
        message += "; which flags there are depends on --task, --arch, --criterion, --optimizer and --lr-scheduler"
    return message


#: up to this number of names, all are shown
FEW = 12


def nearest(value: str, names: Sequence[str]) -> str:
    if len(names) <= FEW:
        return f"choose from {', '.join(sorted(names))}"
    near = difflib.get_close_matches(value, names, 5)
    if near:
        return f"the nearest of {len(names)} names: {', '.join(near)}"
    return (
        f"none of the {len(names)} names is like it; `fairseq-relpos list` has the encodings, for roberta_NAME and "
        "transformer_NAME"
    )


def check_starting_files(cfg: Any, suffix: str) -> None:
    """Raises ValueError if --restore-file, --continue-once or --finetune-from-model is missing or a folder.

    The run's own checkpoint, --save-dir/checkpoint_last.pt, may be absent, also if --restore-file gives its whole
    path: a job may start again and again with the same command.
    """
    from fairseq.file_io import PathManager

    last = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    if cfg.restore_file != "checkpoint_last.pt":
        restored = cfg.restore_file.replace(".pt", f"{suffix}.pt")
        check_restore_file(restored, last, PathManager.exists)
    elif not PathManager.exists(last):
        for flag in ("continue_once", "finetune_from_model"):
            path = getattr(cfg, flag, None)
            if path is not None and (os.path.isdir(path) or not PathManager.exists(path)):
                is_what = "is a folder" if os.path.isdir(path) else "does not exist"
                raise ValueError(
                    f"--{flag.replace('_', '-')} {path} {is_what}: give the checkpoint to start from, a "
                    ".pt file, or leave the flag out to train from scratch"
                )
            if path is not None:
                break


def check_restore_file(path: str, last: str, exists: Callable[[str], bool]) -> None:
    if os.path.isdir(path):
        raise ValueError(f"--restore-file {path} is a folder: give a .pt file in it")
    if exists(path) or os.path.realpath(path) == os.path.realpath(last):
        return
    without = f"resumes from {last}" if exists(last) else "trains from scratch"
    raise ValueError(
        f"--restore-file {path} does not exist: give the checkpoint to start from, a .pt file; the same command "
        f"without the flag {without}"
    )


INSTALLERS = (name_the_nearest_for_preprocess,)
