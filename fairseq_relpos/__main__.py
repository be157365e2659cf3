"""``python -m fairseq_relpos``, the same as the console script ``fairseq-relpos``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
