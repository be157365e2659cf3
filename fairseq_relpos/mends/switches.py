"""The flag --mends, and the record of mends in a checkpoint."""

import argparse
from typing import Any

from . import catalogue
from .replace import replace

RECORD = "mends"


def declare_the_flag() -> None:
    """Adds --mends to the parser, for --help. ``catalogue.take_flag`` has taken the flag from the command before."""
    from fairseq import options
    from fairseq.dataclass.configs import CommonConfig

    @replace(options, "gen_parser_from_dataclass", "switches")
    def with_mends(stock, parser, dataclass_instance, *args, **kwargs):
        stock(parser, dataclass_instance, *args, **kwargs)
        if type(dataclass_instance) is CommonConfig:
            parser.add_argument(
                catalogue.FLAG,
                metavar="all|needed|-NAME,-NAME",
                default=argparse.SUPPRESS,
                help="which changes of fairseq_relpos to fairseq are on (`fairseq-relpos mends` lists them; default: "
                f"the variable {catalogue.VARIABLE}, or all)",
            )


def refuse_a_late_flag(settings: argparse.Namespace) -> None:
    """Raises ValueError if a program parses another --mends after the import: the mends are installed by then."""
    value = vars(settings).pop(catalogue.FLAG.strip("-"), None)
    if value is not None and catalogue.chosen_by(value) != catalogue.active():
        raise ValueError(
            f"{catalogue.FLAG} {value} comes too late in this program, which has imported fairseq_relpos: set the "
            f"variable {catalogue.VARIABLE} before that"
        )


def active() -> dict[str, str]:
    """Returns what has to be equal on all ranks, also where some have ``agreement`` off."""
    return {f"{catalogue.FLAG} ({catalogue.VARIABLE})": ", ".join(sorted(catalogue.active()))}


def record() -> dict[str, list[str]]:
    """Returns the entry of a checkpoint that names the mends it was trained with."""
    return {RECORD: catalogue.numbers()}


def compare(path: str, extra_state: dict[str, Any], task: str | None = None) -> None:
    """Raises ValueError, one line, if a resumed run of the task would have other mends that change its numbers."""
    found = extra_state.get(RECORD)
    if found is None:
        return  # of an older version, or of stock fairseq
    found, now = set(found), set(catalogue.numbers())
    without_effect = {mend.name for mend in catalogue.MENDS if task in mend.unaffected.split()}
    changes = {"were on, now off": found - now - without_effect, "were off, now on": now - found - without_effect}
    differing = "; ".join(f"{', '.join(sorted(names))} {how}" for how, names in changes.items() if names)
    if differing:
        raise ValueError(
            f"{path} was made with other {catalogue.FLAG}, which change numbers: {differing}; give "
            "the same, or --reset-optimizer to start from its weights with these"
        )


INSTALLERS = (declare_the_flag,)
