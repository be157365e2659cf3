"""Folders of prepared data, which only take the place of earlier prepared data."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..atomic_files import whole_folder

#: everything in a folder of prepared data, by the file that marks it as one
ENTRIES = {
    "task.json": r"(task\.json|dict\.txt|labels\.txt|sources\.txt|label(/[^/]+\.label)?|input[01](/[^/]+\.(bin|idx))?)",
    "facts.json": r"(facts\.json|[^/]+\.npz|embeddings\.npy)",
}


def refuse_to_replace(out: Path) -> None:
    """Raises ValueError where OUT is anything but a new or empty folder, or earlier prepared data."""
    if out.is_file():
        raise ValueError(f"{out} is a file: give a new folder")
    entries = next((known for mark, known in ENTRIES.items() if (out / mark).is_file()), "")
    for path in out.rglob("*"):
        if not re.fullmatch(entries, name := path.relative_to(out).as_posix()):
            raise ValueError(f"{out} has other files than prepared data, such as {name}: give a new folder as OUT")


@contextlib.contextmanager
def prepared_folder(out: Path) -> Iterator[Path]:
    """``whole_folder`` for prepared data, in the place of earlier ones. Raises ValueError as ``refuse_to_replace``."""
    refuse_to_replace(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(out) as part:
        yield part
        shutil.rmtree(out, ignore_errors=True)
