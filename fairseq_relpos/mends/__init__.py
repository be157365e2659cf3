"""The mends: all changes that the plugin makes to fairseq, torch and numpy.

``catalogue`` lists them, each with its kind, what stock does, and its switch. ``replace`` puts them in place.
Many mends meet in three places, and one file for each shows the order in which they act there: ``command`` (how a
fairseq command starts), ``trainer`` (a class in front of fairseq's Trainer) and ``checkpoint_files`` (how checkpoints
are found, read and saved). Each other module is about one topic; those three files call it.
Tested with fairseq-fixed 0.12.3.1. fairseq 0.12.2 and git main have the same functions in the same places.
"""

import importlib
import sys

from . import catalogue


def apply() -> None:
    """Installs every mend that is switched on. It imports fairseq. A second call changes nothing."""
    _take_flag()
    for name in PARTS:
        part = importlib.import_module(f".{name}", __name__)
        for install in part.INSTALLERS:
            install()


#: modules whose INSTALLERS ``apply`` calls, in this order; messages has to act before fairseq is first imported
PARTS = """
messages stack switches reading launching joining agreement batches denoising nonfinite precision saving averages
resuming ending stopping trainer checkpoint_files command wrong_input.arguments wrong_input.data wrong_input.overrides
""".split()


def _take_flag():
    """Reads --mends before fairseq parses anything, because it says which mends to install."""
    in_a_command = any(argument.startswith("--user-dir") for argument in sys.argv)
    try:
        if in_a_command:
            sys.argv[1:] = catalogue.take_flag(sys.argv[1:])
        catalogue.active()
    except ValueError as error:
        if not in_a_command:
            raise
        raise SystemExit(f"fairseq_relpos: error: {error}") from None
    for warning in catalogue.warnings():
        print(f"fairseq_relpos: warning: {warning}", file=sys.stderr)
