"""fairseq_relpos: pretrain and translate with any position encoding.

Importing the package (or ``--user-dir fairseq_relpos``) registers everything with
fairseq, if fairseq is installed. A fairseq that is present and does not import is an
error; without one the mathematics, ``list``, ``show``, ``params`` and ``doctor`` work.
"""

import importlib.util

from .version import __version__

if importlib.util.find_spec("fairseq") is not None:
    from . import compat

    compat.apply()

    from .models import roberta as _roberta  # noqa: F401

__all__ = ["__version__"]
