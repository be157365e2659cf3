import torch  # noqa: F401  forked runs find it imported
from fairseq_cli import train  # noqa: F401

import fairseq_relpos.models  # noqa: F401  registers the architectures
