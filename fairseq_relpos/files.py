"""Writing files."""

import contextlib
import os


@contextlib.contextmanager
def whole_file(path):
    """A name to write to, which becomes ``path`` if all goes well and vanishes if not."""
    part = f"{path}.part{os.getpid()}"
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
