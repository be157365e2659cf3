"""Log lines that a process writes once."""

import functools
import logging


@functools.cache
def log_once(logger: logging.Logger, message: str, level: int = logging.INFO) -> None:
    logger.log(level, message)
