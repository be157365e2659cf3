"""A launcher's variables that say nothing."""

import os

from ..shims import replace


def name_the_wrong_variable():
    """WORLD_SIZE, RANK and the others that say how many ranks there are and where, are numbers that fit together.

    All versions end in a traceback without the variable's name, or, with WORLD_SIZE=-1, train alone.
    """
    from fairseq import options

    @replace(options, "parse_args_and_arch")
    def check(stock, *args, **kwargs):
        check_variables()
        return stock(*args, **kwargs)


def check_variables():
    """Raises ValueError, one line."""
    ranks = _number("WORLD_SIZE", 1)
    _number("SLURM_STEP_NUM_TASKS", 1)
    if ranks is not None and ranks > 1:
        _number("RANK", 0, ranks - 1)
        _number("LOCAL_RANK", 0)
        _number("MASTER_PORT", 1, 65535)


def _number(name, lowest, highest=None):
    text = os.environ.get(name)
    if text is None or (not text and name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")):
        return None
    if text.isdecimal() and lowest <= int(text) and (highest is None or int(text) <= highest):
        return int(text)
    up_to = "or more" if highest is None else f"to {highest}"
    raise ValueError(
        f"the variable {name} is {text!r} and not a whole number, {lowest} {up_to}: a launcher such as torchrun sets it; "
        "for one process alone unset it and WORLD_SIZE"
    )
