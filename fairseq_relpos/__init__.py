"""fairseq_relpos: pretrain and translate with any position encoding.

``--user-dir fairseq_relpos`` registers everything with fairseq and installs the mends (``fairseq_relpos.mends``); a
program calls ``fairseq_relpos.register()``. Importing this package alone, or a part that only needs torch, such as
``fairseq_relpos.encodings``, changes nothing in fairseq and torch.

Examples:
    >>> __version__ > "1.0"
    True
"""

import importlib.util

from .version import __version__


def register() -> None:
    """Installs the mends and registers models, tasks, criterions and optimizers, if fairseq is installed. A second call
    changes nothing. A fairseq that is installed and does not import is an error.

    Examples:
        >>> register()
        >>> from fairseq.models import ARCH_MODEL_REGISTRY
        >>> "roberta_tupe_r" in ARCH_MODEL_REGISTRY
        True
    """
    if importlib.util.find_spec("fairseq") is not None:
        from . import models  # noqa: F401


__all__ = ["__version__", "register"]
