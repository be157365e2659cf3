"""fairseq_relpos: pretrain and translate with any position encoding.

Importing the package (or ``--user-dir fairseq_relpos``) registers everything with fairseq and installs the mends
(``fairseq_relpos.mends``), if fairseq is installed. A fairseq that is installed and does not import is an error.
Importing a part that only needs torch, such as ``fairseq_relpos.encodings``, changes nothing in fairseq and torch.
"""

import importlib
import importlib.abc
import importlib.util
import re
import sys
from typing import Any

from .version import __version__

#: parts that change nothing in fairseq or torch
ALONE = set("__main__ backends cli encodings hf mends nn positions references rows terms version".split())
#: parts with modules that import fairseq
NEED_FAIRSEQ = set("attention checkpoints criterions exchange finetuning models optim override tasks".split())
#: what mends import of them, which does not need fairseq
WITHOUT_FAIRSEQ = {"checkpoints"}
WITHOUT_FAIRSEQ |= {
    f"checkpoints.{name}" for name in "archives checksums discriminator extending fitting loading".split()
}


def register() -> None:
    """Installs the mends and registers models, tasks, criterions and optimizers, once, if fairseq is installed."""
    global _is_mended
    if _is_mended or importlib.util.find_spec("fairseq") is None:
        return
    _is_mended = True
    finders = [finder for finder in sys.meta_path if isinstance(finder, _WithFairseq)]
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in finders]
    from . import mends

    try:
        mends.apply()
        _register_names()
    except BaseException:
        _is_mended = False
        sys.meta_path[:0] = finders
        raise


_is_mended = False


def _register_names():
    from .criterions import electra as replaced_tokens  # noqa: F401
    from .criterions import masked_lm_order_gap, sentence_scores, sequence_labels, span_prediction  # noqa: F401
    from .models import bart, electra, language_model, roberta, sequence_encoder, transformer  # noqa: F401
    from .optim import torch_adamw  # noqa: F401
    from .tasks import lm_streams, sentence_pairs, tupe_data  # noqa: F401
    from .tasks import sequence_labels as sequences  # noqa: F401
    from .tasks import span_prediction as spans  # noqa: F401


class _WithFairseq(importlib.abc.MetaPathFinder):
    """Registers the names with fairseq when a program imports it after a part that only needs torch. The mends follow
    with the first model (``models``).

    A part that imports fairseq itself would be half imported while the registration imports it, and its names not be
    there. So everything is registered before."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if _needs_fairseq(name):
            register()
            if name in sys.modules:
                return _as_it_is(sys.modules[name])
            return None if self in sys.meta_path else importlib.util.find_spec(name)
        if name != "fairseq":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)  # somebody may only look
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _register_names()

            vars(spec.loader)["exec_module"] = execute_and_register
        return spec


def _needs_fairseq(name):
    package, _, inner = name.partition(".")
    return package == __name__ and inner.split(".")[0] in NEED_FAIRSEQ and inner not in WITHOUT_FAIRSEQ


def _as_it_is(module):
    """The spec of a module that is imported already; Python would execute the module a second time."""
    module.__spec__.loader = _Imported(module)
    return module.__spec__


class _Imported(importlib.abc.Loader):
    def __init__(self, module: Any):
        self.module, self.loader = module, module.__spec__.loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> Any:
        return self.module

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = self.loader


def _is_imported_for(parts):
    """Whether ``import fairseq_relpos.PART`` with one of these parts, or ``python -m fairseq_relpos``, runs this file.
    Python runs this file inside its own function that imports PART, whose local variable ``name`` has the full name."""
    if sys.argv[:1] == ["-m"] and re.search(rf"\s-m\s*{__name__}[\s.]", " ".join([*sys.orig_argv, ""])):
        return True
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
