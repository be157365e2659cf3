"""How tests unpack the repository's own archives: with the filter for those of others, where this Python has it."""

import tarfile

UNPACKING = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
