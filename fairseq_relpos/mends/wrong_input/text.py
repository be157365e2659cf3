"""Checks of the texts that fairseq-preprocess turns into data."""

import argparse
import codecs
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

from ..replace import replace


def checked(stock: Callable[..., Any], args: argparse.Namespace) -> Any:
    """Runs fairseq-preprocess after a check of every file that it gets. A failed run leaves no files behind."""
    check_arguments(args)
    for path in texts(args):
        check_text(path)
    with _all_or_nothing(args):
        return stock(args)


def note_new_dictionaries() -> None:
    """Makes fairseq-preprocess remember the dictionaries that it writes, so that a failed run can remove them."""
    from fairseq.data import Dictionary

    @replace(Dictionary, "save", "texts")
    def note(stock, self, file):
        is_new = isinstance(file, str) and not os.path.exists(file)
        try:
            return stock(self, file)
        finally:
            if is_new and os.path.exists(file):
                _dictionaries[os.path.abspath(file)] = _stamp(file)


#: path of a dictionary that this run has written -> its stamp after the write
_dictionaries: dict[str, tuple[int, int, int]] = {}


def _stamp(file):
    status = os.stat(file)
    return status.st_ino, status.st_mtime_ns, status.st_size


@contextlib.contextmanager
def _all_or_nothing(args):
    """Context that removes what a failed run has written, for example on a full disk. Files that were there before
    stay, and so do those that another run writes beside it, such as another pair of languages."""
    folder = args.destdir
    before = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    # on a full disk the log of the run would print a traceback for each line
    prints, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        yield
    except BaseException:
        for name in set(os.listdir(folder)) - before if os.path.isdir(folder) else ():
            path = os.path.abspath(os.path.join(folder, name))
            with contextlib.suppress(OSError):
                if is_own(name, args) or _dictionaries.get(path) == _stamp(path):
                    os.remove(path)
        raise
    finally:
        logging.raiseExceptions = prints
        _dictionaries.clear()


def is_own(name: str, args: argparse.Namespace) -> bool:
    """Whether this run writes a file of this name, its dictionaries apart."""
    first, *parts = name.split(".")
    given = [split for split in ("train", "valid", "test") if getattr(args, f"{split}pref")]
    pair = f"{args.source_lang}-{args.target_lang}"
    is_of_the_pair = pair in parts if args.source_lang else not any("-" in part for part in parts)
    return is_of_the_pair and first.rstrip("0123456789") in (*given, "alignment")


def check_arguments(args: argparse.Namespace) -> None:
    """Raises ValueError, one line, if it is not clear what fairseq-preprocess should write."""
    if not args.only_source and not (args.source_lang and args.target_lang):
        raise ValueError(
            "fairseq-preprocess: give --only-source for one text, or --source-lang and --target-lang "
            "for two that are translations of each other"
        )
    if not args.only_source and args.source_lang == args.target_lang:
        raise ValueError(
            f"--source-lang and --target-lang are both {args.source_lang}: one text is no translation of itself; give "
            "--only-source for one text"
        )


def texts(args: argparse.Namespace) -> Iterator[str]:
    """Yields the paths of the texts that will be read."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    prefixes = [args.trainpref] if args.trainpref else []
    for given in (args.validpref, args.testpref):
        prefixes += given.split(",") if given else []
    if args.dict_only:
        prefixes = prefixes[: bool(args.trainpref)]
    for prefix in prefixes:
        for language in languages:
            yield f"{prefix}.{language}" if language else prefix


def check_text(path: str) -> None:
    """Raises ValueError, one line, if a file is missing, empty or not UTF-8. It takes a second for each GB."""
    if not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "does not exist"
        raise ValueError(
            f"{path} {what}: give the text, or, with --source-lang and --target-lang, its name without the language"
        )
    if os.path.getsize(path) == 0:
        raise ValueError(f"{path} is empty: give a text with a sentence in each line")
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with open(path, "rb") as file:
        while True:
            block = file.read(2**24)
            held, _ = decoder.getstate()  # the first bytes of a character that the last block has cut
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += (held + block).count(b"\n", 0, error.start)
                raise ValueError(
                    f"{path} is not UTF-8, in line {line:,}: convert it, for example with "
                    f"`iconv -f latin1 -t utf-8 {path} > {path}.utf8`"
                ) from None
            if not block:
                return
            line += block.count(b"\n")


INSTALLERS = (note_new_dictionaries,)
