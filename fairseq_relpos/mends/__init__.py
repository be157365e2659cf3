"""Everything that the plugin changes in fairseq, torch and numpy.

``catalogue`` lists the changes, each with its switch. Three files show the order in which they act where many meet:
``command`` (how a command begins), ``trainer`` (one class before fairseq's Trainer) and ``checkpoint_files``.
Tried with fairseq-fixed 0.12.3.1; fairseq 0.12.2 and git main have the same functions in the same places.
"""

import importlib
import sys

from . import catalogue


def apply():
    """Puts every mend that is on in place. Imports fairseq; may be called any number of times."""
    _take_flag()
    for name in PARTS:
        part = importlib.import_module(f".{name}", __name__)
        for install in part.INSTALLERS:
            install()
        if name == "messages":
            require_a_fairseq_that_can_serve()


#: modules with INSTALLERS; messages has to be before the first import of fairseq
PARTS = (
    *("messages", "stack", "switches", "reading", "launching", "joining", "agreement", "batches", "nonfinite"),
    *("precision", "saving", "resuming", "ending", "stopping", "trainer", "checkpoint_files", "command"),
    *(f"wrong_input.{name}" for name in ("arguments", "text", "data", "models", "overrides", "first_batch")),
)


def _take_flag():
    """--mends, which says what is put in place, is read before fairseq parses anything."""
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


def require_a_fairseq_that_can_serve():
    """fairseq 0.12 and later (0.12.2, fairseq-fixed, git main) have what the plugin builds on.

    An older one would fail somewhere in the middle, with a name that says nothing.
    """
    import fairseq

    needed = (
        ("fairseq.models.roberta.model", "roberta_large_architecture"),
        ("fairseq.models.transformer", "TransformerConfig"),
        ("fairseq.dataclass.configs", "FairseqConfig"),
        ("fairseq.distributed.utils", "call_main"),
    )
    for module, name in needed:
        try:
            getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ImportError(
                f"fairseq {getattr(fairseq, '__version__', 'of unknown version')} has no "
                f"{module}.{name}, which fairseq_relpos needs: install fairseq-fixed==0.12.3.1, "
                "fairseq 0.12.2 or its git main"
            ) from error
