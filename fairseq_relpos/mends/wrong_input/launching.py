"""Checks of a launcher's variables."""

import argparse
import os

from ..launching import TORCHRUN_VARIABLES


def check(parser: argparse.ArgumentParser) -> None:
    """Raises ValueError if WORLD_SIZE, RANK and the like are no numbers, or do not fit together. Commands that generate
    or score text join no ranks, and ignore these variables."""
    if not ALONE & parser._option_string_actions.keys():
        check_variables()


#: flags that only fairseq-generate and fairseq-interactive, or only fairseq-eval-lm, have
ALONE = {"--score-reference", "--output-word-probs"}


def check_variables() -> None:
    """Raises ValueError, one line."""
    ranks = _number("WORLD_SIZE", 1)
    _number("SLURM_STEP_NUM_TASKS", 1)
    if ranks is not None and ranks > 1:
        _number("RANK", 0, ranks - 1)
        _number("LOCAL_RANK", 0)
        _number("MASTER_PORT", 1, 65535)


def _number(name, lowest, highest=None):
    text = os.environ.get(name)
    launched = all(other in os.environ for other in TORCHRUN_VARIABLES)
    is_read = launched and name not in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
    if text is None or (not text and not is_read):
        return None
    if text.isdecimal() and lowest <= int(text) and (highest is None or int(text) <= highest):
        return int(text)
    up_to = "or more" if highest is None else f"to {highest}"
    raise ValueError(
        f"the variable {name} is {text!r} and not a whole number, {lowest} {up_to}: "
        f"a launcher such as torchrun sets it; "
        "for one process alone unset it and WORLD_SIZE"
    )
