"""fairseq_relpos: pretrain and translate with any position encoding.

Importing the package (or ``--user-dir fairseq_relpos``) registers everything with fairseq and mends it
(``fairseq_relpos.mends``), if fairseq is installed. A fairseq that is present and does not import is an error.
Importing a part that needs torch alone, such as ``fairseq_relpos.encodings``, leaves fairseq and torch as they are.
"""

import importlib.abc
import importlib.util
import sys

from .version import __version__

#: parts that change nothing in fairseq or torch
ALONE = ("backends", "cli", "encodings", "mends", "positions", "references", "rows", "terms", "version")


def register():
    """Mends fairseq and registers models, tasks, criterions and optimizers with it; once, and not without fairseq."""
    global _is_mended
    if _is_mended or importlib.util.find_spec("fairseq") is None:
        return
    _is_mended = True
    from . import mends

    try:
        mends.apply()
        _register_names()
    except BaseException:
        _is_mended = False
        raise


_is_mended = False


def _register_names():
    from .criterions import sequence_labels  # noqa: F401
    from .models import roberta, sequence_encoder, transformer  # noqa: F401
    from .optim import torch_adamw  # noqa: F401
    from .tasks import sequence_labels as sequences  # noqa: F401
    from .tasks import tupe_data  # noqa: F401


class _WithFairseq(importlib.abc.MetaPathFinder):
    """Gives fairseq the names as soon as a program imports it that has begun with the mathematics. The mends
    follow with the first model (``models``)."""

    def find_spec(self, name, path=None, target=None):
        if name != "fairseq":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                _register_names()

            spec.loader.exec_module = execute_and_register
        return spec


def _is_imported_for(parts):
    """Whether ``import fairseq_relpos.PART`` with one of these parts, or ``python -m fairseq_relpos``, runs this file.

    Python runs it from within its function that imports PART, which knows the part's name.
    """
    if sys.argv[:1] == ["-m"]:
        return f"-m {__name__} " in " ".join(sys.orig_argv[1:]) + " "
    frame = sys._getframe()
    while frame is not None:
        name = frame.f_locals.get("name") if frame.f_code.co_name == "_find_and_load_unlocked" else None
        if isinstance(name, str) and name.startswith(f"{__name__}."):
            return name.split(".")[1] in parts
        frame = frame.f_back
    return False


if not _is_imported_for(ALONE):
    register()
elif sys.modules.get("fairseq") is not None:
    _register_names()
else:
    sys.meta_path.insert(0, _WithFairseq())

__all__ = ["__version__", "register"]
