"""fairseq_relpos: pretrain and translate with any position encoding.

Importing the package (or ``--user-dir fairseq_relpos``) registers everything with
fairseq, if fairseq is installed. A fairseq that is present and does not import is an
error; without one the mathematics, ``list``, ``show``, ``params`` and ``doctor`` work.
"""

import importlib.util
import os
import sys

from .version import __version__


def _register_with_fairseq():
    if importlib.util.find_spec("fairseq") is None:
        return
    try:
        from . import compat

        compat.apply()

        from .criterions import sequence_labels  # noqa: F401
        from .models import roberta, sequence_encoder, transformer  # noqa: F401
        from .optim import torch_adamw  # noqa: F401
        from .tasks import sequence_labels as sequences  # noqa: F401
        from .tasks import tupe_data, whole_words  # noqa: F401
    except Exception:
        # doctor is there to say what is wrong with a fairseq that does not import
        if not _asked_for_a_diagnosis():
            raise


def _asked_for_a_diagnosis():
    command = os.path.basename(sys.argv[0]) if sys.argv else ""
    return command in ("-m", "fairseq-relpos") and sys.argv[1:2] == ["doctor"]


_register_with_fairseq()

__all__ = ["__version__"]
