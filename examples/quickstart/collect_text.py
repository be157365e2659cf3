"""English that every machine with Python has: the documentation inside installed packages.

    python collect_text.py TRAIN VALID [FILE...]

Takes the docstrings of the standard library and of what is installed beside it, without importing
anything, and keeps paragraphs of prose (no signatures, tables, examples), each once; or takes the
FILEs. Writes one paragraph a line, an empty line after each module. One in 25 is for validation.
"""

import ast
import os
import re
import sys
import sysconfig
import warnings
from itertools import islice
from pathlib import Path

from fairseq_relpos.atomic_files import OPENERS, UNPACKING_ERRORS, whole_file

VALID_SHARE = 25
ENOUGH_BYTES = 12_000_000  # more would only take longer to read
SKIPPED_FOLDERS = {"test", "tests", "testing", "idlelib", "lib2to3", "_vendor", "__pycache__"}
SHORTEST_PARAGRAPH = 8  # words
SECTION = 20  # paragraphs of a user's text that stay together

WORD = re.compile(r"[A-Za-z][a-z]*(?:['-][a-z]+)*[.,;:?!)]*")
MARKUP = re.compile(r":\w+:`~?([^`<]*?)(?:\s*<[^`]*>)?`_?|``?([^`]*)``?_{0,2}|\*\*?([^*\s][^*]*)\*\*?")


def main(train, valid, *files):
    size = 0
    number = -1
    for path in (train, valid):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    with (
        whole_file(train) as train_part,
        whole_file(valid) as valid_part,
        open(train_part, "w", encoding="utf-8") as for_training,
        open(valid_part, "w", encoding="utf-8") as for_validation,
    ):
        for number, paragraphs in enumerate(sections_of(files) if files else documentation()):
            section = "\n".join(paragraphs) + "\n\n"
            (for_training if number % VALID_SHARE else for_validation).write(section)
            size += len(section)
        if number < 1:
            sys.exit(
                f"collect_text: error: {size} characters of text in {', '.join(files) or 'the docstrings'} "
                f"are too few to train and validate on: give more than {SECTION} paragraphs with --text"
            )
    print(f"{size / 1e6:.1f} MB of text in {number + 1:,} sections")


def sections_of(files):
    """Paragraphs of the user's files, so many at a time."""
    paragraphs = (line.strip() for path in files for line in lines_of(path) if line.strip())
    while section := list(islice(paragraphs, SECTION)):
        yield section


def lines_of(path):
    opened = OPENERS.get(Path(path).suffix, open)
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            yield from file
    except (UnicodeDecodeError, *UNPACKING_ERRORS) as error:
        sys.exit(f"collect_text: error: {path} is not UTF-8 text, plain or a whole .xz or .gz ({error})")


def documentation():
    """Paragraphs of each installed module, each paragraph once."""
    seen = set()
    size = 0
    for module in modules():
        new = dict.fromkeys(p for p in paragraphs_of(module) if p not in seen)
        if new:
            seen.update(new)
            size += sum(map(len, new))
            yield new
        if size > ENOUGH_BYTES:
            return


def modules():
    """Source files: the standard library, then installed packages."""
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    for folder in dict.fromkeys(folders):
        for root, subfolders, files in os.walk(folder):
            subfolders[:] = sorted(set(subfolders) - SKIPPED_FOLDERS - {"site-packages", "dist-packages"})
            yield from (Path(root, name) for name in sorted(files) if name.endswith(".py"))


def paragraphs_of(module):
    try:
        source = module.read_text(encoding="utf-8")
        if '"""' not in source and "'''" not in source:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        # any long string: torch and numpy document built-in functions in plain strings
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            yield from prose(node.value)


def prose(text):
    """The paragraphs of a docstring that are sentences."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in block.strip().splitlines()]
        paragraph = " ".join(" ".join(lines).split())
        paragraph = MARKUP.sub(lambda found: next(g for g in found.groups() if g is not None), paragraph)
        if is_prose(paragraph):
            yield paragraph


def is_prose(paragraph):
    words = paragraph.split()
    if len(words) < SHORTEST_PARAGRAPH or paragraph[-1] not in ".?!:":
        return False
    plain = sum(WORD.fullmatch(word) is not None for word in words)
    return plain >= 0.8 * len(words) and not any(mark in paragraph for mark in (">>>", "::", "---", "==="))


if __name__ == "__main__":
    main(*sys.argv[1:])
