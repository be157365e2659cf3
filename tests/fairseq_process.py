"""A fairseq command as all that a forked process still does."""

import contextlib
import importlib
import logging
import os
import sys
import traceback


def end_of(command, arguments, output, environment, before=None):
    """Its exit code. output: the number of an open file, for what it prints; before: called after the import of the
    command."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False)
    logging.root.handlers[:] = []
    logging.basicConfig(stream=sys.stdout, level="INFO", format="%(levelname)s %(message)s")
    os.environ.update({name: str(value) for name, value in environment.items()})
    sys.argv = [f"fairseq-{command}", *arguments]
    try:
        module = importlib.import_module(f"fairseq_cli.{command}")
        if before is not None:
            before()
        module.cli_main()
        return 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code)
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
