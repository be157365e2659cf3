"""Checks of the texts that fairseq-preprocess turns into data."""

import argparse
import codecs
import os
from collections.abc import Callable, Iterator
from typing import Any


def checked(stock: Callable[..., Any], args: argparse.Namespace) -> Any:
    """Runs fairseq-preprocess after a check of every file that it gets."""
    check_arguments(args)
    for path in texts(args):
        check_text(path)
    return stock(args)


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
